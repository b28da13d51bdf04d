"""Builds what a saved learner was, from a state of anyone's: it is believed only after a look at it."""

from __future__ import annotations

import math
import re
from collections import deque
from collections.abc import Mapping
from functools import partial
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from odedm.checkpoint.load_state_tree import load_state_tree
from odedm.checkpoint.state_tree import State, StateError, state_tree
from odedm.core.errors import InvalidFileError, UsageError, require, short_repr
from odedm.core.row_schema import RowSchema
from odedm.core.rows import ColumnSpec
from odedm.core.validators import LARGEST
from odedm.learner.config import LearnerConfig
from odedm.learner.endless_memory import LearnerEvent, stores
from odedm.learner.fitted import KEPT_EVENTS, Fitted
from odedm.learner.label_encoder import LabelEncoder, read_labels
from odedm.learner.learner_state import OBJECTS, PLAIN, place
from odedm.learner.online_engine import OnlineEngine
from odedm.memory.live_parts import PURPOSES
from odedm.memory.live_state import restore_parts
from odedm.memory.settings import memory_from_dict
from odedm.nets.build import build_on_meta, configure, pick
from odedm.stream.augment import Transform

if TYPE_CHECKING:
    from odedm.learner.online_learner import Learner

MOST_CLASSES = 1 << 24
TYPES = {"uint8": torch.uint8, "float32": torch.float32}


def parameters(state: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """The parameters of the learner that a state is of; what no file holds is taken from what was given."""
    plain = dict(state["head"]["parameters"])
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
        require(set(plain) == {*PLAIN, *OBJECTS, "scaling", "memory"}, "its parameters are not those of a learner")
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


def restored(learner: Learner, state: Mapping[str, Any]) -> Fitted:
    """Return what a state has made of a learner with these parameters."""
    head, tensors = state["head"], dict(state["tensors"])
    try:
        return _restored(LearnerConfig.of(learner.get_params()), head, tensors)
    except InvalidFileError as error:
        raise UsageError(f"The saved learner cannot be used: {error}.") from error
    except StateError as error:
        raise UsageError(f"The saved learner cannot be used: {_unlike(str(error))}.") from error
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError, OverflowError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(f"The saved learner cannot be used: {short_repr(str(error), 200)}.") from error


def _restored(plan: LearnerConfig, head: Mapping[str, Any], tensors: dict[str, Any]) -> Fitted:
    schema = stored_schema(head["form"])
    require(isinstance(head["labels"], list) and len(head["labels"]) == 2, "its labels are not listed")
    labels = stored_labels(head["labels"][1])
    require(labels.kind == head["labels"][0], "its labels are of another kind")
    outputs, rows = _number(head["outputs"], "number of outputs"), _number(head["rows"], "number of rows")
    classes = len(labels.classes)
    require(1 <= classes <= outputs <= MOST_CLASSES, "it has more labels than outputs")
    current, saved = plan.device.type, head["device"]
    require(
        current == saved,
        f"it was saved on '{short_repr(saved)}' and this is '{current}'; give device={short_repr(saved)}",
    )
    _check_sizes(plan, schema, outputs, tensors)
    engine = OnlineEngine(plan, schema, outputs, partial(_check_columns, plan, tensors))
    if engine.classes < outputs:
        engine.grow(outputs)
    require(
        engine.classes == outputs,
        f"the net has {engine.classes} outputs and the saved one {outputs}; give one of {outputs} or fewer",
    )
    _restore_memory(engine, head, tensors, classes)
    _restore_drawn(engine, head["drawn"], tensors)
    last_seen, new_rows = (_counts(tensors.get(name), classes, rows, name).numpy() for name in ("seen_at", "news"))
    events = deque((_event(event) for event in head["events"]), maxlen=KEPT_EVENTS)
    require(isinstance(head["warned"], bool), "whether it has warned is neither true nor false")
    batches = _number(head["batches"], "number of batches")
    return Fitted(engine, schema, labels, rows, last_seen, new_rows, events, head["warned"], batches)


def _check_sizes(plan: LearnerConfig, schema: RowSchema, outputs: int, tensors: Mapping[str, Any]) -> None:
    """Refuse what would take more room than the file has numbers, before anything is built."""
    held = sum(tensor.numel() for name, tensor in tensors.items() if name.startswith("drawn."))
    require(outputs <= held, f"it would have {outputs} outputs, and its network has {held} numbers")
    stored_rows = sum(len(tensors[name]) for name in ("host.key", "candidates.key") if name in tensors)
    capacity = plan.memory.capacity
    require(stored_rows == capacity, f"its memory has {stored_rows} rows of {capacity}")
    if isinstance(plan.net, str):
        name = pick(plan.net, schema.shape)
        net = build_on_meta(name, schema.shape, outputs, configure(name, schema.shape, outputs, plan.net_options))
        wanted = sum(parameter.numel() for parameter in net.parameters())
        require(wanted <= held, f"its network would have {wanted} weights, and {held} are in the file")


def _check_columns(plan: LearnerConfig, tensors: Mapping[str, Any], columns: list[ColumnSpec]) -> None:
    """Refuse a memory with columns of other shapes than the file's, before it is built."""
    for column in columns if isinstance(plan.net, str) else columns[:1]:
        saved = tensors.get(f"host.{column.name}")
        shape = list(saved.shape[1:]) if isinstance(saved, Tensor) and saved.dim() else None
        require(shape == list(column.shape), f"'host.{column.name}' is {shape} where {list(column.shape)} is needed")


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


def stored_labels(values: Any) -> LabelEncoder:
    """Return the labels so far, as a file lists them."""
    require(isinstance(values, list), "its labels are not listed")
    try:
        kind, plain = read_labels(values, len(values))
    except UsageError as error:
        raise InvalidFileError("its labels are of no kind, or of mixed types") from error
    require(list(map(type, plain)) == list(map(type, values)), "its labels are of mixed types")
    labels = LabelEncoder().joined(kind, plain)
    require(len(labels.classes) == len(values), "a label is there twice")
    return labels


def _event(plain: Any) -> LearnerEvent:
    sound = isinstance(plain, list) and len(plain) == 3 and isinstance(plain[1], str) and isinstance(plain[2], list)
    require(sound, "an entry of its events is malformed")
    return LearnerEvent(_number(plain[0], "row of an event"), plain[1][:80], tuple(plain[2]))


def _restore_memory(engine: OnlineEngine, head: Mapping[str, Any], tensors: dict[str, Any], classes: int) -> None:
    memory = engine.memory
    for name, rng in engine.memory_rngs.items():
        saved = tensors.get(f"generator.{name}")
        require(isinstance(saved, Tensor) and name in PURPOSES, f"the generator '{name}' is missing")
        rng.set_state(tensors[f"generator.{name}"])
    held = {"candidates": head["candidates"], "tasks": 0, "tensors": tensors}
    seen = _number(head["seen"], "number of rows seen")
    restore_parts(memory.buffer, memory.pool, memory.capacity, {**held, "seen": seen})
    for store in stores(memory):
        label = store.columns["label"][store.key >= 0]
        require(bool(((label >= 0) & (label < classes)).all()), "it has rows of no class")


def _restore_drawn(engine: OnlineEngine, tree: Any, tensors: Mapping[str, Tensor]) -> None:
    """Put back weights, generators and what else the method keeps, of the very shapes that this learner has."""
    parts, method = engine.stored_parts(), engine.method
    fresh = state_tree(parts)
    saved = {name.removeprefix("drawn."): tensor for name, tensor in tensors.items() if name.startswith("drawn.")}
    for name, tensor in fresh.tensors.items():
        require(name in saved, f"'{place(name)}' is missing")
        same = saved[name].shape == tensor.shape and saved[name].dtype == tensor.dtype
        require(same, f"'{place(name)}' is {list(saved[name].shape)} where {list(tensor.shape)} is needed")
    for name, tensor in saved.items():
        finite = not tensor.is_floating_point() or bool(tensor.isfinite().all())
        require(finite, f"'{place(name)}' holds a NaN or an infinity")
    load_state_tree(parts, State(saved, tree))
    again = state_tree(parts)
    require(all(name in again.tensors for name in fresh.tensors), "it lacks a part of the learner")
    for name, value in engine.config.options.items():
        require(getattr(method, name) == value and type(getattr(method, name)) is type(value), f"its {name} is another")
    require(parts["method"] is method and method.net.classes == engine.classes, "it has another method")
    generators = engine.replay.generators
    sound = isinstance(generators, dict) and all(
        isinstance(name, str) and isinstance(rng, torch.Generator) for name, rng in generators.items()
    )
    require(sound, "its random generators are malformed")


def _unlike(said: str) -> str:
    """What a restored state does not fit, in a user's words."""
    found = re.match(r"net\.(\S+) is a (\S+) that", place(said))
    if not found:
        return place(said).rstrip(".")
    kind = re.split(r"[./]", found[2])[-1]
    return f"the saved net has a {kind} as its part {found[1]}, and this one has not; give a net that is built the same"
