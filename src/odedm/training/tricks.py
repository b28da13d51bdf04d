"""Tricks that compose with every method and memory: updates a batch, stream loss, prediction, average, views.

A method that has a trick of the kind already refuses another, with the reason; see docs/how-to/ingredients.md.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import torch

from odedm.core.errors import UsageError
from odedm.core.option_names import option_text
from odedm.core.registry import STRONG_VIEWS
from odedm.memory.settings import ODEDM, OF_TERM, AnyMemory
from odedm.methods.base import Method
from odedm.methods.ema import EMA
from odedm.methods.logit_adjustment import SHIFTS
from odedm.methods.rotation_task import TURNED, RotationTask
from odedm.stream.augment import policy_fits
from odedm.stream.class_schedule import Labels
from odedm.stream.dataset import Dataset
from odedm.stream.scenarios import first_rows, imbalance_mask
from odedm.training.average_length import few_digits, left_after_a_batch
from odedm.training.experiment import Experiment


@dataclass(frozen=True)
class Tricks:
    """What a run or a learner is asked to have beside its method and memory."""

    updates: int = 1
    stream_loss: str | None = None
    predict: str | None = None
    weight_average: float | None = None
    views: str = "crop"

    @classmethod
    def of(cls, plan: Experiment) -> Tricks:
        """Return those of an experiment."""
        return cls(**{setting.name: getattr(plan, setting.name) for setting in fields(cls)})

    def settings(self) -> dict[str, Any]:
        """Return them as settings of an experiment."""
        return {setting.name: getattr(self, setting.name) for setting in fields(self)}

    def without_defaults(self, method: type[Method]) -> Tricks:
        """Return the same with None for what the method has anyway, also where that is named.

        So one run has one description.
        """
        plain = self.stream_loss == "plain" and "stream_loss" not in method.unsupported
        prediction = "nearest-mean" if "nearest mean" in method.requires else "head"
        return replace(
            self,
            stream_loss=None if plain else self.stream_loss,
            predict=None if self.predict == prediction else self.predict,
        )


def check_tricks(
    asked: Tricks, method: type[Method], title: str, memory: AnyMemory, options: Mapping[str, Any]
) -> None:
    """Refuse tricks that the method, which is called `title`, or the memory cannot have."""
    for what, why in _reasons(asked, method, memory, options):
        raise UsageError(f"{title} takes no {what}, because {why}. Leave it out.")
    if by_nearest_mean(asked.predict, method) and (memory.name == "none" or memory.capacity == 0):
        raise UsageError(
            f"{title} would predict by the nearest class mean of stored rows, and there is no memory for them. Give "
            "one, e.g. a reservoir of 100 rows, or predict by the head."
        )


def average_decay(plan: Experiment, labels: Labels, data: Dataset) -> float | None:
    """Return how much of an average of the weights is left after a batch.

    "auto" stands for half a task's in the mean, and an average over some batches is no longer: over a whole task it no
    longer knows the newest classes (docs/how-to/ingredients.md).
    """
    asked = plan.weight_average
    if asked is None or (not isinstance(asked, str) and asked <= 1):
        return asked
    label = data.label[first_rows(data.label, plan.limit)]
    rows = int(imbalance_mask(label, plan.imbalance, plan.factor or 1.0, data.classes).sum())
    half = max(0.0, 1 - 2 * plan.batch * len(labels) / (rows * plan.epochs))
    return few_digits(half if isinstance(asked, str) else min(half, left_after_a_batch(asked)))


def by_nearest_mean(predict: object, method: type[Method]) -> bool:
    """Whether class means of the memory's rows predict, and not the method itself (iCaRL has means of its own)."""
    asked = predict == "nearest-mean" or "nearest mean" in method.requires
    return asked and method.predict is Method.predict


def apply_tricks(asked: Tricks, method: Method) -> None:
    """Give a newly built method the parts that are asked for."""
    if asked.stream_loss in SHIFTS:
        method.logit_adjustment = SHIFTS[asked.stream_loss](method.net.classes, method.last_loss.device)
    if asked.views in TURNED:
        method.rotation_task = RotationTask(method.net, by_class=TURNED[asked.views])
        method.optimizer = method.new_optimizer()
    if asked.weight_average is not None:
        method.ema = EMA(method.net, asked.weight_average)


def check_restored(method: Method, checkpoint: Path, *, averages: bool) -> None:
    """Refuse a checkpoint whose average of the weights is not one of the network's: no later step could go on with it.

    `averages` is whether the run keeps one at all: without it the last weights would predict, and nobody would see it.

    What a method keeps of its own may have any size, so the state itself is put back without a look at that.
    """
    why = "" if method.ema is None else method.ema.difference(method.net)
    if averages != (method.ema is not None):
        why = "it is missing" if averages else "the run keeps none"
    if why:
        raise UsageError(
            f"The checkpoint '{checkpoint}' is whole, but its average of the weights is not of this network: {why}. "
            "Put a good copy there, or start anew with --restart."
        )


def _reasons(
    asked: Tricks, method: type[Method], memory: AnyMemory, options: Mapping[str, Any]
) -> Iterator[tuple[str, str]]:
    """Yield what is asked for and cannot be: the trick's name in words, and the reason."""
    reasons = method.unsupported_with(options)
    if asked.stream_loss is not None and (why := reasons.get("stream_loss", "")):
        yield f"stream loss '{asked.stream_loss}'", why
    if asked.weight_average is not None:
        other = "" if method.predict is Method.predict else "it predicts in a way of its own"
        if why := reasons.get("weight_average", other):
            yield "average of its weights", why
    if asked.views != "crop" and (why := reasons.get("views", _no_views(asked.views, method, memory))):
        yield f"views '{asked.views}'", why
    if options.get("momentum") and (why := reasons.get("momentum", "")):
        yield "momentum", why
    if asked.predict is not None and (why := _no_prediction(asked.predict, method)):
        yield f"prediction by '{asked.predict}'", why
    for name, idle in OF_TERM.items() if "gamma" in reasons and isinstance(memory, ODEDM) else ():
        given = getattr(memory, name)
        # one of 1 may stand beside a reading that is named, as in the paper's
        if given is not None and (memory.replay == "auto" or given != idle):
            yield f"weight of a long-term term ({option_text('memory', name, given)})", reasons["gamma"]


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
    own = "" if method.predict is Method.predict else "it predicts in a way of its own, which is part of it"
    return method.unsupported.get("predict", own)


def check_pictures(asked: Tricks, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Refuse views that rows of this shape and type cannot have."""
    name, rows = asked.views, f"of shape {tuple(shape)} and type {str(dtype).removeprefix('torch.')}"
    if name in STRONG_VIEWS and not policy_fits(torch.empty(0, *shape, dtype=dtype)):
        raise UsageError(
            f"The views '{name}' are for grey or colour images of 8 bits; these rows are {rows}. Leave the views out."
        )
    if name in TURNED and (len(shape) != 3 or shape[1] != shape[2]):
        raise UsageError(f"The views '{name}' are for square images; these rows are {rows}. Leave the views out.")
