"""Timings of divide-and-conquer: what is timed, the file it is kept in, and that nothing is timed twice."""

from __future__ import annotations

import json
import os
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import odedm

from odedm import ODEDM
from odedm.core.errors import UsageError
from odedm.study import dac_timing as stopwatch
from odedm.study.dac_timing import drawn, features, measure, points_of, time_one
from odedm.study.dac_timing_plan import FILE, Measured, Runtime, Timing, TimingCell, expected, load
from odedm.study.paper_studies import READY, ready
from odedm.study.study import Study, parse

SMALL = Runtime(rows=(20, 40), k=(2, 4), repeats=2, dimension=(4,), distance=("l2",))
TOML = """
[runtime]
rows = [20, 40]
k = [2, 4]
repeats = 2
dimension = 4
distance = "l2"
"""


@pytest.fixture
def toml(tmp_path: Path) -> Path:
    path = tmp_path / "times.toml"
    path.write_text(TOML, encoding="utf-8")
    return path


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> list[TimingCell]:
    """Every choice that is timed, in order, in place of timing it; a choice of n rows takes n seconds."""
    seen: list[TimingCell] = []

    def count(cell: TimingCell, points: torch.Tensor, *, seed: int) -> float:
        assert points.shape == (cell.n, cell.dimension)
        seen.append(cell)
        return float(cell.n)

    monkeypatch.setattr(stopwatch, "time_one", count)
    return seen


def start(tmp_path: Path, plan: Runtime = SMALL, **how: Any) -> Measured:
    found = load(tmp_path)
    before = Measured(plan) if found is None else found
    return measure(before, tmp_path, device="cpu", threads=1, **how)


def test_each_size_is_timed_at_the_largest_of_the_other_with_and_without() -> None:
    plan = Runtime(rows=(10, 20, 30), k=(2, 4), dac=((3, 4), (5, 3)), distance=("l2", "l1"), repeats=3)
    cells = plan.cells()
    assert {(cell.n, cell.k) for cell in cells} == {(10, 4), (20, 4), (30, 4), (30, 2)}
    assert len(cells) == 4 * 3 * 2
    assert [cell for cell, _ in plan.timings()] == cells * 3
    assert {cell.dac for cell in cells} == {None, (3, 4), (5, 3)}


def test_a_study_with_timings_goes_through_its_file_and_back() -> None:
    study = parse(TOML, "times")
    assert study.runtime == SMALL
    assert (study.grids, study.experiments()) == ((), [])
    assert parse(study.to_toml()) == study
    both = parse("method = 'er'\n" + TOML)
    assert len(both.experiments()) == 5
    assert parse(both.to_toml()).runtime == SMALL
    with pytest.raises(UsageError, match="has no grid"):
        Study("empty", ())


@pytest.mark.parametrize(
    ("table", "said"),
    [
        ("[runtime]\nrow = 5", "did you mean 'rows'"),
        ("runtime = 5", "must be a table"),
        ("[runtime]\nrows = []", "is an empty list"),
        ("[runtime]\nrows = [50, 50]", "twice"),
        ("[runtime]\nrows = 'many'", "a whole number"),
        ("[runtime]\nrows = 1", "2 or more"),
        ("[runtime]\nrows = 10\nk = 20", "more prototypes than rows"),
        ("[runtime]\ndac = 'none'", "always timed"),
        ("[runtime]\ndac = [1, 2, 3]", "a pair"),
        ("[runtime]\ndistance = 'l3'", "did you mean"),
        ("[runtime]\nrepeats = 0", "1 or more"),
        ("[runtime]\nrepeats = [1]", "1 or more"),
        ("[runtime]\nseed = true", "0 or more"),
        ("[runtime]\nrepeats = 100000", "more than"),
    ],
)
def test_a_wrong_table_is_a_sentence(table: str, said: str) -> None:
    with pytest.raises(UsageError, match=said):
        parse(table)


def test_a_dac_that_cannot_be_is_refused_before_anything_is_written(toml: Path, tmp_path: Path) -> None:
    toml.write_text(TOML + "dac = [40, 2]", encoding="utf-8")
    assert "needs 2 to 12 clusters" in odedm("study", toml, "--out", tmp_path / "study", code=2)
    assert not (tmp_path / "study").exists()


@pytest.mark.parametrize("dac", [None, (3, 4)])
@pytest.mark.parametrize("distance", ["l2", "sinkhorn"])
def test_a_choice_is_really_made_and_timed(dac: tuple[int, int] | None, distance: str) -> None:
    assert 0 < time_one(TimingCell(distance, 4, dac, 30, 3), features(30, 4, seed=0), seed=0) < 60


def test_features_come_from_their_seed() -> None:
    assert torch.equal(features(9, 5, seed=3), features(9, 5, seed=3))
    assert not torch.equal(features(9, 5, seed=3), features(9, 5, seed=4))


def test_what_is_measured_says_where_and_is_never_measured_again(tmp_path: Path, counted: list[TimingCell]) -> None:
    found = start(tmp_path)
    kinds = 2  # the first of each kind is made twice
    assert len(counted) == len(SMALL.timings()) + kinds
    assert found.missing() == []
    assert load(tmp_path) == replace(found, name=tmp_path.name)
    made = json.loads((tmp_path / FILE).read_text())["provenance"]
    assert {"device", "threads", "torch", "odedm", "commit", "platform", "finished", "features"} <= {*made}
    before = (tmp_path / FILE).read_bytes()
    counted.clear()
    start(tmp_path)
    assert counted == []
    assert (tmp_path / FILE).read_bytes() == before


def test_a_kill_costs_only_what_was_under_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def dies(cell: TimingCell, _points: torch.Tensor, *, seed: int) -> float:
        if cell.n == 40 and cell.dac:
            raise KeyboardInterrupt
        return 0.5

    monkeypatch.setattr(stopwatch, "time_one", dies)
    with pytest.raises(KeyboardInterrupt):
        start(tmp_path)
    half = load(tmp_path)
    assert half is not None
    assert 0 < len(half.timings) < len(SMALL.timings())
    monkeypatch.setattr(stopwatch, "time_one", lambda *_, **__: 2.0)
    whole = start(tmp_path)
    assert whole.missing() == []
    assert whole.timings[: len(half.timings)] == half.timings


def test_the_file_is_written_while_it_goes_on(tmp_path: Path, counted: list[TimingCell], monkeypatch) -> None:
    monkeypatch.setattr(stopwatch, "EVERY", -1.0)
    seen = []
    start(tmp_path, tell=lambda left, _: seen.append((left, load(tmp_path))))
    assert [left for left, _ in seen] == list(range(12, 0, -1))
    assert [0 if found is None else len(found.timings) for _, found in seen] == list(range(12))


def test_half_a_measurement_of_another_machine_is_begun_anew(tmp_path: Path, counted: list[TimingCell]) -> None:
    whole = start(tmp_path)
    half = replace(whole, timings=whole.timings[:5], provenance={**whole.provenance, "device": "another"})
    counted.clear()
    assert len(measure(half, tmp_path, device="cpu", threads=1).timings) == 12
    assert len(counted) == 12 + 2
    counted.clear()
    same = replace(half, provenance=whole.provenance)
    assert measure(same, tmp_path, device="cpu", threads=1).timings[:5] == whole.timings[:5]
    assert len(counted) == 7 + 2


def test_a_budget_leaves_what_would_end_too_late(tmp_path: Path, counted: list[TimingCell]) -> None:
    assert start(tmp_path, until=time.monotonic() - 1).timings == ()
    assert not (tmp_path / FILE).exists()
    found = start(tmp_path, until=time.monotonic() + 30)  # a choice is said to take 20 seconds or 40
    assert {(each.cell.n, each.cell.k) for each in found.timings} == {(20, 4), (40, 2)}
    assert {cell.k * cell.n for cell, _ in found.missing()} == {80, 160}  # the second times too: 30 are not left
    assert start(tmp_path).missing() == []


def test_seconds_to_expect_follow_the_nearest_size_of_the_same_kind() -> None:
    cells = [TimingCell("l2", 4, None, n, 10) for n in (10, 100, 1000)]
    known = [Timing(cells[0], 0, 1.0), Timing(cells[1], 0, 4.0), Timing(cells[1], 1, 6.0)]
    assert expected(cells[2], known) == 50.0
    assert expected(cells[0], known) == 1.0
    assert expected(cells[0]._replace(dac=(3, 4)), known) is None


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"plan": {}, "timings": [{}], "provenance": {}}', '{"plan": {}, "timings": [], "provenance": 3}'],
)
def test_a_file_that_is_not_a_studys_is_told(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    with pytest.raises(UsageError, match="Remove it"):
        load(tmp_path)


SOUND = {"dac": [3, 2], "distance": "l2", "dimension": 3, "n": 9, "k": 1, "repeat": 0, "seconds": 1.0}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dac", []),
        ("dac", [3]),
        ("dac", [-3, 2]),
        ("dac", 3),
        ("n", float("inf")),
        ("n", "9"),
        ("n", 2.5),
        ("k", 0),
        ("repeat", float("inf")),
        ("repeat", None),
        ("seconds", 0),
        ("seconds", 1e300),
        ("seconds", "soon"),
    ],
)
def test_a_timing_that_says_nonsense_is_told(tmp_path: Path, key: str, value: object) -> None:
    plan = {"rows": [9], "k": [1]}
    text = {"plan": plan, "timings": [SOUND], "provenance": {}}
    (tmp_path / FILE).write_text(json.dumps(text))
    assert load(tmp_path) is not None
    (tmp_path / FILE).write_text(json.dumps(text | {"timings": [SOUND | {key: value}]}))
    with pytest.raises(UsageError, match="Remove it"):
        load(tmp_path)


def test_a_torn_file_is_measured_again(tmp_path: Path, toml: Path) -> None:
    out = tmp_path / "study"
    out.mkdir()
    (out / FILE).write_text('{"plan": {"rows": [20')
    (out / "study.toml").write_text(parse(TOML, "times").to_toml(), encoding="utf-8")
    odedm("study", toml, "--out", out, "--device", "cpu")
    found = load(out)
    assert found is not None
    assert found.missing() == []


def test_a_study_of_timings_alone_from_its_plan_to_its_page(toml: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    said = odedm("study", toml, "--out", out, "--dry-run")
    assert "12 of DAC with and without, 0 done; how long is unknown" in said
    assert not out.exists()
    said = odedm("study", toml, "--out", out, "--device", "cpu", "--budget", "0.000001s")
    assert "12 timings left. The same command goes on." in said
    assert not (out / "report.html").exists()
    said = odedm("study", toml, "--out", out, "--device", "cpu")
    assert "0 runs, 0 done, 12 timings of DAC" in said
    assert "4 prototypes of 40 rows take" in said
    before, stamp = (out / FILE).read_bytes(), os.stat(out / FILE).st_mtime_ns
    said = odedm("study", toml, "--out", out, "--device", "cpu")
    assert "timings of DAC" not in said
    assert ((out / FILE).read_bytes(), os.stat(out / FILE).st_mtime_ns) == (before, stamp)
    assert "12 done; nothing to do" in odedm("study", toml, "--out", out, "--dry-run")
    page = (out / "report.html").read_text(encoding="utf-8")
    assert page.count("<figure") == 1
    assert 'download="runtime-1.csv"' in page
    assert "synthetic features" in page
    said = odedm("report", out, "--out", tmp_path / "other.html", "--figures", tmp_path / "figures")
    assert "4 prototypes of 40 rows take" in said
    assert (tmp_path / "other.html").read_bytes() == (out / "report.html").read_bytes()
    assert {"runtime-1.png", "runtime-1.svg", "runtime-1.csv", "runtime-2.csv"} <= {
        path.name for path in (tmp_path / "figures").iterdir()
    }


def test_another_plan_is_measured_and_a_narrowed_study_is_not(toml: Path, tmp_path: Path) -> None:
    out = tmp_path / "study"
    odedm("study", toml, "--out", out, "--device", "cpu")
    toml.write_text(TOML.replace("repeats = 2", "repeats = 1"), encoding="utf-8")
    assert "6 of DAC with and without, 0 done" in odedm("study", toml, "--out", out, "--dry-run")
    odedm("study", toml, "--out", out, "--device", "cpu")
    found = load(out)
    assert found is not None
    assert len(found.timings) == 6
    toml.write_text("data = 'blobs'\nmethod = 'er'\ncapacity = 20\nseeds = 1\n" + TOML, encoding="utf-8")
    assert "Timings" not in odedm("study", toml, "--out", out, "--only", "method=er", "--dry-run")
    assert "Timings" in odedm("study", toml, "--out", out, "--dry-run")


def test_a_choice_that_fails_is_a_sentence_and_the_rest_is_reported(
    toml: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(cell: TimingCell, *_: object, **__: object) -> float:
        if cell.n == 40:
            raise RuntimeError("out of memory")
        return 1.0

    monkeypatch.setattr(stopwatch, "time_one", full)
    said = odedm("study", toml, "--out", tmp_path / "study", "--device", "cpu", code=1)
    assert "out of memory. Take fewer rows" in said
    assert "Report:" in said


def test_ready_studies_time_a_class_of_the_papers_size_and_a_small_one() -> None:
    paper = ready("dac-runtime")
    assert paper.runtime is not None
    assert (max(paper.runtime.rows), max(paper.runtime.k), paper.runtime.data) == (5000, 480, "cifar10")
    assert set(paper.runtime.dac) == {(3, 4), (3, 2), (5, 3)}
    memories = [plan.memory for plan in paper.experiments() if isinstance(plan.memory, ODEDM)]
    assert {memory.selection.dac is None for memory in memories} == {True, False}, "whole runs, with and without"
    assert parse(paper.to_toml()) == paper
    assert ready("mini").runtime is not None
    assert all(ready(name).runtime is None for name in READY if name not in ("mini", "dac-runtime"))


def test_true_features_are_those_of_a_class_by_a_network_that_has_learned() -> None:
    plan = Runtime(rows=(10, 20), k=(2,), dimension=(64,), repeats=1, data="blobs")
    points = points_of(plan, "cpu", 1)
    assert points is not None
    assert points.shape[0] >= 20
    one, other = (drawn(TimingCell("l2", 64, None, 10, 2), points, seed, torch.device("cpu")) for seed in (1, 2))
    assert one.shape == (10, points.shape[1])
    assert not torch.equal(one, other)
    assert 0 < time_one(TimingCell("l2", 64, None, 10, 2), one, seed=0) < 60
    with pytest.raises(UsageError, match="has .* rows of .* features, but .runtime. asks for up to 9999 rows"):
        points_of(replace(plan, rows=(9999,)), "cpu", 1)
