"""Names by which checkpoints and saved learners know classes, so that a class may be renamed or moved.

The names are part of the file format: change one, and the format's version must change with it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import TypeVar

C = TypeVar("C", bound=type)

LIBRARIES = frozenset({"torch", "numpy", *sys.stdlib_module_names})
"""Whose objects hold nothing of ours, neither state nor a generator that anybody would draw from by way of them."""

STORED: dict[str, type] = {}
"""The classes of this package that files may name, by their stored names."""
_NAMES: dict[type, str] = {}


def stored(name: str) -> Callable[[C], C]:
    """Give a class the name that stands for it in files: any words without a dot, which import paths have.

    A subclass does not inherit the name. Attributes of its objects that mean something to one process only, such as
    caches and recordings, are named in a class attribute `TRANSIENT`, which adds to those of its bases.

    >>> @stored("example/counter")
    ... class Counter:
    ...     TRANSIENT = frozenset({"cache"})
    >>> stored_name(Counter), sorted(transient(Counter))
    ('example/counter', ['cache'])
    """

    def register(kind: C) -> C:
        taken = STORED.get(name)
        if taken is not None and (taken.__module__, taken.__qualname__) != (kind.__module__, kind.__qualname__):
            raise ValueError(f"The stored name '{name}' is that of {taken.__module__}.{taken.__qualname__}.")
        if "." in name:
            raise ValueError(f"A stored name has no dot; '{name}' was given.")
        STORED[name] = kind
        _NAMES[kind] = name
        return kind

    return register


def stored_name(kind: type) -> str:
    """Return what stands for a class in files: its stored name, or the import path of one without, such as a plug-in's.

    >>> stored_name(dict)
    'builtins.dict'
    """
    return _NAMES.get(kind) or f"{kind.__module__}.{kind.__qualname__}"


def is_of_package(obj: object) -> bool:
    """Return whether a class or a function is defined in this package.

    >>> is_of_package(stored), is_of_package(dict)
    (True, False)
    """
    return str(getattr(obj, "__module__", "")).partition(".")[0] == "odedm"


def transient(kind: type) -> frozenset[str]:
    """Return the attributes of a class's objects that are no state."""
    return frozenset().union(*(vars(base).get("TRANSIENT", ()) for base in kind.__mro__))


def is_plain_object(obj: object) -> bool:
    """Return whether all of an object is in its attributes: of a class in Python, without slots, no list or the like.

    >>> class Mine:
    ...     pass
    >>> class Counts(dict):
    ...     pass
    >>> is_plain_object(Mine()), is_plain_object(Counts()), is_plain_object(iter([]))
    (True, False, False)
    """
    kind = type(obj)
    if not hasattr(obj, "__dict__") or isinstance(obj, type):
        return False
    if kind.__reduce_ex__ is not object.__reduce_ex__ or kind.__reduce__ is not object.__reduce__:
        return False
    fresh = kind.__basicsize__ <= _Plain.__basicsize__ and not kind.__itemsize__
    return fresh and not any(vars(base).get("__slots__") for base in kind.__mro__)


class _Plain:
    """An object with a dictionary and nothing else."""


def is_ours(obj: object) -> bool:
    """Return whether an object is of a class of this package, or of one from outside that is no library's."""
    top = type(obj).__module__.partition(".")[0]
    return is_of_package(type(obj)) or (top not in LIBRARIES and is_plain_object(obj))
