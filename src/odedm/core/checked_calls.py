"""Functions whose arguments are read as settings are: in their own types, or refused in a sentence."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable
from typing import ParamSpec, TypeVar

from odedm.core.calling import explains_calls
from odedm.core.configuration import Kind

T = TypeVar("T")
P = ParamSpec("P")


def checked(**kinds: Kind) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """A function whose arguments of these names are read as settings are; None stays where it is the default.

    >>> from odedm.core.configuration import Whole
    >>> @checked(rows=Whole(1))
    ... def double(rows: int) -> int:
    ...     return 2 * rows
    >>> double("many")
    Traceback (most recent call last):
    odedm.UsageError: rows must be a whole number, 1 or more; 'many' was given.
    """

    def wrap(function: Callable[P, T]) -> Callable[P, T]:
        signature = inspect.signature(function)

        @functools.wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> T:
            given = signature.bind(*args, **kwargs)
            for name, value in given.arguments.items():
                if name in kinds and not (value is None and signature.parameters[name].default is None):
                    given.arguments[name] = kinds[name].read(name, value)
            return function(*given.args, **given.kwargs)

        return explains_calls()(call)

    return wrap
