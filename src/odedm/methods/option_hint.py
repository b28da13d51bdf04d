"""Where a hyper-parameter belongs that was given as a keyword."""

from __future__ import annotations

from typing import Any

from odedm.core.errors import UsageError, short_repr
from odedm.core.registry import METHODS
from odedm.methods.base import Method
from odedm.methods.hyperparameters import hyperparameters


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
