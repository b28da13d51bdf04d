"""`odedm.testing` passes what keeps its promises, and says of everything else which one is broken."""

import pytest
import torch
from torch import nn

import odedm
from odedm.methods.er import ER
from odedm.selection.distance import L2
from odedm.testing import CheckFailed, check_distance, check_memory, check_method, check_net


class GlobalDraws(ER):
    """Draws from torch's own generator."""

    def observe(self, batch, replay):
        batch["input"] = batch["input"] + 0.1 * torch.randn_like(batch["input"])
        return super().observe(batch, replay)


class Forgetful(ER):
    """Keeps what decides its steps where no checkpoint finds it."""

    seen = {}

    def observe(self, batch, replay):
        count = Forgetful.seen[id(self)] = Forgetful.seen.get(id(self), 0) + 1
        batch["input"] = batch["input"] * (1 + 0.01 * count)
        return super().observe(batch, replay)


class Idle(ER):
    """Learns nothing."""

    def observe(self, batch, replay):
        return {}


class WrongFields(ER):
    """Declares a column and gives another."""

    def fields(self):
        return (odedm.ColumnSpec("logits", (10,)),)

    def observe(self, batch, replay):
        super().observe(batch, replay)
        return {"logits": torch.zeros(len(batch["label"]), 10)}

    def annotate(self, rows):
        return {"logits": torch.zeros(len(rows["label"]), 10, dtype=torch.float64)}


class Shortest(odedm.Method):
    """A loss, and nothing else."""

    def loss(self, batch, replay):
        x, y = batch["input"], batch["label"]
        if past := replay():
            x, y = torch.cat([x, past["input"]]), torch.cat([y, past["label"]])
        return nn.functional.cross_entropy(self.net(x), y), {}


def test_the_shortest_method_works_with_every_memory_and_as_a_learner():
    check_method(Shortest, lr=0.1)
    learner, data = odedm.Learner(Shortest, memory=20, batch=8, lr=0.1), odedm.blobs()
    order = torch.randperm(len(data.label), generator=torch.Generator().manual_seed(0))
    learner.partial_fit(data.image[order], data.label[order].tolist())
    assert learner.score(data.test_image, data.test_label.tolist()) > 0.8


class Unstored(ER):
    """Has an attribute that no checkpoint can hold."""

    def __post_init__(self):
        super().__post_init__()
        self.open = iter([1, 2])


METHODS = {
    GlobalDraws: "The same seed does not give the same run",
    Forgetful: "goes on from a checkpoint is not the run",
    Idle: "no better than chance",
    WrongFields: "The field 'logits' is declared",
    Unstored: "A checkpoint cannot hold it: method.open",
}


@pytest.mark.parametrize("method", METHODS, ids=lambda kind: kind.__name__)
def test_a_method_that_breaks_a_promise_is_told_which(method):
    with pytest.raises(CheckFailed, match=METHODS[method]):
        check_method(method)


class OtherLabels(odedm.Memory):
    """Stores rows with labels of others."""

    def add(self, rows, probe, *, rng):
        rows = {**rows, "label": rows["label"].roll(1)}
        self.insert(rows, torch.rand(len(rows["label"]), generator=rng, dtype=torch.float64))

    def end_task(self, task, probe, *, rng):
        pass


class Nothing(OtherLabels):
    """Stores nothing."""

    def add(self, rows, probe, *, rng):
        pass


class Luck(OtherLabels):
    """Draws from torch's own generator."""

    def add(self, rows, probe, *, rng):
        self.insert(rows, torch.rand(len(rows["label"]), dtype=torch.float64))


class LargePriorities(OtherLabels):
    """Offers priorities beyond 1, which mark pinned rows."""

    def add(self, rows, probe, *, rng):
        self.insert(rows, 5 * torch.rand(len(rows["label"]), generator=rng, dtype=torch.float64))


class NegativePriorities(OtherLabels):
    """Offers priorities below 0."""

    def add(self, rows, probe, *, rng):
        self.insert(rows, -torch.rand(len(rows["label"]), generator=rng, dtype=torch.float64))


class FewColumns(OtherLabels):
    """Drops a column on the way."""

    def add(self, rows, probe, *, rng):
        own = {name: rows[name] for name in ("image", "label")}
        self.insert(own, torch.rand(len(own["label"]), generator=rng, dtype=torch.float64))


class PastTheDoor(OtherLabels):
    """Offers to the store itself, without the columns that a memory adds."""

    def add(self, rows, probe, *, rng):
        self.store.insert(rows, torch.rand(len(rows["label"]), generator=rng, dtype=torch.float64))


class NoTable(OtherLabels):
    """Offers a tensor in the place of columns."""

    def add(self, rows, probe, *, rng):
        self.insert(rows["image"], torch.rand(len(rows["label"]), generator=rng, dtype=torch.float64))


class FewPriorities(OtherLabels):
    """Has not a priority for each row."""

    def add(self, rows, probe, *, rng):
        self.insert(rows, torch.rand(3, generator=rng, dtype=torch.float64))


POLICIES = {
    LargePriorities: r"Priorities are numbers in \[0, 1\); the policy (Large|Negative)Priorities offered some from 0\.",
    NegativePriorities: r"the policy (Large|Negative)Priorities offered some from -0\.",
    FewColumns: "lack the column 'task'; a row here has image, label",
    PastTheDoor: "lack the column 'prototype'.*offers them by `insert`",
    NoTable: "a dictionary of columns.*a Tensor was given",
    FewPriorities: "16 rows were offered with 3 priorities",
    OtherLabels: "the label that it arrived with",
    Nothing: "keeps no row at all",
    Luck: "draw from the `rng` that `add`",
}


@pytest.mark.parametrize("policy", POLICIES, ids=lambda kind: kind.__name__)
def test_a_policy_that_breaks_a_promise_is_told_which(policy):
    with pytest.raises(CheckFailed, match=POLICIES[policy]):
        check_memory(policy)


class Flat(L2):
    """Gives one number for each row."""

    def pairwise(self, x, y):
        return super().pairwise(x, y)[:, 0]


class Negative(L2):
    """Gives numbers below zero."""

    def pairwise(self, x, y):
        return super().pairwise(x, y) - 1


class Relative(L2):
    """Depends on the other rows."""

    def pairwise(self, x, y):
        return super().pairwise(x, y) / x.abs().sum()


DISTANCES = {Flat: "gave \\[12\\]", Negative: "0 or more", Relative: "does not depend on other rows"}


@pytest.mark.parametrize("distance", DISTANCES, ids=lambda kind: kind.__name__)
def test_a_distance_that_breaks_a_promise_is_told_which(distance):
    with pytest.raises(CheckFailed, match=DISTANCES[distance]):
        check_distance(distance())


class Whole(nn.Module):
    """Normalises by the batch even in evaluation."""

    def __init__(self, num_classes):
        super().__init__()
        self.fc = nn.Linear(5, num_classes)

    def forward(self, x):
        return self.fc(x - x.mean(0))


class Drops(Whole):
    """Draws in evaluation."""

    def forward(self, x):
        return self.fc(nn.functional.dropout(x))


def test_a_network_that_breaks_a_promise_is_told_which():
    with pytest.raises(CheckFailed, match="do not depend on others"):
        check_net(Whole, (5,), 4)
    with pytest.raises((CheckFailed, odedm.UsageError), match="same inputs|Something follows"):
        check_net(Drops, (5,), 4)


@pytest.mark.parametrize("given", [(), ((3, 12, 12), 10), ((16,), 6)])
def test_a_network_for_other_rows_is_told_to_give_their_shape(given):
    net = nn.Sequential(nn.Linear(16, 8), nn.ReLU(), nn.Linear(8, 10))
    with pytest.raises(
        odedm.UsageError, match=r"It was tried with rows of shape \(.* e\.g\. check_net\(net, \(16,\), 10"
    ):
        check_net(net, *given)


def test_what_keeps_its_promises_passes():
    """A plain module, a distance and a policy; the methods of the package are checked by the same matrix."""
    check_net(nn.Sequential(nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 4)), (5,), 4)
    check_distance(L2())


class Own(ER):
    """A method without a fault, with generators in objects of its own."""

    def __post_init__(self):
        super().__post_init__()
        self.parts = {"noise": self.rng("noise")}

    def observe(self, batch, replay):
        noise = torch.randn(batch["input"].shape, generator=self.parts["noise"])
        return super().observe({**batch, "input": batch["input"] + 0.1 * noise}, replay)


class Plain(odedm.Memory):
    """The reservoir once more."""

    def add(self, rows, probe, *, rng):
        self.insert(rows, torch.rand(len(rows["label"]), generator=rng, dtype=torch.float64))

    def end_task(self, task, probe, *, rng):
        pass


def test_a_method_and_a_policy_from_outside_pass_the_whole_matrix():
    check_method(Own)
    check_memory(Plain)
