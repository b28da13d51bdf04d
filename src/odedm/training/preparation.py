"""Prepares an experiment: opens its data, fills in every default, refuses what cannot be run."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import torch

from odedm.core.errors import UsageError
from odedm.core.registry import METHODS
from odedm.core.validators import refused
from odedm.data.opening import load_dataset
from odedm.memory.build_context import StreamShape
from odedm.methods.base import Method
from odedm.methods.hyperparameters import configure
from odedm.nets.build import configure as configure_net
from odedm.nets.build import pick
from odedm.stream.class_schedule import Labels
from odedm.stream.dataset import Dataset
from odedm.stream.tasks import STREAM_SETTINGS, check_stream
from odedm.training.experiment import Experiment
from odedm.training.ingredients import check_composition, own_average, own_prediction, own_stream_loss, read_by_host
from odedm.training.outside_parts import check_optimiser
from odedm.training.retrieval import build_retrieval, read_retrieval_options

LONG_TAIL_FACTOR = 10.0
"""The imbalance of the setting 'long-tail' where none is given."""


@dataclass(frozen=True)
class Prepared:
    """An experiment with every default filled in, and the data it is for: all that a run is built from."""

    experiment: Experiment
    data: Dataset


def prepare(plan: Experiment, data: Dataset | None = None, *, elsewhere: bool = False) -> Prepared:
    """The experiment with every default filled in and the impossible refused, and its data.

    `elsewhere` prepares for another machine: a device is then taken at its word, for this machine may not have it.
    """
    for name, given, kind in (("The plan", plan, Experiment), ("data", data, Dataset | None)):
        if not isinstance(given, kind):
            raise refused(name, "an Experiment" if kind is Experiment else "a Dataset (see odedm.from_arrays)", given)
    data = load_dataset(plan.data) if data is None else data
    labels = check_stream(data, **stream_settings(plan))
    cores = os.cpu_count() or 1
    if plan.threads > cores and not elsewhere:
        raise UsageError(f"threads must be {cores} or fewer, the cores of this machine; {plan.threads} was given.")
    method = METHODS[plan.method].load()
    factor = (plan.factor or LONG_TAIL_FACTOR) if plan.imbalance == "long-tail" else None
    plan = replace(plan, retrieval=retrieval_of(plan, method), factor=factor)
    plan = replace(plan, weight_average=own_average(plan, labels, data))
    retrieval_options = check_parts(plan, method)
    _check_ranges(method, labels)
    check_optimiser(plan.optimizer, method)
    check_composition(plan, method, data)
    net = pick(plan.net, data.shape)
    device = torch.device("cuda" if plan.device == "cuda" else "cpu") if elsewhere else resolve_device(plan.device)
    resolved = replace(
        plan,
        tasks=len(labels),
        shuffle=plan.shuffle and data.task is None,
        options=configure(plan.method, method, dict(plan.options)),
        memory=read_by_host(plan.memory, method).resolve(StreamShape.of(labels), method.native),
        net=net,
        net_options=configure_net(net, data.shape, data.classes, plan.net_options),
        replay_batch=plan.replay_batch or plan.batch,
        retrieval_options=retrieval_options,
        stream_loss=own_stream_loss(plan, method),
        predict=own_prediction(plan, method),
        device=device.type,
        precision=resolve_precision(plan.precision, device, exacting=method.exacting, elsewhere=elsewhere),
    )
    return Prepared(resolved, data)


def retrieval_of(plan: Experiment, method: type[Method]) -> str:
    """The name of the retrieval: the method's own where it has one and there is a memory to draw from."""
    if plan.memory.name == "none":
        return plan.retrieval
    return known_retrieval(plan.retrieval, method, METHODS[plan.method].title or plan.method)


def known_retrieval(asked: str, method: type[Method], title: str) -> str:
    """The retrieval of a method that is called `title`; one with a choice of its own refuses another."""
    own = method.own_retrieval
    if own not in ("uniform", asked) and asked != "uniform":
        raise UsageError(
            f"{title} chooses the rows that it replays by itself, by '{own}'; '{asked}' was given. Leave the retrieval "
            "out, or take a method without a choice of its own, e.g. er."
        )
    return asked if own == "uniform" else own


def check_parts(plan: Experiment, method: type[Method]) -> dict[str, Any]:
    """The retrieval's options in their own types; refuses parts that mean nothing together."""
    name, title = plan.retrieval, METHODS[plan.method].title or plan.method
    build_retrieval(name, plan.retrieval_options)  # refuses values before anything runs
    if plan.memory.name == "none" and method.needs_memory:
        raise UsageError(
            f"{title} means nothing without stored rows. Give it a memory, e.g. 'reservoir' (--memory reservoir), or "
            "take a method that learns from the stream as well, e.g. 'er' (--method er)."
        )
    if plan.memory.name != "none" and method.keeps_nothing:
        raise UsageError(
            f"{title} keeps no rows: it is a bound for methods that do, and a memory would change nothing. The memory "
            f"'{plan.memory.name}' was given; say 'none' (--memory none)."
        )
    check_choice(name, method, title, plan.memory.name)
    return read_retrieval_options(name, plan.retrieval_options)


def check_choice(name: str, method: type[Method], title: str, memory: str) -> None:
    """Refuse a retrieval that has nothing to choose."""
    if name != "uniform" and (memory == "none" or method.mixes_memory or not method.draws_at_once):
        why = "there is no memory" if memory == "none" else f"{title} takes all stored rows, and draws none"
        why = f"{title} mixes all stored rows into the stream" if method.mixes_memory else why
        raise UsageError(f"The retrieval '{name}' has nothing to choose: {why}. Leave the retrieval out.")


def stream_settings(plan: Experiment) -> dict[str, Any]:
    """What of an experiment makes its stream: keywords of `split`."""
    return {name: getattr(plan, name) for name in STREAM_SETTINGS}


def _check_ranges(method: Any, labels: Labels) -> None:
    """Refuse a stream whose tasks have scattered classes for a method that takes them for a range, before it runs."""
    scattered = [task for task, own in enumerate(labels, start=1) if max(own) - min(own) >= len(own)]
    if scattered and getattr(method, "needs_ranges", False):
        raise UsageError(
            f"{method.__name__} takes a task's classes for consecutive numbers by arrival, and those of task "
            f"{scattered[0]} are not. Use another method, or a stream whose tasks return whole."
        )


def resolve_device(name: str) -> torch.device:
    """The device a name stands for; `auto` takes a GPU where there is one."""
    available = name != "cpu" and torch.cuda.is_available()
    if name == "cuda" and not available:
        raise UsageError(
            "The device 'cuda' was asked for, but torch sees no GPU here. Use 'cpu' or 'auto' (--device cpu)."
        )
    return torch.device("cuda" if available else "cpu")


def resolve_precision(name: str, device: torch.device, *, exacting: bool, elsewhere: bool = False) -> str:
    """The precision a name stands for: `auto` is the fastest that a method's accuracy does not suffer from.

    >>> resolve_precision("auto", torch.device("cpu"), exacting=False)
    'fp32'
    """
    if device.type != "cuda":
        if name == "tf32":
            raise UsageError("The precision 'tf32' is for GPUs; on the CPU use fp32 or bf16.")
        return "fp32" if name == "auto" else name
    if name == "auto":
        return "bf16" if not exacting and (elsewhere or torch.cuda.is_bf16_supported()) else "tf32"
    return name
