"""A learner as plain data and tensors, and as one file."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from safetensors.torch import load as load_bytes
from safetensors.torch import save as save_bytes

from odedm.checkpoint.state_tree import StateError, state_tree
from odedm.core.errors import UsageError
from odedm.core.files import write_for_user
from odedm.core.tensor_archive import read_archive, write_archive
from odedm.core.version import __version__
from odedm.memory.candidate_pool import ClassReservoirPool
from odedm.memory.live_state import stored
from odedm.memory.settings import memory_to_dict
from odedm.stream.augment import Transform

if TYPE_CHECKING:
    from odedm.learner.online_learner import Learner

SCHEMA = "odedm.learner/4"
OBJECTS = ("method", "net", "trigger")
"""Parameters that may be code, which no file holds."""
PLAIN = (
    "options", "net_options", "patience", "every", "batch", "draw", "seed", "device", "threads", "precision",
    "optimizer", "retrieval", "retrieval_options", "updates", "stream_loss", "predict_by", "weight_average", "views",
    "lr", "optimizer_options", "schedule", "warmup", "clip_norm",
)  # fmt: skip
CONTIGUOUS = torch.contiguous_format


def capture(learner: Learner) -> dict[str, Any]:
    """Return a copy of the whole state: a head of plain values, and all tensors on the CPU."""
    fitted = learner._fitted
    assert fitted is not None
    engine, schema = fitted.engine, fitted.schema
    memory = engine.memory
    try:
        drawn = state_tree(engine.stored_parts())
    except StateError as error:
        raise UsageError(f"This learner cannot be saved: {error}") from error
    tensors = {f"drawn.{name}": tensor for name, tensor in drawn.tensors.items()}
    tensors |= stored("host", memory.buffer.store)
    tensors |= {f"generator.{name}": rng.get_state() for name, rng in engine.memory_rngs.items()}
    if isinstance(memory.pool, ClassReservoirPool):
        tensors |= stored("candidates", memory.pool.store)
    tensors |= {"seen_at": torch.from_numpy(fitted.last_seen), "news": torch.from_numpy(fitted.new_rows)}
    if isinstance(learner.scaling, Transform):
        tensors |= {"constants.shift": learner.scaling.shift, "constants.scale": learner.scaling.scale}
    head = {
        "schema": SCHEMA,
        "versions": {"odedm": __version__, "torch": str(torch.__version__)},
        "parameters": _plain_parameters(learner),
        "device": engine.config.device.type,
        "form": [
            list(schema.shape),
            str(schema.dtype).removeprefix("torch."),
            schema.feature_names and list(schema.feature_names),
        ],
        "labels": [fitted.labels.kind, list(fitted.labels.classes)],
        "outputs": engine.classes,
        "rows": fitted.rows,
        "batches": fitted.batches,
        "warned": fitted.warned,
        "events": [[event.row, event.what, list(event.labels)] for event in fitted.events],
        "seen": int(memory.buffer.num_seen),
        "candidates": memory.pool.classes() if memory.pool else [],
        "drawn": drawn.tree,
    }
    copies = {name: tensor.detach().cpu().clone(memory_format=CONTIGUOUS) for name, tensor in tensors.items()}
    return {"head": head, "tensors": copies}


def check_finite(state: Mapping[str, Any]) -> None:
    """Refuse to save what `restored` would refuse: a network with weights that are no numbers."""
    for name, tensor in state["tensors"].items():
        if tensor.is_floating_point() and not name.endswith(".key") and not tensor.isfinite().all():
            raise UsageError(
                f"This learner cannot be saved: '{place(name.removeprefix('drawn.'))}' holds a NaN or an infinity, so "
                "training diverged. Go on from the last file that was saved, with a lower learning rate."
            )


def packed(state: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return a state as plain data and bytes: another process must not be sent handles of shared memory."""
    return None if state is None else {"head": state["head"], "tensors": save_bytes(state["tensors"])}


def unpacked(state: Mapping[str, Any] | None) -> dict[str, Any] | None:
    """Return the state that was `packed`."""
    return None if state is None else {"head": state["head"], "tensors": load_bytes(state["tensors"])}


def _plain_parameters(learner: Learner) -> dict[str, Any]:
    """Return the parameters as JSON holds them; code is only said to be there."""
    given, fitted, scaling = learner.get_params(), learner._fitted, learner.scaling
    assert fitted is not None
    plain: dict[str, Any] = {name: _plain(given[name]) for name in PLAIN}
    plain |= {name: given[name] if isinstance(given[name], str) else None for name in OBJECTS}
    plain["trigger"] = given["trigger"] is not None
    plain["scaling"] = [scaling.pad, scaling.flip] if isinstance(scaling, Transform) else scaling
    return plain | {"memory": memory_to_dict(fitted.engine.plan.memory)}


def _plain(value: Any) -> Any:
    """A value as JSON holds it: searches for parameters give numbers of numpy's, and a device may be torch's."""
    if isinstance(value, Mapping):
        return {name: _plain(each) for name, each in value.items()}
    if isinstance(value, torch.device):
        return value.type
    return value.item() if isinstance(value, np.generic) else value


def place(path: str) -> str:
    """Where something is, without torch's and our own inner names.

    >>> place("method.net._modules.body._modules.1._parameters.weight")
    'net.1.weight'
    """
    return re.sub(r"\b_(modules|parameters|buffers)\.", "", path).removeprefix("method.").replace("net.body.", "net.")


def write(state: Mapping[str, Any], path: Path) -> Path:
    """Write one file in safetensors' format, the head as JSON in it, and a checksum over both."""
    try:
        json.dumps(state["head"], allow_nan=False)
    except (TypeError, ValueError) as error:
        raise UsageError(f"This learner cannot be saved: of its settings, {error}.") from error
    return write_for_user("learner", path, lambda given: write_archive(given, state["head"], state["tensors"]))


def read(path: Path) -> dict[str, Any]:
    """The state in a file of anyone's; the tensors are plain numbers, whatever else it is."""
    head, tensors = read_archive(path, SCHEMA, "learner", "Learner.save")
    if not isinstance(head.get("parameters"), dict):
        raise UsageError(f"'{path}' is no learner that can be loaded: its head is not a learner's.")
    return {"head": head, "tensors": tensors}
