"""Prepares an experiment: opens its data, fills in every default, refuses what cannot be run."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any

import torch

from odedm.core.errors import UsageError
from odedm.core.registry import METHODS
from odedm.core.validators import as_bytes, refused
from odedm.data.opening import load_dataset
from odedm.memory.build_context import StreamShape
from odedm.memory.settings import AnyMemory
from odedm.methods.base import Method
from odedm.methods.hyperparameters import configure
from odedm.nets.build import build, pick
from odedm.nets.build import configure as configure_net
from odedm.stream.class_schedule import Labels
from odedm.stream.dataset import Dataset
from odedm.stream.tasks import STREAM_SETTINGS, check_stream
from odedm.training.experiment import Experiment
from odedm.training.memory_bytes import memory_in_rows
from odedm.training.optimizers import RATES, check_optimizer, takes
from odedm.training.replay import resolve_replay_mode
from odedm.training.retrieval import build_retrieval, read_retrieval_options
from odedm.training.tricks import average_decay, check_pictures, check_tricks, without_defaults

LONG_TAIL_FACTOR = 10.0
"""The imbalance of the setting 'long-tail' where none is given."""


@dataclass(frozen=True)
class Prepared:
    """An experiment with every default filled in, and the data it is for: all that a run is built from."""

    experiment: Experiment
    data: Dataset


def prepare(plan: Experiment, data: Dataset | None = None, *, remote: bool = False) -> Prepared:
    """Return the experiment with every default filled in and the impossible refused, and its data.

    `remote` prepares for another machine: a device is then taken at its word, for this machine may not have it.
    """
    for name, given, kind in (("The plan", plan, Experiment), ("data", data, Dataset | None)):
        if not isinstance(given, kind):
            raise refused(name, "an Experiment" if kind is Experiment else "a Dataset (see odedm.from_arrays)", given)
    data = load_dataset(plan.data) if data is None else data
    labels = check_stream(data, **stream_settings(plan))
    cores = os.cpu_count() or 1
    if plan.threads > cores and not remote:
        raise UsageError(f"threads must be {cores} or fewer, the cores of this machine; {plan.threads} was given.")
    method = METHODS[plan.method].load()
    plan = replace(plan, factor=(plan.factor or LONG_TAIL_FACTOR) if plan.imbalance == "long-tail" else None)
    defaults = {**method.defaults_for(data.classes), **plan.options}
    plan = resolve(replace(plan, options=defaults, weight_average=average_decay(plan, labels, data)), remote=remote)
    _check_ranges(method, labels)
    check_pictures(plan, data.shape, data.image.dtype)
    net = pick(method.default_net if plan.net == "auto" else plan.net, data.shape)
    net_options = configure_net(net, data.shape, data.classes, plan.net_options)
    memory = plan.memory
    if as_bytes(memory.capacity) is not None:
        memory = memory_in_rows(plan, data, build(net, data.shape, data.classes, seed=0, options=net_options))
    resolved = replace(
        plan,
        tasks=len(labels),
        shuffle=plan.shuffle and data.task is None,
        memory=memory.resolve(StreamShape.of(labels), method.policy),
        net=net,
        net_options=net_options,
    )
    return Prepared(resolved, data)


def resolve(plan: Experiment, *, remote: bool = False) -> Experiment:
    """Return the experiment with every default of what an `Engine` is built from; what cannot be together is refused.

    `remote`: see `prepare`.
    """
    method: type[Method] = METHODS[plan.method].load()
    title = METHODS[plan.method].title or plan.method
    options = configure(plan.method, method, dict(plan.options))
    _check_memory(method, title, plan.memory)
    retrieval = _retrieval(plan, method, title)
    options |= {rate: 0.0 for rate in ("momentum", "weight_decay") if not takes(plan.optimizer, rate)}
    rates = {rate: options[rate] for rate in RATES}
    optimizer_options = check_optimizer(plan.optimizer, plan.optimizer_options or {}, method, plan.options, rates)
    if ((plan.schedule or "constant") != "constant" or plan.warmup) and (why := method.unsupported.get("schedule", "")):
        raise UsageError(f"{title} takes no schedule of its learning rate, because {why}. Leave it out.")
    if plan.clip_norm is not None and not plan.clip_norm > 0:
        raise UsageError(f"clip_norm must be above 0; {plan.clip_norm} was given.")
    check_tricks(plan, method, title, options)
    device = torch.device("cuda" if plan.device == "cuda" else "cpu") if remote else resolve_device(plan.device)
    second_order = "second order" in method.requires
    return replace(
        plan,
        options=options,
        memory=resolve_replay_mode(plan.memory, method),
        replay_batch=plan.replay_batch or plan.batch,
        retrieval=retrieval,
        retrieval_options=read_retrieval_options(retrieval, plan.retrieval_options),
        optimizer_options=optimizer_options or None,
        **without_defaults(plan, method),
        device=device.type,
        precision=resolve_precision(plan.precision, device, second_order=second_order, remote=remote),
    )


def stream_settings(plan: Experiment) -> dict[str, Any]:
    """Return what of an experiment makes its stream: keywords of `split`."""
    return {name: getattr(plan, name) for name in STREAM_SETTINGS}


def resolve_device(name: str) -> torch.device:
    """Return the device that a name stands for; `auto` takes a GPU where there is one."""
    available = name != "cpu" and torch.cuda.is_available()
    if name == "cuda" and not available:
        raise UsageError(
            "The device 'cuda' was asked for, but torch sees no GPU here. Use 'cpu' or 'auto' (--device cpu)."
        )
    return torch.device("cuda" if available else "cpu")


def resolve_precision(name: str, device: torch.device, *, second_order: bool, remote: bool = False) -> str:
    """Return the precision that a name stands for: `auto` is the fastest that a method's accuracy does not suffer from.

    >>> resolve_precision("auto", torch.device("cpu"), second_order=False)
    'fp32'
    """
    if device.type != "cuda":
        if name == "tf32":
            raise UsageError("The precision 'tf32' is for GPUs; on the CPU use fp32 or bf16.")
        return "fp32" if name == "auto" else name
    if name == "auto":
        return "bf16" if not second_order and (remote or torch.cuda.is_bf16_supported()) else "tf32"
    return name


def _check_memory(method: type[Method], title: str, memory: AnyMemory) -> None:
    if "memory" in method.requires and (memory.name == "none" or memory.capacity == 0):
        rows = "a memory, e.g. 'reservoir' (--memory reservoir)" if memory.name == "none" else "a capacity of 1 or more"
        raise UsageError(
            f"{title} means nothing without stored rows. Give it {rows}, or take a method that learns from the stream "
            "as well, e.g. 'er' (--method er)."
        )
    if memory.capacity and "no memory" in method.requires:
        raise UsageError(
            f"{title} keeps no rows, and a memory would change nothing. The memory '{memory.name}' was given; say "
            "'none' (--memory none)."
        )


def _retrieval(plan: Experiment, method: type[Method], title: str) -> str:
    """Return the name of the retrieval: the method's own where it has one and there is a memory to draw from."""
    name, has_memory = plan.retrieval, plan.memory.name != "none"
    if has_memory and method.retrieval != "uniform":
        if name not in ("uniform", method.retrieval):
            raise UsageError(
                f"{title} chooses the rows that it replays by itself, by '{method.retrieval}'; '{name}' was given. "
                "Leave the retrieval out, or take a method without a choice of its own, e.g. er."
            )
        name = method.retrieval
    build_retrieval(name, plan.retrieval_options)  # refuses values before anything runs
    if name == "uniform":
        return name
    why = method.unsupported.get("retrieval", "")
    if "mixing" in method.requires:
        why = f"{title} mixes all stored rows into the stream"
    if not has_memory:
        why = "there is no memory"
    if why:
        raise UsageError(f"The retrieval '{name}' has nothing to choose: {why}. Leave the retrieval out.")
    return name


def _check_ranges(method: type[Method], labels: Labels) -> None:
    """Refuse a stream whose tasks have scattered classes for a method that takes them for a range, before it runs."""
    scattered = [task for task, classes in enumerate(labels, start=1) if max(classes) - min(classes) >= len(classes)]
    if scattered and "class ranges" in method.requires:
        raise UsageError(
            f"{method.__name__} takes a task's classes for consecutive numbers by arrival, and those of task "
            f"{scattered[0]} are not. Use another method, or a stream whose tasks return whole."
        )
