"""Reads the pickles of CIFAR's python version as data: an inert interpreter of few opcodes that calls nothing."""

from __future__ import annotations

from dataclasses import dataclass, field
from pickletools import genops
from typing import Any

import numpy as np

from odedm.core.errors import UsageError

PLAIN = {"NONE": None, "NEWTRUE": True, "NEWFALSE": False}
EMPTY = {"EMPTY_DICT": dict, "EMPTY_LIST": list, "EMPTY_TUPLE": tuple}
PUSH = {"BININT", "BININT1", "BININT2", "BINSTRING", "SHORT_BINSTRING"}
"""Opcodes whose argument is the value."""
NAMES = {"numpy.core.multiarray _reconstruct", "numpy ndarray", "numpy dtype"}
"""All that the format names; they stay words here, and mean an array of bytes and nothing else."""
LIMIT = 1_000_000
"""More opcodes than any such file has."""


@dataclass
class _Word:
    """A name from `NAMES`, never looked up; with what a REDUCE would call it with, and a BUILD then fill in."""

    text: str
    arguments: tuple[Any, ...] | None = None
    state: tuple[Any, ...] | None = None


@dataclass
class _Machine:
    """The interpreter's state: values, where they were marked, and those that were put away by number."""

    where: str
    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def refuse(self, what: str) -> UsageError:
        return UsageError(
            f"'{self.where}' {what}, which CIFAR's python version has no use for: it is not that format, and could do "
            "harm if it were run. Nothing of it was. Take the binary version (cifar-10-binary.tar.gz)."
        )

    def take(self, number: int | None = None) -> list[Any]:
        """The topmost so many values, off the stack; those since the last mark, if no number is given."""
        start = self.marks.pop() if number is None else len(self.stack) - number
        if start < 0:
            raise IndexError(start)
        taken = self.stack[start:]
        del self.stack[start:]
        return taken


def read_batch(content: bytes, where: str) -> dict[str, Any]:
    """The dictionary of one batch file: lists, words, whole numbers, and arrays of bytes [n, d].

    Opcodes outside a short list, names outside `NAMES` and anything that would be called are refused by name.
    """
    machine = _Machine(where)
    try:
        for number, (opcode, argument, _) in enumerate(genops(content)):
            if number > LIMIT:
                raise machine.refuse(f"has more than {LIMIT} instructions")
            if opcode.name == "STOP":
                break
            _step(machine, opcode.name, argument)
        (result,) = machine.stack
        if not isinstance(result, dict):
            raise machine.refuse(f"holds a {type(result).__name__}")
        return {key: _finish(machine, value) for key, value in result.items()}
    except UsageError:
        raise
    except Exception as error:  # whatever the parser trips over, the file is not what it should be
        raise UsageError(
            f"'{where}' is truncated or corrupt ({error or type(error).__name__}). Get it again."
        ) from error


def _step(machine: _Machine, name: str, argument: Any) -> None:  # noqa: PLR0912 - one branch per opcode
    stack = machine.stack
    if name in PUSH:
        stack.append(argument)
    elif name in PLAIN:
        stack.append(PLAIN[name])
    elif name in EMPTY:
        stack.append(EMPTY[name]())
    elif name == "PROTO":
        if argument > 2:
            raise machine.refuse(f"is a pickle of protocol {argument}")
    elif name in ("BINPUT", "LONG_BINPUT"):
        machine.memo[argument] = stack[-1]
    elif name in ("BINGET", "LONG_BINGET"):
        stack.append(machine.memo[argument])
    elif name == "MARK":
        machine.marks.append(len(stack))
    elif name in ("TUPLE", "TUPLE1", "TUPLE2", "TUPLE3"):
        stack.append(tuple(machine.take(None if name == "TUPLE" else int(name[-1]))))
    elif name in ("APPEND", "APPENDS"):
        items = machine.take(1 if name == "APPEND" else None)
        _the(list, stack[-1]).extend(items)
    elif name in ("SETITEM", "SETITEMS"):
        pairs = machine.take(2 if name == "SETITEM" else None)
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            _the(dict, stack[-1])[_the(str, key)] = value  # words alone: nested tuples can take years to hash
    elif name == "GLOBAL":
        if argument not in NAMES:
            raise machine.refuse(f"asks for '{str(argument).replace(' ', '.')}'")
        stack.append(_Word(argument))
    elif name == "REDUCE":
        word, arguments = machine.take(2)
        if not isinstance(word, _Word) or word.arguments is not None or word.text == "numpy ndarray":
            raise machine.refuse("wants something called")
        stack.append(_Word(word.text, arguments))
    elif name == "BUILD":
        (state,) = machine.take(1)
        _the(_Word, stack[-1]).state = state
    else:
        raise machine.refuse(f"uses the instruction {name}")


def _the(kind: type[Any], value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"a {type(value).__name__} where a {kind.__name__} belongs")
    return value


def _finish(machine: _Machine, value: Any) -> Any:
    """Arrays made from their parts: version, shape, type, column order, bytes."""
    if not isinstance(value, _Word):
        return value
    if value.text != "numpy.core.multiarray _reconstruct" or not value.state or len(value.state) != 5:
        raise machine.refuse("holds an array in an unknown form")
    _, shape, kind, columns_first, content = value.state
    if (
        not isinstance(kind, _Word)
        or kind.text != "numpy dtype"
        or (kind.arguments or ())[:1] not in (("u1",), ("|u1",))
    ):
        raise machine.refuse("holds an array that is not of bytes")
    raw = _the(str, content).encode("latin-1")
    sides = [side for side in shape if isinstance(side, int)]
    if columns_first or len(shape) != 2 or len(sides) != 2 or sides[0] * sides[1] != len(raw):
        raise machine.refuse(f"holds an array of {len(raw)} bytes that says its shape is {tuple(sides[:2])}")
    return np.frombuffer(raw, np.uint8).reshape(shape)
