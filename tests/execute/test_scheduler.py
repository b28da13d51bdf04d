"""The scheduler: nothing is run twice, nothing late is started, what is lost is tried again, a failure ends itself."""

from __future__ import annotations

import errno
import math
from collections import Counter
from dataclasses import replace

import pytest
from jobs import DUAL, SMALL, Notes, Puppet, write_run
from rich.console import Console

from odedm.cli.board import Board
from odedm.core.errors import InfrastructureError, LockedError, UsageError
from odedm.execute.job import CheckpointSaved, Failed, WorkerLost, event_from_text, event_to_text
from odedm.execute.observers import Observer
from odedm.execute.planning import plan_jobs, run_dir_under
from odedm.execute.scheduler import Scheduler, in_order
from odedm.execute.time_estimate import TimeEstimate, format_duration, parse_time
from odedm.training.hold_out import Selection


@pytest.fixture
def jobs(tmp_path):
    """Two configurations, two seeds."""
    plans = [plan.with_seed(seed) for seed in (0, 1) for plan in (SMALL, DUAL)]
    return plan_jobs(plans, run_dir_under(tmp_path / "runs")).jobs


def run(backend, jobs, *observers, **how):
    return Scheduler(backend, observers, how.pop("times", TimeEstimate()), **how).run(jobs)


def test_all_jobs_are_done_in_order(jobs):
    backend, notes = Puppet(), Notes()
    summary = run(backend, jobs, notes)
    assert (summary.done, summary.failed, summary.left) == (4, {}, [])
    assert backend.started == jobs
    assert backend.most == 2
    assert notes.keys("started") == notes.keys("finished") == [job.key for job in jobs]


def test_an_observer_that_cannot_write_ends_it_and_no_run_is_called_failed_for_that(jobs):
    class Refusing(Observer):
        def finished(self, job, result):
            raise UsageError("The journal is a link.")

    notes = Notes()
    with pytest.raises(UsageError, match="The journal is a link"):
        run(Puppet(), jobs, notes, Refusing())
    assert notes.keys("failed") == []


def test_seeds_are_done_one_after_the_other_and_the_longest_go_first_where_they_would_end_last(tmp_path):
    plans = [plan.with_seed(seed) for seed in range(4) for plan in (SMALL, DUAL)]
    jobs, times = plan_jobs(plans, run_dir_under(tmp_path / "runs")).jobs, TimeEstimate()
    assert in_order(times, [], jobs, workers=2) == jobs, "nothing is known"
    for job, seconds in zip(jobs[:2], (10.0, 30.0), strict=True):
        times.learn(job.experiment.describe(), job.rows, seconds)
    assert in_order(times, [], jobs, workers=2) == jobs, "80 s are left: the last may begin later"
    *_, long, short, last = jobs
    assert in_order(times, [], [long, short, last], workers=2) == [long, last, short], "35 s are left"
    assert in_order(times, [(jobs[0], 0.0, 0.0)], [long, short, last], workers=2) == [long, short, last], "40 s are"
    assert in_order(times, [], [long, short, last], workers=1) == [long, short, last], "one lane has nobody to wait for"
    backend = Puppet(workers=2)
    run(backend, jobs, times=times, now=lambda: 0.0)
    assert backend.started == [*jobs[:6], last, short]
    backend = Puppet(workers=2)
    run(backend, jobs, times=times, until=1e9, now=lambda: 0.0)
    assert backend.started == jobs, "whole seeds, where time may end before"


class Known(TimeEstimate):
    """Knows how long each job takes."""

    def __init__(self, seconds):
        super().__init__()
        self.seconds = seconds

    def expect(self, job):
        return self.seconds[job.key]


def simulated(jobs, seconds, workers):
    """When each job ends, by the order of starts."""
    times, now, ends, running, waiting = Known(seconds), 0.0, {}, {}, list(jobs)
    while waiting or running:
        while waiting and len(running) < workers:
            under_way = [(job, now - (end - seconds[job.key]), 0.0) for job, end in running.items()]
            job = in_order(times, under_way, waiting, workers)[0]
            waiting.remove(job)
            running[job] = now + seconds[job.key]
        job = min(running, key=running.get)
        now = ends[job] = running.pop(job)
    return ends


@pytest.mark.parametrize("workers", [8, 12])
@pytest.mark.parametrize("lengths", [[2.5] * 4 + [13.0] * 4, [13.0] * 5 + [50.0], [2.5] * 5 + [13.0] * 3 + [50.0] * 2])
def test_a_study_that_is_stopped_has_whole_seeds_and_one_that_is_not_takes_no_longer(jobs, workers, lengths):
    seeds = 12
    many = [
        replace(jobs[0], key=f"{seed} {place}", experiment=replace(jobs[0].experiment, seed=seed))
        for seed in range(seeds)
        for place in range(len(lengths))
    ]
    seconds = {job.key: lengths[int(job.key.split()[1])] for job in many}
    ends = simulated(many, seconds, workers)
    whole, least = max(ends.values()), sum(seconds.values()) / workers
    assert whole <= 1.05 * least + min(lengths)
    for part in (0.4, 0.6, 0.8):
        done = Counter(job.experiment.seed for job, end in ends.items() if end <= part * whole)
        paired = sum(number == len(lengths) for number in done.values())
        begun = math.ceil(workers / len(lengths)) + math.ceil(max(lengths) * workers / sum(lengths))
        assert paired >= int(part * seeds) - begun, "all but those that workers are at"


def test_a_failure_is_told_and_the_rest_goes_on(jobs):
    backend, notes = Puppet(), Notes()
    backend.failing[jobs[1].key] = "It diverged."
    summary = run(backend, jobs, notes)
    assert summary.done == 3
    assert summary.failed == {jobs[1].key: "It diverged."}
    assert ("failed", jobs[1], "It diverged.") in notes.lines


@pytest.mark.parametrize(
    "error", [InfrastructureError("no room"), OSError(errno.EIO, "no room"), OSError(errno.EROFS, "no room")]
)
def test_a_full_or_broken_disk_stops_everything_and_nobody_is_to_blame(jobs, error):
    """What is left goes on when that is mended: none of it has failed."""
    backend, notes = Puppet(workers=1), Notes()
    backend.failing = {jobs[1].key: Failed.by(jobs[1], error)}
    with pytest.raises(InfrastructureError, match="no room"):
        run(backend, jobs, notes)
    assert notes.keys("finished") == [jobs[0].key]
    assert notes.keys("failed") == []
    assert len(backend.started) == 2


@pytest.mark.parametrize(
    ("error", "taken"), [(LockedError("'x' is in use."), True), (RuntimeError("is in use by"), False)]
)
def test_only_a_lock_says_that_another_process_is_at_a_run(jobs, error, taken):
    """Words of anyone's code may be the same; what is told crosses a pipe."""
    backend, notes = Puppet(), Notes()
    backend.failing = {jobs[1].key: event_from_text(event_to_text(Failed.by(jobs[1], error)))}
    summary = run(backend, jobs, notes)
    assert list(summary.failed) == notes.keys("taken" if taken else "failed") == [jobs[1].key]
    assert summary.taken == ({jobs[1].key} if taken else set())


def test_a_worker_that_dies_after_its_result_was_written_has_done_its_job(jobs):
    backend, notes = Puppet(), Notes()
    backend.losing[jobs[0].key] = [WorkerLost(jobs[0].key, "its process was ended by the signal SIGKILL")]
    write_run(jobs[0])
    summary = run(backend, jobs[:1], notes)
    assert (summary.done, summary.failed) == (1, {})
    assert notes.keys("finished") == [jobs[0].key]
    assert len(backend.started) == 1


def test_a_job_whose_worker_dies_is_tried_three_times_and_the_others_go_on(jobs):
    backend, notes = Puppet(), Notes()
    backend.losing[jobs[0].key] = [WorkerLost(jobs[0].key, "its process was ended by the signal SIGKILL")] * 3
    summary = run(backend, jobs, notes)
    assert summary.done == 3
    assert summary.failed[jobs[0].key].startswith("In 3 tries its process was ended by the signal SIGKILL")
    assert notes.keys("lost") == [jobs[0].key] * 2
    assert [job.key for job in backend.started].count(jobs[0].key) == 3


def test_what_was_lost_goes_on_first_and_does_not_start_anew(jobs):
    fresh = [replace(job, options=replace(job.options, restart=True)) for job in jobs]
    backend = Puppet(workers=1)
    backend.losing[jobs[0].key] = [WorkerLost(jobs[0].key, "gone")]
    assert run(backend, fresh).done == 4
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
    assert run(storing, jobs).done == 4


def test_a_run_on_other_data_is_a_failure(jobs):
    backend = Puppet(lambda job: write_run(replace(job, checksum="other")))
    assert "other data" in run(backend, jobs[:1]).failed[jobs[0].key]


def test_a_run_that_is_not_the_one_asked_for_is_a_failure(jobs):
    summary = run(Puppet(), jobs[:1], check=lambda _, result: f"It was made by odedm {result.provenance['odedm']}.")
    assert summary.failed == {jobs[0].key: "It was made by odedm 0.1.0."}


def test_a_trial_gives_its_score_and_no_folder(jobs):
    trial = replace(jobs[0], key="t", select=Selection())
    assert run(Puppet(), [trial]).scores == {"t": 42.0}
    assert not jobs[0].folder.exists()


def test_nothing_starts_that_would_end_after_the_budget(jobs):
    now = 0.0

    def write(job):
        nonlocal now
        now += 10.0
        return write_run(job, seconds=10.0)

    backend = Puppet(write, workers=1)
    summary = run(backend, jobs, until=25.0, now=lambda: now)
    assert summary.done == 2
    assert summary.left == jobs[2:]
    assert [job.key for job in backend.started] == [job.key for job in jobs[:2]]


def test_the_nearest_measured_run_tells_the_time(jobs):
    times, rows = TimeEstimate(), jobs[0].rows
    assert times.expect(jobs[0]) is None
    times.learn(jobs[0].experiment.describe(), rows, 10.0)
    assert times.expect(jobs[1]) == pytest.approx(10.0)  # another memory, but nothing nearer
    times.learn(jobs[1].experiment.describe(), rows, 30.0)
    assert times.expect(jobs[1]) == pytest.approx(30.0)
    assert times.expect(jobs[2]) == pytest.approx(10.0)
    larger = replace(jobs[0], key="larger", experiment=replace(jobs[0].experiment, data="big"), rows=10 * rows)
    assert times.expect(larger) == pytest.approx(100.0)
    other = replace(jobs[0], key="other", experiment=replace(jobs[0].experiment, net="resnet18"))
    assert times.expect(other) is None
    assert times.expect(replace(jobs[0], key="trial", select=Selection(tasks=2))) == pytest.approx(4.0)
    (often,) = plan_jobs([replace(jobs[0].experiment, updates=3, epochs=2)], run_dir_under(jobs[0].folder)).jobs
    assert times.expect(often) == pytest.approx(60.0), "by how often rows are trained on, epochs counted once"
    times.learn(often.experiment.describe(), often.rows, 40.0)
    assert times.expect(often) == pytest.approx(40.0)


def test_the_time_left_is_known_from_the_first_finished_run_on(jobs):
    times = TimeEstimate()
    assert times.left([], jobs, workers=2) is None
    assert times.left([(jobs[0], 1.0, 0.0)], jobs[1:], workers=2) is None, "nothing has been seen yet"
    times.learn(jobs[0].experiment.describe(), jobs[0].rows, 10.0)
    strange = replace(jobs[1], key="strange", experiment=replace(jobs[1].experiment, net="resnet18"))
    assert times.left([], [jobs[0], jobs[2], strange], workers=1) == pytest.approx(30.0), "of an unknown kind the mean"
    assert times.left([], [jobs[0], jobs[2], strange], workers=2) == pytest.approx(20.0), "two at a time"
    assert times.left([(jobs[0], 4.0, 0.2)], [], workers=2) == pytest.approx(16.0), "its own pace says more"
    assert times.left([(jobs[0], 4.0, 0.2)], [jobs[2]], workers=1) == pytest.approx(26.0)
    assert times.left([], [], workers=2) is None


@pytest.mark.parametrize("text", ["", "0", "soon", "-5", "5x", "1h2", "m30", "1e3", "1ms", "5ss", "1.2.3", "٣"])
def test_a_budget_that_is_no_time_is_refused(text):
    with pytest.raises(UsageError, match="such as 90s"):
        parse_time(text)


def test_the_board_says_where_the_jobs_stand_and_never_falls_silent(jobs):
    console = Console(record=True, width=200, force_terminal=False, file=open("/dev/null", "w"))  # noqa: SIM115
    now = 0.0

    def clock():
        nonlocal now
        now += 60.0
        return now

    with console.file, Board(console, 4, now=clock) as board:
        backend = Puppet(lambda job: write_run(job, acc=70.0 if job.key == jobs[1].key else 50.0), workers=1)
        backend.failing[jobs[3].key] = "It diverged."
        backend.losing[jobs[2].key] = [WorkerLost(jobs[2].key, "its process ended with the exit code 3")]
        run(backend, jobs, board)
        for _ in range(5):
            board.tick(None)
    said = console.export_text()
    assert "3 of 4 done" in said
    assert "1 failed" in said
    assert "It diverged." in said
    assert "its process ended with the exit code 3. It goes on from its last checkpoint." in said
    assert "best so far er · odedm ρ=0.5 · λ=20: ACC 70.0 % (1 seed)" in said
    assert said.count("3 of 4 done") >= 5, "a line every few seconds, whatever happens"
    assert format_duration(61) == "1 min 1 s"
