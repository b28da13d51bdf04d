"""From what was asked for to what will be run: defaults filled in, impossible wishes refused."""

from __future__ import annotations

import os
from dataclasses import replace

import torch

from odedm.consolidate.budget import check_budget, prototypes_per_class
from odedm.consolidate.consolidator import Consolidator
from odedm.consolidate.dac import Dac
from odedm.core.errors import UsageError
from odedm.core.registry import DATASETS, DISTANCES, METHODS
from odedm.data.cache import open_data
from odedm.methods.base import configure
from odedm.nets.build import configure as configure_net
from odedm.nets.build import pick
from odedm.stream.corruption import check_shares
from odedm.stream.dataset import Dataset, check_split
from odedm.training.experiment import ODEDM, Experiment, Native, Reservoir


def load_data(name: str) -> Dataset:
    """A data set by its name in the catalogue, by the name it was imported under, or by its path."""
    if name in DATASETS:
        data: Dataset = DATASETS[name].load()()
        return data
    return open_data(name)


def resolve(plan: Experiment, data: Dataset) -> Experiment:
    """The experiment with every default filled in and every impossible wish refused."""
    tasks = data.tasks if plan.tasks is None else plan.tasks
    check_split(data.classes, tasks)
    check_shares(data.classes, tasks, blur=plan.blur, noise=plan.noise)
    cores = os.cpu_count() or 1
    if plan.threads > cores:
        raise UsageError(f"threads must be {cores} or fewer, the cores of this machine; {plan.threads} was given.")
    options = configure(plan.method, METHODS[plan.method].load(), dict(plan.options))
    memory = plan.memory
    if isinstance(memory, ODEDM):
        memory = resolve_odedm(memory, tasks=tasks, classes=data.classes // tasks)
    factor = (10.0 if plan.factor is None else plan.factor) if plan.setting == "long-tail" else None
    net = pick(plan.net, data.shape)
    device = resolve_device(plan.device)
    return replace(
        plan,
        tasks=tasks,
        options=options,
        memory=memory,
        factor=factor,
        net=net,
        net_options=configure_net(net, data.shape, data.classes, plan.net_options),
        draw=plan.draw or plan.batch,
        device=device.type,
        precision=resolve_precision(plan.precision, device, exacting=METHODS[plan.method].load().exacting),
    )


def resolve_odedm(plan: ODEDM, *, tasks: int, classes: int) -> ODEDM:
    """The same memory with k worked out from rho, if its pins fit into the capacity."""
    k = plan.k
    if k is None:
        k = 0
        if plan.rho and tasks > 1 and plan.capacity:
            k = prototypes_per_class(
                plan.rho, plan.capacity, tasks=tasks, classes=classes, rows_per_prototype=plan.rows_per_prototype
            )
    bounded = plan.candidates if isinstance(plan.candidates, int) else None
    reserved = bounded * classes if bounded else 0
    if plan.k is None and k:  # rounding up must not turn a legal share, rho=1 above all, into one that does not fit
        fits = (plan.capacity - reserved) // ((tasks - 1) * classes * plan.rows_per_prototype)
        k = min(k, fits) or k
    if bounded and bounded < k * plan.rows_per_prototype:
        raise UsageError(
            f"{bounded} candidates per class cannot give {k} prototypes of {plan.rows_per_prototype} rows each; "
            f"give candidates={k * plan.rows_per_prototype} or more, or lower k or rho."
        )
    if reserved > plan.capacity:
        raise UsageError(
            f"{plan.candidates} candidates for each of {classes} classes need {reserved} rows, "
            f"but the memory has {plan.capacity}. Lower candidates or raise the capacity."
        )
    if k and tasks > 1:
        check_budget(
            k,
            plan.capacity,
            tasks=tasks,
            classes=classes,
            rows_per_prototype=plan.rows_per_prototype,
            reserved=reserved,
        )
    resolved = replace(plan, k=k)
    consolidator(resolved)  # refuses what cannot be chosen by, before anything runs
    return resolved


def consolidator(plan: ODEDM) -> Consolidator | None:
    """How this memory chooses prototypes, or None where it keeps none."""
    if not plan.k:
        return None
    wishes = {name: getattr(plan, name) for name in ("screen", "epsilon", "pair_epsilon", "ground")}
    return Consolidator(
        k=plan.k,
        distance=DISTANCES[plan.distance].load()(**{name: each for name, each in wishes.items() if each is not None}),
        dac=Dac(*plan.dac) if plan.dac else None,
        rows_per_prototype=plan.rows_per_prototype,
        space=plan.space,
        mixup=plan.mixup,
    )


def resolve_device(name: str) -> torch.device:
    """The device a name stands for; `auto` takes a GPU where there is one."""
    available = torch.cuda.is_available()
    if name == "cuda" and not available:
        raise UsageError("The device 'cuda' was asked for, but torch sees no GPU here. Use --device cpu or auto.")
    return torch.device("cuda" if name != "cpu" and available else "cpu")


def resolve_precision(name: str, device: torch.device, *, exacting: bool) -> str:
    """The precision a name stands for: `auto` is the fastest that a method's accuracy does not suffer from.

    >>> resolve_precision("auto", torch.device("cpu"), exacting=False)
    'fp32'
    """
    if device.type != "cuda":
        if name == "tf32":
            raise UsageError("The precision 'tf32' is for GPUs; on the CPU use fp32 or bf16.")
        return "fp32" if name == "auto" else name
    if name == "auto":
        return "bf16" if not exacting and torch.cuda.is_bf16_supported() else "tf32"
    return name


def policy_name(plan: Reservoir | Native | ODEDM, native: str) -> str:
    """Which policy fills the short-term part."""
    if isinstance(plan, Native):
        return plan.policy or native
    if isinstance(plan, ODEDM):
        return native if plan.short == "native" else plan.short
    return "reservoir"
