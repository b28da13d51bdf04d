"""Options of a part by name, such as those of a memory policy or a retrieval: which there are, and their own types.

A part says nothing of them: the keywords of its constructor are its options, and their defaults are their types.
"""

from __future__ import annotations

import inspect
from collections.abc import Collection, Mapping
from typing import Any

from odedm.core.errors import UsageError
from odedm.core.validators import LARGEST, Bool, Float, Int, Text, Validator, refused

VALIDATORS: dict[type, Validator] = {bool: Bool(), int: Int(-LARGEST), float: Float(), str: Text()}
"""How a value of each type is read."""


def options_of(kind: Any, first: int = 0, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the options of a class with their defaults: keywords of its constructor, but for those that the run sets.

    Those are the `first` ones, which it gets by their place, and others by name.

    >>> class Policy:
    ...     def __init__(self, capacity, *, classes=0, alpha=0.5): ...
    >>> options_of(Policy, 1, ["classes"])
    {'alpha': 0.5}
    """
    parameters = list(inspect.signature(kind).parameters.values())[first:]
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return {p.name: p.default for p in parameters if p.kind in named and p.name not in without}


def class_and_options(part: Any, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the class of a part that was given as an object, and the options that it was made with but for defaults.

    A name or a class stays itself.

    >>> from odedm.training.retrieval import MIR
    >>> class_and_options(MIR(candidates=30), {}) == (MIR, {"candidates": 30})
    True
    """
    if isinstance(part, str | type):
        return part, dict(options)
    try:
        known = options_of(type(part))
    except (ValueError, TypeError):  # a number, say: refused where a name is wanted
        return part, dict(options)
    changed = {name: getattr(part, name) for name, default in known.items() if getattr(part, name, default) != default}
    return type(part), {**changed, **options}


def read_options(what: str, known: Mapping[str, Any], options: Mapping[str, Any]) -> dict[str, Any]:
    """Return options in the types of their defaults, or refuse one that is not known; a command line gives all as text.

    >>> read_options("The policy 'mine'", {"alpha": 0.5}, {"alpha": "0.25"})
    {'alpha': 0.25}
    >>> read_options("The policy 'mine'", {"alpha": 0.5}, {"beta": 1})
    Traceback (most recent call last):
    odedm.UsageError: The policy 'mine' has no option 'beta'; it has alpha.
    """
    for name in options:
        if name not in known:
            raise UsageError(f"{what} has no option '{name}'; it has {', '.join(known) or 'none'}.")
    return {name: cast_like(f"{what[:1].lower()}{what[1:]}: {name}", options[name], known[name]) for name in options}


def with_keyword(table: str, options: Mapping[str, Any], name: str, value: object) -> dict[str, Any]:
    """Return a table of options with a value that has a keyword of its own; None is none, and twice is refused.

    >>> with_keyword("options", {"momentum": 0.9}, "lr", 0.1)
    {'momentum': 0.9, 'lr': 0.1}
    """
    if value is not None and name in options:
        raise UsageError(f"{name} was given twice, as a keyword and in {table}; give it once.")
    return dict(options) if value is None else {**options, name: value}


def cast_like(name: str, value: Any, default: Any) -> Any:
    """Return a value in the type of a default; a default of None, or none at all, leaves it as it is.

    >>> cast_like("lr", "0.5", 0.1), cast_like("flip", "false", True), cast_like("epochs", "3", 1)
    (0.5, False, 3)
    """
    kind = type(default)
    if default is None or default is inspect.Parameter.empty:
        return value
    validator = VALIDATORS.get(kind)
    try:
        if validator is None and not isinstance(value, str | bool):  # whose letters are no values
            return kind(value)
        if validator is not None:
            return validator.from_any(value)
    except (ValueError, TypeError, KeyError, OverflowError):
        pass
    raise refused(name, f"a {kind.__name__}" if validator is None else validator.expected, value)
