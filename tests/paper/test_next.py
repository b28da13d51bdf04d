"""`odedm paper next`: what is missing, most telling first, within a budget, each finished run packed at once."""

from __future__ import annotations

from pathlib import Path

import pytest
from commands import odedm

from odedm.cli import paper_runs
from odedm.cli.paper_runs import PACK
from odedm.execute.scheduler import Scheduler
from odedm.paper import order
from odedm.paper.items import ITEMS
from odedm.paper.order import STEPS, Step
from odedm.results.packed import read_packed

HERE = ["--device", "cpu", "--workers", "1"]


@pytest.fixture
def two_steps(small_copies: None, monkeypatch: pytest.MonkeyPatch) -> None:
    """One run of a figure, then two of which the first is the same; and nothing is done yet."""
    one = Step("one run", "figure3c", only=("memory=odedm",), seeds=1)
    monkeypatch.setattr(order, "STEPS", (one, Step("and another", "figure3c", seeds=1)))
    monkeypatch.setattr(paper_runs, "shipped_runs", list)


def test_a_budget_ends_with_a_checkpoint_and_the_same_command_goes_on(
    two_steps: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "paper"
    how = ["paper", "next", *HERE, "--out", folder]
    with monkeypatch.context() as spent:
        spent.setattr(Scheduler, "_is_late", lambda self: any(job.share > 0.1 for job in self._running.values()))
        output = odedm(*how, "--budget", "1h")
    assert "2 runs are missing, 2 to start" in output
    assert "The budget is spent: 2 runs left. The same command goes on." in output
    assert not list(folder.rglob("result.json"))
    assert list(folder.rglob(".*.work/checkpoints/*")), "a checkpoint"
    output = odedm(*how, "--budget", "1h")
    assert "2 finished runs are packed" in output
    memories = [run.result.experiment["memory"]["name"] for run in read_packed(folder / PACK)]
    assert sorted(memories) == ["odedm", "reservoir"]
    assert "0 runs are missing" in odedm(*how)


def test_each_finished_run_is_packed_before_the_next(
    two_steps: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "paper"

    monkeypatch.setattr(Scheduler, "_is_late", lambda _: (folder / PACK).exists())
    odedm("paper", "next", *HERE, "--out", folder, "--budget", "1h")
    (first,) = read_packed(folder / PACK)
    assert first.result.experiment["memory"]["name"] == "odedm", "the first step's"
    output = odedm("paper", "next", "--dry-run", "--with-results", folder / PACK, "--out", tmp_path / "home")
    assert "1/1  one run" in output
    assert "1/2  and another" in output
    assert "1 runs are missing, 1 of them on data that is here" in output


def test_the_order_begins_with_the_methods_that_the_abstract_names() -> None:
    assert [step.study().experiments()[0].method for step in STEPS[:2]] == ["pocl", "vrmcl"]
    assert {step.item for step in STEPS} <= set(ITEMS)
    assert all(step.study().experiments() for step in STEPS)


def test_what_an_order_cannot_take_is_a_sentence(tmp_path: Path) -> None:
    for words in (["--mini"], ["--seeds", "2"], ["--only", "method=er"], ["--data", "cifar10"], ["--no-run"]):
        assert "has an order of its own" in odedm("paper", "next", *words, "--out", tmp_path / "x", code=2)
    assert "Not here: cifar10" in odedm("paper", "next", "--out", tmp_path / "x")
    assert not (tmp_path / "x").exists()
