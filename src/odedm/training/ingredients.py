"""Ingredients that compose with every method and memory: updates a batch, stream loss, prediction, average, views.

A method that has an ingredient of the kind already refuses another, with the reason; see docs/how-to/ingredients.md.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any, TypeVar

import torch
from torch import Tensor

from odedm.core.errors import UsageError, short_repr
from odedm.core.option_names import option_text
from odedm.core.registry import GAMMA_RULES, METHODS, REPLAYS, STRONG_VIEWS
from odedm.core.rows import Rows
from odedm.memory.settings import ODEDM, OF_TERM, AnyMemory
from odedm.methods.base import Method
from odedm.methods.class_shift import SHIFTS
from odedm.methods.rotation_task import TURNED, RotationTask
from odedm.methods.weight_average import begin_average, follow, unlike_its_net
from odedm.stream.augment import policy_fits
from odedm.stream.class_schedule import Labels
from odedm.stream.dataset import Dataset
from odedm.stream.scenarios import first_rows, imbalance_mask
from odedm.training.average_length import few_digits, left_after_a_batch
from odedm.training.checked_step import checked_step
from odedm.training.experiment import Experiment
from odedm.training.replay import MemoryReplay

SomeMemory = TypeVar("SomeMemory", bound=AnyMemory)


@dataclass(frozen=True)
class Ingredients:
    """What a run or a learner is asked to have beside its method and memory."""

    updates: int = 1
    stream_loss: str | None = None
    predict: str | None = None
    weight_average: float | None = None
    views: str = "crop"

    @classmethod
    def of(cls, plan: Experiment) -> Ingredients:
        """Those of an experiment."""
        return cls(**{each.name: getattr(plan, each.name) for each in fields(cls)})


def check_composition(plan: Experiment, method: type[Method], data: Dataset) -> None:
    """Refuse ingredients that the method, the memory or the rows cannot have."""
    asked, title = Ingredients.of(plan), METHODS[plan.method].title or plan.method
    check_ingredients(asked, method, title, plan.memory, plan.options)
    check_pictures(asked, data.shape, data.image.dtype)


def check_ingredients(
    asked: Ingredients, method: type[Method], title: str, memory: AnyMemory, options: Mapping[str, Any]
) -> None:
    """Refuse ingredients that the method, which is called `title`, or the memory cannot have."""
    _check_stream_loss(asked, method, title)
    _check_prediction(asked, method, title, memory)
    _check_average(asked, method, title, options)
    _check_views(asked, method, title, memory)
    _check_weight(method, title, memory)


def own_average(plan: Experiment, labels: Labels, data: Dataset) -> float | None:
    """How much of an average of the weights is left after a batch.

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


def own_stream_loss(plan: Experiment, method: type[Method]) -> str | None:
    """The stream loss; None for the method's own, also where that is named: one run has one description."""
    return None if plan.stream_loss == "plain" and not method.no_stream_loss else plan.stream_loss


def own_prediction(plan: Experiment, method: type[Method]) -> str | None:
    """By what is predicted; None for the method's own, also where that is named."""
    return None if plan.predict == method.predicts else plan.predict


def by_nearest_mean(predict: object, method: type[Method]) -> bool:
    """Whether class means of the memory's rows predict, and not the method itself (iCaRL has means of its own)."""
    return (predict or method.predicts) == "nearest-mean" and method.predict is Method.predict


def read_by_host(memory: SomeMemory, method: type[Method]) -> SomeMemory:
    """The memory with the reading that it has with this method: what `auto` stands for, and the weight of the term.

    A weight that was given is a wish for the auxiliary term. With `union` there is none: one run has one description.

    >>> from odedm.methods.gem import GEM
    >>> read_by_host(ODEDM(200), GEM).replay, read_by_host(ODEDM(200, gamma=0.5), GEM).replay
    ('union', 'auxiliary')
    """
    if not isinstance(memory, ODEDM):
        return memory
    reading, rule = memory.replay, memory.gamma_rule
    if reading == "auto" and (memory.gamma is not None or rule is not None):
        reading = "auxiliary"
    elif reading == "auto":
        reading, rule = _own_reading(method)
    if reading == "union":
        return replace(memory, replay=reading, gamma=None, gamma_rule=None)
    gamma = 1.0 if memory.gamma is None else memory.gamma
    return replace(memory, replay=reading, gamma=gamma, gamma_rule=rule or "fixed")


def reading_of(memory: AnyMemory) -> dict[str, Any]:
    """How draws read a memory whose reading is known, as keywords of `MemoryReplay`.

    >>> from odedm.methods.agem import AGEM
    >>> reading_of(read_by_host(ODEDM(200, gamma=0.5), AGEM))
    {'reading': 'auxiliary', 'gamma': 0.5, 'gamma_rule': 'fixed'}
    """
    if memory.replay == "union" and isinstance(memory, ODEDM):
        return {"reading": memory.replay, **OF_TERM}
    rule = memory.gamma_rule if isinstance(memory, ODEDM) else "fixed"
    return {"reading": memory.replay, "gamma": memory.gamma, "gamma_rule": rule}


def _own_reading(method: type[Method]) -> tuple[str, str]:
    """What a method says of itself, which may come from outside, so that it may be anything."""
    for what, name, table in (("reading", method.reading, REPLAYS), ("reading_rule", method.reading_rule, GAMMA_RULES)):
        if not isinstance(name, str) or name not in table:
            raise UsageError(
                f"{method.__name__}.{what} must be one of {', '.join(table)}; {short_repr(name)} was found. Mend the "
                "class, or give the replay 'auxiliary' or 'union' (--replay auxiliary)."
            )
    return method.reading, method.reading_rule


def compose(asked: Ingredients, method: Method) -> None:
    """Give a newly built method the parts that are asked for."""
    if asked.stream_loss in SHIFTS:
        method.class_shift = SHIFTS[asked.stream_loss](method.net.classes, method.last_loss.device)
    if asked.views in TURNED:
        method.rotation_task = RotationTask(method.net, by_class=TURNED[asked.views])
        method.optimiser = method.fresh_optimiser()
    if asked.weight_average is not None:
        begin_average(method, asked.weight_average)


def check_restored(method: Method, checkpoint: Path, *, averages: bool) -> None:
    """Refuse a checkpoint whose average of the weights is not one of the network's: no later step could go on with it.

    `averages` is whether the run keeps one at all: without it the last weights would predict, and nobody would see it.

    What a method keeps of its own may have any size, so the state itself is put back without a look at that.
    """
    why = unlike_its_net(method)
    if averages != (method.averaged is not None and method.averaging is not None):
        why = "it is missing" if averages else "the run keeps none"
    if why:
        raise UsageError(
            f"The checkpoint '{checkpoint}' is whole, but its average of the weights is not of this network: {why}. "
            "Put a good copy there, or start anew with --restart."
        )


def make_updates(
    method: Method, replay: MemoryReplay, batch: Rows, view: Callable[[Tensor], Tensor], times: int
) -> Rows:
    """Update `times` times on a batch, each time on a fresh view and fresh draws.

    Returns:
        The method's fields of the batch's rows by the first update, before which the network had not seen them.
    """
    if method.class_shift is not None:
        method.class_shift.see(batch["label"])
    made = []
    for _ in range(times):
        seen = {**batch, "input": view(batch["image"])}
        replay.begin_step(seen)
        made.append(checked_step(method, seen, replay))
        replay.end_step()
    if method.averaged is not None and method.averaging is not None:
        follow(method.averaged, method.net, method.averaging)
    return made[0]


def _check_stream_loss(asked: Ingredients, method: type[Method], title: str) -> None:
    if asked.stream_loss is not None and method.no_stream_loss:
        raise UsageError(
            f"{title} takes no stream loss '{asked.stream_loss}', because {method.no_stream_loss}. "
            "Leave the stream loss out, or take a method with a plain one, e.g. er or derpp."
        )


def _check_average(asked: Ingredients, method: type[Method], title: str, options: Mapping[str, Any]) -> None:
    why = "" if asked.weight_average is None else method.why_no_average(options)
    if why:
        raise UsageError(
            f"{title} cannot predict by an average of its weights, because {why}. Leave the weight average out."
        )


def _check_weight(method: type[Method], title: str, memory: AnyMemory) -> None:
    """Refuse a weight where there is no term; one of 1 may stand beside a reading that is named, as in the paper's."""
    if not method.no_term or not isinstance(memory, ODEDM):
        return
    for name, idle in OF_TERM.items():
        given = getattr(memory, name)
        if given is not None and (memory.replay == "auto" or given != idle):
            raise UsageError(
                f"{title} has no auxiliary term to weigh, because {method.no_term}; the memory's '{name}' is {given} "
                f"({option_text('memory', name, given)}). Leave it out."
            )


def _check_prediction(asked: Ingredients, method: type[Method], title: str, memory: AnyMemory) -> None:
    if asked.predict is None:
        return
    own = method.predict is not Method.predict
    if method.predicts != asked.predict and (own or method.predicts != "head"):
        how = "in a way of its own" if method.predicts == "head" else f"by {method.predicts}"
        raise UsageError(
            f"{title} predicts {how}, which is part of it; '{asked.predict}' contradicts that. Leave it out."
        )
    if asked.predict == "nearest-mean" and (memory.name == "none" or memory.capacity == 0):
        raise UsageError(
            "The prediction 'nearest-mean' needs stored rows, and there is no memory. Give one, e.g. a reservoir, or "
            "predict by the head."
        )


def _check_views(asked: Ingredients, method: type[Method], title: str, memory: AnyMemory) -> None:
    name, why = asked.views, method.no_views
    if name == "crop":
        return
    if name in STRONG_VIEWS and (memory.name == "none" or method.mixes_memory):
        why = "it makes no replay draws" if method.mixes_memory else "there is no memory to replay from"
    elif name in TURNED and method.exacting:
        why = "its update is no plain gradient step, to which a term could be added"
    elif name in TURNED and method.fresh_optimiser is not Method.fresh_optimiser:
        why = "its own optimizer would not train the turns' head"
    if why:
        raise UsageError(f"{title} takes no views '{name}', because {why}. Leave the views out.")


def check_pictures(asked: Ingredients, shape: tuple[int, ...], dtype: torch.dtype) -> None:
    """Refuse views that rows of this shape and type cannot have."""
    name, rows = asked.views, f"of shape {tuple(shape)} and type {str(dtype).removeprefix('torch.')}"
    if name in STRONG_VIEWS and not policy_fits(torch.empty(0, *shape, dtype=dtype)):
        raise UsageError(
            f"The views '{name}' are for grey or colour images of 8 bits; these rows are {rows}. Leave the views out."
        )
    if name in TURNED and (len(shape) != 3 or shape[1] != shape[2]):
        raise UsageError(f"The views '{name}' are for square images; these rows are {rows}. Leave the views out.")
