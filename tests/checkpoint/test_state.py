"""What the walk finds, how it puts it back, and what it refuses."""

import json
import math
from collections import deque
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import pytest
import torch
from equal_states import equal_states
from torch import nn

from odedm.checkpoint.load_state_tree import load_state_tree
from odedm.checkpoint.state_tree import State, StateError, state_tree
from odedm.core.rows import ColumnSpec, MemoryPart
from odedm.core.store import Store
from odedm.core.timer import Timer
from odedm.nets.small import MLP


class Pair(NamedTuple):
    """Has no attributes of its own."""

    one: int
    two: int


@dataclass(slots=True)
class Slotted:
    """Nor has this one a dictionary of them."""

    value: int


class Counts(dict):
    """Holds more than its attributes."""


Pair.__module__ = Slotted.__module__ = Counts.__module__ = "odedm.core.pairs"  # as classes of the package


def through_json(state):
    return State(state.tensors, json.loads(json.dumps(state.tree, allow_nan=False)))


def moved(old, new):
    load_state_tree(new, through_json(state_tree(old)))
    return new


@dataclass
class Inner:
    weight: torch.Tensor
    part: MemoryPart = MemoryPart.ALL


@dataclass
class Holder:
    net: nn.Module
    teacher: nn.Module | None = None
    inner: Inner | None = None
    also: object = None
    velocity: torch.Tensor | None = None
    names: dict = field(default_factory=dict)


@pytest.mark.parametrize(
    "value",
    [
        None, True, False, 0, -1, 2**53 + 1, -(2**200), "", "ä\n\x00\ud800", 0.1, -0.0, 5e-324, 1.7976931348623157e308,
        math.nan, math.inf, -math.inf, [], (), {}, [1, [2.5, (None, "x")]], {"a": {"b": (1, 2)}}, {3: "x", (0, 1): [1]},
        MemoryPart.LONG, torch.float16,
    ],
)  # fmt: skip
def test_plain_values_come_back_exactly(value):
    new = moved({"value": value}, {"value": None})["value"]
    assert repr(new) == repr(value)
    assert type(new) is type(value)


@pytest.mark.parametrize(
    "dtype",
    [torch.float64, torch.float32, torch.float16, torch.bfloat16, torch.int64, torch.int32, torch.uint8, torch.bool],
)
@pytest.mark.parametrize("shape", [(), (0,), (3,), (2, 3, 4)])
def test_tensors_come_back_in_place_bit_for_bit(dtype, shape):
    value = torch.randint(0, 2, shape).to(dtype)
    fresh = torch.zeros(shape, dtype=dtype)
    new = moved({"x": value}, {"x": fresh})["x"]
    assert new is fresh
    assert new.equal(value)
    built = moved({"x": value}, {"x": None})["x"]
    assert built.equal(value)
    assert built.dtype == dtype


def test_special_floats_inside_tensors_keep_their_bits():
    bits = torch.tensor([0x7FC00001, 0x7F800000, -0x800000, 1, -0x80000000], dtype=torch.int64).to(torch.int32)
    fresh = torch.zeros(5)
    assert moved({"x": bits.view(torch.float32)}, {"x": fresh})["x"].view(torch.int32).equal(bits)


def test_layouts_stay_as_the_fresh_object_has_them_and_are_kept_where_it_has_none():
    value = torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last)
    fresh = torch.zeros(2, 3, 4, 5)
    assert moved({"x": value}, {"x": fresh})["x"].is_contiguous()
    assert fresh.equal(value)
    built = moved({"x": value}, {"x": None})["x"]
    assert built.stride() == value.stride()
    assert built.equal(value)
    last = torch.zeros(2, 3, 4, 5).to(memory_format=torch.channels_last)
    assert moved({"x": value.contiguous()}, {"x": last})["x"].stride() == value.stride()
    assert moved({"x": value[:, 1]}, {"x": None})["x"].equal(value[:, 1])
    assert moved({"x": torch.ones(1).expand(4)}, {"x": torch.zeros(1).expand(4)})["x"].tolist() == [1, 1, 1, 1]


def test_what_is_one_stays_one():
    shared, inner = torch.ones(3), Inner(torch.ones(2))
    old = Holder(MLP((4,), 3), also=inner, names={"a": shared, "b": shared, "c": [inner]})
    fresh = Inner(torch.zeros(2))
    new = moved(old, Holder(MLP((4,), 3), also=fresh))
    assert new.names["a"] is new.names["b"]
    assert new.names["a"].equal(shared)
    assert new.also is fresh is new.names["c"][0]
    assert fresh.weight.tolist() == [1, 1]
    moved_tree = moved({"early": inner, "late": inner}, {"early": None, "late": fresh})
    assert moved_tree["early"] is moved_tree["late"] is fresh, "found by the way on which the fresh object has it"
    with pytest.raises(StateError, match="not one of this package"):
        moved(old, Holder(MLP((4,), 3)))


def test_what_is_one_stays_one_though_the_fresh_object_has_two():
    shared = torch.ones(3)
    fresh = {"a": torch.zeros(3), "b": torch.zeros(3)}
    moved({"a": shared, "b": shared}, fresh)
    assert fresh["a"] is fresh["b"]


def test_what_are_two_stay_two_though_the_fresh_object_has_one():
    one = torch.zeros(3)
    fresh = moved({"a": torch.ones(3), "b": torch.full((3,), 2.0)}, {"a": one, "b": one})
    assert fresh["a"].tolist() == [1, 1, 1]
    assert fresh["b"].tolist() == [2, 2, 2]


def test_parts_of_one_memory_that_do_not_overlap_are_like_any_others():
    flat, fresh = torch.arange(6.0), torch.zeros(6)
    moved({"a": flat[:2], "b": flat[2:]}, {"a": fresh[:2], "b": fresh[2:]})
    assert fresh.equal(flat)
    built = moved({"a": flat[:2], "b": flat[2:]}, {"a": None, "b": None})
    assert torch.cat([built["a"], built["b"]]).equal(flat)


@pytest.mark.parametrize(
    "view", [lambda x: x.view(2, 3), lambda x: x[:1], lambda x: x.view(torch.int32), torch.Tensor.detach]
)
def test_tensors_that_overlap_are_refused(view):
    flat = torch.arange(6.0)
    with pytest.raises(StateError, match="method.b shares memory with method.a; keep a copy"):
        state_tree({"method": {"a": flat, "b": view(flat)}})
    state_tree({"method": {"a": flat, "b": view(flat).clone()}})


def test_recurrent_layers_go_on_where_they_were_also_where_their_weights_lie_in_one_memory():
    """On a GPU cuDNN wants them so."""

    def build(seed, flat):
        torch.manual_seed(seed)
        net = nn.LSTM(3, 4)
        if flat:
            memory = torch.cat([weight.detach().flatten() for weight in net.parameters()])
            starts = np.cumsum([0, *(weight.numel() for weight in net.parameters())])
            for weight, start in zip(net.parameters(), starts, strict=False):
                weight.data = memory[start : start + weight.numel()].view_as(weight)
        return net

    x = torch.rand(5, 2, 3)
    for flat in (False, True):
        old, new = build(1, flat), build(2, flat)
        addresses = [weight.data_ptr() for weight in new.parameters()]
        moved({"net": old}, {"net": new})
        assert new(x)[0].equal(old(x)[0])
        assert [weight.data_ptr() for weight in new.parameters()] == addresses


def test_a_store_is_filled_in_place():
    fields = [ColumnSpec("image", (8,), torch.uint8), ColumnSpec("label", dtype=torch.int64)]
    old, new = Store(3, fields), Store(3, fields)
    rows = {"image": torch.arange(16, dtype=torch.uint8).view(2, 8), "label": torch.tensor([1, 2])}
    old.insert(rows, torch.tensor([0.5, 0.6], dtype=torch.float64))
    state = state_tree(old)
    address = new.columns["image"].data_ptr()
    load_state_tree(new, through_json(state))
    assert new.columns["image"].data_ptr() == address
    assert new.columns["image"].equal(old.columns["image"])


def test_generators_go_on_where_they_were():
    old = {"a": torch.Generator().manual_seed(3), "lazy": {"draw 1": torch.Generator().manual_seed(4)}}
    torch.rand(5, generator=old["a"])
    torch.randn(3, generator=old["lazy"]["draw 1"])
    fresh = torch.Generator()
    new = moved(old, {"a": fresh, "lazy": {}})
    assert new["a"] is fresh
    for name in ("a", "lazy"):
        one, other = (tree[name] if name == "a" else tree[name]["draw 1"] for tree in (old, new))
        assert torch.randn(7, generator=one).equal(torch.randn(7, generator=other))


@pytest.mark.parametrize(
    "make",
    [
        lambda weights: torch.optim.SGD(weights, lr=0.1, momentum=0.9, nesterov=True, fused=True),
        lambda weights: torch.optim.Adam(weights, lr=0.1, amsgrad=True),
        lambda weights: torch.optim.AdamW(weights, lr=torch.tensor(0.1)),
        lambda weights: torch.optim.RMSprop([{"params": [weight], "lr": 0.01} for weight in weights], momentum=0.5),
    ],
)
def test_optimizers_go_on_where_they_were(make):
    def build():
        torch.manual_seed(1)
        net = MLP((4,), 3)
        return {"net": net, "optimizer": make(list(net.parameters()))}

    def train(parts, steps):
        x = torch.arange(20.0).view(5, 4) / 10
        for _ in range(steps):
            parts["optimizer"].zero_grad()
            parts["net"](x).square().mean().backward()
            parts["optimizer"].step()
        return parts

    straight = train(build(), 6)
    half, other = train(build(), 3), train(build(), 1)
    other["optimizer"].param_groups[0]["weight_decay"] = 7.0
    new = moved(half, other)
    parameters = list(new["net"].parameters())
    assert [parameter for group in new["optimizer"].param_groups for parameter in group["params"]][0] is parameters[0]
    assert equal_states(state_tree(straight), state_tree(train(new, 3))) == []


def test_a_network_that_the_fresh_object_lacks_is_built_like_its_net():
    old = Holder(MLP((4,), 3))
    old.teacher = MLP((4,), 3).requires_grad_(False).eval()
    new = moved(old, Holder(MLP((4,), 3)))
    assert new.teacher is not new.net
    assert not new.teacher.training
    assert new.net.training
    assert not any(parameter.requires_grad for parameter in new.teacher.parameters())
    assert all(parameter.requires_grad for parameter in new.net.parameters())
    x = torch.rand(2, 4)
    assert new.teacher(x).equal(old.teacher(x))


def test_buffers_and_modes_of_every_module_come_back():
    def build():
        return nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.Dropout())

    old = build()
    old(torch.rand(4, 1, 5, 5))
    old[1].eval()
    new = moved({"net": old}, {"net": build()})["net"]
    assert new[1].num_batches_tracked.item() == 1
    assert new[1].running_mean.equal(old[1].running_mean)
    assert [module.training for module in new] == [True, False, True]


def test_clocks_keep_seconds_and_forget_the_time_of_day():
    old, new = Timer(), Timer()
    old.seconds["train"] = 5.0
    with old("train"):
        state = through_json(state_tree(old))
    load_state_tree(new, state)
    assert new.seconds["train"] >= 5.0
    assert new._running == []
    with new("train"):
        pass
    assert 5.0 <= new.seconds["train"] < 6.0


def test_cycles_come_back():
    old = {"list": []}
    old["list"].append(old)
    new = moved(old, {"list": None})
    assert new["list"][0] is new


@pytest.mark.parametrize(
    "value",
    [
        {1, 2}, deque([1]), b"bytes", Pair(1, 2), Slotted(1), Counts(a=1),
        object(), 1j, iter([1]), torch.ones(2).to_sparse(), torch.ones(2, device="meta"),
        {torch.ones(1): 1}, (torch.ones(1, requires_grad=True) * 2),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_what_is_unknown_is_refused_by_its_place(value):
    with pytest.raises(StateError, match=r"method\.queue\[0\]"):
        state_tree({"method": {"queue": [value]}})


def test_code_is_not_stored_and_must_be_the_same():
    new = moved({"f": len, "t": int, "g": None}, {"f": len, "t": int, "g": None})
    assert new["f"] is len
    assert moved({"f": len}, {"f": None})["f"] is None, "made anew by whoever needs it"
    with pytest.raises(StateError, match=r"builtins\.len"):
        moved({"f": len}, {"f": max})


def test_an_attribute_of_which_the_state_knows_nothing_is_refused():
    old, new = Inner(torch.ones(1)), Inner(torch.ones(1))
    new.later = 3
    with pytest.raises(StateError, match="'later'"):
        moved(old, new)


@pytest.mark.parametrize(
    "plain",
    [
        None, 3, [], {}, {"x": 1}, {"type": "tensor"}, {"type": ["list"]},
        {"type": "tensor", "path": "nowhere", "device": "cpu"}, {"type": "ref", "to": "nowhere"},
        {"type": "dict", "path": "", "items": [[1]]}, {"type": "dict", "path": ["unhashable"], "items": []},
        *(
            {"type": "dict", "path": "", "items": [["x", node]]}
            for node in (
                {"type": "enum", "class": "os.Path", "member": "x"}, {"type": "enum", "class": "store", "member": "x"},
                {"type": "object", "path": "x", "class": "subprocess.Popen", "attributes": {}},
                {"type": "object", "path": "x", "class": "odedm.core.store.Store", "attributes": {}},
                {"type": "module", "path": "x", "class": "net/mlp", "attributes": {}},
                {"type": "dtype", "value": "torch.load"}, {"type": "evil", "value": 3},
                {"type": "device", "value": "moon"},
                {"type": "generator", "path": "x", "device": "cpu"}, {"type": "float", "value": "three"}, [1], [{}],
                {"type": "numpy_generator", "path": "x", "bit_generator": "seed", "state": {}},
            )
        ),
    ],
)  # fmt: skip
def test_a_hostile_tree_is_refused_without_harm(plain):
    with pytest.raises(StateError):
        load_state_tree({"x": 1}, State({}, plain))


def test_a_captured_state_does_not_follow_the_object():
    x = torch.zeros(2)
    state = state_tree({"x": x})
    x.add_(1)
    assert state.tensors["x"].tolist() == [0, 0]


def test_what_lies_outside_is_named_and_not_stored():
    rows = torch.arange(4)
    state = through_json(state_tree({"feed": {"label": rows, "own": torch.ones(2)}}, {"task 0": rows}))
    assert list(state.tensors) == ["feed.own"]
    again, new = torch.arange(4), {"feed": None}
    load_state_tree(new, state, {"task 0": again})
    assert new["feed"]["label"] is again
    with pytest.raises(StateError, match="task 0"):
        load_state_tree({"feed": None}, state)
