"""What a file keeps of an engine, of a finished run or of a learner: its method's state, memory and transform."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from odedm.checkpoint.load_state_tree import load_state_tree
from odedm.checkpoint.state_tree import State, StateError, state_tree
from odedm.core.errors import InvalidFileError, UsageError, require
from odedm.core.files import write_for_user
from odedm.core.row_schema import RowSchema
from odedm.core.store import Store
from odedm.core.stored_names import stored, transient
from odedm.core.tensor_archive import write_archive
from odedm.core.validators import LARGEST
from odedm.core.version import __version__
from odedm.memory.candidate_pool import ClassReservoirPool
from odedm.memory.live_state import restore_parts
from odedm.memory.live_state import stored as stored_columns
from odedm.methods.base import Method
from odedm.methods.hyperparameters import hyperparameters
from odedm.training.engine import Engine
from odedm.training.replay import MemoryReplay

if TYPE_CHECKING:
    from odedm.training.outcomes import Outcome

MODEL_SCHEMA = "odedm.model/3"
SUFFIX = ".safetensors"
"""A path that ends so is one file, any other a run's folder."""
STATE, TRANSFORM = "state.", "transform."
"""With what the names of tensors begin; those of the memory are named by `odedm.memory.live_state`."""
BUILT = frozenset({"draw", "rng", "optimizer_factory", "optimizer"})
"""Attributes of a method that are made anew where it is built."""


@stored("model-state")
class ModelState:
    """A method's attributes that are not built with it, the network among them.

    A method from outside has nothing to declare: whatever a checkpoint can hold, this can.
    """

    net: nn.Module

    def __init__(self, method: Method) -> None:
        built = _built(method)
        held = {name: value for name, value in vars(method).items() if name not in built}
        vars(self).update({name: value for name, value in held.items() if not isinstance(value, MemoryReplay)})

    def put_into(self, method: Method) -> None:
        """Give a method these attributes; `InvalidFileError` where one is none of its own."""
        built, declared = _built(method), {field.name for field in fields(method)}
        for name, value in vars(self).items():
            # a method may begin to keep something on the way; what its class defines is code
            is_data = name in declared or not hasattr(type(method), name)
            require(is_data and name not in built and not name.startswith("__"), f"its method has no '{name[:60]}'")
            setattr(method, name, value)


def _built(method: Method) -> set[str]:
    """Return the attributes that the run or the configuration sets."""
    return {*BUILT, *hyperparameters(type(method)), *transient(type(method))}


def engine_state(
    engine: Engine, schema: RowSchema, labels: Sequence[Any], parts: Mapping[str, Any]
) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return a copy of what a file keeps of an engine and of further `parts`: a head of plain values, and tensors.

    `schema` says what rows are that it predicts, and `labels` are those of its classes by arrival.
    """
    buffer, transform, names = getattr(engine.memory, "buffer", engine.memory), engine.transform, schema.feature_names
    try:
        state = state_tree({"method": ModelState(engine.method), **parts})
    except StateError as error:
        raise UsageError(f"This model cannot be saved: {error}") from error
    tensors = {f"{STATE}{name}": tensor for name, tensor in state.tensors.items()}
    tensors |= stored_columns("host", buffer.store)
    tensors |= {f"{TRANSFORM}shift": transform.shift, f"{TRANSFORM}scale": transform.scale}
    head = {
        "versions": {"odedm": __version__, "torch": str(torch.__version__)},
        "transform": [transform.pad, transform.flip],
        "state": state.tree,
        "seen": int(buffer.num_seen),
        "rows": [list(schema.shape), str(schema.dtype).removeprefix("torch."), names and list(names)],
        "labels": list(labels),
    }
    plain = torch.contiguous_format
    return head, {name: tensor.detach().cpu().clone(memory_format=plain) for name, tensor in tensors.items()}


def restore_engine(
    engine: Engine,
    head: Mapping[str, Any],
    tensors: dict[str, Tensor],
    parts: Mapping[str, Any],
    *,
    capacity: int,
    classes: int,
    device: torch.device | None = None,
) -> None:
    """Give an engine that was built anew what `engine_state` has found; it may be of anyone's.

    Args:
        engine: built as the other one was.
        head: the head of a file.
        tensors: the file's.
        parts: as they were given to `engine_state`, built anew.
        capacity: rows of the memory in all.
        classes: how many there are; rows of others are refused.
        device: where everything is put; where it was unless given.

    Raises:
        InvalidFileError: what was stored is not as it should be.
    """
    load_method(engine.method, State(with_prefix(STATE, tensors), head["state"]), parts, device=device)
    seen = head["seen"]
    require(type(seen) is int and 0 <= seen < 1 << 53, "it does not say how many rows it has seen")
    buffer, pool = getattr(engine.memory, "buffer", engine.memory), getattr(engine.memory, "pool", None)
    rows = {"candidates": head.get("candidates"), "tasks": LARGEST, "tensors": tensors, "seen": seen}
    restore_parts(buffer, pool, capacity, rows)
    stores: list[Store] = [buffer.store, *([pool.store] if isinstance(pool, ClassReservoirPool) else [])]
    for store in stores:
        label = store.columns["label"][store.priority >= 0]
        require(bool(((label >= 0) & (label < classes)).all()), "it has rows of no class")


def load_method(method: Method, state: State, parts: Mapping[str, Any], *, device: torch.device | None = None) -> None:
    """Give a method and `parts` the state of others that were made alike; see `restore_engine`."""
    roots = {"method": ModelState(method), **parts}
    _check_tensors(state_tree(roots).tensors, state.tensors)
    loaded, outputs = dict(roots), method.net.classes
    try:
        load_state_tree(loaded, state, device=device)
    except StateError as error:
        raise InvalidFileError(_unlike(str(error))) from error
    kept = loaded.keys() == roots.keys() and all(loaded[name] is part for name, part in roots.items())
    require(kept, "it has other parts")
    model: ModelState = roots["method"]
    require(model.net is method.net and model.net.classes == outputs, "its network has another size")
    model.put_into(method)


def with_prefix(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Return the tensors whose names begin so, by the rest of their names."""
    return {name.removeprefix(prefix): tensor for name, tensor in tensors.items() if name.startswith(prefix)}


def check_finite(tensors: Mapping[str, Tensor]) -> None:
    """Refuse numbers that are none: training diverged."""
    for name, tensor in tensors.items():
        if tensor.is_floating_point() and not name.endswith(".priority"):
            require(tensor.isfinite().all(), f"'{plain_name(name)}' holds a NaN or an infinity")


def _check_tensors(needed: Mapping[str, Tensor], saved: Mapping[str, Tensor]) -> None:
    """Refuse tensors of other shapes and types than there are; what a method keeps beside its net may have any size."""
    for name, tensor in needed.items():
        if name.startswith("method.") and not name.startswith("method.net."):
            continue
        require(name in saved, f"'{plain_name(name)}' is missing")
        same = saved[name].shape == tensor.shape and saved[name].dtype == tensor.dtype
        shapes = f"{list(saved[name].shape)} where {list(tensor.shape)} is needed"
        require(same, f"'{plain_name(name)}' is {shapes}")
    check_finite(saved)


def plain_name(path: str) -> str:
    """Return where a tensor is without torch's and our own inner names.

    >>> plain_name("state.method.net._modules.body._modules.1._parameters.weight")
    'net.1.weight'
    """
    path = re.sub(r"\b_(modules|parameters|buffers)\.", "", path.removeprefix(STATE))
    return path.removeprefix("method.").replace("net.body.", "net.")


def _unlike(message: str) -> str:
    """Return what a stored state does not fit, in a user's words."""
    match = re.match(r"net\.(\S+) is a (\S+) that", plain_name(message))
    if not match:
        return plain_name(message).rstrip(".")
    kind = re.split(r"[./]", match[2])[-1]
    return f"the saved net has a {kind} as its part {match[1]}, and this one has not; give a net that is built the same"


def write_model(outcome: Outcome, path: Path) -> None:
    """Write a finished run's model to one file; `odedm.load` (`odedm.learner.trained_model`) reads it again."""
    head, tensors = engine_state(outcome.engine, outcome.data.schema, outcome.labels(), {})
    write_archive(path, {**head, "schema": MODEL_SCHEMA, "result": outcome.result.to_dict()}, tensors)


def save_model(outcome: Outcome, path: Path, *, overwrite: bool) -> Path:
    """Write the file, whole or not at all."""
    if path.exists() and not overwrite:
        raise UsageError(f"'{path}' is there already. Give another path, or overwrite=True to replace it.")
    return write_for_user("model", path, partial(write_model, outcome))
