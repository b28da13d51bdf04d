"""The trained model as one file: weights, the method's own state, the memory's rows, and what is to be said of them.

`odedm.load` (`odedm.learner.trained_model`) reads it again.
"""

from __future__ import annotations

from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from odedm.core.errors import UsageError, short_repr
from odedm.core.files import write_for_user
from odedm.core.tensor_archive import write_archive
from odedm.core.version import __version__
from odedm.training.method_state import own_state, weights_of_net

if TYPE_CHECKING:
    from odedm.core.rows import Rows
    from odedm.memory.base import Memory
    from odedm.training.run import Outcome

MODEL_SCHEMA = "odedm.model/1"
SUFFIX = ".safetensors"
"""A path that ends so is one file, any other a run's folder."""
MEMORY, METHOD, WEIGHTS, VIEWS = "memory.", "method.", "weights.", "views."
"""With what the names of tensors begin."""


def write_model(outcome: Outcome, path: Path) -> None:
    """Write a head of plain values, and all tensors, to one file."""
    net, transform = outcome.method.net, outcome.probe.transform
    for name, each in net.state_dict().items():
        if not isinstance(each, Tensor):
            raise UsageError(
                f"The model cannot be kept: the net's state '{name}' is {short_repr(each)}, and a file holds tensors "
                "alone. Keep it as a buffer, or save the run without its model (keep_model=False)."
            )
    tree, own = own_state(outcome.method)
    rows, seen = stored_rows(outcome.memory)
    tensors = {f"{WEIGHTS}{name}": each for name, each in weights_of_net(net).items()}
    tensors |= {f"{METHOD}{name}": each for name, each in own.items()}
    tensors |= {f"{MEMORY}{name}": each for name, each in rows.items()}
    tensors |= {f"{VIEWS}shift": transform.shift, f"{VIEWS}scale": transform.scale}
    head = {
        "schema": MODEL_SCHEMA,
        "versions": {"odedm": __version__, "torch": str(torch.__version__)},
        "result": outcome.result.to_dict(),
        "labels": outcome.labels(),
        "shape": list(outcome.data.shape),
        "dtype": str(outcome.data.image.dtype).removeprefix("torch."),
        "views": [transform.pad, transform.flip],
        "method": tree,
        "seen": seen,
    }
    write_archive(path, head, {name: _plain(each) for name, each in tensors.items()})


def save_model(outcome: Outcome, path: Path, *, overwrite: bool) -> Path:
    """Write the file, whole or not at all."""
    if path.exists() and not overwrite:
        raise UsageError(f"'{path}' is there already. Give another path, or overwrite=True to replace it.")
    return write_for_user("model", path, partial(write_model, outcome))


def stored_rows(memory: Memory) -> tuple[Rows, int]:
    """Every row of a memory with all its columns and its key, and how many rows the memory has seen."""
    buffer: Any = getattr(memory, "buffer", memory)
    return {**buffer.rows(), "key": buffer.store.key[buffer.ordered_slots()]}, int(buffer.num_seen)


def _plain(tensor: Tensor) -> Tensor:
    # a copy: safetensors refuses tensors that share memory
    return tensor.detach().to("cpu", copy=True).contiguous()
