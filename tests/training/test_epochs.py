"""Several passes over each task: what is trained on, what is stored, and that such runs resume exactly."""

import pytest
import torch
from driver import Driver
from equal_states import equal_states

from odedm import ODEDM, Native, Reservoir, UsageError, blobs, train
from odedm.methods.er import ER
from odedm.training.experiment import Experiment, content_key
from odedm.training.progress import TaskBatches

BLOBS = blobs(per_class=16)


class Watching(ER):
    """Notes which rows it is trained on."""

    def __post_init__(self):
        super().__post_init__()
        self.seen = []

    def observe(self, batch, replay):
        self.seen.append(batch["index"].tolist())
        return super().observe(batch, replay)


def test_every_pass_has_every_row_once_in_another_order_and_only_the_first_is_stored():
    outcome = train(BLOBS, method=Watching, memory=Reservoir(500), batch=10, epochs=3, progress=False)
    assert outcome.memory.size() == len(BLOBS.image), "each row once"
    seen = outcome.method.seen
    for first in range(0, len(seen), 9):  # 26 rows a task, three batches of them
        passes = [sum(seen[first + 3 * each : first + 3 * each + 3], []) for each in range(3)]
        assert len({tuple(sorted(each)) for each in passes}) == 1
        assert len({tuple(each) for each in passes}) == 3
    once = train(BLOBS, method=Watching, memory=Reservoir(500), batch=10, progress=False)
    assert [each for i, each in enumerate(seen) if i % 9 < 3] == once.method.seen, "the first pass is that of one pass"


def test_rows_that_come_in_order_stay_in_order():
    outcome = train(BLOBS, method=Watching, memory=Reservoir(9), batch=10, epochs=2, shuffle=False, progress=False)
    assert outcome.method.seen[:3] == outcome.method.seen[3:6]


def test_stored_rows_that_are_mixed_in_come_again_in_another_order():
    batches = TaskBatches({"label": torch.arange(9)}, new=6, size=4, order=torch.arange(9))
    again = batches.next_epoch(torch.Generator().manual_seed(0), shuffle=False)
    assert sorted(sum((rows["label"].tolist() for rows, _ in again.from_batch(0)), [])) == list(range(9))
    assert sum(new for _, new in again.from_batch(0)) == 6


def test_rows_that_are_mixed_in_follow_from_the_runs_seed_alone():
    def weights(state):
        torch.manual_seed(state)
        outcome = train(BLOBS, method="icarl", memory=Native(20), epochs=2, shuffle=False, batch=10, progress=False)
        return outcome.method.net.head_weight()

    assert weights(0).equal(weights(1))


@pytest.mark.parametrize(
    ("method", "memory"), [("icarl", Native(20)), ("derpp", ODEDM(20, k=1, annotate="stream")), ("gem", Native(20))]
)
def test_killed_in_any_pass_and_resumed_equals_unkilled(method, memory):
    options = {"method": method, "batch": 8, "epochs": 3}
    whole, state = Driver(memory, BLOBS, **options), None
    outcome = whole.go()
    for steps in (1, 4, 6, 15):
        part = Driver(memory, BLOBS, state, **options)
        assert part.go(steps) is None
        state = part.capture()
    killed = Driver(memory, BLOBS, state, **options)
    again = killed.go()
    for each in (whole, killed):
        each.run.timer.seconds.clear()
    assert equal_states(whole.capture(), killed.capture()) == []
    assert again.result.class_il == outcome.result.class_il


def test_the_number_of_passes_is_part_of_an_experiment():
    plain = Experiment().describe()
    assert content_key(plain) != content_key({**plain, "epochs": 2})
    with pytest.raises(UsageError, match="epochs must be a whole number, 1 or more; 0 was given"):
        Experiment(epochs=0)


def test_tests_in_mid_task_are_spread_over_all_passes():
    outcome = train(BLOBS, method="er", memory="reservoir", batch=13, epochs=2, anytime=2, progress=False)
    assert [row[0] for row in outcome.result.anytime] == [26 * each for each in range(1, 11)]
