"""Runs that are damaged, or changed after they were written, are in no table: the others are, with a warning."""

from __future__ import annotations

import json
import logging
import shutil
from pathlib import Path

import pytest
from commands import odedm
from report_runs import Fabricate

from odedm import Results
from odedm.core.checksums import FILE as SEAL
from odedm.core.checksums import write_checksums
from odedm.core.errors import UsageError
from odedm.report.load import MOST_FAULTS, load
from odedm.results.folder import FILE


@pytest.fixture
def runs(fabricate: Fabricate) -> list[Path]:
    """Six sealed runs in one folder."""
    folders = [fabricate("er", "reservoir", seed=seed, acc=50.0 + seed, name=f"seed-{seed}") for seed in range(6)]
    for folder in folders:
        write_checksums(folder)
    return folders


def improved(folder: Path) -> None:
    """Somebody writes a better number into a result."""
    plain = json.loads((folder / FILE).read_text())
    (folder / FILE).write_text(json.dumps(plain | {"acc_last": 99.0}))


NO_FILES = '{"schema": "odedm.files/1", "files": {}}'
DAMAGES = {
    "half a file": lambda folder: (folder / FILE).write_text("{"),
    "another number": improved,
    "checksums of something else": lambda folder: (folder / SEAL).write_text("{}"),
    "checksums that leave it out": lambda folder: (folder / SEAL).write_text(
        '{"schema": "odedm.files/1", "files": {}}'
    ),
    "checksums that lead nowhere": lambda folder: ((folder / SEAL).unlink(), (folder / SEAL).symlink_to(SEAL)),
}


@pytest.mark.parametrize("damage", DAMAGES)
def test_a_damaged_run_is_left_out_and_the_others_are_shown(runs: list[Path], tmp_path: Path, damage: str) -> None:
    DAMAGES[damage](runs[2])
    output = odedm("report", runs[0].parent, "--csv", "--out", tmp_path / "report.html")
    assert "Left out: " in output
    assert str(runs[2] / FILE) in output
    assert (
        "1 of 6 runs is damaged and left out. Make it again by the study's own command, or by its `odedm run`" in output
    )
    assert ",0 1 3 4 5,5," in output  # the seeds of the only row
    page = (tmp_path / "report.html").read_text()
    assert "<strong>Left out: 1 damaged run</strong>" in page
    assert "99.0" not in page


def test_python_warns_too(runs: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    improved(runs[0])
    with caplog.at_level(logging.WARNING):
        assert [run.seed for run in Results(runs[0].parent)] == [1, 2, 3, 4, 5]
    assert "has changed since it was written" in caplog.text


def test_of_many_damaged_runs_a_few_are_named_and_all_counted(
    runs: list[Path], caplog: pytest.LogCaptureFixture
) -> None:
    for folder in runs[1:]:
        improved(folder)
    assert len(load([runs[0].parent])) == 1
    assert sum(line.startswith("Left out: ") for line in caplog.messages) == MOST_FAULTS
    assert "5 of 6 runs are damaged and left out. Make it again by" in caplog.messages[-1]


def test_where_no_run_is_sound_it_is_an_error(runs: list[Path]) -> None:
    for folder in runs:
        improved(folder)
    with pytest.raises(UsageError, match=r"has changed since it was written.*Make it again .* with --overwrite"):
        load([runs[0].parent])
    assert "Error: The result" in odedm("report", runs[0].parent, "--csv", code=2)


def test_runs_without_checksums_are_read_as_ever(runs: list[Path], caplog: pytest.LogCaptureFixture) -> None:
    (runs[0] / SEAL).unlink()
    improved(runs[0])  # nothing says that it was not so
    assert len(load([runs[0].parent])) == 6
    assert not caplog.messages


def test_a_sealed_result_that_a_store_of_large_files_left_links_for_is_read(runs: list[Path], tmp_path: Path) -> None:
    for name in (FILE, SEAL):
        shutil.move(runs[0] / name, tmp_path / f"stored-{name}")
        (runs[0] / name).symlink_to(tmp_path / f"stored-{name}")
    assert len(load([runs[0].parent])) == 6


def test_runs_by_several_versions_of_ones_own_code_are_named(fabricate: Fabricate, tmp_path: Path) -> None:
    def made(code: str | None, **more: object) -> None:
        origin = {"method": {"title": "ER", "from": "mine:ER", "again": True, "code": code}}
        fabricate("er", "reservoir", provenance={"odedm": "0.1.0", "plugins": origin}, **more)

    for seed, code in enumerate(("aa", "aa", "bb")):
        made(code, seed=seed)
    for seed, code in enumerate(("aa", "aa", None)):  # of the last nothing is known
        made(code, seed=seed, capacity=30)
    page = tmp_path / "page.html"
    output = " ".join(odedm("report", tmp_path / "runs", "--out", page).split())
    assert output.count("versions of your code") == 1
    assert "λ=20: its 3 runs were made by 2 versions of your code, so their mean is that of none" in output
    assert "its 3 runs were made by 2 versions" in page.read_text()


def test_a_study_makes_the_runs_again_that_its_report_leaves_out(tmp_path: Path) -> None:
    plan, out = tmp_path / "small.toml", tmp_path / "out"
    plan.write_text('name = "small"\ndata = "blobs"\nmethod = "er"\nmemory = "native"\ncapacity = 20\nseeds = 2\n')
    words = ("study", plan, "--out", out, "--device", "cpu")
    odedm(*words)
    folder = next(path.parent for path in sorted(out.rglob(FILE)))
    before = json.loads((folder / FILE).read_text())["acc_last"]
    improved(folder)
    output = " ".join(odedm(*words, "--dry-run").split())
    assert "1 done 1 to do 1 damaged, done again" in output
    output = " ".join(odedm(*words).split())
    assert "2 runs, 1 done, 1 to do, 1 damaged, done again. Folder" in output
    assert json.loads((folder / FILE).read_text())["acc_last"] == before
    assert len(load([out])) == 2
