"""One go at a run, and the next one: what is stored, what is said, what is left behind."""

import errno
import shutil

import pytest
import torch
from jobs import again, job_of
from sampling import KEEPING, QUICK, pairs
from torch import nn

from odedm import ODEDM, Experiment, Native, Reservoir, UsageError, blobs, train
from odedm.checkpoint import checkpoint
from odedm.checkpoint.checkpoint import checkpoint_paths, latest_look, working_folder
from odedm.checkpoint.lock import hold
from odedm.checkpoint.schedule import Schedule
from odedm.checkpoint.stop import Stopped
from odedm.core import plugins
from odedm.core.errors import InfrastructureError
from odedm.core.files import remove_stale
from odedm.core.registry import METHODS
from odedm.execute.job import Message, ProgressReport
from odedm.execute.run_job import remove_stale_workdir, run_job
from odedm.methods.er import ER
from odedm.results import provenance

DATA = blobs(per_class=20)
MEMORIES = {"native": Native(20), "odedm": ODEDM(24, k=1, candidates=4, replay="both")}


def plan(memory=None, **options):
    options = {"batch": 8, "device": "cpu", "data": "blobs", **options}
    return Experiment(memory or ODEDM(20, k=1), **options)


class After:
    """A wish to stop after so many looks."""

    def __init__(self, steps):
        self.left = steps

    def __call__(self):
        self.left -= 1
        return self.left <= 0


def go(job, steps=None, schedule="task", said=None, **options):
    """The outcome, or None where it was stopped after so many steps."""
    stop = After(steps) if steps else lambda: False
    own = again(job, job.folder, schedule=Schedule.parse(schedule), **options)

    def emit(event):
        if said is not None and isinstance(event, Message):
            said.append(event.line)

    try:
        return run_job(own, emit, data=DATA, stop=stop)
    except Stopped:
        return None


def timeless(result):
    plain = result.to_dict()
    del plain["seconds"], plain["provenance"]["finished"]
    return plain


def check_equal(one, other, folders):
    assert timeless(one.result) == timeless(other.result)
    for a, b in zip(one.method.net.state_dict().values(), other.method.net.state_dict().values(), strict=True):
        assert a.equal(b)
    a, b = ((folder / "memory.safetensors").read_bytes() for folder in folders)
    assert a == b


@pytest.mark.parametrize(("method", "memory"), pairs(KEEPING, MEMORIES))
def test_stopped_and_gone_on_equals_straight(method, memory, tmp_path):
    momentum = {} if "momentum" in METHODS[method].load().unsupported else {"momentum": 0.9}
    experiment = plan(MEMORIES[memory], method=method, options={**momentum, **QUICK.get(method, {})})
    jobs = [job_of(experiment, tmp_path / name) for name in ("straight", "stopped")]
    straight = go(jobs[0])
    for steps in (3, 5, 1, 4):  # a look after every step and every task: the fourth ends at the first border
        assert go(jobs[1], steps) is None
        assert [path.name for path in sorted(tmp_path.iterdir())] == [".stopped.work", "straight"]
        assert not (working_folder(jobs[1].folder) / "lock").exists()
    said = []
    more = go(jobs[1], said=said)
    assert "Going on after step" in said[-1]
    check_equal(straight, more, [job.folder for job in jobs])
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stopped", "straight"], "nothing else is left"
    assert "checkpoint" in more.result.seconds


def test_a_run_without_a_folder_writes_nothing(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = train(DATA, memory=Reservoir(10)).result
    assert not list(tmp_path.iterdir())
    assert "checkpoint" not in result.seconds


@pytest.fixture
def stopped(tmp_path):
    """A run with two checkpoints, of steps 6 and 7."""
    job = job_of(plan(), tmp_path / "run")
    assert go(job, 8, "2 steps") is None  # seven steps and a border
    assert [path.stem for path in checkpoint_paths(working_folder(job.folder))] == ["step-00000007", "step-00000006"]
    return job


def tear(path):
    path.write_bytes(path.read_bytes()[:100])


def test_a_torn_checkpoint_gives_way_to_the_one_before(stopped, tmp_path):
    tear(checkpoint_paths(working_folder(stopped.folder))[0])
    said = []
    more = go(stopped, said=said)
    assert "'step-00000007' cannot be used: it is not whole" in said[0]
    assert said[1] == "Going on from 'step-00000006', the one before."
    straight = job_of(plan(), tmp_path / "straight")
    check_equal(go(straight), more, [straight.folder, stopped.folder])


def test_without_a_good_checkpoint_a_run_refuses_and_keeps_them(stopped):
    work = working_folder(stopped.folder)
    for folder in checkpoint_paths(work):
        tear(folder)
    with pytest.raises(UsageError, match="start anew with --restart"):
        go(stopped)
    assert len(checkpoint_paths(work)) == 2
    assert go(stopped, restart=True) is not None
    assert not work.exists()


def test_another_experiment_refuses_the_folder(stopped):
    with pytest.raises(UsageError, match=r"another configuration: seed=0 there, 3 here"):
        go(job_of(plan(seed=3), stopped.folder))
    assert len(checkpoint_paths(working_folder(stopped.folder))) == 2


def test_other_data_refuse_the_folder(stopped):
    with pytest.raises(UsageError, match="made on other data"):
        run_job(stopped, data=blobs(per_class=20, seed=1))


def test_another_version_goes_on_and_says_so(stopped, monkeypatch):
    before = provenance.versions
    monkeypatch.setattr(provenance, "versions", lambda device: {**before(device), "torch": "9.9"})
    said = []
    outcome = go(stopped, said=said)
    line = f"torch {torch.__version__} then, 9.9 now"
    assert line in said[0]
    assert line in outcome.result.provenance["notes"][0]


def test_two_at_once_are_refused(stopped):
    with hold(working_folder(stopped.folder)), pytest.raises(UsageError, match="is in use by process"):
        go(stopped)
    assert go(stopped) is not None


def full(*_):
    raise OSError(errno.ENOSPC, "No space left on device")


def test_a_full_disk_ends_the_run_and_costs_nothing_stored(stopped, tmp_path, monkeypatch):
    with monkeypatch.context() as patch:
        patch.setattr("safetensors.torch.save_file", full)
        with pytest.raises(
            UsageError, match=r"No space left on device. Make room there, then run the same command again"
        ):
            go(stopped)
    straight = job_of(plan(), tmp_path / "straight")
    check_equal(go(straight), go(stopped), [straight.folder, stopped.folder])


def test_a_full_disk_at_the_very_end_leaves_the_finished_state(tmp_path, monkeypatch):
    job = job_of(plan(), tmp_path / "run")
    with monkeypatch.context() as patch:
        patch.setattr("odedm.results.folder.write_bytes", full)
        with pytest.raises(InfrastructureError, match=f"Cannot write '{job.folder}': No space"):
            go(job)
    assert [path.name for path in tmp_path.iterdir()] == [".run.work"]
    said = []
    assert go(job, said=said) is not None
    assert "Going on after step 20" in said[-1], "nothing is trained again"


def test_a_deleted_folder_ends_the_run(tmp_path, monkeypatch):
    job = job_of(plan(), tmp_path / "experiment" / "run")

    monkeypatch.setattr("odedm.execute.run_job.TICK", 0.0)

    def delete(event):
        if isinstance(event, ProgressReport) and event.done == 48:
            shutil.rmtree(tmp_path / "experiment")

    with pytest.raises(UsageError, match="was deleted, moved or taken over"):
        run_job(job, delete, data=DATA)
    assert not list(tmp_path.iterdir())
    with pytest.raises(UsageError, match="was deleted, moved or taken over"):
        run_job(again(job, job.folder, schedule=Schedule.parse("never")), delete, data=DATA)
    assert not list(tmp_path.iterdir()), "nor is a result written into a folder that someone took away"


def test_what_killed_writers_left_is_cleared_up(stopped):
    half = stopped.folder.with_name(f".{stopped.folder.name}.4242.0123abcd")
    half.mkdir()
    other = stopped.folder.with_name(".another.4242.0123abcd")
    other.mkdir()
    go(stopped)
    assert not half.exists()
    assert other.exists()


def test_a_result_that_was_moved_aside_is_moved_back(tmp_path):
    aside = tmp_path / ".run.4242.0123abcd.old"
    aside.mkdir()
    (aside / "result.json").write_text("{}")
    remove_stale(tmp_path / "run")
    assert [path.name for path in tmp_path.iterdir()] == ["run"]
    aside.mkdir()
    remove_stale(tmp_path / "run")
    assert not aside.exists(), "the new one is there: the old one goes"


def test_a_leftover_of_a_finished_run_goes_and_another_go_at_it_stays(stopped):
    work = working_folder(stopped.folder)
    copy = work.with_name("copy")
    shutil.copytree(work, copy)
    go(stopped)
    assert go(stopped, 8, overwrite=True) is None
    remove_stale_workdir(stopped.folder)
    assert checkpoint_paths(work), "this go is to replace the run, and goes on"
    assert go(stopped, overwrite=True) is not None
    assert not work.exists()
    copy.rename(work)
    remove_stale_workdir(stopped.folder)
    assert not work.exists()


def test_every_so_many_steps_and_seconds(tmp_path, monkeypatch):
    stored = []
    original = checkpoint.save

    def note(work, state, meta, position):
        stored.append((position.step, position.task))
        return original(work, state, meta, position)

    monkeypatch.setattr("odedm.checkpoint.checkpointer.save", note)
    go(job_of(plan(), tmp_path / "a"), schedule="every 6 steps")
    assert stored == [(4, 1), (8, 2), (12, 3), (16, 4), (20, 5)], "tasks are of four steps: a border comes first"
    stored.clear()
    go(job_of(plan(), tmp_path / "b"), schedule="3 steps")
    assert [step for step, _ in stored] == [3, 4, 7, 8, 11, 12, 15, 16, 19, 20]
    stored.clear()
    go(job_of(plan(), tmp_path / "c"), schedule="never")
    assert stored == []


def test_the_configuration_comes_back_from_the_checkpoint(stopped):
    plain = latest_look(working_folder(stopped.folder))[1].configuration
    assert plain.pop("cuda_graph") is None, "which changes no number"
    plan = Experiment.from_dict({**plain, "cuda_graph": True})
    assert run_job(job_of(plan, stopped.folder), data=DATA).result.experiment["seed"] == 0


@pytest.mark.parametrize("ask", [lambda: torch.empty(1 << 55, dtype=torch.uint8), lambda: bytearray(1 << 60)])
def test_a_machine_without_memory_is_a_sentence(tmp_path, monkeypatch, ask):
    monkeypatch.setattr(METHODS["er"].load(), "loss", lambda *_: ask())
    with pytest.raises(UsageError, match="This machine has no memory left: .* Run fewer at once") as said:
        go(job_of(plan(method="er"), tmp_path / "seed-0"))
    assert "\n" not in str(said.value)
    assert len(str(said.value)) < 300


def test_a_run_that_replaces_another_notes_that_through_no_link(tmp_path):
    job = job_of(plan(), tmp_path / "run")
    go(job)
    (work := working_folder(job.folder)).mkdir()
    (work / "replaces").symlink_to(tmp_path / "elsewhere")
    assert go(job, overwrite=True) is not None
    assert [each.name for each in tmp_path.iterdir()] == ["run"]


class Growing(ER):
    """Replaces its head by a longer one when a task begins, and weights of its own as well."""

    def __post_init__(self):
        self.own = nn.Parameter(torch.ones(1))
        super().__post_init__()

    def begin_task(self, task):
        self.own = nn.Parameter(torch.ones(1 + task.index))
        head = self.net.head
        longer = nn.Parameter(torch.cat([head.weight.detach(), torch.zeros(3, head.in_features)]))
        head.weight, head.bias = longer, nn.Parameter(torch.cat([head.bias.detach(), torch.zeros(3)]))
        super().begin_task(task)

    def trained(self):
        return [*super().trained(), self.own]


def test_a_method_from_outside_whose_weights_grow_is_resumed(tmp_path):
    plugins.register("methods", "growing", Growing)
    job = job_of(plan(method="growing"), tmp_path / "run")
    whole = go(again(job, tmp_path / "whole"))
    assert go(job, 12, "2 steps") is None
    check_equal(whole, go(job), [tmp_path / "whole", tmp_path / "run"])
