"""When a function records itself and what it replays: the logic, on a processor, where a graph is its work itself."""

from dataclasses import dataclass

import pytest
import torch
from torch import Tensor

from odedm.checkpoint.state_tree import state_tree
from odedm.core.accel import recording
from odedm.core.accel.recording import EAGER, MOST, GraphedFunction


@dataclass(frozen=True)
class Pair:
    """A tensor and a number."""

    x: Tensor
    factor: int = 1


class Graph:
    """Does on replay what was recorded."""

    def __init__(self, work):
        self.replay = work


@pytest.fixture
def calls(monkeypatch):
    """Every call of the function, and "recorded" where it was recorded."""
    results = []

    def record(work, _pool):
        results.append("recorded")
        return Graph(work), None

    monkeypatch.setattr(recording, "record", record)
    monkeypatch.setattr(recording, "on_gpu", lambda _: True)
    monkeypatch.setattr(torch.cuda, "graph_pool_handle", lambda: "pool")
    return results


def scaled(calls):
    def function(weights, pair):
        calls.append(len(pair.x))
        return pair.x.sum() * weights, weights * pair.factor

    return GraphedFunction(function)


def test_what_repeats_is_recorded_and_replayed_with_the_values_of_each_call(calls):
    function = scaled(calls)
    function.allowed = True
    for value in range(1, 7):
        arguments = torch.full((3,), float(value)), Pair(torch.ones(2) * value, factor=5)
        first, second = function(*arguments)
        assert first.tolist() == [2.0 * value * value] * 3
        assert second.tolist() == [5.0 * value] * 3
    assert calls.count("recorded") == 1
    assert function.replayed == 6 - EAGER


def test_another_shape_or_number_is_another_kind_and_kinds_share_what_they_can(calls):
    function = scaled(calls)
    function.allowed = True
    for size, factor in ((2, 1), (3, 1), (2, 7)):
        for _ in range(EAGER + 2):
            first, second = function(torch.ones(4), Pair(torch.ones(size), factor))
            assert (first[0].item(), second[0].item()) == (size, factor)
    assert calls.count("recorded") == 3
    weights = {inputs[0].data_ptr() for _, inputs, _ in function._recordings.values()}
    results = {outputs[1].data_ptr() for *_, outputs in function._recordings.values()}
    assert len(weights) == len(results) == 1, "they are as large as the network"


def test_nothing_is_recorded_unless_it_is_allowed(calls):
    function = scaled(calls)
    for _ in range(EAGER + 3):
        function(torch.ones(1), Pair(torch.ones(2)))
    assert "recorded" not in calls


def test_recordings_are_bounded_and_can_be_let_go_of(calls):
    function = scaled(calls)
    function.allowed = True
    for size in range(1, MOST + 4):
        for _ in range(EAGER + 1):
            function(torch.ones(1), Pair(torch.ones(size)))
    assert len(function._recordings) == MOST
    function.clear()
    assert not function._recordings
    assert not function._buffers
    assert function(torch.ones(1), Pair(torch.ones(2)))[0] == 2


def test_a_checkpoint_knows_nothing_of_them(calls):
    function = scaled(calls)
    fresh = state_tree({"part": function}).tree
    function.allowed = True
    for _ in range(EAGER + 1):
        function(torch.ones(1), Pair(torch.ones(2)))
    later = state_tree({"part": function})
    assert later.tree == fresh
    assert not later.tensors
