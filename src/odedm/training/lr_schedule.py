"""Schedules of the learning rate: by name, by a function of the batch's number, or by one of torch's."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import Tensor
from torch.optim.lr_scheduler import LRScheduler

from odedm.core.errors import UsageError, short_repr
from odedm.core.registry import SCHEDULES
from odedm.core.stored_names import stored
from odedm.methods.base import Method

SHAPES: Mapping[str, Callable[[float], float]] = {
    "constant": lambda share: 1.0,  # noqa: ARG005
    "linear": lambda share: 1 - share,
    "cosine": lambda share: (1 + math.cos(math.pi * share)) / 2,
}
"""The factor of the rate by the share of the batches that are done."""


@stored("lr-schedule")
class LRSchedule:
    """Sets the rate of every batch, to the optimizer's own times a factor.

    The rate lies in tensors, which a recorded step reads: it goes on through a change. One of torch's schedulers may
    change other numbers of the optimizer as well, so steps by it are not recorded.

    Args:
        method: whose optimizer, the one that it has at each batch.
        name: a name in `SCHEDULES`.
        warmup: batches in which the rate rises.
    """

    TRANSIENT = frozenset({"_method", "_given", "_scheduler"})

    def __init__(self, method: Method, name: str = "constant", *, warmup: int = 0) -> None:
        self._method, self._name, self._warmup = method, name, warmup
        self._given = None if name in SHAPES else SCHEDULES[name].load()
        self.is_function = self._given is None or _gives_a_factor(self._given)
        self._scheduler: LRScheduler | None = None
        self._rates: list[Tensor] = []
        self._state: dict[str, Any] | None = None
        """Where torch's scheduler stands."""

    def set(self, done: float, total: float | None) -> None:
        """Set the rate of the batch that comes after `done` of `total` batches of the task or stream."""
        if not self.is_function:
            self._step(anew=done == 0)
            return
        self.attach()
        factor = self.factor(done, total)
        for group in self._method.optimizer.param_groups:
            group["lr"].fill_(group["initial_lr"] * factor)

    def attach(self) -> None:
        """Put the rates of a new optimizer into tensors: the same for every one, as recorded steps hold on to them."""
        if not self.is_function:
            return
        for number, group in enumerate(self._method.optimizer.param_groups):
            if "initial_lr" not in group:
                group["initial_lr"] = float(group["lr"])
                if number == len(self._rates):
                    self._rates.append(torch.zeros((), device=group["params"][0].device))
                group["lr"] = self._rates[number].fill_(group["initial_lr"])

    def factor(self, done: float, total: float | None) -> float:
        """Return by what the rate is multiplied: (done + 1) / warmup in the warm-up, then the schedule's own.

        >>> from odedm.methods.er import ER
        >>> from odedm.nets.small import MLP
        >>> schedule = LRSchedule(ER(net=MLP((2,), 2, width=2), draw=1), "linear", warmup=2)
        >>> [schedule.factor(done, 6) for done in range(6)]
        [0.5, 1.0, 1.0, 0.75, 0.5, 0.25]
        """
        warmup = self._warmup
        rising = min(1.0, (done + 1) / warmup) if warmup else 1.0
        if self._given is not None:
            factor = self._given(int(done))
            if not isinstance(factor, int | float) or not math.isfinite(factor):
                raise UsageError(
                    f"The schedule '{self._name}' must give a finite number; {short_repr(factor)} was given for "
                    f"batch {int(done)}."
                )
            return rising * float(factor)
        if done < warmup or self._name == "constant":
            return rising
        assert total is not None, "a length is known where a schedule needs one"
        return SHAPES[self._name](min(1.0, (done - warmup) / max(1.0, total - warmup)))

    def _step(self, *, anew: bool) -> None:
        """Let torch's scheduler make its step; it is made anew where the optimizer is another one."""
        optimizer = self._method.optimizer
        if anew:
            self._scheduler = self._state = None
            for group in optimizer.param_groups:
                group["lr"] = group.pop("initial_lr", group["lr"])
        if self._scheduler is None or self._scheduler.optimizer is not optimizer:
            rates = [group["lr"] for group in optimizer.param_groups]
            self._scheduler = _scheduler(self._name, self._given, optimizer)
            if self._state is not None:
                self._scheduler.load_state_dict(self._state)
                for group, rate in zip(optimizer.param_groups, rates, strict=True):
                    group["lr"] = rate
                vars(optimizer)["_opt_called"] = True  # else torch warns that no step came before the scheduler's
        if self._state is not None:
            self._scheduler.step()
        self._state = {name: value for name, value in self._scheduler.state_dict().items() if _is_plain(value)}


def _gives_a_factor(given: Callable[..., Any]) -> bool:
    """Return whether code from outside is a function of a batch's number, and not one of an optimizer."""
    try:
        return isinstance(given(0), int | float)
    except Exception:  # one of torch's schedulers, say, to which a number is no optimizer
        return False


def _scheduler(name: str, make: Any, optimizer: torch.optim.Optimizer) -> LRScheduler:
    try:
        made = make(optimizer)
    except Exception as error:  # code of anyone's
        message = f"{type(error).__name__}: {' '.join(str(error).split())[:200]}"
        raise UsageError(
            f"The schedule '{name}' must be a function of a batch's number that gives a factor, or one of an optimizer "
            f"that gives a scheduler of torch.optim.lr_scheduler; called with an optimizer it failed ({message})."
        ) from error
    if not isinstance(made, LRScheduler):
        raise UsageError(
            f"The schedule '{name}' must give a number, or a scheduler of torch.optim.lr_scheduler; it gave "
            f"{short_repr(made)}."
        )
    return made


def _is_plain(value: object) -> bool:
    """Return whether a scheduler's attribute is data: numbers, text, and lists of them."""
    if isinstance(value, list | tuple):
        return all(map(_is_plain, value))
    return value is None or isinstance(value, bool | int | float | str | Tensor)
