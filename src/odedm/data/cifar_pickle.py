"""Reads the pickles of CIFAR's python version as data: an inert interpreter of few opcodes that calls nothing.

A `pickle.Unpickler` with an allow-list in `find_class` would not do. It takes an index of its memo, or a shape or type
for the allowed numpy functions, out of the file, and allocates gigabytes for it; it hashes nested tuples without end.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from pickletools import genops
from typing import Any

import numpy as np

from odedm.core.errors import UsageError

RECONSTRUCT, DTYPE = "numpy.core.multiarray _reconstruct", "numpy dtype"
NAMES = {RECONSTRUCT, DTYPE, "numpy ndarray"}
"""All that the format names; they stay words here, and mean an array of bytes and nothing else."""
MAX_OPCODES, MAX_PROTOCOL = 1_000_000, 2


@dataclass
class _Global:
    """A name from `NAMES`, never looked up; with what a REDUCE would call it with, and a BUILD then fill in."""

    name: str
    arguments: Any = None
    state: Any = None


def read_batch(content: bytes, where: str) -> dict[str, Any]:
    """Return the dictionary of one batch file: lists, text, integers, and arrays of bytes [n, d].

    Raises:
        UsageError: it has opcodes or names that the format has no use for, would call something, or is damaged.
    """
    machine = _Machine()
    try:
        for count, (opcode, argument, _) in enumerate(genops(content)):
            if count > MAX_OPCODES or opcode.name not in STEPS:
                raise ValueError(f"it uses the instruction {opcode.name}, or more than {MAX_OPCODES} of them")
            STEPS[opcode.name](machine, argument)
        (batch,) = machine.stack
        items = _expect(dict, batch).items()
        return {key: _array(value) if isinstance(value, _Global) else value for key, value in items}
    except Exception as error:  # whatever the parser trips over, the file is not what it should be
        raise UsageError(
            f"'{where}' is no sound batch of CIFAR's python version: {error or type(error).__name__}. Nothing of it "
            "was run. Get it again, or take the binary version (cifar-10-binary.tar.gz)."
        ) from error


@dataclass
class _Machine:
    """The interpreter's state: values, where they were marked, and those that were put away by number."""

    stack: list[Any] = field(default_factory=list)
    marks: list[int] = field(default_factory=list)
    memo: dict[int, Any] = field(default_factory=dict)

    def push(self, value: Any) -> None:
        self.stack.append(value)

    def pop(self, count: int | None = None) -> list[Any]:
        """Take the topmost values off the stack: those since the last mark, unless their number is given."""
        start = self.marks.pop() if count is None else len(self.stack) - count
        if start < 0:
            raise IndexError("the stack is empty")
        values = self.stack[start:]
        del self.stack[start:]
        return values

    def extend(self, values: list[Any]) -> None:
        _expect(list, self.stack[-1]).extend(values)

    def update(self, pairs: list[Any]) -> None:
        for key, value in zip(pairs[::2], pairs[1::2], strict=True):
            _expect(dict, self.stack[-1])[_expect(str, key)] = value  # nested tuples as keys can take years to hash

    def name(self, name: str) -> None:
        if name not in NAMES:
            raise ValueError(f"it asks for '{name.replace(' ', '.')}'")
        self.push(_Global(name))

    def call(self, function: Any, arguments: Any) -> None:
        if _expect(_Global, function).arguments is not None or function.name not in (RECONSTRUCT, DTYPE):
            raise ValueError("it wants something called")
        self.push(_Global(function.name, _expect(tuple, arguments)))

    def build(self, state: Any) -> None:
        _expect(_Global, self.stack[-1]).state = state

    def check_protocol(self, version: int) -> None:
        if version > MAX_PROTOCOL:
            raise ValueError(f"it is a pickle of protocol {version}")


STEPS: dict[str, Any] = {
    "PROTO": _Machine.check_protocol,
    "STOP": lambda _machine, _: None,
    "NONE": lambda machine, _: machine.push(None),
    "NEWTRUE": lambda machine, _: machine.push(True),
    "NEWFALSE": lambda machine, _: machine.push(False),
    "EMPTY_DICT": lambda machine, _: machine.push({}),
    "EMPTY_LIST": lambda machine, _: machine.push([]),
    "EMPTY_TUPLE": lambda machine, _: machine.push(()),
    **dict.fromkeys(("BININT", "BININT1", "BININT2", "BINSTRING", "SHORT_BINSTRING"), _Machine.push),
    **dict.fromkeys(("BINPUT", "LONG_BINPUT"), lambda machine, index: machine.memo.update({index: machine.stack[-1]})),
    **dict.fromkeys(("BINGET", "LONG_BINGET"), lambda machine, index: machine.push(machine.memo[index])),
    "MARK": lambda machine, _: machine.marks.append(len(machine.stack)),
    "TUPLE": lambda machine, _: machine.push(tuple(machine.pop())),
    "TUPLE1": lambda machine, _: machine.push(tuple(machine.pop(1))),
    "TUPLE2": lambda machine, _: machine.push(tuple(machine.pop(2))),
    "TUPLE3": lambda machine, _: machine.push(tuple(machine.pop(3))),
    "APPEND": lambda machine, _: machine.extend(machine.pop(1)),
    "APPENDS": lambda machine, _: machine.extend(machine.pop()),
    "SETITEM": lambda machine, _: machine.update(machine.pop(2)),
    "SETITEMS": lambda machine, _: machine.update(machine.pop()),
    "GLOBAL": _Machine.name,
    "REDUCE": lambda machine, _: machine.call(*machine.pop(2)),
    "BUILD": lambda machine, _: machine.build(*machine.pop(1)),
}
"""What each known opcode does with its argument."""


def _expect(kind: type[Any], value: Any) -> Any:
    if type(value) is not kind:
        raise TypeError(f"it has a {type(value).__name__} where a {kind.__name__} belongs")
    return value


def _array(value: _Global) -> np.ndarray[Any, Any]:
    """Return an array made from its parts: version, shape, type, column order, bytes."""
    _, shape, dtype, columns_first, content = _expect(tuple, value.state)
    if value.name != RECONSTRUCT or _expect(_Global, dtype).name != DTYPE:
        raise ValueError("it holds an array in an unknown form")
    if dtype.arguments[:1] not in (("u1",), ("|u1",)):
        raise ValueError("it holds an array that is not of bytes")
    raw = _expect(str, content).encode("latin-1")
    sides = [side for side in _expect(tuple, shape) if type(side) is int]
    if columns_first or len(shape) != 2 or len(sides) != 2 or sides[0] * sides[1] != len(raw):
        raise ValueError(f"it holds an array of {len(raw)} bytes that says its shape is {tuple(sides[:2])}")
    return np.frombuffer(raw, np.uint8).reshape(shape)
