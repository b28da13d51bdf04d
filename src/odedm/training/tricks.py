"""Tricks that compose with every method and memory: updates a batch, stream loss, prediction, average, views.

A method that has a trick of the kind already refuses another, with the reason; see docs/how-to/ingredients.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import torch

from odedm.core.choices import STRONG_VIEWS
from odedm.core.configuration import option_text
from odedm.core.errors import UsageError
from odedm.memory.settings import ODEDM, OF_TERM, AnyMemory
from odedm.methods.base import Method
from odedm.methods.ema import EMA
from odedm.methods.logit_adjustment import SHIFTS
from odedm.methods.rotation_task import TURNED, RotationTask
from odedm.stream.augment import policy_fits
from odedm.stream.class_schedule import Labels
from odedm.stream.dataset import Dataset
from odedm.stream.scenarios import first_rows, imbalance_mask
from odedm.training.experiment import Experiment


def without_defaults(plan: Experiment, method: type[Method]) -> dict[str, Any]:
    """Return stream loss and prediction, None for what the method has anyway: one run has one description."""
    plain = plan.stream_loss == "plain" and "stream_loss" not in method.unsupported
    prediction = "nearest-mean" if "nearest mean" in method.requires else "head"
    return {
        "stream_loss": None if plain else plan.stream_loss,
        "predict": None if plan.predict == prediction else plan.predict,
    }


def check_tricks(plan: Experiment, method: type[Method], title: str, options: Mapping[str, Any]) -> None:
    """Refuse tricks that the method, which is called `title` and has all these options, or the memory cannot have."""
    for trick, why in _reasons(plan, method, options):
        raise UsageError(f"{title} takes no {trick}, because {why}. Leave it out.")
    if by_nearest_mean(plan.predict, method) and (plan.memory.name == "none" or plan.memory.capacity == 0):
        raise UsageError(
            f"{title} would predict by the nearest class mean of stored rows, and there is no memory for them. Give "
            "one, e.g. a reservoir of 100 rows, or predict by the head."
        )


def average_decay(plan: Experiment, labels: Labels, data: Dataset) -> float | None:
    """Return how much of an average of the weights is left after a batch.

    "auto" stands for half a task's in the mean, and an average over some batches is no longer: over a whole task it no
    longer knows the newest classes (docs/how-to/ingredients.md).
    """
    length = plan.weight_average
    if length is None or (not isinstance(length, str) and length <= 1):
        return length
    label = data.label[first_rows(data.label, plan.limit)]
    rows = int(imbalance_mask(label, plan.imbalance, plan.factor or 1.0, data.classes).sum())
    half = max(0.0, 1 - 2 * plan.batch * len(labels) / (rows * plan.epochs))
    left = half if isinstance(length, str) else min(half, decay_of(length))
    return round(left, 3 if left < 0.995 else 6)  # of long averages three digits would make others


def decay_of(length: float) -> float:
    """Return what is left after a batch of an average over so many batches, or of which so much is left.

    >>> decay_of(50), decay_of(0.9)
    (0.98, 0.9)
    """
    return length if length <= 1 else 1 - 1 / length


def by_nearest_mean(predict: object, method: type[Method]) -> bool:
    """Whether class means of the memory's rows predict, and not the method itself (iCaRL has means of its own)."""
    asked = predict == "nearest-mean" or "nearest mean" in method.requires
    return asked and method.predict is Method.predict


def apply_tricks(plan: Experiment, method: Method) -> None:
    """Give a newly built method the parts that the experiment asks for."""
    if plan.stream_loss in SHIFTS:
        method.logit_adjustment = SHIFTS[plan.stream_loss](method.net.classes, method.last_loss.device)
    if plan.views in TURNED:
        method.rotation_task = RotationTask(method.net, by_class=TURNED[plan.views])
        method.optimizer = method.new_optimizer()
    if plan.weight_average is not None:
        assert not isinstance(plan.weight_average, str), "a resolved experiment has a number"
        method.ema = EMA(method.net, plan.weight_average)
    method.clip_norm = plan.clip_norm


def _reasons(plan: Experiment, method: type[Method], options: Mapping[str, Any]) -> Iterator[tuple[str, str]]:
    """Yield what is asked for and cannot be: the trick's name in words, and the reason."""
    reasons, memory = method.unsupported, plan.memory
    if plan.stream_loss is not None and (why := reasons.get("stream_loss", "")):
        yield f"stream loss '{plan.stream_loss}'", why
    if plan.weight_average is not None:
        other = "" if method.predict is Method.predict else "it predicts in a way of its own"
        if why := reasons.get("weight_average", other):
            yield "average of its weights", why
    if plan.views != "crop" and (why := reasons.get("views", _no_views(plan.views, method, memory))):
        yield f"views '{plan.views}'", why
    if options.get("momentum") and (why := reasons.get("momentum", "")):
        yield "momentum", why
    if plan.predict is not None and (why := _no_prediction(plan.predict, method)):
        yield f"prediction by '{plan.predict}'", why
    for name, idle in OF_TERM.items() if "gamma" in reasons and isinstance(memory, ODEDM) else ():
        weight = getattr(memory, name)
        # one of 1 may stand beside a reading that is named, as in the paper's
        if weight is not None and (memory.replay == "auto" or weight != idle):
            yield f"weight of a long-term term ({option_text('memory', name, weight)})", reasons["gamma"]


def _no_views(name: str, method: type[Method], memory: AnyMemory) -> str:
    if name in STRONG_VIEWS and "mixing" in method.requires:
        return "it makes no replay draws"
    if name in STRONG_VIEWS and memory.name == "none":
        return "there is no memory to replay from"
    if name in TURNED and "second order" in method.requires:
        return "its update is no plain gradient step, to which a term could be added"
    if name in TURNED and method.new_optimizer is not Method.new_optimizer:
        return "its own optimizer would not train the turns' head"
    return ""


def _no_prediction(name: str, method: type[Method]) -> str:
    if "nearest mean" in method.requires:
        return "" if name == "nearest-mean" else "it predicts by nearest-mean, which is part of it"
    reason = "" if method.predict is Method.predict else "it predicts in a way of its own, which is part of it"
    return method.unsupported.get("predict", reason)


def check_pictures(plan: Experiment, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Refuse views that rows of this shape and type cannot have."""
    name, rows = plan.views, f"of shape {tuple(shape)} and type {str(dtype).removeprefix('torch.')}"
    if name in STRONG_VIEWS and not policy_fits(torch.empty(0, *shape, dtype=dtype)):
        raise UsageError(
            f"The views '{name}' are for grey or colour images of 8 bits; these rows are {rows}. Leave the views out."
        )
    if name in TURNED and (len(shape) != 3 or shape[1] != shape[2]):
        raise UsageError(f"The views '{name}' are for square images; these rows are {rows}. Leave the views out.")
