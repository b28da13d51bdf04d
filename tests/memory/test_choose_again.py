"""Prototypes of past classes chosen anew as features drift: inside λ, and no row is lost."""

import pytest
import torch
from plausible import check_run
from test_dual import FIELDS, stream_through, task

from odedm import ODEDM, DualMemory, Learner, MemoryPart, UsageError, blobs
from odedm.core.registry import POLICIES
from odedm.core.timer import Timer
from odedm.memory.dual import TaskDualMemory
from odedm.memory.paper_reading import paper_reading
from odedm.memory.reservoir import ReservoirMemory
from odedm.selection.distance import L2
from odedm.selection.row_selector import RandomRows
from odedm.selection.selector import PrototypeSelector
from odedm.testing.contracts import check_exact, check_promises, finish
from odedm.training.train import train


class Drifting:
    """Features that turn as tasks go by, so that the middle of a class is another row each time."""

    def __init__(self):
        self.turn = 0.0

    def embed(self, image):
        return image * torch.tensor([1.0, self.turn])

    def annotate(self, rows):
        return {"logits": torch.full((len(rows["label"]), 3), -1.0)}


def memory(again=True, k=2, capacity=40, distance=None, quota=None):
    choose = PrototypeSelector(k, distance=distance or L2(), dac=None)
    rng = torch.Generator().manual_seed(1)
    host = ReservoirMemory(capacity, FIELDS)
    return TaskDualMemory(host, choose, rng=rng, timer=Timer(), quota=quota, choose_again=again)


def everything(stored):
    rows = stored.rows()
    return {
        (index, tuple(logits), tuple(image))
        for index, logits, image in zip(
            rows["index"].tolist(), rows["logits"].tolist(), rows["image"].tolist(), strict=True
        )
    }


def short_keys(stored):
    key = stored.host.store.key
    return set(key[(key >= 0) & (key < 1)].tolist())


@pytest.mark.parametrize("capacity", [16, 40])
def test_no_row_is_lost_and_each_keeps_its_columns(capacity):
    stored, probe = memory(capacity=capacity), Drifting()
    list(stream_through(stored, probe, [task(0)]))
    first = stored.rows(MemoryPart.LONG)["index"].tolist()
    for turn in (5.0, 100.0, 0.01):
        before, short, keys = everything(stored), stored.size(MemoryPart.SHORT), short_keys(stored)
        probe.turn = turn
        stored._choose_again(stored.consolidator, [], probe)
        after = everything(stored)
        assert after <= before
        assert {each[0] for each in after} == {each[0] for each in before}
        index = stored.rows(MemoryPart.SHORT)["index"]
        assert len(index) == len(index.unique()) == stored.size(MemoryPart.SHORT)  # a copy of a row is no second one
        assert short - stored.size(MemoryPart.SHORT) == len(before) - len(after)
        assert len(short_keys(stored)) == stored.size(MemoryPart.SHORT)
        assert short_keys(stored) <= keys  # so the threshold that new rows must pass stays, and they enter as before
        assert stored.class_counts(2)["long"] == [2, 2]
        long = stored.rows(MemoryPart.LONG)
        assert sorted(zip(long["label"].tolist(), long["prototype"].tolist(), strict=True)) == [
            (0, 0), (0, 1), (1, 0), (1, 1),
        ]  # fmt: skip
        assert (stored.rows(MemoryPart.SHORT)["prototype"] == -1).all()
        assert sorted(long["order"].tolist()) == [0, 1, 2, 3]
    assert set(long["index"].tolist()) != set(first)


def test_what_is_chosen_is_what_the_present_features_say():
    stored, probe = memory(k=1), Drifting()
    list(stream_through(stored, probe, [task(0)]))
    probe.turn = 3.0
    stored._choose_again(stored.consolidator, [], probe)
    rows = stored.rows()
    for label in (0, 1):
        own = rows["label"] == label
        points, index = probe.embed(rows["image"][own]), rows["index"][own]
        # the pool has a row once, where it is in both parts
        once = torch.tensor([index.tolist().index(each) for each in index.unique()])
        nearest = index[once][(points[once] - points[once].mean(0)).norm(dim=1).argmin()]
        assert stored.rows(MemoryPart.LONG)["index"][stored.rows(MemoryPart.LONG)["label"] == label].tolist() == [
            int(nearest)
        ]


def test_only_past_classes_are_chosen_again_and_only_where_it_is_asked_for():
    for again in (False, True):
        stored, probe, first = memory(again), Drifting(), {}
        probe.turn = 1.0
        for each in stream_through(stored, probe, [task(i) for i in range(4)]):
            long = stored.rows(MemoryPart.LONG)
            own = {label: set(long["index"][long["label"] == label].tolist()) for label in range(8)}
            if each.index < 3:
                assert all(set(own[label]) <= set(each.rows["index"].tolist()) for label in each.classes)
                first |= {label: own[label] for label in each.classes}
            last, probe.turn = own, probe.turn * -7 + 1
        changed = [label for label in range(6) if last[label] != first[label]]
        assert bool(changed) is again
        assert 4 not in changed and 5 not in changed  # noqa: PT018 - nothing follows their task but the last one
        assert stored.class_counts(8)["long"] == [2] * 6 + [0, 0]
        assert stored.size() == 40


def test_random_rows_are_drawn_again_and_quotas_are_kept():
    stored, probe = memory(distance=RandomRows(), quota=(3, 1, 2, 2, 0, 0)), Drifting()
    found = []
    for each in stream_through(stored, probe, [task(i, total=3) for i in range(3)]):
        found.append(set(stored.rows(MemoryPart.LONG)["index"].tolist()))
        assert stored.class_counts(6)["long"] == ([3, 1, 0, 0, 0, 0] if each.index == 0 else [3, 1, 2, 2, 0, 0])
    assert not found[0] <= found[1]
    assert found[1] == found[2]  # nothing is chosen when the last task ends


def test_a_class_that_would_get_another_number_is_left_as_it_is():
    stored, probe = memory(k=3), Drifting()
    few = task(0, per_class=2)
    list(stream_through(stored, probe, [few]))
    stored.host.add({**task(0).rows, "logits": torch.zeros(24, 3)}, probe, rng=torch.Generator().manual_seed(5))
    before, told = stored.rows(MemoryPart.LONG)["index"].tolist(), []
    stored.on_selection = lambda *what: told.append(what)
    stored._choose_again(stored.consolidator, [], probe)
    assert stored.rows(MemoryPart.LONG)["index"].tolist() == before
    assert told == []


@pytest.mark.parametrize("policy", POLICIES)
def test_every_policy_of_short_term_rows(policy):
    method = {"herded": "icarl", "purity": "puridiver"}.get(policy, "derpp")
    run, outcome = finish(ODEDM(40, k=2, short_policy=policy, choose_again=True), method=method, batch=16)
    check_promises(run, outcome)
    assert outcome.memory.class_counts(10)["long"] == [2] * 8 + [0, 0]
    assert (outcome.memory.rows(MemoryPart.SHORT)["prototype"] == -1).all()
    long = outcome.memory.rows(MemoryPart.LONG)
    assert sorted(long["order"].tolist()) == list(range(16))
    if "full" in long:
        assert not long["full"].any()


def test_resumed_exactly_and_checked_with_its_evidence(tmp_path):
    check_exact(ODEDM(30, k=2, choose_again=True, distance="l2"), method="er")
    data = blobs(per_class=20)
    outcome = train(data, method="er", memory=ODEDM(40, k=2, choose_again=True), evidence=True)
    check_run(outcome.save(tmp_path / "run"), data)


def test_candidates_inside_the_capacity_go_along():
    run, outcome = finish(ODEDM(40, k=2, candidates=5, choose_again=True), batch=16)
    check_promises(run, outcome)
    assert outcome.memory.size() == 30


def test_what_cannot_be_is_refused():
    with pytest.raises(UsageError, match="leave one of them out"):
        ODEDM(40, k=2, mixup=True, choose_again=True)
    with pytest.raises(UsageError, match="setting of a live memory"):
        DualMemory(40, k=2, choose_again=True)
    with pytest.raises(UsageError, match="borders of a run's tasks"):
        DualMemory.of(ODEDM(40, k=2, choose_again=True))
    with pytest.raises(UsageError, match="borders of a run's tasks"):
        Learner(memory=ODEDM(40, k=2, choose_again=True))
    assert paper_reading()["choose_again"] is False


def test_every_choice_is_shown_to_who_looks_on():
    stored, probe = memory(), Drifting()
    seen = []
    stored.on_selection = lambda rows, chosen, distance: seen.append(int(rows["label"][0]))
    list(stream_through(stored, probe, [task(0), task(1)]))
    assert seen == [0, 1, 2, 3, 0, 1]
