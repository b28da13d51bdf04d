"""What a run keeps of its stream in bytes: stored rows with all their columns, and what its method holds beside."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor

from odedm.core.accel.host_state import instances
from odedm.core.errors import UsageError
from odedm.core.registry import METHODS
from odedm.core.rng import generator
from odedm.core.rows import ColumnSpec
from odedm.core.validators import as_bytes
from odedm.memory.reservoir import ReservoirBuffer
from odedm.memory.settings import AnyMemory
from odedm.methods.base import Method
from odedm.nets.base import Net
from odedm.stream.dataset import Dataset
from odedm.training.experiment import Experiment
from odedm.training.model_file import ModelState


def data_columns(data: Dataset) -> tuple[ColumnSpec, ...]:
    """Return the columns of a stream's rows."""
    numbers = (ColumnSpec(name, dtype=torch.int64) for name in ("label", "task", "index"))
    return (ColumnSpec("image", data.shape, data.image.dtype), *numbers)


def memory_in_rows(plan: Experiment, data: Dataset, net: Net) -> AnyMemory:
    """Return the memory of a resolved experiment, asked for in bytes, with as many rows of all columns as fit in."""
    memory, kind = plan.memory, METHODS[plan.method].load()
    method: Method = kind(net=net, draw=plan.replay_batch, rng=partial(generator, plan.seed), **plan.options)
    row = store_bytes(ReservoirBuffer(1, (*data_columns(data), *method.fields())))
    rows = (as_bytes(memory.capacity) or 0) // row
    if not rows:
        raise UsageError(f"Not one row fits in {memory.capacity}: a stored row of this run has {row} bytes.")
    return replace(memory, capacity=rows)  # type: ignore[arg-type]  # `none` has none, nor could it be text


def bytes_held(memory: Any, method: Method) -> dict[str, int]:
    """Return the bytes of a memory's rows, full or not, and those of the method: networks, statistics, gradients."""
    parts = [getattr(memory, "buffer", memory), getattr(memory, "pool", None)]
    return {"rows": sum(map(store_bytes, parts)), "method": method_bytes(method)}


def store_bytes(buffer: Any) -> int:
    """Return the bytes of all columns of a buffer's store; 0 of what has none."""
    store = getattr(buffer, "store", None)
    return 0 if store is None else sum(column.nbytes for column in (*store.columns.values(), store.priority))


def method_bytes(method: Method) -> int:
    """Return the bytes of all tensors that a method holds beside its network: copies of it, statistics, gradients.

    What the method has put into the network as buffers of its own head counts as well.
    """
    held = {name: value for name, value in vars(ModelState(method)).items() if name not in ("net", "last_loss")}
    weights = {id(weight): weight for weight in method.net.parameters()}
    tensors = {id(tensor): tensor for tensor in (*instances(Tensor, held, dict(weights)), *method.net.head.buffers())}
    return sum(tensor.nbytes for tensor in tensors.values())
