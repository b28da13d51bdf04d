"""What an engine is built from: every choice checked, every default filled in."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from odedm.core.errors import UsageError
from odedm.core.registry import METHODS
from odedm.memory.settings import AnyMemory
from odedm.methods.base import Method
from odedm.methods.hyperparameters import configure
from odedm.training.experiment import Experiment
from odedm.training.optimizers import RATES, check_optimizer, takes
from odedm.training.replay import resolve_replay_mode
from odedm.training.retrieval import build_retrieval, read_retrieval_options
from odedm.training.tricks import Tricks, check_tricks


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """What an engine is built from: every choice checked, every default filled in."""

    method: type[Method]
    options: Mapping[str, Any]
    memory: AnyMemory
    tricks: Tricks
    optimizer: str
    retrieval: str
    retrieval_options: Mapping[str, Any]
    draw: int
    seed: int
    device: torch.device
    precision: str
    optimizer_options: Mapping[str, Any] = field(default_factory=dict)
    schedule: str = "constant"
    schedule_over: str = "stream"
    warmup: int = 0
    clip_norm: float | None = None

    @classmethod
    def resolve(
        cls,
        method: type[Method],
        *,
        name: str,
        title: str,
        options: Mapping[str, Any],
        memory: AnyMemory,
        tricks: Tricks,
        optimizer: str,
        retrieval: str,
        retrieval_options: Mapping[str, Any],
        draw: int,
        seed: int,
        device: torch.device,
        precision: str,
        optimizer_options: Mapping[str, Any] | None = None,
        schedule: str | None = None,
        schedule_over: str | None = None,
        warmup: int | None = None,
        clip_norm: float | None = None,
        remote: bool = False,
    ) -> EngineConfig:
        """Fill in every default, and refuse in a sentence what cannot be together.

        Args:
            method: its class.
            name: what the user calls it; `title` is what tables call it.
            remote: whether it is for another machine: a device is then taken at its word.

        The others are the fields, as the user has given them.
        """
        configured = configure(name, method, dict(options))
        _check_memory(method, title, memory)
        chosen = _retrieval(retrieval, retrieval_options, method, title, memory)
        configured |= {rate: 0.0 for rate in ("momentum", "weight_decay") if not takes(optimizer, rate)}
        rates = {rate: configured[rate] for rate in RATES}
        own_options = check_optimizer(optimizer, optimizer_options or {}, method, options, rates)
        if ((schedule or "constant") != "constant" or warmup) and (why := method.unsupported.get("schedule", "")):
            raise UsageError(f"{title} takes no schedule of its learning rate, because {why}. Leave it out.")
        if clip_norm is not None and not clip_norm > 0:
            raise UsageError(f"clip_norm must be above 0; {clip_norm} was given.")
        check_tricks(tricks, method, title, memory, configured)
        return cls(
            method=method,
            options=configured,
            memory=resolve_replay_mode(memory, method),
            tricks=tricks.without_defaults(method),
            optimizer=optimizer,
            retrieval=chosen,
            retrieval_options=read_retrieval_options(chosen, retrieval_options),
            draw=draw,
            seed=seed,
            device=device,
            precision=resolve_precision(
                precision, device, second_order="second order" in method.requires, remote=remote
            ),
            optimizer_options=own_options,
            schedule=schedule or "constant",
            schedule_over=schedule_over or "stream",
            warmup=warmup or 0,
            clip_norm=clip_norm,
        )

    @classmethod
    def of(cls, plan: Experiment) -> EngineConfig:
        """Return that of an experiment which is resolved."""
        return cls(
            method=METHODS[plan.method].load(),
            options=plan.options,
            memory=plan.memory,
            tricks=Tricks.of(plan),
            optimizer=plan.optimizer,
            retrieval=plan.retrieval,
            retrieval_options=plan.retrieval_options,
            draw=plan.replay_batch or plan.batch,
            seed=plan.seed,
            device=torch.device(plan.device),
            precision=plan.precision,
            optimizer_options=plan.optimizer_options or {},
            schedule=plan.schedule or "constant",
            schedule_over=plan.schedule_over or "stream",
            warmup=plan.warmup or 0,
            clip_norm=plan.clip_norm,
        )


def _check_memory(method: type[Method], title: str, memory: AnyMemory) -> None:
    if "memory" in method.requires and (memory.name == "none" or memory.capacity == 0):
        rows = "a memory, e.g. 'reservoir' (--memory reservoir)" if memory.name == "none" else "a capacity of 1 or more"
        raise UsageError(
            f"{title} means nothing without stored rows. Give it {rows}, or take a method that learns from the stream "
            "as well, e.g. 'er' (--method er)."
        )
    if memory.name != "none" and "no memory" in method.requires:
        raise UsageError(
            f"{title} keeps no rows: it is a bound for methods that do, and a memory would change nothing. The memory "
            f"'{memory.name}' was given; say 'none' (--memory none)."
        )


def _retrieval(name: str, options: Mapping[str, Any], method: type[Method], title: str, memory: AnyMemory) -> str:
    """Return the name of the retrieval: the method's own where it has one and there is a memory to draw from."""
    if memory.name != "none" and method.retrieval != "uniform":
        if name not in ("uniform", method.retrieval):
            raise UsageError(
                f"{title} chooses the rows that it replays by itself, by '{method.retrieval}'; '{name}' was given. "
                "Leave the retrieval out, or take a method without a choice of its own, e.g. er."
            )
        name = method.retrieval
    build_retrieval(name, options)  # refuses values before anything runs
    why = "" if name == "uniform" else method.unsupported.get("retrieval", "")
    if name != "uniform" and "mixing" in method.requires:
        why = f"{title} mixes all stored rows into the stream"
    if name != "uniform" and memory.name == "none":
        why = "there is no memory"
    if why:
        raise UsageError(f"The retrieval '{name}' has nothing to choose: {why}. Leave the retrieval out.")
    return name


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
