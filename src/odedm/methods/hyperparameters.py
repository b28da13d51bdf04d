"""A method's hyper-parameters: which there are, in their declared types, and whether all that it declares counts."""

from __future__ import annotations

import dataclasses
import inspect
from typing import Any, ClassVar, get_origin

from odedm.core.errors import UsageError, short_repr, unknown_name_error
from odedm.core.options import cast_like
from odedm.methods.base import Method

RESERVED = (
    *("net", "draw", "rng", "optimizer_factory", "optimizer", "last_loss", "class_shift", "rotation_task"),
    *("captures", "_ahead", "_ahead_logits"),
)
"""Keywords of a method that the run sets, not the user."""


def hyperparameters(method: type[Method]) -> dict[str, Any]:
    """A method's own keywords and their defaults.

    >>> from odedm.methods.derpp import DERpp
    >>> hyperparameters(DERpp)["beta"]
    0.5
    """
    return {each.name: each.default for each in dataclasses.fields(method) if each.init and each.name not in RESERVED}


def configure(name: str, method: type[Method], given: dict[str, Any]) -> dict[str, Any]:
    """All hyper-parameters of a method, the given ones checked and in their declared type.

    >>> from odedm.methods.er import ER
    >>> configure("er", ER, {"lr": "0.5"})["lr"]
    0.5
    """
    check_declared(method)
    values = hyperparameters(method)
    for key, value in given.items():
        if key not in values:
            raise unknown_name_error(f"hyper-parameter of {name}", key, values)
        values[key] = cast_like(f"{name}'s {key}", value, values[key])
    for key in ("lr", "momentum", "weight_decay"):
        if values[key] < 0:
            raise UsageError(f"{name}'s {key} must be 0 or more; {values[key]} was given.")
    return values


def check_declared(method: type[Method]) -> None:
    """Refuse a class that declares hyper-parameters in a way that Python passes over without a word.

    >>> class Mine(Method):
    ...     __module__ = "mine"
    ...     lr: float = 0.001
    >>> check_declared(Mine)
    Traceback (most recent call last):
    odedm.UsageError: Mine declares lr, but is no data class, so that would not count: write \
@dataclass(kw_only=True, eq=False) above the class.
    """
    if method.__module__.startswith("odedm."):  # ours have tests
        return
    for each in method.__mro__:
        if each is Method:
            break
        own = vars(each).get("__annotations__", {}) if issubclass(each, Method) else {}
        names = [name for name, kind in own.items() if name in vars(each) and not _of_class(kind)]
        if names and "__dataclass_fields__" not in vars(each):
            raise UsageError(
                f"{each.__name__} declares {', '.join(names[:5])}, but is no data class, so that would not count: "
                "write @dataclass(kw_only=True, eq=False) above the class."
            )
    for own in dataclasses.fields(method):
        value = inspect.getattr_static(method, own.name, own.default)
        described = hasattr(type(value), "__get__")  # a property, say, that stands for the number
        if own.init and own.default is not dataclasses.MISSING and value is not own.default and not described:
            raise UsageError(
                f"{method.__name__} sets {own.name} = {short_repr(value)} without a type, so that would not count: "
                f"write {own.name}: {type(own.default).__name__} = {short_repr(value)}."
            )


def _of_class(kind: Any) -> bool:
    """Whether an annotation, perhaps as text, is that of a class variable, or of a field that is not given."""
    return "ClassVar" in kind if isinstance(kind, str) else kind is ClassVar or get_origin(kind) is ClassVar
