"""A study's folder: what counts as done, what was cut short, what failed."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest
from jobs import SMALL, result_of, write_run

import odedm
from odedm.core.checksums import write_checksums
from odedm.core.errors import UsageError
from odedm.execute.backend import ExecutionConfig
from odedm.execute.finished import key_of_result
from odedm.execute.job import RunOptions
from odedm.execute.planning import plan_jobs, run_dir_under
from odedm.execute.run_job import run_job
from odedm.studies.grid import Grid
from odedm.studies.run_store import FAILURES, JOURNAL, RunStore, lines
from odedm.studies.spec import Study
from odedm.training.experiment import content_key
from odedm.training.observation import Observation


def test_a_finished_run_has_the_key_that_was_planned_for_it(jobs) -> None:
    for job in jobs[:2]:
        run_job(job)
    store = RunStore(jobs[0].folder.parents[2])
    status = store.status(jobs)
    assert list(status.done) == [job.key for job in jobs[:2]]
    assert [job.key for job in status.todo] == [job.key for job in jobs[2:]]
    assert status.total == 4


def test_a_run_that_was_finished_without_looking_counts(jobs) -> None:
    write_run(jobs[0])
    options = RunOptions(observation=Observation(evidence=True, anytime=3))
    looking = [replace(job, options=options) for job in jobs]
    store = RunStore(jobs[0].folder.parents[2])
    status = store.status(looking)
    assert list(status.done) == [jobs[0].key]
    assert all(job.options.observation.evidence for job in status.todo)
    plans = [job.experiment for job in jobs]
    again = plan_jobs(plans, run_dir_under(store.runs), options=options).jobs
    assert [job.key for job in again] == [job.key for job in jobs]


def test_what_sets_the_pace_is_no_part_of_the_content(jobs) -> None:
    plan, checksum = jobs[0].experiment, jobs[0].checksum
    key = content_key(plan.describe(), checksum)
    for same in ({"device": "cuda"}, {"threads": 2}, {"cuda_graph": False}):
        assert content_key(replace(plan, **same).describe(), checksum) == key
    for other in ({"seed": 9}, {"batch": 17}, {"options": {"lr": 0.5}}, {"precision": "bf16"}, {"tasks": 2}):
        assert content_key(replace(plan, **other).describe(), checksum) != key
    assert content_key(plan.describe(), "other data") != key
    assert len({job.key for job in jobs}) == 4
    assert key_of_result(result_of(plan, checksum)) == key


def test_one_experiment_spelled_in_two_ways_is_run_once(tmp_path) -> None:
    spelled = replace(SMALL, options={"lr": 0.1}, tasks=5, net="mlp")  # the defaults, said aloud
    assert len(plan_jobs([SMALL, spelled], run_dir_under(tmp_path)).jobs) == 1


def test_runs_of_before_an_upgrade_count_are_told_of_and_stay(jobs, monkeypatch) -> None:
    folder = write_run(jobs[0])
    monkeypatch.setattr("odedm.studies.run_store.__version__", "9.9.9")
    status = RunStore(folder.parents[2]).status(jobs)
    assert list(status.done) == [jobs[0].key]
    assert status.other_versions == {"0.1.0": 1}
    assert not any(job.options.overwrite for job in status.todo)


def test_a_run_on_other_data_is_replaced(jobs) -> None:
    write_run(replace(jobs[0], checksum="of other data"))
    status = RunStore(jobs[0].folder.parents[2]).status(jobs[:1], reuse="any")
    assert [job.options.overwrite for job in status.todo] == [True]
    assert (status.outdated, status.damaged) == (0, 0)


def test_a_run_by_another_version_of_ones_own_code_is_made_by_other_code(jobs) -> None:
    folder = write_run(jobs[0])
    plain = json.loads((folder / "result.json").read_text())
    plain["provenance"]["plugins"] = {"method": {"title": "ER", "from": "mine:ER", "again": True, "code": "12ab"}}
    (folder / "result.json").write_text(json.dumps(plain))
    status = RunStore(folder.parents[2]).status(jobs[:1])
    assert (len(status.todo), status.outdated, status.damaged) == (1, 1, 0)


def test_a_result_that_cannot_be_read_is_no_result(jobs) -> None:
    folder = write_run(jobs[0])
    (folder / "result.json").write_text('{"schema": "odedm.result/1", "experiment"')
    status = RunStore(folder.parents[2]).status(jobs, reuse="any")
    assert not status.done
    assert status.todo[0].options.overwrite
    assert (status.outdated, status.damaged) == (0, 1)


def test_a_result_that_was_changed_after_it_was_written_is_made_again(jobs) -> None:
    folders = [write_run(job) for job in jobs[:3]]
    for folder in folders[:2]:
        write_checksums(folder)
    for folder in folders[1:]:  # nothing says of the last one that it was not so
        plain = json.loads((folder / "result.json").read_text())
        (folder / "result.json").write_text(json.dumps(plain | {"seconds": {"train": 5.0}}))
    status = RunStore(folders[0].parents[2]).status(jobs)
    assert list(status.done) == [jobs[0].key, jobs[2].key]
    assert [(job.key, job.options.overwrite) for job in status.todo] == [(jobs[1].key, True), (jobs[3].key, False)]
    assert (status.outdated, status.damaged) == (0, 1)


def test_what_a_killed_process_left_is_not_a_run(jobs) -> None:
    folder = write_run(jobs[0])
    folder.rename(folder.with_name(".seed-0.123.abc"))
    assert RunStore(folder.parents[2]).finished() == []


def test_where_a_study_stands_after_its_jobs_needs_no_second_look_at_the_results(jobs, monkeypatch) -> None:
    store = RunStore(jobs[0].folder.parents[2])
    store.folder.mkdir(parents=True)
    store.on_fail(jobs[1], "it was too much")
    status = store.status(jobs, reuse="any")
    results = {job.key: result_of(job.experiment, job.checksum) for job in jobs[:2]}
    after = status.after(results, {jobs[2].key: "it diverged"})
    assert (set(after.done), after.failed) == (set(results), {jobs[2].key: "it diverged"})
    assert after.total == status.total


def test_failures_wait_until_they_are_asked_for(jobs) -> None:
    store = RunStore(jobs[0].folder.parents[2])
    store.folder.mkdir(parents=True)
    store.on_fail(jobs[1], "it was too much")
    status = store.status(jobs, reuse="any")
    assert status.failed == {jobs[1].key: "it was too much"}
    assert len(status.to_start(retry=False)) == 3
    assert len(status.to_start(retry=True)) == 4
    line = json.loads((store.folder / FAILURES).read_text())
    assert {"time", "key", "folder", "error"} <= line.keys()


def test_a_finished_run_is_no_failure_any_more(jobs) -> None:
    store = RunStore(jobs[0].folder.parents[2])
    store.folder.mkdir(parents=True)
    store.on_fail(jobs[1], "it was too much")
    write_run(jobs[1])
    assert store.status(jobs, reuse="any").failed == {}


def test_a_line_cut_short_costs_itself_alone(jobs) -> None:
    store = RunStore(jobs[0].folder.parents[2])
    store.folder.mkdir(parents=True)
    store.note("started", jobs[0])
    with (store.folder / JOURNAL).open("a") as file:
        file.write('{"event": "fini')
    store.note("finished", jobs[1])
    assert [line["event"] for line in lines(store.folder / JOURNAL)] == ["started", "finished"]


@pytest.mark.parametrize("value", [None, [], {}, "", "nan", True, float("inf"), 1e308, ["x"]])
def test_an_edited_line_counts_for_nothing(jobs, value) -> None:
    store = RunStore(jobs[0].folder.parents[2])
    store.folder.mkdir(parents=True, exist_ok=True)
    for name in (FAILURES, JOURNAL):
        odd = [{"key": value, "error": value}, {"error": "No."}, value, {"key": "odd"}]
        lines_of_file = [*map(json.dumps, odd), "9" * 5000, '{"key": "mine", "error": "No."}']
        (store.folder / name).write_text("\n".join(lines_of_file))
    assert "mine" in store.failures()
    assert store.status(jobs).failed == {}


def test_a_study_that_was_killed_at_its_first_file_goes_on(tmp_path) -> None:
    study, store = Study("mine", (Grid({"capacity": (5,)}),)), RunStore(tmp_path / "study")
    store.folder.mkdir()
    (store.folder / ".study.toml.123.abcdef01").write_text("name =")
    store.init(study)
    assert sorted(path.name for path in store.folder.iterdir()) == ["runs", "study.toml"]


def test_a_folder_belongs_to_one_study(tmp_path) -> None:
    one, other = (Study(name, (Grid({"capacity": (5,)}),)) for name in ("one", "other"))
    RunStore(tmp_path / "a").init(one)
    RunStore(tmp_path / "a").init(one.with_seeds(9))
    assert "8]" in (tmp_path / "a" / "study.toml").read_text()
    with pytest.raises(UsageError, match="holds the study 'one'"):
        RunStore(tmp_path / "a").init(other)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "thesis.txt").write_text("mine")
    with pytest.raises(UsageError, match="not a study's folder"):
        RunStore(tmp_path / "b").init(one)


def test_one_driver_at_a_time(tmp_path) -> None:
    store, study = RunStore(tmp_path / "a"), Study("mine", (Grid({"capacity": (5,)}),))
    with store.opened(study), pytest.raises(UsageError, match="in use"), store.opened(study):
        pass
    with store.opened(study):
        pass


def test_impossible_experiments_are_refused_before_anything_runs(tmp_path) -> None:
    with pytest.raises(UsageError, match="er with odedm .* cannot be run"):
        plan_jobs([SMALL, replace(SMALL, memory=odedm.ODEDM(20, k=50))], run_dir_under(tmp_path))


def test_data_that_is_not_here_is_noted_or_refused(tmp_path, monkeypatch) -> None:
    monkeypatch.setenv("ODEDM_DATA", str(tmp_path))
    plan = replace(SMALL, data="cifar10")
    with pytest.raises(UsageError, match="not here"):
        plan_jobs([plan], run_dir_under(tmp_path))
    planned = plan_jobs([plan, SMALL], run_dir_under(tmp_path), lenient=True)
    assert list(planned.missing) == ["cifar10"]
    assert len(planned.jobs) == 2
    planned = plan_jobs([replace(SMALL, data="rows/mine.npz")], run_dir_under(tmp_path), lenient=True)
    assert "There is no file or folder 'rows/mine.npz'" in planned.missing["rows/mine.npz"]
    with pytest.raises(UsageError, match="Unknown data set 'cifar11': did you mean 'cifar1"):
        plan_jobs([replace(SMALL, data="cifar11")], run_dir_under(tmp_path), lenient=True)


def test_planning_for_other_machines_asks_this_one_for_no_gpu(tmp_path) -> None:
    plans = [SMALL, replace(SMALL, method="vrmcl")]
    plans = [replace(plan, device="auto") for plan in plans]
    there = plan_jobs(plans, run_dir_under(tmp_path), ExecutionConfig(backend="ray", gpus=0.5)).jobs
    assert [(job.experiment.device, job.experiment.precision) for job in there] == [
        ("cuda", "bf16"),
        ("cuda", "tf32"),
    ]
    here = plan_jobs(plans, run_dir_under(tmp_path), ExecutionConfig(backend="ray")).jobs
    assert {(job.experiment.device, job.experiment.precision) for job in here} == {("cpu", "fp32")}


def test_runs_are_not_written_through_a_link_of_a_folder_from_elsewhere(jobs, tmp_path) -> None:
    store = RunStore(jobs[0].folder.parents[2])
    write_run(jobs[0])
    (own := jobs[0].folder.parent).rename(elsewhere := tmp_path / "elsewhere")
    own.symlink_to(elsewhere)
    assert store.finished() == []
    with pytest.raises(UsageError, match="is a link; runs are written into real folders"):
        plan_jobs([jobs[0].experiment], run_dir_under(store.runs))
    own.unlink()
    store.runs.rmdir()
    store.runs.symlink_to(elsewhere)
    study = Study("study", (Grid({"capacity": (5,)}),), (0,))
    (store.folder / "study.toml").write_text(study.to_toml())
    with pytest.raises(UsageError, match="runs' is a link; runs are written into real folders"):
        store.init(study)
