"""A report while runs are going: what is done so far, and how far the others are."""

import pytest
from commands import odedm
from jobs import SMALL, job_of
from report_runs import Fabricate

from odedm.checkpoint.checkpoint import checkpoint_paths, working_folder
from odedm.checkpoint.lock import hold
from odedm.checkpoint.schedule import Schedule
from odedm.checkpoint.stop import Stopped
from odedm.core.errors import UsageError
from odedm.execute.run_job import run_job
from odedm.report.load import gather
from odedm.report.unfinished import find_unfinished


@pytest.fixture(scope="module")
def stopped(tmp_path_factory):
    """A run of five tasks that was stopped in its third, below a folder of its own."""
    place = tmp_path_factory.mktemp("half")
    job = job_of(SMALL, place / "one" / "seed-0", schedule=Schedule.parse("task"))
    looks = []
    with pytest.raises(Stopped):
        run_job(job, stop=lambda: looks.append(1) or len(looks) > 30)
    return place


def test_a_stopped_run_is_named_with_its_place_and_what_it_reached(stopped):
    (run,) = find_unfinished([stopped])
    assert run.alive is False
    assert run.task >= 1
    assert str(run).startswith("ER · reservoir · λ=20 on 'blobs', seed 0: in task ")
    assert f"in task {run.task + 1}, at step {run.step} by the last checkpoint (stopped" in str(run)
    assert find_unfinished([stopped / "one" / "seed-0"]) == [run]


def test_one_that_somebody_is_at_is_under_way(stopped):
    with hold(working_folder(stopped / "one" / "seed-0")):
        (run,) = find_unfinished([stopped])
    assert run.alive is True
    assert str(run).endswith("(under way)")


def test_a_report_of_what_is_done_so_far_says_what_is_not(stopped, fabricate: Fabricate, tmp_path):
    folder = fabricate("der", "reservoir")
    output = odedm("report", folder, stopped, "--out", tmp_path / "page.html")
    page = (tmp_path / "page.html").read_text()
    assert "Not finished yet: 1 run" in output
    assert "Not finished yet: 1 run" in page
    assert "in task " in page


def test_a_report_of_unfinished_runs_alone_has_no_table(stopped, tmp_path):
    for where in (stopped, stopped / "one" / "seed-0"):
        assert gather([where]).rows == ()
        odedm("report", where, "--out", tmp_path / "page.html")
        assert "<h1>Runs that are still going</h1>" in (tmp_path / "page.html").read_text()
    with pytest.raises(UsageError, match="No finished run"):
        gather([tmp_path])


def test_a_checkpoint_of_anyone_is_only_looked_at(stopped, tmp_path):
    """What is torn is passed over."""
    work = working_folder(stopped / "one" / "seed-0")
    copy = working_folder(tmp_path / "seed-0")
    (copy / "checkpoints").mkdir(parents=True)
    for path in checkpoint_paths(work):
        (copy / path.relative_to(work)).write_bytes(path.read_bytes()[:-1])
    (run,) = find_unfinished([tmp_path])
    assert str(run) == "'seed-0': no checkpoint yet (stopped; `odedm resume` goes on)"
