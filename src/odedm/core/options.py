"""Options of a part by name, such as those of a memory policy or a retrieval: which there are, and their own types.

A part says nothing of them: the keywords of its constructor are its options, and their defaults are their types.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple

from odedm.core.errors import UsageError
from odedm.core.validators import LARGEST, Bool, Float, Int, Text, Validator, refused

LEGAL = {bool: "true or false", int: "a whole number", float: "a finite float", str: "text"}
LARGEST_FLOAT = 3.4028234e38
"""What float32 can hold: beyond it a number is infinite where it is used."""
VALIDATORS: dict[type, Validator] = {
    bool: Bool(),
    int: Int(-LARGEST),
    float: Float(-LARGEST_FLOAT, LARGEST_FLOAT),
    str: Text(),
}
"""How a value of each type is read."""


class Reserved(NamedTuple):
    """What of a constructor the run sets, not the user: so many arguments by their place, and some by name."""

    first: int = 0
    names: tuple[str, ...] = ()


NOTHING = Reserved()


def options_of(kind: Any, reserved: Reserved = NOTHING) -> dict[str, Any]:
    """Return the options of a class with their defaults: keywords of its constructor, but for those that the run sets.

    >>> class Policy:
    ...     def __init__(self, capacity, *, classes=0, alpha=0.5): ...
    >>> options_of(Policy, Reserved(1, ("classes",)))
    {'alpha': 0.5}
    """
    parameters = list(inspect.signature(kind).parameters.values())[reserved.first :]
    named = (inspect.Parameter.KEYWORD_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    settable = [p for p in parameters if p.kind in named and p.name not in reserved.names]
    return {parameter.name: parameter.default for parameter in settable}


def name_and_options(table: Mapping[str, Any], part: Any, options: Mapping[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return a part that was given as a class or an object, as its name and the options that it was made with.

    A class that is not in the table stays itself. Options that hold their default are left out; a name stays a name.

    >>> from odedm.core.registry import RETRIEVALS
    >>> name_and_options(RETRIEVALS, "mir", {"candidates": 20})
    ('mir', {'candidates': 20})
    >>> name_and_options(RETRIEVALS, RETRIEVALS["mir"].load()(candidates=30), {})
    ('mir', {'candidates': 30})
    """
    if isinstance(part, str):
        return part, dict(options)
    kind = part if isinstance(part, type) else type(part)
    try:
        known = {} if isinstance(part, type) else options_of(kind)
    except (ValueError, TypeError):  # a number, say: refused where a name is wanted
        return part, dict(options)
    changed = {name: getattr(part, name) for name, default in known.items() if getattr(part, name, default) != default}
    ours = kind.__module__.startswith("odedm.")
    name = next((name for name, entry in table.items() if ours and entry.load() is kind), kind)
    return name, {**changed, **options}


def read_options(what: str, kind: Any, options: Mapping[str, Any], reserved: Reserved = NOTHING) -> dict[str, Any]:
    """Return the given options in their own types, or a sentence on which there are; a command line gives all as text.

    >>> class Policy:
    ...     def __init__(self, *, alpha=0.5): ...
    >>> read_options("The policy 'mine'", Policy, {"alpha": "0.25"})
    {'alpha': 0.25}
    >>> read_options("The policy 'mine'", Policy, {"beta": 1})
    Traceback (most recent call last):
    odedm.UsageError: The policy 'mine' has no option 'beta'; it has alpha.
    """
    known = options_of(kind, reserved)
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
    try:
        if kind in VALIDATORS:
            return VALIDATORS[kind].from_any(value)
        if isinstance(value, str | bool):  # its letters are no values
            raise TypeError
        return kind(value)
    except (ValueError, TypeError, KeyError, OverflowError):
        raise refused(name, LEGAL.get(kind, f"a {kind.__name__}"), value) from None
