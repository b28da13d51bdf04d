"""Ingredients that compose with every method and memory: updates a batch, stream loss, prediction, average, views.

A method that has an ingredient of the kind already refuses another, with the reason; see docs/how-to/ingredients.md.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeVar

import torch
from torch import Tensor

from odedm.core.errors import UsageError, shown
from odedm.core.registry import GAMMA_RULES, METHODS, REPLAYS, STRONG_VIEWS
from odedm.core.rows import Rows
from odedm.memory.settings import ODEDM, AnyMemory
from odedm.methods.base import Method
from odedm.methods.class_shift import SHIFTS
from odedm.methods.rotation_task import TURNED, RotationTask
from odedm.methods.weight_average import begin_average, follow
from odedm.stream.augment import policy_fits
from odedm.stream.dataset import Dataset
from odedm.training.experiment import Experiment
from odedm.training.replay import MemoryReplay

SomeMemory = TypeVar("SomeMemory", bound=AnyMemory)


def check_composition(plan: Experiment, method: type[Method], data: Dataset) -> None:
    """Refuse ingredients that the method, the memory or the rows cannot have."""
    _check_stream_loss(plan, method)
    _check_prediction(plan, method)
    _check_average(plan, method)
    _check_views(plan, method, data)


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

    A weight that was given is a wish for the auxiliary term: with another reading it would do nothing.

    >>> from odedm.methods.agem import AGEM
    >>> read_by_host(ODEDM(200), AGEM).replay, read_by_host(ODEDM(200, gamma=0.5), AGEM).replay
    ('union', 'auxiliary')
    """
    if not isinstance(memory, ODEDM):
        return memory
    reading, rule = memory.replay, memory.gamma_rule
    if reading == "auto" and (memory.gamma is not None or rule is not None):
        reading = "auxiliary"
    elif reading == "auto":
        reading, rule = _own_reading(method)
    gamma = 1.0 if memory.gamma is None else memory.gamma
    return replace(memory, replay=reading, gamma=gamma, gamma_rule=rule or "fixed")


def reading_of(memory: AnyMemory) -> dict[str, Any]:
    """How draws read a memory whose reading is known, as keywords of `MemoryReplay`.

    >>> from odedm.methods.agem import AGEM
    >>> reading_of(read_by_host(ODEDM(200, gamma=0.5), AGEM))
    {'reading': 'auxiliary', 'gamma': 0.5, 'gamma_rule': 'fixed'}
    """
    rule = memory.gamma_rule if isinstance(memory, ODEDM) else "fixed"
    return {"reading": memory.replay, "gamma": memory.gamma, "gamma_rule": rule}


def _own_reading(method: type[Method]) -> tuple[str, str]:
    """What a method says of itself, which may come from outside; one reading has one description."""
    for what, name, table in (("reading", method.reading, REPLAYS), ("reading_rule", method.reading_rule, GAMMA_RULES)):
        if name not in table:
            raise UsageError(
                f"{method.__name__}.{what} must be one of {', '.join(table)}; {shown(name)} was found. Mend the class, "
                "or give --replay auxiliary or union."
            )
    return method.reading, "fixed" if method.reading == "union" else method.reading_rule


def compose(plan: Experiment, method: Method) -> None:
    """Give a newly built method the parts that its plan names."""
    if plan.stream_loss in SHIFTS:
        method.class_shift = SHIFTS[plan.stream_loss](method.net.classes, method.last_loss.device)
    if plan.views in TURNED:
        method.rotation_task = RotationTask(method.net, by_class=TURNED[plan.views])
        method.optimiser = method.fresh_optimiser()
    if plan.weight_average is not None:
        begin_average(method, plan.weight_average)


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
        made.append(method.step(seen, replay))
        replay.end_step()
    if method.averaged is not None and method.averaging is not None:
        follow(method.averaged, method.net, method.averaging)
    return made[0]


def _check_stream_loss(plan: Experiment, method: type[Method]) -> None:
    if plan.stream_loss is not None and method.no_stream_loss:
        raise UsageError(
            f"{_title(plan)} takes no stream loss '{plan.stream_loss}', because {method.no_stream_loss}. "
            "Leave --stream-loss out, or take a method with a plain one, e.g. --method er or derpp."
        )


def _check_average(plan: Experiment, method: type[Method]) -> None:
    why = "" if plan.weight_average is None else method.why_no_average(plan.options)
    if why:
        raise UsageError(f"{_title(plan)} cannot predict by an average of its weights, because {why}. "
                         "Leave --weight-average out.")  # fmt: skip


def _check_prediction(plan: Experiment, method: type[Method]) -> None:
    if plan.predict is None:
        return
    own = method.predict is not Method.predict
    if method.predicts != plan.predict and (own or method.predicts != "head"):
        how = "in a way of its own" if method.predicts == "head" else f"by {method.predicts}"
        raise UsageError(
            f"{_title(plan)} predicts {how}, which is part of it; '{plan.predict}' contradicts that. "
            "Leave --predict out."
        )
    if plan.predict == "nearest-mean" and (plan.memory.name == "none" or plan.memory.capacity == 0):
        raise UsageError(
            "The prediction 'nearest-mean' needs stored rows, and there is no memory. Give one, e.g. --memory "
            "reservoir, or predict by the head."
        )


def _check_views(plan: Experiment, method: type[Method], data: Dataset) -> None:
    name, title = plan.views, _title(plan)
    if name == "crop":
        return
    why = method.no_views
    if name in STRONG_VIEWS and (plan.memory.name == "none" or method.mixes_memory):
        why = "it makes no replay draws" if method.mixes_memory else "there is no memory to replay from"
    elif name in TURNED and method.exacting:
        why = "its update is no plain gradient step, to which a term could be added"
    elif name in TURNED and method.fresh_optimiser is not Method.fresh_optimiser:
        why = "its own optimizer would not train the turns' head"
    if why:
        raise UsageError(f"{title} takes no views '{name}', because {why}. Leave --views out.")
    shape = data.shape
    if name in STRONG_VIEWS and not policy_fits(torch.empty(0, *shape, dtype=data.image.dtype)):
        raise UsageError(
            f"The views '{name}' are for grey or colour images of 8 bits; these rows are {_words(data)}. Leave --views "
            "out."
        )
    if name in TURNED and (len(shape) != 3 or shape[1] != shape[2]):
        raise UsageError(f"The views '{name}' are for square images; these rows are {_words(data)}. Leave --views out.")


def _words(data: Dataset) -> str:
    return f"of shape {tuple(data.shape)} and type {str(data.image.dtype).removeprefix('torch.')}"


def _title(plan: Experiment) -> str:
    return METHODS[plan.method].title or plan.method
