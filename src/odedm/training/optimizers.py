"""What makes the steps of a run: the optimizers of torch.optim by name, and others from outside."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from typing import Any

import torch
from torch import nn

from odedm.core.errors import UsageError, short_repr
from odedm.core.options import cast_like, options_of, read_options
from odedm.core.registry import OPTIMIZERS
from odedm.methods.base import Method

KINDS: dict[str, type[torch.optim.Optimizer]] = {
    kind.__name__.lower(): kind
    for kind in (
        *(torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.NAdam, torch.optim.RAdam),
        *(torch.optim.Adamax, torch.optim.Adadelta, torch.optim.Adagrad, torch.optim.RMSprop, torch.optim.Rprop),
        *(torch.optim.ASGD, torch.optim.Adafactor),
    )
}
RATES = ("lr", "momentum", "weight_decay")
"""What a method tells its optimizer of, as hyper-parameters of its own."""
OF_THE_RUN = (*RATES, "foreach", "fused", "capturable", "differentiable")
"""What the run tells every optimizer of, and not its user."""
FUSED = ("sgd", "adam", "adamw")
"""Optimizers whose fused step is on every device."""


def optimizer_keywords(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return what makes a run's optimizers, as a method's keyword; none for its own, plain SGD."""
    if name == "sgd" and not options:
        return {}
    if name in KINDS:
        return {"optimizer_factory": partial(_of_torch, name, typed_options(name, options))}
    return {"optimizer_factory": partial(_from_outside, name, OPTIMIZERS[name].load(), options)}


def check_optimizer(
    name: str, options: Mapping[str, Any], method: type[Method], given: Mapping[str, Any], rates: Mapping[str, float]
) -> dict[str, Any]:
    """Refuse an optimizer that the method, or what was given for it, cannot have; return its own options, typed.

    Args:
        name: the optimizer.
        options: its own options.
        method: whose steps it is to make.
        given: the method's hyper-parameters that the user gave.
        rates: those of `RATES`, defaults among them.

    >>> from odedm.methods.er import ER
    >>> rates = {"lr": 0.1, "momentum": 0.0, "weight_decay": 0.0}
    >>> check_optimizer("adamw", {"betas": "0.9,0.99"}, ER, {}, rates)
    {'betas': (0.9, 0.99)}
    >>> check_optimizer("adamw", {}, ER, {"momentum": 0.9}, rates)
    Traceback (most recent call last):
    odedm.UsageError: The optimizer 'adamw' takes no momentum; 0.9 was given. Leave it out, or give options of the \
optimizer (--set optimizer.NAME=VALUE).
    """
    if (name != "sgd" or options) and method.new_optimizer is not Method.new_optimizer:
        raise UsageError(f"{method.__name__} has an optimizer of its own; leave out '{name}' and its options.")
    for rate in RATES:
        if given.get(rate) and not takes(name, rate):
            raise UsageError(
                f"The optimizer '{name}' takes no {rate}; {short_repr(given[rate])} was given. Leave it out, or give "
                "options of the optimizer (--set optimizer.NAME=VALUE)."
            )
    keywords = typed_options(name, options)
    if keywords and name in KINDS:
        _of_torch(name, keywords, [nn.Parameter(torch.zeros(2, 2))], **rates)  # refuses values before anything runs
    return keywords


def typed_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return an optimizer's own options in their types; a sentence where it has none such."""
    if name not in KINDS:
        return dict(options)
    what, known = f"The optimizer '{name}'", options_of(KINDS[name], 1, OF_THE_RUN)
    tuples = {key for key, default in known.items() if isinstance(default, tuple)}
    plain = {key: value for key, value in options.items() if key not in tuples}
    return read_options(what, known, plain) | {
        key: _numbers(f"{what}: {key}", options[key], known[key]) for key in options if key in tuples
    }


def takes(name: str, keyword: str) -> bool:
    """Return whether an optimizer is told of a rate."""
    known = inspect.signature(KINDS[name] if name in KINDS else OPTIMIZERS[name].load()).parameters
    return keyword in known or any(parameter.kind is parameter.VAR_KEYWORD for parameter in known.values())


def is_capturable(name: str) -> bool:
    """Return whether steps by an optimizer are known to be right in a CUDA graph.

    >>> is_capturable("rmsprop"), is_capturable("adagrad")
    (True, False)
    """
    return name == "sgd" or (name in KINDS and "capturable" in inspect.signature(KINDS[name]).parameters)


def _defaults(name: str) -> dict[str, Any]:
    return {key: parameter.default for key, parameter in inspect.signature(KINDS[name]).parameters.items()}


def _numbers(name: str, value: Any, default: tuple[float | None, ...]) -> tuple[Any, ...]:
    """Return as many numbers as the default has; text holds them with commas between."""
    parts = value.split(",") if isinstance(value, str) else value
    if not isinstance(parts, tuple | list) or len(parts) != len(default):
        legal = f"{len(default)} numbers, e.g. {','.join(map(str, default))}"
        raise UsageError(f"{name} must be {legal}; {short_repr(value)} was given.")
    return tuple(cast_like(name, part, 0.0) for part in parts)


def _of_torch(
    name: str, options: Mapping[str, Any], parameters: Iterable[nn.Parameter], **rates: float
) -> torch.optim.Optimizer:
    weights, known = list(parameters), _defaults(name)
    keywords = {key: rate for key, rate in rates.items() if key in known} | dict(options)
    keywords |= {"fused": True} if name in FUSED else {}
    keywords |= {"capturable": weights[0].is_cuda} if "capturable" in known else {}
    try:
        return KINDS[name](weights, **keywords)
    except (TypeError, ValueError) as error:
        message = " ".join(str(error).split())[:200]
        raise UsageError(f"The optimizer '{name}' refuses what it was given: {message}.") from error


def _from_outside(
    name: str,
    make: Callable[..., Any],
    options: Mapping[str, Any],
    parameters: Iterable[nn.Parameter],
    **rates: float,
) -> torch.optim.Optimizer:
    """Return an optimizer by code from outside, told those of the rates that it takes."""
    keywords = {key: rate for key, rate in rates.items() if takes(name, key)} | dict(options)
    try:
        made = make(parameters, **keywords)
    except TypeError as error:  # anything that can be called may have been given
        message = " ".join(str(error).split())[:200]
        raise UsageError(
            f"The optimizer '{name}' must take parameters and {', '.join([*rates, *options])}; it said: {message}."
        ) from error
    if not isinstance(made, torch.optim.Optimizer):
        raise UsageError(f"The optimizer '{name}' must give a torch.optim.Optimizer; it gave {short_repr(made)}.")
    return made
