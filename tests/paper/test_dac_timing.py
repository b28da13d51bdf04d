"""Timings of divide-and-conquer: what is timed, that it goes on after a kill, and the file it is kept in."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest
import torch

from odedm.core.errors import UsageError
from odedm.paper import dac_timing
from odedm.paper.dac_timing import (
    FILE,
    MINI,
    NO_DAC,
    PAPER,
    TimingPlan,
    class_features,
    latest,
    load,
    measure,
    time_choice,
)
from odedm.paper.figures import dac_timing_sentences

SMALL = TimingPlan("blobs", rows=(20, 40), k=(2, 4), dac=("3x4",), repeats=2)


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[tuple[int, int, str]]:
    """Every choice that is timed, in order, in place of timing it; a choice of n rows takes n seconds."""
    seen: list[tuple[int, int, str]] = []

    def count(points: torch.Tensor, k: int, dac: str, *, seed: int) -> float:
        seen.append((len(points), k, dac))
        return float(len(points))

    monkeypatch.setattr(dac_timing, "time_choice", count)
    monkeypatch.setattr(dac_timing, "class_features", lambda *_: torch.zeros(40, 4))
    return seen


def start(folder: Path, **how: Any) -> int:
    return len(measure(SMALL, folder, device="cpu", **how))


def test_each_size_is_timed_at_the_largest_of_the_other_with_and_without() -> None:
    plan = TimingPlan("x", rows=(10, 20, 30), k=(2, 4), dac=("3x4", "5x3"), repeats=3)
    cells = plan.cells()
    assert {cell[:2] for cell in cells} == {(10, 4), (20, 4), (30, 4), (30, 2)}
    assert len(cells) == len(set(cells)) == 4 * 3 * 3
    assert {cell[2] for cell in cells} == {NO_DAC, "3x4", "5x3"}
    assert [cell[3] for cell in cells] == [0] * 12 + [1] * 12 + [2] * 12


def test_the_papers_plan_has_a_class_of_its_size_and_the_mini_one_fits_its_pictures() -> None:
    assert (PAPER.data, max(PAPER.rows), max(PAPER.k)) == ("cifar10", 5000, 480)
    assert set(PAPER.dac) == {"3x4", "3x2", "5x3"}
    assert max(MINI.rows) <= 300
    assert max(MINI.k) <= min(MINI.rows)


def test_nothing_is_timed_twice(tmp_path: Path, counted: list[tuple[int, int, str]]) -> None:
    assert start(tmp_path) == 12
    assert len(counted) == 12 + 2, "the first of each kind is made twice"
    before = (tmp_path / FILE).read_bytes()
    counted.clear()
    assert start(tmp_path) == 12
    assert counted == []
    assert (tmp_path / FILE).read_bytes() == before
    assert {timing.device for timing in latest(load(tmp_path), SMALL)} == {load(tmp_path)[0].device}
    assert len(latest(load(tmp_path), SMALL)) == 12


def test_a_kill_costs_only_what_was_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, counted: Any) -> None:
    def dies(points: torch.Tensor, k: int, dac: str, *, seed: int) -> float:
        if len(points) == 40 and dac != NO_DAC:
            raise KeyboardInterrupt
        return 0.5

    monkeypatch.setattr(dac_timing, "time_choice", dies)
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path)
    half = load(tmp_path)
    assert 0 < len(half) < 12
    text = (tmp_path / FILE).read_text()
    (tmp_path / FILE).write_text(text + text.splitlines()[1][:20])  # as a kill leaves a line
    monkeypatch.setattr(dac_timing, "time_choice", lambda *_, **__: 2.0)
    assert start(tmp_path) == 12
    assert load(tmp_path)[: len(half)] == half


def test_timings_of_another_machine_are_not_mixed_with_ours(tmp_path: Path, counted: list[Any]) -> None:
    start(tmp_path)
    path = tmp_path / FILE
    path.write_text(path.read_text().replace(load(tmp_path)[0].device, "another"))
    counted.clear()
    assert start(tmp_path) == 12
    assert len(counted) == 14
    assert len(load(tmp_path)) == 24
    assert len(latest(load(tmp_path), SMALL)) == 12


def test_nothing_begins_after_the_budget(tmp_path: Path, counted: list[Any]) -> None:
    assert start(tmp_path, until=time.monotonic() - 1) == 0
    assert load(tmp_path) == []
    assert start(tmp_path) == 12


@pytest.mark.parametrize(("column", "value"), [("n", "x"), ("k", "0"), ("seconds", "soon"), ("seconds", "-1")])
def test_a_line_of_nonsense_is_passed_over(tmp_path: Path, counted: list[Any], column: str, value: str) -> None:
    start(tmp_path)
    head, first, *rest = (tmp_path / FILE).read_text().splitlines()
    words = first.split(",")
    words[head.split(",").index(column)] = value
    (tmp_path / FILE).write_text("\n".join([head, ",".join(words), *rest]) + "\n")
    assert len(load(tmp_path)) == 11


@pytest.mark.parametrize("dac", [NO_DAC, "3x4"])
def test_true_features_are_chosen_from_and_timed(dac: str) -> None:
    points = class_features(SMALL, "cpu", 1)
    assert points.shape[0] >= 40
    assert 0 < time_choice(points[:40], 4, dac, seed=0) < 60
    with pytest.raises(UsageError, match="up to 9999 are to be timed"):
        class_features(TimingPlan("blobs", rows=(9999,), k=(2,)), "cpu", 1)


def test_what_was_timed_names_the_features_it_was_timed_on(tmp_path: Path, counted: list[Any]) -> None:
    """Timings of true features were once said to be of synthetic ones."""
    start(tmp_path)
    took, where = dac_timing_sentences(load(tmp_path))
    assert took == "4 prototypes of 40 rows take 40.0 s without DAC, 40.0 s with DAC 3×4."
    assert where.startswith("Features of the first class of blobs by a network that has learned the first task;")
    assert "synthetic" not in where
