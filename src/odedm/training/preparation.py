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
from odedm.nets.build import configure as configure_net
from odedm.nets.build import pick
from odedm.stream.class_schedule import Labels
from odedm.stream.dataset import Dataset
from odedm.stream.tasks import STREAM_SETTINGS, check_stream
from odedm.training.engine_config import EngineConfig, resolve_device
from odedm.training.experiment import Experiment
from odedm.training.tricks import Tricks, average_decay, check_pictures

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
    factor = (plan.factor or LONG_TAIL_FACTOR) if plan.imbalance == "long-tail" else None
    plan = replace(plan, factor=factor)
    device = torch.device("cuda" if plan.device == "cuda" else "cpu") if remote else resolve_device(plan.device)
    tricks = replace(Tricks.of(plan), weight_average=average_decay(plan, labels, data))
    config = EngineConfig.resolve(
        method,
        name=plan.method,
        title=METHODS[plan.method].title or plan.method,
        options={**method.defaults_for(data.classes), **plan.options},
        memory=plan.memory,
        tricks=tricks,
        optimizer=plan.optimizer,
        retrieval=plan.retrieval,
        retrieval_options=plan.retrieval_options,
        draw=plan.replay_batch or plan.batch,
        seed=plan.seed,
        device=device,
        precision=plan.precision,
        optimizer_options=plan.optimizer_options,
        schedule=plan.schedule,
        schedule_over=plan.schedule_over,
        warmup=plan.warmup,
        clip_norm=plan.clip_norm,
        remote=remote,
    )
    _check_ranges(method, labels)
    check_pictures(tricks, data.shape, data.image.dtype)
    net = pick(plan.net, data.shape)
    resolved = replace(
        plan,
        tasks=len(labels),
        shuffle=plan.shuffle and data.task is None,
        options=config.options,
        memory=config.memory.resolve(StreamShape.of(labels), method.policy),
        net=net,
        net_options=configure_net(net, data.shape, data.classes, plan.net_options),
        replay_batch=config.draw,
        retrieval=config.retrieval,
        retrieval_options=config.retrieval_options,
        optimizer_options=config.optimizer_options or None,
        **config.tricks.settings(),
        device=device.type,
        precision=config.precision,
    )
    return Prepared(resolved, data)


def stream_settings(plan: Experiment) -> dict[str, Any]:
    """Return what of an experiment makes its stream: keywords of `split`."""
    return {name: getattr(plan, name) for name in STREAM_SETTINGS}


def _check_ranges(method: type[Method], labels: Labels) -> None:
    """Refuse a stream whose tasks have scattered classes for a method that takes them for a range, before it runs."""
    scattered = [task for task, classes in enumerate(labels, start=1) if max(classes) - min(classes) >= len(classes)]
    if scattered and "class ranges" in method.requires:
        raise UsageError(
            f"{method.__name__} takes a task's classes for consecutive numbers by arrival, and those of task "
            f"{scattered[0]} are not. Use another method, or a stream whose tasks return whole."
        )
