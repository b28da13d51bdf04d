"""What makes the steps of a run: optimizers by name, and from outside."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable
from functools import partial
from typing import Any

import torch
from torch import nn

from odedm.core.errors import UsageError, short_repr
from odedm.core.registry import OPTIMIZERS
from odedm.methods.base import Method


def optimizer_keywords(name: str) -> dict[str, Any]:
    """Return what makes a run's optimizers, as a method's keyword; none for its own, plain SGD."""
    if name == "sgd":
        return {}
    return {"optimizer_factory": adamw if name == "adamw" else partial(_made, name, OPTIMIZERS[name].load())}


def check_optimizer(name: str, method: type[Method]) -> None:
    """Refuse another optimizer for a method that is defined with its own."""
    if name != "sgd" and method.new_optimizer is not Method.new_optimizer:
        raise UsageError(f"{method.__name__} has an optimizer of its own; leave out '{name}'.")


def adamw(parameters: Iterable[nn.Parameter], *, lr: float, momentum: float, weight_decay: float) -> torch.optim.AdamW:
    """AdamW by a method's rate and weight decay; it has a momentum of its own."""
    del momentum
    every = list(parameters)
    return torch.optim.AdamW(every, lr=lr, weight_decay=weight_decay, fused=True, capturable=every[0].is_cuda)


def _made(
    name: str, make: Callable[..., Any], parameters: Iterable[nn.Parameter], **rates: float
) -> torch.optim.Optimizer:
    """An optimizer by code from outside, told those of the rates that it takes."""
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
