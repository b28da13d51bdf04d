"""From a finished run to a stream without borders: a learner with a saved model's weights and memory."""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from odedm.checkpoint.state_tree import state_tree
from odedm.core.errors import UsageError, require
from odedm.core.plugins import PluginEntry
from odedm.core.registry import NETS
from odedm.learner.arrivals import Arrivals
from odedm.learner.online_engine import OnlineEngine
from odedm.learner.saved_parts import refusing
from odedm.memory.live_state import restore_store
from odedm.memory.open_stream import pins
from odedm.memory.settings import ODEDM
from odedm.stream.augment import Transform
from odedm.training.engine import Engine
from odedm.training.model_file import ModelState, load_method

if TYPE_CHECKING:
    from odedm.learner.online_learner import Learner
    from odedm.learner.trained_model import TrainedModel

CARRIED = (
    "batch", "optimizer", "optimizer_options", "clip_norm", "retrieval", "updates", "stream_loss", "weight_average",
    "views", "seed",
)  # fmt: skip
"""Settings of the run that are parameters of a learner as they are."""


def continued(kind: type[Learner], model: TrainedModel, when: Mapping[str, Any]) -> Learner:
    """Return a learner that begins where the run ended; `when` says when it consolidates."""
    plan, engine = model.plan, model._engine
    if plan.transform not in ("data", "none"):
        raise UsageError(f"A learner has no views of its own; the run had the transform '{plan.transform}'.")
    memory = plan.memory
    if isinstance(memory, ODEDM) and memory.rho is not None:
        memory = replace(memory, k=None)  # which followed from rho and the stream's number of classes
    constants, net = engine.transform, engine.plan.net
    entry = NETS[net]
    named = not isinstance(entry, PluginEntry) or entry.portable
    learner = kind(
        plan.method,
        memory=memory,
        net=net if named else copy.deepcopy(engine.method.net),
        options=dict(plan.options),
        net_options=dict(engine.plan.net_options) if named else None,
        scaling=Transform(constants.shift.cpu(), constants.scale.cpu(), constants.pad, constants.flip),
        draw=plan.replay_batch,
        retrieval_options=dict(plan.retrieval_options),
        predict_by=plan.predict,
        device=engine.plan.device,
        threads=engine.plan.threads,
        precision=engine.plan.precision,
        **{name: getattr(plan, name) for name in CARRIED},
        **when,
    )
    with learner._numerics(None):
        fitted = learner._built(model._schema, model._labels)
    with refusing("A learner cannot go on with this model, which"):
        _fill(fitted.engine, engine)
    rows = engine.memory.rows()
    label, pinned, classes = rows["label"].cpu(), rows["prototype"].cpu() >= 0, len(model._labels.classes)
    # new rows get numbers behind all old ones, by which a row is known
    count = max(1, int(engine.memory.num_seen), int(rows["index"].max()) + 1 if len(label) else 0)
    waiting = {*label.tolist()} - {*label[pinned].tolist()} if pins(fitted.engine.config.memory) else set()
    fitted.arrivals = Arrivals(count, 0, [0] * classes, [count] * classes, dict.fromkeys(sorted(waiting)))
    learner._fitted = fitted
    return learner


def _fill(engine: OnlineEngine, old: Engine) -> None:
    """Put in what the method holds, its network among it, and the memory's rows."""
    method = engine.method
    load_method(method, state_tree({"method": ModelState(old.method)}), {}, device=engine.device)
    method.net.train()
    if method.logit_adjustment is not None:
        method.logit_adjustment.forget_recency()
    buffer, store = engine.memory.buffer, old.memory.store
    rows = {**old.memory.rows(), "priority": store.priority[old.memory.ordered_slots()]}
    room = buffer.capacity - len(rows["priority"])
    require(room >= 0, f"its memory has {len(rows['priority'])} rows where {buffer.capacity} fit")
    missing = [name for name in buffer.store.columns if name not in rows]
    require(not missing, f"its memory lacks the column '{missing[:1]}'")
    tensors = {f"host.{name}": _padded(rows[name].cpu(), room, empty=name == "priority") for name in rows}
    restore_store(buffer, buffer.capacity, tensors, "host", int(old.memory.num_seen))


def _padded(column: Tensor, room: int, *, empty: bool) -> Tensor:
    return torch.cat([column, column.new_full((room, *column.shape[1:]), -math.inf if empty else 0)])
