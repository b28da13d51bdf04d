"""Tries and held-out scores of bad files, other folders and wrong words: a sentence, and nothing is written."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import odedm

from odedm.core.errors import UsageError
from odedm.studies import grid, spec
from odedm.studies.grid import Grid
from odedm.studies.spec import Study, parse

TRIES = """
data = "blobs"
method = "er"
capacity = 30
limit = 8
seeds = [1]
grid = [{ memory = "native" }, { memory = "odedm", k = 1, dac = "none" }]
[tune]
seeds = [70]
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "mine.toml"
    path.write_text(TRIES, encoding="utf-8")
    return path


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("--budget", "soon"), "A budget is a time such as"),
        (("--first-tasks", 99), "The stream has 5 tasks; first_tasks=99 was given"),
        (("--with-results", "mine.toml"), "mine.toml"),
        (("--seeds", 10**9), "less than or equal to 10000"),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_tried(file: Path, words, said, monkeypatch) -> None:
    monkeypatch.chdir(file.parent)
    assert said in odedm("tune", file, "--dry-run", "--out", "out", *words, code=2)
    assert not Path("out").exists()


def test_lists_without_end_are_refused_at_once() -> None:
    lists = {name: tuple(range(1, 101)) for name in ("capacity", "tasks", "batch", "epochs")}
    with pytest.raises(UsageError, match="more than 1000000 combinations"):
        Grid(lists).expand()


def test_experiments_are_counted_while_they_are_made(monkeypatch) -> None:
    for module in (grid, spec):
        monkeypatch.setattr(module, "MOST_RUNS", 20)
    with pytest.raises(UsageError, match="more than 20 experiments"):
        Grid({"capacity": tuple(range(1, 30))}).experiments()
    fifteen = Grid({"capacity": tuple(range(1, 16))})
    asked: list[Grid] = []
    made = Grid.experiments
    monkeypatch.setattr(Grid, "experiments", lambda own: asked.append(own) or made(own))
    with pytest.raises(UsageError, match="more than 20 runs"):
        Study("mine", (fifteen,) * 9, only=("capacity=3",)).experiments()
    assert len(asked) == 2, "the grids that follow are not gone through"


def test_no_rates_are_not_the_usual_ones(tmp_path: Path) -> None:
    assert "--lr takes values" in odedm("tune", "--lr", "", "--dry-run", "--out", tmp_path / "out", code=2)


@pytest.mark.parametrize(("name", "owner"), [("study.toml", "the study 'other'"), ("tuned.toml", None)])
def test_a_folder_of_others_is_left_alone(file: Path, name: str, owner: str) -> None:
    out = file.parent / "out"
    out.mkdir()
    (out / name).write_text(parse(TRIES, "other").to_toml(), encoding="utf-8")
    words = f"holds {owner}" if owner else "is not a study's folder"
    assert words in odedm("tune", file, "--device", "cpu", "--out", out, code=2)
    assert [each.name for each in out.iterdir()] == [name]


def test_a_failed_try_has_had_its_chance_until_retry(file: Path) -> None:
    file.write_text(TRIES + "[options.er]\nlr = [0.1, 1e30]\n", encoding="utf-8")
    out, failures = file.parent / "out", file.parent / "out" / "failures.jsonl"
    words = ("tune", file, "--device", "cpu", "--workers", 1, "--out", out)
    said = odedm(*words, code=1)
    assert "4 runs to do of 4." in said
    assert "2 of 4 runs failed; failures.jsonl says which. Run them again with --retry. The first: " in said
    chosen, lost = (out / "tuned.toml").read_text(), failures.read_text()
    assert "0 runs to do of 4; 2 failed before." in odedm(*words, code=1)
    assert (failures.read_text(), (out / "tuned.toml").read_text()) == (lost, chosen)
    assert "2 runs to do of 4; 2 failed before." in odedm(*words, "--retry", "--dry-run")
    assert "2 runs to do of 4; 2 failed before." in odedm(*words, "--retry", code=1)
    assert len(failures.read_text().splitlines()) == 4
    packed = file.parent / "packed.jsonl.gz"
    odedm("runs", "pack", out, "--out", packed)
    other = (*words[:-1], file.parent / "other", "--with-results", packed)
    assert "2 runs to do of 4." in odedm(*other, "--dry-run")


def test_all_tries_of_an_arm_failed_and_retry_is_what_goes_on(file: Path) -> None:
    words = ("--data", "blobs", "--method", "er", "--capacity", 20, "--lr", "1e30", "--seeds", 1, "--device", "cpu")
    said = odedm("tune", *words, "--workers", 1, "--out", file.parent / "out", code=2)
    assert "2 of 2 runs failed" in said
    assert "every try of one arm failed" in said
    assert "--retry" in said
