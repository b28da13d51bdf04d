"""Parts of a run that are chosen by name or come from outside: optimiser, training views, callbacks."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from odedm.core.errors import UsageError, short_repr
from odedm.core.extension_points import PluginEntry
from odedm.core.registry import OPTIMIZERS, POLICIES, TRANSFORMS
from odedm.core.stored_names import stored
from odedm.methods.base import Method
from odedm.nets.base import Net
from odedm.stream.augment import Transform
from odedm.training.experiment import Experiment

MOMENTS = ("after_step", "after_task", "after_run")
"""When callbacks are called: the first two with the run, the last with its outcome."""


def own_optimiser(name: str) -> dict[str, Any]:
    """What makes a run's optimisers, as a method's keyword; none for its own, plain SGD."""
    if name == "sgd":
        return {}
    return {"make_optimiser": adamw if name == "adamw" else partial(_made, name, OPTIMIZERS[name].load())}


def check_optimiser(name: str, method: type[Method]) -> None:
    """Refuse another optimiser for a method that is defined with its own."""
    if name != "sgd" and method.fresh_optimiser is not Method.fresh_optimiser:
        raise UsageError(f"{method.__name__} has an optimizer of its own; leave out '{name}'.")


def adamw(parameters: Iterable[nn.Parameter], *, lr: float, momentum: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW by a method's rate and weight decay; it has a momentum of its own."""
    del momentum
    every = list(parameters)
    return torch.optim.AdamW(every, lr=lr, weight_decay=weight_decay, fused=True, capturable=every[0].is_cuda)


def _made(
    name: str, make: Callable[..., Any], parameters: Iterable[nn.Parameter], **rates: float
) -> torch.optim.Optimizer:
    """An optimiser by code from outside, told those of the rates that it takes."""
    known = inspect.signature(make).parameters.values()
    every = any(each.kind is each.VAR_KEYWORD for each in known)
    own = {key: rate for key, rate in rates.items() if every or key in {each.name for each in known}}
    try:
        made = make(parameters, **own)
    except TypeError as error:  # anything that can be called may have been given
        said = " ".join(str(error).split())[:200]
        raise UsageError(
            f"The optimizer '{name}' must take parameters and {', '.join(rates)}; it said: {said}."
        ) from error
    if not isinstance(made, torch.optim.Optimizer):
        raise UsageError(f"The optimizer '{name}' must give a torch.optim.Optimizer; it gave {short_repr(made)}.")
    return made


@stored("transform/own")
@dataclass(frozen=True)
class OwnViews(Transform):
    """Training views by a function from outside: of raw images [n, ...], and of a generator if it takes two."""

    name: str = ""
    view: Callable[..., Any] = lambda image: image

    def to(self, device: torch.device) -> OwnViews:
        """The same with its constants on the device."""
        return replace(self, shift=self.shift.to(device), scale=self.scale.to(device))

    def _view(self, image: Tensor, rng: torch.Generator) -> Tensor:
        view = self.view(image, rng) if _takes_two(self.view) else self.view(image)
        if not isinstance(view, Tensor) or view.shape != image.shape:
            got = list(view.shape) if isinstance(view, Tensor) else f"a {type(view).__name__}"
            raise UsageError(f"The transform '{self.name}' must give a tensor {list(image.shape)}; it gave {got}.")
        return view


def views_of(name: str, own: Transform) -> Transform:
    """The transform of a data set with the training views of this name."""
    if name == "data":
        return own
    if name == "none":
        return replace(own, pad=0, flip=False)
    return OwnViews(own.shift, own.scale, own.pad, own.flip, name, TRANSFORMS[name].load())


def _takes_two(function: Callable[..., Any]) -> bool:
    """Whether a function needs two arguments, or has a second one for a generator."""
    try:
        known = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    if isinstance(function, nn.Module):
        known = list(inspect.signature(function.forward).parameters.values())
    plain = [each for each in known if each.kind in (each.POSITIONAL_ONLY, each.POSITIONAL_OR_KEYWORD)]
    needed = [each for each in plain if each.default is each.empty]
    return len(needed) == 2 or (len(plain) > 1 and plain[1].name in ("rng", "generator"))


def can_be_recorded(plan: Experiment, method: type[Method], net: Net) -> bool:
    """Whether a run's steps are recorded on its GPU: what comes from outside says so itself, or is not."""
    strange = any(
        isinstance(table.get(name), PluginEntry)
        for table, name in ((OPTIMIZERS, plan.optimizer), (TRANSFORMS, plan.transform))
    )
    policy = POLICIES.get(str(getattr(plan.memory, "policy", None) or getattr(plan.memory, "short_policy", None)))
    able = all(part.capturable for part in (method, net)) and getattr(policy and policy.load(), "capturable", True)
    return plan.cuda_graph and plan.device == "cuda" and able and not strange


class Callbacks:
    """What is told of a run as it goes: objects with `after_step(run)`, `after_task(run)` or `after_run(outcome)`.

    A plain function is called after each task, with the run. They run in the run's own process and thread, and may
    look at everything; a callback that changes something changes the run.

    >>> Callbacks([3])
    Traceback (most recent call last):
    odedm.UsageError: A callback must be a function of the run, or an object with after_step, after_task or after_run; \
3 was given.
    """

    def __init__(self, given: Sequence[Any] = ()) -> None:
        if not isinstance(given, list | tuple):
            raise UsageError(f"callbacks must be a list; {short_repr(given)} was given.")
        self._told: dict[str, list[Callable[[Any], object]]] = {moment: [] for moment in MOMENTS}
        for each in given:
            own = [moment for moment in MOMENTS if callable(getattr(each, moment, None))]
            if isinstance(each, type) or not (own or callable(each)):
                legal = "a function of the run, or an object with after_step, after_task or after_run"
                raise UsageError(f"A callback must be {legal}; {short_repr(each)} was given.")
            for moment in own:
                self._told[moment].append(getattr(each, moment))
            if not own:
                self._told["after_task"].append(each)

    def after_step(self, run: Any) -> None:
        """A batch is learned; where callbacks change method or memory on the host, steps are recorded anew."""
        if not self._told["after_step"]:
            return
        run.stepper.settle(run.method, run.memory)
        for each in self._told["after_step"]:
            each(run)
        run.stepper.begin_task(run.method, run.memory)

    def after_task(self, run: object) -> None:
        """A task is over and tested."""
        for each in self._told["after_task"]:
            each(run)

    def after_run(self, outcome: object) -> None:
        """A run is over."""
        for each in self._told["after_run"]:
            each(outcome)
