"""Finds random generators inside objects, torch's and numpy's, in classes of this package and in those from outside."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

LIBRARIES = frozenset({"torch", "numpy", *sys.stdlib_module_names})
"""Whose objects hold no generator that anybody would draw from by way of them."""

AnyGenerator = torch.Generator | np.random.Generator


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
    return top == "odedm" or (top not in LIBRARIES and is_plain_object(obj))


def generators_of(owner: Any) -> Iterator[torch.Generator]:
    """Return Torch's generators that an object holds, at any depth, each once.

    >>> class Mine:
    ...     def __init__(self):
    ...         self.parts = [{"noise": torch.Generator()}]
    >>> len(list(generators_of(Mine())))
    1
    """
    return (generator for generator in every_generator(owner) if isinstance(generator, torch.Generator))


def every_generator(owner: Any, seen: dict[int, Any] | None = None) -> Iterator[AnyGenerator]:
    """Return the generators that an object holds, at any depth, each once."""
    seen = {} if seen is None else seen
    if id(owner) in seen:
        return
    seen[id(owner)] = owner  # an id is a name only while its object lives
    if isinstance(owner, AnyGenerator):
        yield owner
    for value in _inside(owner):
        yield from every_generator(value, seen)


def _inside(owner: Any) -> Iterator[Any]:
    if isinstance(owner, list | tuple | set | frozenset):
        yield from owner
    elif isinstance(owner, dict):
        yield from owner.values()
    elif isinstance(owner, nn.Module):
        for module in owner.modules():
            if type(module).__module__.partition(".")[0] != "torch":
                yield from (value for name, value in vars(module).items() if not name.startswith("_"))
    elif is_ours(owner):
        yield from vars(owner).values() if hasattr(owner, "__dict__") else ()


def state_of(generator: AnyGenerator) -> Any:
    """Return where a generator stands."""
    return generator.get_state() if isinstance(generator, torch.Generator) else generator.bit_generator.state


def set_state(generator: AnyGenerator, state: Any) -> None:
    """Let a generator stand where it stood; a step that is recorded is not disturbed where it stands there already."""
    if not isinstance(generator, torch.Generator):
        generator.bit_generator.state = state
    elif not generator.get_state().equal(state):
        generator.set_state(state)
