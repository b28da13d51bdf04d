"""`odedm.study`: a study from Python, with the keys of its file, which goes on where it stopped."""

from __future__ import annotations

from pathlib import Path

import pytest

import odedm
from odedm.core.errors import UsageError
from odedm.results.folder import find_runs
from odedm.studies.spec import read

SPEC = {
    "data": "blobs",
    "method": "er",
    "memory": ["native", "odedm"],
    "capacity": 20,
    "batch": 16,
    "seeds": 2,
    "options": {"er": {"lr": (0.1,)}},
}


def test_a_mapping_and_a_file_are_the_same_study_and_nothing_runs_twice(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    first = odedm.study(SPEC, folder=folder, only=["memory=native"], workers=1, device="cpu")
    assert len(first) == 2
    assert len(read(folder / "study.toml").experiments()) == 4, "the whole of it"
    before = {run: (run / "result.json").stat().st_mtime_ns for run in find_runs([folder])}
    whole = odedm.study(SPEC, folder=folder, workers=2, device="cpu")
    assert len(whole) == 4
    assert all((run / "result.json").stat().st_mtime_ns == when for run, when in before.items())
    assert len(odedm.study(folder / "study.toml", folder=folder, device="cpu")) == 4
    assert whole.to_markdown() == odedm.Results(folder).to_markdown()
    assert {row["memory.name"] for row in whole.rows()} == {"reservoir", "odedm"}


def test_its_runs_are_those_of_train(tmp_path: Path) -> None:
    results = odedm.study({**SPEC, "seeds": 1, "memory": "odedm"}, folder=tmp_path / "a", device="cpu")
    alone = odedm.train("blobs", method="er", memory=odedm.ODEDM(20), batch=16, lr=0.1, device="cpu").result
    assert [run.result.acc for run in results] == [alone.acc]


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (3, "A study is a mapping, or the path of a TOML file; 3 was given"),
        ({"methods": "er"}, "Unknown key 'methods': did you mean 'method'"),
        ({}, "Nothing says what to run"),
        ({"method": "er", "memory": "reservoir", "rho": 0.5}, "'rho' is of the memory odedm"),
        ({"method": object}, "give code of your own a name by odedm.register"),
        ("none.toml", "Cannot read the study"),
    ],
)
def test_a_wrong_study_is_a_sentence(spec, words: str, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=words):
        odedm.study(spec, folder=tmp_path / "out")
    assert not (tmp_path / "out").exists()


def test_a_study_whose_runs_all_fail_says_why_and_goes_on_when_asked(tmp_path: Path) -> None:
    spec = {**SPEC, "memory": "native", "seeds": 1, "options": {"er": {"lr": 1e30}}}
    for retry in (False, True):
        with pytest.raises(UsageError, match="diverged"):
            odedm.study(spec, folder=tmp_path / "out", device="cpu", retry=retry)
    assert len((tmp_path / "out" / "failures.jsonl").read_text().splitlines()) == 2


def test_a_budget_that_is_spent_is_said(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="The budget is spent: 4 runs are left. The same call goes on"):
        odedm.study(SPEC, folder=tmp_path / "out", device="cpu", budget="0.00001s")
