"""From a finished run to a stream without borders: a learner with a kept model's weights and memory."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from torch import Tensor

from odedm.core.errors import InvalidFileError, UsageError
from odedm.core.extension_points import PluginEntry
from odedm.core.registry import NETS
from odedm.learner.kept_model import KeptModel
from odedm.learner.online_engine import OnlineEngine
from odedm.learner.online_learner import Learner
from odedm.memory.live_parts import pins
from odedm.memory.live_state import restore_store
from odedm.memory.settings import ODEDM
from odedm.stream.augment import Transform
from odedm.training.experiment import Experiment
from odedm.training.model_state import ModelState
from odedm.training.tricks import Tricks


def go_on(kept: KeptModel, when: Mapping[str, Any]) -> Learner:
    """A learner that begins where the run ended; `when` says when it consolidates."""
    plan = Experiment.from_dict(kept.result.experiment)
    asked = Tricks.of(plan)
    if plan.transform not in ("data", "none"):
        raise UsageError(f"A learner has no views of its own; the run had the transform '{plan.transform}'.")
    memory = plan.memory
    if isinstance(memory, ODEDM) and memory.rho is not None:
        memory = replace(memory, k=None)  # which followed from rho and the stream's number of classes
    method, constants = kept.probe.method, kept.probe.transform
    entry = NETS[kept.net]
    named = not isinstance(entry, PluginEntry) or entry.portable
    learner = Learner(
        plan.method,
        memory=memory,
        net=kept.net if named else copy.deepcopy(method.net),
        options=dict(plan.options),
        net_options=dict(kept.net_options) if named else None,
        scaling=Transform(constants.shift.cpu(), constants.scale.cpu(), constants.pad, constants.flip),
        batch=plan.batch,
        draw=plan.replay_batch,
        optimizer=plan.optimizer,
        retrieval=plan.retrieval,
        retrieval_options=dict(plan.retrieval_options),
        updates=asked.updates,
        stream_loss=asked.stream_loss,
        predict_by=asked.predict,
        weight_average=asked.weight_average,
        views=asked.views,
        seed=plan.seed,
        device=kept.device.type,
        threads=kept.threads,
        precision=kept.precision,
        **when,
    )
    with learner._numerics(None):
        fitted = learner._built(kept.schema, kept.labels)
    try:
        _fill(fitted.engine, kept)
    except InvalidFileError as error:
        raise UsageError(f"A learner cannot go on with this model: {error}.") from error
    label, pinned = kept.rows["label"], kept.rows["prototype"] >= 0
    classes = len(kept.labels.classes)
    # new rows get numbers behind all old ones, by which a row is known
    rows = max(1, kept.seen, int(kept.rows["index"].max()) + 1 if len(label) else 0)
    waiting = label.bincount(minlength=classes) * (label[pinned].bincount(minlength=classes) == 0)
    if not pins(fitted.engine.plan.memory):
        waiting = torch.zeros_like(waiting)
    learner._fitted = replace(fitted, rows=rows, last_seen=np.full(classes, rows), new_rows=waiting.numpy())
    return learner


def _fill(engine: OnlineEngine, kept: KeptModel) -> None:
    """Put in what the method holds, its network among it, and the memory's rows."""
    ModelState.put_back(engine.method, ModelState.of(kept.probe.method))
    engine.method.net.train()
    if engine.method.logit_adjustment is not None:
        engine.method.logit_adjustment.forget_recency()
    buffer, amount = engine.memory.buffer, len(kept.rows["label"])
    room = buffer.capacity - amount
    if room < 0:
        raise InvalidFileError(f"its memory has {amount} rows where {buffer.capacity} fit")
    columns = {**buffer.store.columns, "key": buffer.store.key}
    missing = [name for name in columns if name not in kept.rows]
    if missing:
        raise InvalidFileError(f"its memory lacks the column '{missing[0]}'")
    tensors = {f"host.{name}": _padded(kept.rows[name], room, empty=name == "key") for name in columns}
    restore_store(buffer, buffer.capacity, tensors, "host", kept.seen)


def _padded(column: Tensor, room: int, *, empty: bool) -> Tensor:
    rest = column.new_full((room, *column.shape[1:]), -math.inf if empty else 0)
    return torch.cat([column, rest])
