"""Calls that do not fit: a sentence with the function's name and what it takes, in place of Python's own error."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeVar, cast

from odedm.core.errors import UsageError, shown, unknown

C = TypeVar("C", bound=Callable[..., Any])
BY_PLACE = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class WrongCall(UsageError, TypeError):
    """A function was given what it does not take, or not what it needs: to Python, a TypeError."""


def explains_calls(example: str = "", name: str = "") -> Callable[[C], C]:
    """A function, or a class, whose calls that do not fit are sentences; `example` is a call that fits.

    Its name is its own unless given.

    >>> @explains_calls()
    ... def choose(x, *, k, seed=0): ...
    >>> choose([1, 2], 5)
    Traceback (most recent call last):
    odedm.core.calling.WrongCall: choose() takes 1 by place (x), and 2 were given: choose(x, k=5). By name it takes \
k, seed.
    >>> choose([1, 2], k=5, sed=3)
    Traceback (most recent call last):
    odedm.core.calling.WrongCall: Unknown keyword of choose 'sed': did you mean 'seed'? Known: x, k, seed.
    """

    def wrap(thing: C) -> C:
        whole: Any = thing
        is_class = isinstance(thing, type)
        inner = whole.__init__ if is_class else whole

        @functools.wraps(inner)
        def call(*args: Any, **kwargs: Any) -> Any:
            try:
                return inner(*args, **kwargs)
            except TypeError:
                fault = misfit(name or whole.__name__, inspect.signature(call), args, kwargs, example)
                if fault is None:  # it was raised inside
                    raise
                raise fault from None

        if is_class:
            whole.__init__ = call
            return thing
        return cast(C, call)

    return wrap


def misfit(
    name: str, signature: inspect.Signature, args: Sequence[Any], given: Mapping[str, Any], example: str = ""
) -> WrongCall | None:
    """What is wrong with a call of this name; None where it fits the signature."""
    try:
        signature.bind(*args, **given)
    except TypeError:
        own = list(signature.parameters.values())
        if own and own[0].name == "self":
            own, args = own[1:], args[1:]
        return WrongCall(_fault(name, own, args, given, example))
    return None


def _fault(
    name: str, own: Sequence[inspect.Parameter], args: Sequence[Any], given: Mapping[str, Any], example: str
) -> str:
    """The sentence: first a name that is none, then too many values, one given twice, one that is missing."""
    places = [each.name for each in own if each.kind in BY_PLACE]
    names = [each.name for each in own if each.kind in BY_NAME]
    strange = [word for word in given if word not in names]
    if strange and not any(each.kind == inspect.Parameter.VAR_KEYWORD for each in own):
        return str(unknown(f"keyword of {name}", strange[0], names))
    others = [each.name for each in own if each.kind == inspect.Parameter.KEYWORD_ONLY]
    like = example or _example(name, own, args[len(places) :])
    rest = f" By name it takes {', '.join(others)}." if others else ""
    if len(args) > len(places):
        takes = f"{len(places)} by place ({', '.join(places)})" if places else "no value by its place"
        return f"{name}() takes {takes}, and {len(args)} {'was' if len(args) == 1 else 'were'} given: {like}.{rest}"
    twice = [place for place in places[: len(args)] if place in given]
    if twice:
        return f"{name}() was given {twice[0]} twice, by its place and by its name; give it once."
    there = {*places[: len(args)], *given}
    missing = [each.name for each in own if _needed(each) and each.name not in there]
    return f"{name}() lacks {' and '.join(missing)}: {like}.{rest}"


def _needed(each: inspect.Parameter) -> bool:
    return each.default is inspect.Parameter.empty and each.kind in (*BY_PLACE, *BY_NAME)


def _example(name: str, own: Sequence[inspect.Parameter], extra: Sequence[Any]) -> str:
    """A call with all that is needed; values that had no place stand for names, of which there is one at least."""
    values = iter(shown(each, 20) if isinstance(each, str | int | float) else "…" for each in extra)
    named = [each for each in own if each.kind == inspect.Parameter.KEYWORD_ONLY]
    named = [each for each in named if _needed(each)] or (named[:1] if extra else [])
    places = [each for each in own if each.kind in BY_PLACE]
    places = [each for each in places if _needed(each)] or places[:1]
    words = [*(each.name for each in places), *(f"{each.name}={next(values, '…')}" for each in named)]
    return f"{name}({', '.join(words)})"
