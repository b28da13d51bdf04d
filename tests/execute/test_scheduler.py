"""The scheduler: nothing is run twice, nothing late is started, what is lost is tried again, a failure ends itself."""

from __future__ import annotations

import errno
from dataclasses import replace

import pytest
from jobs import DUAL, SMALL, Notes, Puppet, write_run
from rich.console import Console

from odedm.cli.progress_display import ProgressDisplay
from odedm.core.errors import InfrastructureError, UsageError
from odedm.execute.durations import format_duration, parse_time, seconds_left
from odedm.execute.job import CheckpointSaved, Done, Failed, ProgressReport, WorkerLost
from odedm.execute.planning import plan_jobs, run_dir_under
from odedm.execute.run_callbacks import RunCallback
from odedm.execute.scheduler import Scheduler


@pytest.fixture
def jobs(tmp_path):
    """Two configurations, two seeds."""
    plans = [plan.with_seed(seed) for seed in (0, 1) for plan in (SMALL, DUAL)]
    return plan_jobs(plans, run_dir_under(tmp_path / "runs")).jobs


def run(backend, jobs, *callbacks, **how):
    return Scheduler(backend, callbacks, **how).run(jobs)


def test_all_jobs_are_done_in_order(jobs):
    backend, notes = Puppet(), Notes()
    summary = run(backend, jobs, notes)
    assert (len(summary.results), summary.failed, summary.left) == (4, {}, [])
    assert backend.started == jobs
    assert backend.most == 2
    assert notes.keys("on_start") == notes.keys("on_finish") == [job.key for job in jobs]


def test_a_callback_that_cannot_write_ends_it_and_no_run_is_called_failed_for_that(jobs):
    class Refusing(RunCallback):
        def on_finish(self, job, result):
            raise UsageError("The journal is a link.")

    notes = Notes()
    with pytest.raises(UsageError, match="The journal is a link"):
        run(Puppet(), jobs, notes, Refusing())
    assert notes.keys("on_fail") == []


def test_a_failure_is_told_and_the_rest_goes_on(jobs):
    backend, notes = Puppet(), Notes()
    backend.failing[jobs[1].key] = "It diverged."
    summary = run(backend, jobs, notes)
    assert len(summary.results) == 3
    assert summary.failed == {jobs[1].key: "It diverged."}
    assert ("on_fail", jobs[1], "It diverged.") in notes.lines


@pytest.mark.parametrize(
    "error", [InfrastructureError("no room"), OSError(errno.EIO, "no room"), OSError(errno.EROFS, "no room")]
)
def test_a_full_or_broken_disk_stops_everything_and_nobody_is_to_blame(jobs, error):
    """What is left goes on when that is mended: none of it has failed."""
    backend, notes = Puppet(workers=1), Notes()
    backend.failing = {jobs[1].key: Failed.by(jobs[1], error)}
    with pytest.raises(InfrastructureError, match="no room"):
        run(backend, jobs, notes)
    assert notes.keys("on_finish") == [jobs[0].key]
    assert notes.keys("on_fail") == []
    assert len(backend.started) == 2


def test_a_worker_that_dies_after_its_result_was_written_has_done_its_job(jobs):
    backend, notes = Puppet(), Notes()
    backend.losing[jobs[0].key] = [WorkerLost(jobs[0].key, "its process was ended by the signal SIGKILL")]
    write_run(jobs[0])
    summary = run(backend, jobs[:1], notes)
    assert (len(summary.results), summary.failed) == (1, {})
    assert notes.keys("on_finish") == [jobs[0].key]
    assert len(backend.started) == 1


def test_a_job_whose_worker_dies_is_tried_three_times_and_the_others_go_on(jobs):
    backend, notes = Puppet(), Notes()
    backend.losing[jobs[0].key] = [WorkerLost(jobs[0].key, "its process was ended by the signal SIGKILL")] * 3
    summary = run(backend, jobs, notes)
    assert len(summary.results) == 3
    assert summary.failed[jobs[0].key].startswith("In 3 tries its process was ended by the signal SIGKILL")
    assert notes.keys("on_lost") == [jobs[0].key] * 2
    assert [job.key for job in backend.started].count(jobs[0].key) == 3


@pytest.mark.parametrize(("number", "failed"), [(5, 0), (10, 1)])
def test_a_worker_that_is_killed_before_it_has_done_anything_is_not_the_jobs_fault(jobs, number, failed):
    backend = Puppet()
    backend.losing[jobs[0].key] = [WorkerLost(jobs[0].key, "its process was ended", was_killed=True)] * number
    summary = run(backend, jobs)
    assert (len(summary.results), len(summary.failed)) == (4 - failed, failed)
    assert all(reason.startswith("In 10 tries") for reason in summary.failed.values())


@pytest.mark.parametrize(
    ("rows", "failed"), [((2, 4, 6, 8, 9), 0), ((4, 4, 4, 4, 4), 1), ((6, 4, 2), 0), ((6, 4, 2, 1), 1)]
)
def test_kills_count_against_a_job_only_where_it_gets_no_further_than_before(jobs, rows, failed):
    class Killed(Puppet):
        def events(self, timeout):
            for event in super().events(timeout):
                if isinstance(event, WorkerLost):
                    yield ProgressReport(event.key, rows[len(rows) - 1 - len(self.losing[event.key])], 10)
                yield event

    backend, key = Killed(), jobs[0].key
    backend.losing[key] = [WorkerLost(key, "its process was ended", was_killed=True) for _ in rows]
    assert [*run(backend, jobs).failed] == [key] * failed


def test_what_was_lost_goes_on_first_and_does_not_start_anew(jobs):
    fresh = [replace(job, options=replace(job.options, restart=True)) for job in jobs]
    backend = Puppet(workers=1)
    backend.losing[jobs[0].key] = [WorkerLost(jobs[0].key, "gone")]
    assert len(run(backend, fresh).results) == 4
    assert [(job.key, job.options.restart) for job in backend.started[:3]] == [
        (jobs[0].key, True),
        (jobs[0].key, False),
        (jobs[1].key, True),
    ]


def test_a_checkpoint_between_two_losses_gives_three_tries_again(jobs):
    backend, key = Puppet(), jobs[0].key
    backend.losing[key] = [WorkerLost(key, "gone")] * 4

    class Storing(Puppet):
        def events(self, timeout):
            for event in super().events(timeout):
                if isinstance(event, WorkerLost):
                    yield CheckpointSaved(key)
                yield event

    storing = Storing()
    storing.losing = {key: [WorkerLost(key, "gone")] * 7}
    assert key in run(backend, jobs).failed
    assert len(run(storing, jobs).results) == 4


def test_a_run_on_other_data_is_a_failure(jobs):
    backend = Puppet(lambda job: write_run(replace(job, checksum="other")))
    assert "data of the checksum other there" in run(backend, jobs[:1]).failed[jobs[0].key]


def test_a_run_that_is_not_the_one_asked_for_is_a_failure(jobs):
    backend = Puppet(lambda job: write_run(replace(job, experiment=replace(job.experiment, batch=7))))
    assert "is another run: batch=7 there, 16 here" in run(backend, jobs[:1]).failed[jobs[0].key]


def test_at_the_deadline_what_is_under_way_is_stopped_and_nothing_more_starts(jobs):
    now = 0.0

    def write(job):
        nonlocal now
        now += 10.0
        return write_run(job)

    backend = Puppet(write, workers=1)
    summary = run(backend, jobs, until=15.0, now=lambda: now)
    assert len(summary.results) == 2
    assert summary.left == jobs[2:]
    assert [job.key for job in backend.started] == [job.key for job in jobs[:2]]


def test_a_run_that_ended_while_it_was_stopped_is_counted(jobs):
    class Slow(Puppet):
        def events(self, timeout):
            return iter(())

    ticks = iter(range(100))
    scheduler = Scheduler(Slow(workers=1), until=3, now=lambda: next(ticks))
    assert scheduler.run(jobs[:2]).left == jobs[:2], "the one under way first"
    write_run(jobs[0])
    summary = scheduler.collect_finished()
    assert (list(summary.results), summary.left) == ([jobs[0].key], [jobs[1]])


def test_neighbours_on_one_gpu_are_not_blamed_for_a_job_that_breaks_it(jobs):
    """Under the multi-process service one error ends every process on the card; alone each shows whose it was."""

    class SharedCard(Puppet):
        def events(self, timeout):
            over, self.under_way = self.under_way, []
            poison = jobs[0].key in {job.key for job in over}
            for job in over:
                if poison:
                    yield WorkerLost(job.key, "the GPU reported an error", shared=len(over) > 1)
                else:
                    self.write(job)
                    yield Done(job.key)

    backend, notes = SharedCard(workers=4), Notes()
    summary = run(backend, jobs, notes)
    assert set(summary.results) == {job.key for job in jobs[1:]}
    assert summary.failed[jobs[0].key].startswith("In 3 tries the GPU reported an error")


def test_the_time_left_is_the_mean_of_what_is_done():
    assert seconds_left([], [1.0], 3, workers=1) is None, "nothing is known"
    assert seconds_left([10, 30], [0.5], 2, workers=1) == 50
    assert seconds_left([10, 30], [0.5], 2, workers=2) == 25
    assert seconds_left([10], [], 0, workers=2) == 0


@pytest.mark.parametrize("text", ["", "0", "soon", "-5", "5x", "1h2", "m30", "1e3", "1ms", "5ss", "1.2.3", "٣"])
def test_a_budget_that_is_no_time_is_refused(text):
    with pytest.raises(UsageError, match="such as 90s"):
        parse_time(text)


def test_the_display_says_where_the_jobs_stand_and_never_falls_silent(jobs):
    console = Console(record=True, width=200, force_terminal=False, file=open("/dev/null", "w"))  # noqa: SIM115
    now = 0.0

    def clock():
        nonlocal now
        now += 60.0
        return now

    with console.file, ProgressDisplay(console, 4, now=clock) as display:
        backend = Puppet(lambda job: write_run(job, acc=70.0 if job.key == jobs[1].key else 50.0), workers=1)
        backend.failing[jobs[3].key] = "It diverged."
        backend.losing[jobs[2].key] = [WorkerLost(jobs[2].key, "its process ended with the exit code 3")]
        run(backend, jobs, display)
        for _ in range(5):
            display.on_tick(None)
    said = console.export_text()
    assert "3 of 4 done" in said
    assert "1 failed" in said
    assert "It diverged." in said
    assert "its process ended with the exit code 3. It goes on from its last checkpoint." in said
    assert said.count("3 of 4 done") >= 5, "a line every few seconds, whatever happens"
    assert format_duration(61) == "1 min 1 s"
