"""From a finished run to a stream without borders: a learner with a saved model's weights and memory."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from odedm.core.errors import InvalidFileError, UsageError
from odedm.core.extension_points import PluginEntry
from odedm.core.registry import NETS
from odedm.learner.online_engine import OnlineEngine
from odedm.learner.saved_model import SavedModel
from odedm.memory.live_parts import pins
from odedm.memory.live_state import restore_store
from odedm.memory.settings import ODEDM
from odedm.stream.augment import Transform
from odedm.training.experiment import Experiment
from odedm.training.model_state import ModelState
from odedm.training.tricks import Tricks

if TYPE_CHECKING:
    from odedm.learner.online_learner import Learner


def continued(kind: type[Learner], saved: SavedModel, when: Mapping[str, Any]) -> Learner:
    """Return a learner that begins where the run ended; `when` says when it consolidates."""
    plan = Experiment.from_dict(saved.result.experiment)
    asked = Tricks.of(plan)
    if plan.transform not in ("data", "none"):
        raise UsageError(f"A learner has no views of its own; the run had the transform '{plan.transform}'.")
    memory = plan.memory
    if isinstance(memory, ODEDM) and memory.rho is not None:
        memory = replace(memory, k=None)  # which followed from rho and the stream's number of classes
    method, constants = saved.probe.method, saved.probe.transform
    entry = NETS[saved.net]
    named = not isinstance(entry, PluginEntry) or entry.portable
    learner = kind(
        plan.method,
        memory=memory,
        net=saved.net if named else copy.deepcopy(method.net),
        options=dict(plan.options),
        net_options=dict(saved.net_options) if named else None,
        scaling=Transform(constants.shift.cpu(), constants.scale.cpu(), constants.pad, constants.flip),
        batch=plan.batch,
        draw=plan.replay_batch,
        optimizer=plan.optimizer,
        optimizer_options=plan.optimizer_options,
        clip_norm=plan.clip_norm,
        retrieval=plan.retrieval,
        retrieval_options=dict(plan.retrieval_options),
        updates=asked.updates,
        stream_loss=asked.stream_loss,
        predict_by=asked.predict,
        weight_average=asked.weight_average,
        views=asked.views,
        seed=plan.seed,
        device=saved.device.type,
        threads=saved.threads,
        precision=saved.precision,
        **when,
    )
    with learner._numerics(None):
        fitted = learner._built(saved.schema, saved.labels)
    try:
        _fill(fitted.engine, saved)
    except InvalidFileError as error:
        raise UsageError(f"A learner cannot go on with this model: {error}.") from error
    label, pinned = saved.rows["label"], saved.rows["prototype"] >= 0
    classes = len(saved.labels.classes)
    # new rows get numbers behind all old ones, by which a row is known
    rows = max(1, saved.seen, int(saved.rows["index"].max()) + 1 if len(label) else 0)
    waiting = label.bincount(minlength=classes) * (label[pinned].bincount(minlength=classes) == 0)
    if not pins(fitted.engine.plan.memory):
        waiting = torch.zeros_like(waiting)
    learner._fitted = replace(fitted, rows=rows, last_seen=np.full(classes, rows), new_rows=waiting.numpy())
    return learner


def _fill(engine: OnlineEngine, saved: SavedModel) -> None:
    """Put in what the method holds, its network among it, and the memory's rows."""
    ModelState.put_back(engine.method, ModelState.of(saved.probe.method))
    engine.method.net.train()
    if engine.method.logit_adjustment is not None:
        engine.method.logit_adjustment.forget_recency()
    buffer, amount = engine.memory.buffer, len(saved.rows["label"])
    room = buffer.capacity - amount
    if room < 0:
        raise InvalidFileError(f"its memory has {amount} rows where {buffer.capacity} fit")
    columns = {**buffer.store.columns, "key": buffer.store.key}
    missing = [name for name in columns if name not in saved.rows]
    if missing:
        raise InvalidFileError(f"its memory lacks the column '{missing[0]}'")
    tensors = {f"host.{name}": _padded(saved.rows[name], room, empty=name == "key") for name in columns}
    restore_store(buffer, buffer.capacity, tensors, "host", saved.seen)


def _padded(column: Tensor, room: int, *, empty: bool) -> Tensor:
    rest = column.new_full((room, *column.shape[1:]), -math.inf if empty else 0)
    return torch.cat([column, rest])
