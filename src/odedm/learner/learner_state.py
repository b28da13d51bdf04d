"""A learner as plain data and tensors, and as one file; what comes back is believed only after a look at it."""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from odedm.checkpoint.load_state_tree import load_state_tree
from odedm.checkpoint.state_tree import State, StateError, state_tree
from odedm.core.errors import InvalidFileError, UsageError, require, short_repr
from odedm.core.files import write_for_user
from odedm.core.row_schema import RowSchema
from odedm.core.rows import ColumnSpec
from odedm.core.tensor_archive import read_archive, write_archive
from odedm.core.validators import LARGEST
from odedm.core.version import __version__
from odedm.learner.endless_memory import LearnerEvent, stores
from odedm.learner.label_names import LabelNames, read_labels
from odedm.learner.online_parts import OnlineParts, Plan
from odedm.memory.candidate_pool import ClassReservoirPool
from odedm.memory.live_parts import PURPOSES
from odedm.memory.live_state import restore_parts, stored
from odedm.memory.settings import memory_from_dict, memory_to_dict
from odedm.methods.base import Method
from odedm.stream.augment import Transform

if TYPE_CHECKING:
    from odedm.learner.online_learner import Learner

SCHEMA = "odedm.learner/3"
OBJECTS = ("method", "net", "trigger")
"""Parameters that may be code, which no file holds."""
PLAIN = ("options", "net_options", "patience", "every", "batch", "draw", "seed", "device", "threads", "precision")
SINCE: dict[str, Any] = {
    "optimizer": "sgd",
    "retrieval": "uniform",
    "retrieval_options": None,
    "updates": 1,
    "stream_loss": None,
    "predict_by": None,
    "weight_average": None,
    "views": "crop",
    "lr": None,
}
"""Parameters that older files lack, and what they had in their place."""
MOST_CLASSES = 1 << 24
TYPES = {"uint8": torch.uint8, "float32": torch.float32}


def capture(learner: Learner, *, copies: bool = True) -> dict[str, Any]:
    """The whole state: a head of plain values, and all tensors on the CPU, the learner's own unless `copies`."""
    parts, schema = learner._parts, learner._schema
    assert parts is not None
    assert schema is not None
    try:
        drawn = state_tree(parts.drawn_from())
    except StateError as error:
        raise UsageError(f"This learner cannot be saved: {error}") from error
    memory = parts.memory
    tensors = {f"drawn.{name}": each for name, each in drawn.tensors.items()}
    tensors |= stored("host", memory.buffer.store)
    tensors |= {f"generator.{name}": each.get_state() for name, each in parts.memory_rngs.items()}
    if isinstance(memory.pool, ClassReservoirPool):
        tensors |= stored("candidates", memory.pool.store)
    tensors |= {"seen_at": learner._seen_at, "news": learner._news}
    if isinstance(learner.scaling, Transform):
        tensors |= {"constants.shift": learner.scaling.shift, "constants.scale": learner.scaling.scale}
    head = {
        "schema": SCHEMA,
        "versions": {"odedm": __version__, "torch": str(torch.__version__)},
        "parameters": _plain_parameters(learner),
        "device": parts.plan.device.type,
        "form": [
            list(schema.shape),
            str(schema.dtype).removeprefix("torch."),
            schema.feature_names and list(schema.feature_names),
        ],
        "labels": [learner._labels.kind, learner._labels.names],
        "outputs": parts.classes,
        "rows": learner._rows,
        "warned": learner._warned,
        "events": [[each.row, each.what, list(each.labels)] for each in learner._events],
        "seen": int(memory.buffer.num_seen),
        "candidates": memory.pool.classes() if memory.pool else [],
        "drawn": drawn.tree,
    }
    tensors = {name: each.detach().cpu() for name, each in tensors.items()}
    return {"head": head, "tensors": {name: each.clone() for name, each in tensors.items()} if copies else tensors}


def _plain_parameters(learner: Learner) -> dict[str, Any]:
    """The parameters as JSON holds them; code is only said to be there."""
    given = learner.get_params()
    assert learner._parts is not None
    plain: dict[str, Any] = {name: _plain(given[name]) for name in (*PLAIN, *SINCE)}
    plain |= {name: given[name] if isinstance(given[name], str) else None for name in OBJECTS}
    plain["trigger"] = given["trigger"] is not None
    own = learner.scaling
    plain["scaling"] = [own.pad, own.flip] if isinstance(own, Transform) else own
    return plain | {"memory": memory_to_dict(learner._parts.plan.memory)}


def _plain(value: Any) -> Any:
    """A value as JSON holds it: searches for parameters give numbers of numpy's, and a device may be torch's."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, torch.device):
        return value.type
    return value.item() if isinstance(value, np.generic) else value


def parameters(state: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the learner that a state is of; what no file holds is taken from what was given."""
    plain = SINCE | dict(state["head"]["parameters"])
    for name in given:
        if name not in (*OBJECTS, "device", "threads"):
            raise UsageError(f"{name} cannot be given to load: the file has it. net, method, trigger, device and "
                             "threads can be.")  # fmt: skip
    needed = [name for name in ("method", "net") if plain.get(name) is None]
    needed += ["trigger"] if plain.get("trigger") else []
    for name in needed:
        if given.get(name) is None:
            what = {
                "net": "network was your own",
                "method": "method was a class",
                "trigger": "trigger was a function",
            }
            raise UsageError(
                f"The learner's {what[name]}, which no file holds. Give it again: Learner.load(path, {name}=…)."
            )
    for name in ("method", "net"):
        if name not in needed and given.get(name) is not None:
            raise UsageError(f"The file names its {name} ('{short_repr(plain[name])}'); leave {name} out.")
    try:
        require(
            set(plain) == {*PLAIN, *SINCE, *OBJECTS, "scaling", "memory"}, "its parameters are not those of a learner"
        )
        scaling = plain["scaling"]
        if isinstance(scaling, list):
            require(
                len(scaling) == 2 and type(scaling[0]) is int and 0 <= scaling[0] <= 1000,
                "its crop and flip settings are malformed",
            )
            shift, scale = (state["tensors"].get(f"constants.{name}") for name in ("shift", "scale"))
            sound = all(isinstance(each, Tensor) and each.is_floating_point() for each in (shift, scale))
            require(
                sound and bool(torch.isfinite(shift).all() & torch.isfinite(scale).all()),
                "the constants that scale its rows are malformed",
            )
            plain["scaling"] = Transform(shift, scale, scaling[0], bool(scaling[1]))
        plain["memory"] = memory_from_dict(plain["memory"])
    except InvalidFileError as error:
        raise UsageError(f"This is no saved learner: {error}.") from error
    plain["trigger"] = None
    return plain | {name: value for name, value in given.items() if value is not None}


def restore(learner: Learner, state: Mapping[str, Any]) -> None:
    """Put a state into a learner that was made with the same parameters and has learned nothing."""
    head, tensors = state["head"], dict(state["tensors"])
    try:
        schema = stored_schema(head["form"])
        require(isinstance(head["labels"], list) and len(head["labels"]) == 2, "its labels are not listed")
        labels = stored_labels(head["labels"][1])
        require(labels.kind == head["labels"][0], "its labels are of another kind")
        outputs, rows = _number(head["outputs"], "number of outputs"), _number(head["rows"], "number of rows")
        amount = len(labels.names)
        require(1 <= amount <= outputs <= MOST_CLASSES, "it has more labels than outputs")
        plan = Plan.of(learner.get_params())
        here, there = plan.device.type, head["device"]
        require(
            here == there,
            f"it was saved on '{short_repr(there)}' and this is '{here}'; give device={short_repr(there)}",
        )
        parts = OnlineParts(plan, schema, outputs)
        if parts.classes < outputs:
            parts.grow(outputs)
        many = f"the net has {parts.classes} outputs and the saved one {outputs}; give one of {outputs} or fewer"
        require(parts.classes == outputs, many)
        _restore_memory(parts, head, tensors, amount)
        _restore_drawn(parts, head["drawn"], tensors)
        seen_at, news = (_counts(tensors.get(name), amount, rows, name) for name in ("seen_at", "news"))
        events = [_event(each) for each in head["events"]]
        require(isinstance(head["warned"], bool), "whether it has warned is neither true nor false")
    except InvalidFileError as error:
        raise UsageError(f"The saved learner cannot be used: {error}.") from error
    except StateError as error:
        raise UsageError(f"The saved learner cannot be used: {_unlike(str(error))}.") from error
    except (KeyError, TypeError, IndexError, AttributeError, RuntimeError, OverflowError) as error:
        raise UsageError(f"The saved learner cannot be used: {short_repr(str(error), 200)}.") from error
    learner._parts, learner._schema, learner._labels, learner._rows = parts, schema, labels, rows
    learner._seen_at, learner._news, learner._warned = seen_at, news, head["warned"]
    learner._events.extend(events)


def _number(value: Any, name: str) -> int:
    require(type(value) is int and 0 <= value <= LARGEST, f"its {name} is no whole number")
    number: int = value
    return number


def _counts(value: Any, amount: int, most: int, name: str) -> Tensor:
    sound = isinstance(value, Tensor) and value.dtype == torch.int64 and value.shape == (amount,)
    require(sound, f"'{name}' is not a list of {amount} whole numbers")
    require(bool(((value >= -1) & (value <= most)).all()), f"'{name}' has numbers that cannot be")
    counts: Tensor = value.clone()
    return counts


def stored_schema(plain: Any) -> RowSchema:
    """What the first rows were, as a file says it."""
    require(isinstance(plain, list) and len(plain) == 3, "its rows are not described")
    shape, dtype, names = plain
    require(isinstance(shape, list) and len(shape) in (1, 3), "its rows have no shape")
    require(all(type(side) is int and 1 <= side <= MOST_CLASSES for side in shape), "its rows have no shape")
    require(isinstance(dtype, str) and dtype in TYPES, "its rows have no type")
    named = names is None or (
        isinstance(names, list) and len(names) == math.prod(shape) and all(isinstance(each, str) for each in names)
    )
    require(named, "its features have no names")
    return RowSchema((ColumnSpec("image", tuple(shape), TYPES[dtype]),), names and tuple(names))


def stored_labels(values: Any) -> LabelNames:
    """Return the labels so far, as a file lists them."""
    require(isinstance(values, list), "its labels are not listed")
    labels = LabelNames()
    try:
        kind, plain = read_labels(values, len(values))
    except UsageError as error:
        raise InvalidFileError("its labels are of no kind, or of mixed types") from error
    require(list(map(type, plain)) == list(map(type, values)), "its labels are of mixed types")
    labels.join(kind, plain)
    require(len(labels.names) == len(values), "a label is there twice")
    return labels


def _event(plain: Any) -> LearnerEvent:
    sound = isinstance(plain, list) and len(plain) == 3 and isinstance(plain[1], str) and isinstance(plain[2], list)
    require(sound, "an entry of its events is malformed")
    return LearnerEvent(_number(plain[0], "row of an event"), plain[1][:80], tuple(plain[2]))


def _restore_memory(parts: OnlineParts, head: Mapping[str, Any], tensors: dict[str, Any], classes: int) -> None:
    memory = parts.memory
    for name, rng in parts.memory_rngs.items():
        found = tensors.get(f"generator.{name}")
        require(isinstance(found, Tensor) and name in PURPOSES, f"the generator '{name}' is missing")
        rng.set_state(tensors[f"generator.{name}"])
    held = {"candidates": head["candidates"], "tasks": 0, "tensors": tensors}
    seen = _number(head["seen"], "number of rows seen")
    restore_parts(memory.buffer, memory.pool, memory.capacity, {**held, "seen": seen})
    for store in stores(memory):
        label = store.columns["label"][store.key >= 0]
        require(bool(((label >= 0) & (label < classes)).all()), "it has rows of no class")


def _restore_drawn(parts: OnlineParts, tree: Any, tensors: Mapping[str, Tensor]) -> None:
    """Weights, generators and what else the method keeps, of the very shapes that this learner has."""
    own = parts.drawn_from()
    fresh = state_tree(own)
    found = {name.removeprefix("drawn."): each for name, each in tensors.items() if name.startswith("drawn.")}
    for name, each in fresh.tensors.items():
        require(name in found, f"'{_place(name)}' is missing")
        same = found[name].shape == each.shape and found[name].dtype == each.dtype
        require(same, f"'{_place(name)}' is {list(found[name].shape)} where {list(each.shape)} is needed")
    for name, each in found.items():
        require(
            not each.is_floating_point() or bool(each.isfinite().all()), f"'{_place(name)}' holds a NaN or an infinity"
        )
    load_state_tree(own, State(found, tree))
    again = state_tree(own)
    require(all(name in again.tensors for name in fresh.tensors), "it lacks a part of the learner")
    method: Method = parts.method
    for name, value in parts.plan.engine.options.items():
        require(getattr(method, name) == value and type(getattr(method, name)) is type(value), f"its {name} is another")
    require(own["method"] is method and method.net.classes == parts.classes, "it has another method")
    sound = isinstance(parts.replay.generators, dict) and all(
        isinstance(name, str) and isinstance(each, torch.Generator) for name, each in parts.replay.generators.items()
    )
    require(sound, "its random generators are malformed")


def _place(path: str) -> str:
    """Where something is, without torch's and our own inner names.

    >>> _place("method.net._modules.body._modules.1._parameters.weight")
    'net.1.weight'
    """
    return re.sub(r"\b_(modules|parameters|buffers)\.", "", path).removeprefix("method.").replace("net.body.", "net.")


def _unlike(said: str) -> str:
    """What a restored state does not fit, in a user's words."""
    found = re.match(r"net\.(\S+) is a (\S+) that", _place(said))
    if not found:
        return _place(said).rstrip(".")
    kind = re.split(r"[./]", found[2])[-1]
    return f"the saved net has a {kind} as its part {found[1]}, and this one has not; give a net that is built the same"


def write(state: Mapping[str, Any], path: Path) -> Path:
    """One file in safetensors' format, the head as JSON in it, and a checksum over both."""
    return write_for_user("learner", path, lambda given: write_archive(given, state["head"], state["tensors"]))


def read(path: Path) -> dict[str, Any]:
    """The state in a file of anyone's; the tensors are plain numbers, whatever else it is."""
    head, tensors = read_archive(path, SCHEMA, "learner", "Learner.save")
    if not isinstance(head.get("parameters"), dict):
        raise UsageError(f"'{path}' is no learner that can be loaded: its head is not a learner's.")
    return {"head": head, "tensors": tensors}
