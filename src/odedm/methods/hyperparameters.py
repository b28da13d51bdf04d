"""A method's hyper-parameters: which there are, in their declared types, and where one belongs that was given."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

from odedm.core.errors import UsageError, short_repr, unknown_name_error
from odedm.core.options import cast_like
from odedm.core.registry import METHODS
from odedm.methods.base import Method, declare

RESERVED = ("net", "draw", "rng", "optimizer_factory")
"""Keywords of a method that the run sets, not the user."""


def hyperparameters(method: type[Method]) -> dict[str, Any]:
    """Return a method's own keywords and their defaults.

    >>> from odedm.methods.derpp import DERpp
    >>> hyperparameters(DERpp)["beta"]
    0.5
    """
    declare(method)
    return {field.name: field.default for field in fields(method) if field.init and field.name not in RESERVED}


def configure(name: str, method: type[Method], options: dict[str, Any]) -> dict[str, Any]:
    """Return all hyper-parameters of a method, the given ones checked and in their declared type.

    >>> from odedm.methods.er import ER
    >>> configure("er", ER, {"lr": "0.5"})["lr"]
    0.5
    """
    values = hyperparameters(method)
    for key, value in options.items():
        if key not in values:
            raise unknown_name_error(f"hyper-parameter of {name}", key, values)
        values[key] = cast_like(f"{name}'s {key}", value, values[key])
    for key in ("lr", "momentum", "weight_decay"):
        if values[key] < 0:
            raise UsageError(f"{name}'s {key} must be 0 or more; {values[key]} was given.")
    return values


def check_no_option(method: Any, name: str, value: object) -> None:
    """Refuse a keyword that is a hyper-parameter of a method, given by its name or as a class, and say where it goes.

    >>> check_no_option("derpp", "alpha", 0.2)
    Traceback (most recent call last):
    odedm.UsageError: alpha is a hyper-parameter of derpp, and those go together: options={'alpha': 0.2}.
    >>> check_no_option("er", "alpha", 0.2)
    """
    kind = METHODS[method].load() if isinstance(method, str) and method in METHODS else method
    if isinstance(kind, type) and issubclass(kind, Method) and name in hyperparameters(kind):
        word = method if isinstance(method, str) else kind.__name__
        raise UsageError(
            f"{name} is a hyper-parameter of {word}, and those go together: options={{{name!r}: {short_repr(value)}}}."
        )
