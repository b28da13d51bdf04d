"""When a step is recorded, when a recording is good, and that replaying changes no number: the logic, on a processor.

A recording made here does on replay what a CUDA graph does: the tensors' half of a step, with the host's values and
references of when it was recorded. What the host counts or sets in it is undone, as if that code had not run.
"""

import pytest
import torch
from sampling import KEEPING, pairs

from odedm import ODEDM, Experiment, Native, Reservoir, Run, shapes
from odedm.core.registry import METHODS
from odedm.methods import base, icarl
from odedm.methods.base import Method
from odedm.training.cuda_graph import EAGER, MOST, Stepper, fingerprint

MEMORIES = {"reservoir": Reservoir(40), "native": Native(40), "odedm": ODEDM(40, k=2, replay="both")}
CAPTURABLE = [name for name in KEEPING if METHODS[name].load().capturable]


class Emulated:
    """Records a step of a run and replays it as a graph would: on the host numbers of then, which it cannot change."""

    def __init__(self, run):
        memory = run.memory
        self.hosts = [each for each in (memory, vars(memory).get("host"), run.replay, run.method) if each is not None]

    def __call__(self, step, batch, new):
        before = [numbers(host) for host in self.hosts]
        shapes = {name: column.shape for name, column in batch.items()}
        for host in self.hosts:
            if "replayed" in dir(host):
                host.replayed(new)  # recording runs the host's half of the step once
                break

        def replay(rows):
            assert {name: column.shape for name, column in rows.items()} == shapes
            now = [numbers(host) for host in self.hosts]
            try:
                for host, then in zip(self.hosts, before, strict=True):
                    vars(host).update(then)
                return step(rows, new)
            finally:
                for host, then in zip(self.hosts, now, strict=True):
                    vars(host).update(then)

        return replay


def numbers(host):
    """What the host knows: of a method every value and reference, of memory and replay what they count."""
    if isinstance(host, Method):
        return {name: list(value) if isinstance(value, list) else value for name, value in vars(host).items()}
    return {name: value for name, value in vars(host).items() if isinstance(value, int)}


@pytest.mark.parametrize(("method", "memory"), pairs(CAPTURABLE, MEMORIES))
def test_a_replayed_run_has_the_numbers_of_an_eager_one(method, memory):
    steps = replayed_as_eager(method, memory)
    assert steps > 10


@pytest.mark.parametrize(("method", "module"), [("icarl", icarl), ("puridiver", base)], ids=["icarl", "puridiver"])
def test_so_has_one_as_a_gpu_does_it_with_recordings_for_several_tasks(method, module, monkeypatch):
    before = replayed_as_eager(method, "native")
    monkeypatch.setattr(module, "launch_bound", lambda _device: True)
    assert replayed_as_eager(method, "native") > before


def replayed_as_eager(method, memory):
    """How many steps of a run are replayed, once its numbers have been found the same as those of an eager one."""
    data, fewer = shapes(), {"turns": 1} if method == "onpro" else {}  # turns take half a minute and no other path
    plan = Experiment(MEMORIES[memory], method=method, data="shapes", device="cpu", batch=4, options=fewer)
    eager, replayed = Run(plan, data), Run(plan, data)
    replayed.stepper.recorder = lambda: Emulated(replayed)
    one, other = eager.finish(), replayed.finish()
    assert one.result.class_il == other.result.class_il
    assert one.result.class_counts == other.result.class_counts
    for a, b in zip(one.method.net.state_dict().values(), other.method.net.state_dict().values(), strict=True):
        assert a.equal(b)
    for name, column in one.memory.rows().items():
        assert column.equal(other.memory.rows()[name]), name
    return replayed.stepper.captured


def test_what_a_step_freezes_is_seen_in_the_fingerprint():
    run = Run(Experiment(Reservoir(40), method="vrmcl", data="shapes", device="cpu", batch=16), shapes())
    tasks = run.stream.tasks
    run.method.begin_task(tasks[0])
    first = fingerprint(run.method)
    assert first == fingerprint(run.method)
    run.method.begin_task(tasks[1])
    assert first != fingerprint(run.method), "other classes compete"


class Counter:
    """A memory of one number, enough for the stepper."""

    def __init__(self):
        self.size, self.steps = 0, []

    def step(self, batch, new):
        self.steps.append((len(batch["label"]), new))
        self.size = min(self.size + new, 8)
        return batch

    def replayed(self, new):
        self.size = min(self.size + new, 8)


class Spy:
    """Records what is recorded; a replay tells so."""

    def __init__(self, log):
        self.log = log
        log.append("recorder")

    def __call__(self, step, batch, new):
        self.log.append(f"record {len(batch['label'])}")
        step(batch, new)
        return lambda rows: self.log.append(f"replay {len(rows['label'])}") or rows


def rows(n):
    return {"label": torch.zeros(n)}


@pytest.fixture
def bench():
    memory, log = Counter(), []
    stepper = Stepper(
        memory.step, frozen=lambda: min(memory.size, 4), replayed=memory.replayed, recorder=lambda: Spy(log)
    )
    stepper.begin_task(memory)
    return stepper, memory, log


def test_first_steps_of_a_kind_are_eager_then_one_is_recorded_and_replayed(bench):
    stepper, memory, log = bench
    for _ in range(6):
        stepper(rows(4), 4)
    # the first found an empty memory: a kind of its own
    assert (stepper.eager, stepper.captured) == (1 + EAGER, 3)
    assert log == ["recorder", "record 4", "replay 4", "replay 4", "replay 4"]
    assert memory.size == 8


def test_the_host_counts_every_step_once(bench):
    stepper, memory, _ = bench
    sizes = []
    for _ in range(6):
        stepper(rows(1), 1)
        sizes.append(memory.size)
    assert sizes == [1, 2, 3, 4, 5, 6]


def test_another_shape_or_number_of_new_rows_is_another_kind(bench):
    stepper, memory, log = bench
    memory.size = 8
    for _ in range(4):
        stepper(rows(4), 4)
    stepper(rows(3), 3)
    stepper(rows(4), 2)
    assert [entry for entry in log if entry.startswith("record ")] == ["record 4"]
    assert stepper.eager == EAGER + 2


def test_where_no_batch_is_looked_at_the_number_of_new_rows_is_no_other_kind(bench):
    stepper, memory, log = bench
    memory.size, stepper.by_new = 8, False
    found = [len(stepper(rows(4), new)["label"]) for new in (4, 2, 3, 1, 4)]
    assert log == ["recorder", "record 4", "replay 4", "replay 4", "replay 4"]
    assert found[EAGER:] == [3, 1, 4]


def test_what_no_step_reads_may_change_on_the_host(bench):
    stepper, memory, log = bench

    class Method:
        unread = ("old",)
        old = 0

    method = Method()
    memory.size = 8
    for method.old in range(3):
        stepper.begin_task(method)
        stepper(rows(4), 4)
    assert log == ["recorder", "record 4", "replay 4"]


def test_a_change_on_the_host_forgets_recordings_and_no_change_keeps_them(bench):
    stepper, memory, log = bench

    class Method:
        rate = 0

    method = Method()
    memory.size = 8
    method.weight = torch.zeros(2)
    stepper.begin_task(method)
    for _ in range(4):
        stepper(rows(4), 4)
    stepper.settle(method)
    stepper.begin_task(method)
    stepper(rows(4), 4)
    assert log.count("record 4") == 1
    method.old = 3
    stepper.begin_task(method)
    for _ in range(EAGER + 1):
        stepper(rows(4), 4)
    assert log.count("record 4") == log.count("recorder") == 2


def test_recordings_are_bounded_and_the_longest_unused_goes(bench):
    stepper, memory, log = bench
    memory.size = 8
    for size in range(1, MOST + 3):
        for _ in range(EAGER + 1):
            stepper(rows(size), 0)
        stepper(rows(1), 0)
    assert len(stepper._recordings) == MOST
    assert log.count("record 1") == 1, "it was used all the time"
    stepper(rows(2), 0)
    assert log.count("record 2") == 2, "it had to go"


def test_a_closed_stepper_lets_go_of_the_run(bench):
    stepper, memory, _ = bench
    memory.size = 8
    for _ in range(4):
        stepper(rows(4), 4)
    stepper.close()
    assert not stepper._recordings
    with pytest.raises(RuntimeError, match="over"):
        stepper(rows(4), 4)


@pytest.mark.parametrize("change", ["freeze", "submodule", "function", "transpose"])
def test_what_the_fingerprint_must_see(change):
    run = Run(Experiment(Reservoir(40), method="vrmcl", data="shapes", device="cpu", batch=16), shapes())
    method = run.method
    before = fingerprint(method)
    if change == "freeze":
        next(method.net.parameters()).requires_grad_(False)
    elif change == "submodule":
        method.net.norm1.eval()
    elif change == "function":
        method.function.sizes = method.function.sizes[:-1]
    else:
        method.rates = method.rates.view(2, -1).T
    assert before != fingerprint(method)


def test_steps_that_do_not_repeat_stay_eager_and_spoil_no_recording(bench):
    stepper, memory, log = bench
    memory.size = 8
    for repeats in [True] * (EAGER + 1) + [False] * 4 + [True]:
        stepper.repeats = lambda repeats=repeats: repeats
        stepper(rows(4), 4)
    assert (stepper.eager, stepper.captured) == (EAGER + 4, 2)
    assert log == ["recorder", "record 4", "replay 4", "replay 4"]


def test_without_a_recorder_every_step_is_eager():
    memory = Counter()
    stepper = Stepper(memory.step, frozen=lambda: 0, replayed=memory.replayed, recorder=None)
    for _ in range(5):
        stepper(rows(2), 2)
    assert (stepper.eager, stepper.captured, len(memory.steps)) == (5, 0, 5)
