"""A study's folder: what counts as done, what was cut short, what failed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from puppets import SMALL, result_of

import odedm
from odedm.core.errors import UsageError
from odedm.execute.attempt import Job, attempt
from odedm.results.provenance import code_version, commit
from odedm.study.grid import Grid
from odedm.study.identity import content_key, key_of_result
from odedm.study.ledger import FAILURES, JOURNAL, Ledger, lines
from odedm.study.prepare import prepare
from odedm.study.study import Study
from odedm.training.observation import Looks

HERE = {"version": "0.1.0", "commit": "abc"}


def test_a_finished_run_has_the_key_that_was_planned_for_it(works) -> None:
    for work in works[:2]:
        attempt(Job(work.experiment, work.folder))
    ledger = Ledger(works[0].folder.parents[2])
    status = ledger.status(works, reuse="version", version=code_version(), commit=commit())
    assert list(status.done) == [work.key for work in works[:2]]
    assert [work.key for work in status.todo] == [work.key for work in works[2:]]
    assert status.total == 4


def test_a_run_that_was_finished_without_looking_counts(works, write) -> None:
    write(works[0])
    looking = [replace(work, looks=Looks(evidence=True, anytime=3)) for work in works]
    ledger = Ledger(works[0].folder.parents[2])
    status = ledger.status(looking, reuse="version", **HERE)
    assert list(status.done) == [works[0].key]
    assert all(work.looks.evidence for work in status.todo)
    plans = [work.experiment for work in works]
    assert [work.key for work in prepare(plans, ledger.runs, device="cpu", looks=Looks(anytime=3)).works] == [
        work.key for work in works
    ]


def test_what_sets_the_pace_is_no_part_of_the_content(works) -> None:
    plan, checksum = works[0].experiment, works[0].checksum
    key = content_key(plan, checksum)
    for same in ({"device": "cuda"}, {"threads": 2}, {"capture": False}):
        assert content_key(replace(plan, **same), checksum) == key
    for other in ({"seed": 9}, {"batch": 17}, {"options": {"lr": 0.5}}, {"precision": "bf16"}, {"tasks": 2}):
        assert content_key(replace(plan, **other), checksum) != key
    assert content_key(plan, "other data") != key
    assert len({work.key for work in works}) == 4
    assert key_of_result(result_of(plan, checksum)) == key


def test_one_experiment_spelled_in_two_ways_is_run_once(tmp_path) -> None:
    spelled = replace(SMALL, options={"lr": 0.1}, tasks=5, net="mlp")  # the defaults, said aloud
    assert len(prepare([SMALL, spelled], tmp_path, device="cpu").works) == 1


@pytest.mark.parametrize(
    ("reuse", "version", "commit", "done"),
    [
        ("version", "0.1.0", "other", 1),
        ("version", "0.2.0", "abc", 0),
        ("any", "0.2.0", "other", 1),
        ("commit", "0.1.0", "abc", 1),
        ("commit", "0.1.0", "other", 0),
        ("commit", "0.1.0", None, 0),
    ],
)
def test_the_code_counts_as_far_as_was_asked_for(works, write, reuse, version, commit, done) -> None:
    folder = write(works[0])
    status = Ledger(folder.parents[2]).status(works[:1], reuse=reuse, version=version, commit=commit)
    assert len(status.done) == done
    assert [(work.folder, work.overwrite) for work in status.todo] == [(folder, True)] * (1 - done)


def test_changes_on_top_of_a_commit_never_count(works, write) -> None:
    write(works[0])
    ledger = Ledger(works[0].folder.parents[2])
    assert ledger.status(works[:1], reuse="commit", version="0.1.0", commit="abc+").done == {}


def test_a_run_on_other_data_is_replaced(works, write) -> None:
    write(replace(works[0], checksum="of other data"))
    status = Ledger(works[0].folder.parents[2]).status(works[:1], reuse="any", **HERE)
    assert [work.overwrite for work in status.todo] == [True]


def test_a_result_that_cannot_be_read_is_no_result(works, write) -> None:
    folder = write(works[0])
    (folder / "result.json").write_text('{"schema": "odedm.result/1", "experiment"')
    status = Ledger(folder.parents[2]).status(works, reuse="any", **HERE)
    assert not status.done
    assert status.todo[0].overwrite


def test_what_a_killed_process_left_is_not_a_run(works, write) -> None:
    folder = write(works[0])
    folder.rename(folder.with_name(".seed-0.123.abc"))
    assert Ledger(folder.parents[2]).finished() == {}


def test_failures_wait_until_they_are_asked_for(works) -> None:
    ledger = Ledger(works[0].folder.parents[2])
    ledger.folder.mkdir(parents=True)
    ledger.fail(works[1], "it was too much")
    status = ledger.status(works, reuse="any", **HERE)
    assert status.failed == {works[1].key: "it was too much"}
    assert len(status.to_start(retry=False)) == 3
    assert len(status.to_start(retry=True)) == 4
    line = json.loads((ledger.folder / FAILURES).read_text())
    assert {"time", "key", "folder", "error"} <= line.keys()


def test_a_finished_run_is_no_failure_any_more(works, write) -> None:
    ledger = Ledger(works[0].folder.parents[2])
    ledger.folder.mkdir(parents=True)
    ledger.fail(works[1], "it was too much")
    write(works[1])
    assert ledger.status(works, reuse="any", **HERE).failed == {}


def test_a_line_cut_short_costs_itself_alone(works) -> None:
    ledger = Ledger(works[0].folder.parents[2])
    ledger.folder.mkdir(parents=True)
    ledger.note("started", works[0])
    with (ledger.folder / JOURNAL).open("a") as file:
        file.write('{"event": "fini')
    ledger.note("finished", works[1])
    assert [line["event"] for line in lines(ledger.folder / JOURNAL)] == ["started", "finished"]


def test_a_folder_belongs_to_one_study(tmp_path) -> None:
    one, other = (Study(name, (Grid({"capacity": (5,)}),)) for name in ("one", "other"))
    Ledger(tmp_path / "a").settle(one)
    Ledger(tmp_path / "a").settle(one.with_seeds(9))
    assert "8]" in (tmp_path / "a" / "study.toml").read_text()
    with pytest.raises(UsageError, match="holds the study 'one'"):
        Ledger(tmp_path / "a").settle(other)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="not a study's folder"):
        Ledger(tmp_path / "b").settle(one)


def test_one_driver_at_a_time(tmp_path) -> None:
    ledger = Ledger(tmp_path / "a")
    ledger.folder.mkdir()
    with ledger.held(), pytest.raises(UsageError, match="in use"), ledger.held():
        pass
    with ledger.held():
        pass


def test_impossible_experiments_are_refused_before_anything_runs(tmp_path) -> None:
    with pytest.raises(UsageError, match="er with odedm .* cannot be run"):
        prepare([replace(SMALL, memory=odedm.ODEDM(20, k=50))], tmp_path, device="cpu")


def test_data_that_is_not_here_is_noted_or_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ODEDM_DATA", str(tmp_path))
    plan = replace(SMALL, data="cifar10")
    with pytest.raises(UsageError, match="not here"):
        prepare([plan], tmp_path)
    prepared = prepare([plan, SMALL], tmp_path, lenient=True)
    assert list(prepared.missing) == ["cifar10"]
    assert len(prepared.works) == 2


def test_planning_for_other_machines_asks_this_one_for_no_gpu(tmp_path) -> None:
    plans = [SMALL, replace(SMALL, method="vrmcl")]
    there = prepare(plans, tmp_path, device="cuda", elsewhere=True).works
    assert [(work.experiment.device, work.experiment.precision) for work in there] == [
        ("cuda", "bf16"),
        ("cuda", "tf32"),
    ]
    here = prepare(plans, tmp_path, device="cpu", elsewhere=True).works
    assert {(work.experiment.device, work.experiment.precision) for work in here} == {("cpu", "fp32")}
