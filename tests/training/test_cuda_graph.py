"""When a step is recorded, and when a recording is good: the logic, on a processor.

That replaying changes no number is in `test_recorded_steps.py`.
"""

import pytest
import torch

from odedm import Experiment, Reservoir, Run, shapes
from odedm.core.accel.host_state import host_state
from odedm.training.cuda_graph import EAGER, MOST, GraphedStep


def test_what_a_step_freezes_is_seen_in_the_host_state():
    run = Run(Experiment(Reservoir(40), method="vrmcl", data="shapes", device="cpu", batch=16), shapes())
    tasks = run.stream.tasks
    run.method.begin_task(tasks[0])
    first = host_state(run.method)
    assert first == host_state(run.method)
    run.method.begin_task(tasks[1])
    assert first != host_state(run.method), "other classes compete"


class Keyed:
    """A method that says of itself what its recordings freeze, as all do."""

    def graph_key(self):
        return host_state(self)


class Counter:
    """A memory of one number, enough for the stepper."""

    def __init__(self):
        self.size, self.steps = 0, []

    def step(self, batch, new):
        self.steps.append((len(batch["label"]), new))
        self.size = min(self.size + new, 8)
        return batch

    def on_graph_replay(self, new):
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
    stepper = GraphedStep(
        memory.step,
        graph_key=lambda: min(memory.size, 4),
        on_graph_replay=memory.on_graph_replay,
        recorder=lambda: Spy(log),
    )
    stepper.begin_task(Keyed())
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
        old = 0

        def graph_key(self):
            return host_state(self, without=("old",))

    method = Method()
    memory.size = 8
    for method.old in range(3):
        stepper.begin_task(method)
        stepper(rows(4), 4)
    assert log == ["recorder", "record 4", "replay 4"]


def test_a_change_on_the_host_forgets_recordings_and_no_change_keeps_them(bench):
    stepper, memory, log = bench

    class Method(Keyed):
        rate = 0

    method = Method()
    memory.size = 8
    method.weight = torch.zeros(2)
    stepper.begin_task(method)
    for _ in range(4):
        stepper(rows(4), 4)
    stepper.update_baseline(method)
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


@pytest.mark.parametrize("change", ["freeze", "submodule", "function", "transpose", "rate"])
def test_what_the_host_state_must_see(change):
    run = Run(Experiment(Reservoir(40), method="vrmcl", data="shapes", device="cpu", batch=16), shapes())
    method = run.method
    before = host_state(method)
    if change == "freeze":
        next(method.net.parameters()).requires_grad_(False)
    elif change == "submodule":
        method.net.norm1.eval()
    elif change == "function":
        method.function.sizes = method.function.sizes[:-1]
    elif change == "rate":
        method.optimizer.param_groups[0]["lr"] /= 2
    else:
        method.rates = method.rates.view(2, -1).T
    assert before != host_state(method)


def test_steps_that_do_not_repeat_stay_eager_and_spoil_no_recording(bench):
    stepper, memory, log = bench
    memory.size = 8

    class Method:
        def __init__(self, key):
            self.graph_key = lambda: key

    for key, steps in ((1, EAGER + 1), (None, 4)):
        stepper.begin_task(Method(key))
        for _ in range(steps):
            stepper(rows(4), 4)
    assert (stepper.eager, stepper.captured) == (EAGER + 4, 1)
    assert log == ["recorder", "record 4", "replay 4"]


def test_without_a_recorder_every_step_is_eager():
    memory = Counter()
    stepper = GraphedStep(memory.step, graph_key=lambda: 0, on_graph_replay=memory.on_graph_replay, recorder=None)
    for _ in range(5):
        stepper(rows(2), 2)
    assert (stepper.eager, stepper.captured, len(memory.steps)) == (5, 0, 5)
