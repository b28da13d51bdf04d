"""The trained model as one file: the method with its network, the memory's rows, and what is to be said of them.

`odedm.load` (`odedm.learner.trained_model`) reads it again.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from odedm.core.errors import UsageError
from odedm.core.files import write_for_user
from odedm.core.tensor_archive import write_archive
from odedm.core.version import __version__
from odedm.training.model_state import ModelState

if TYPE_CHECKING:
    from odedm.core.rows import Rows
    from odedm.memory.dual import AnyBuffer
    from odedm.training.run import Outcome

MODEL_SCHEMA = "odedm.model/2"
SUFFIX = ".safetensors"
"""A path that ends so is one file, any other a run's folder."""
MEMORY, STATE, VIEWS = "memory.", "state.", "views."
"""With what the names of tensors begin."""


def write_model(outcome: Outcome, path: Path) -> None:
    """Write a head of plain values, and all tensors, to one file."""
    state, transform = ModelState.of(outcome.method), outcome.probe.transform
    rows, seen = stored_rows(outcome.memory)
    tensors = {f"{STATE}{name}": tensor for name, tensor in state.tensors.items()}
    tensors |= {f"{MEMORY}{name}": column for name, column in rows.items()}
    tensors |= {f"{VIEWS}shift": transform.shift, f"{VIEWS}scale": transform.scale}
    head = {
        "schema": MODEL_SCHEMA,
        "versions": {"odedm": __version__, "torch": str(torch.__version__)},
        "result": outcome.result.to_dict(),
        "labels": outcome.labels(),
        "shape": list(outcome.data.shape),
        "dtype": str(outcome.data.image.dtype).removeprefix("torch."),
        "views": [transform.pad, transform.flip],
        "state": state.tree,
        "seen": seen,
    }
    write_archive(path, head, {name: tensor.detach().cpu() for name, tensor in tensors.items()})


def save_model(outcome: Outcome, path: Path, *, overwrite: bool) -> Path:
    """Write the file, whole or not at all."""
    if path.exists() and not overwrite:
        raise UsageError(f"'{path}' is there already. Give another path, or overwrite=True to replace it.")
    return write_for_user("model", path, partial(write_model, outcome))


def stored_rows(memory: AnyBuffer) -> tuple[Rows, int]:
    """Return every row of a memory with all its columns and its key, and how many rows the memory has seen."""
    buffer: Any = getattr(memory, "buffer", memory)
    return {**buffer.rows(), "key": buffer.store.key[buffer.ordered_slots()]}, int(buffer.num_seen)
