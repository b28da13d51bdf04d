"""What values a setting or an argument takes: validators by type, which check a value or refuse it in a sentence."""

from __future__ import annotations

import functools
import inspect
import operator
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, ClassVar, ParamSpec, TypeVar

from odedm.core.errors import UsageError, short_repr
from odedm.core.plugins import auto_register, check_name
from odedm.core.registry import typed

T = TypeVar("T")
P = ParamSpec("P")
LARGEST = 2**63 - 1
"""What the libraries below can count to."""
LARGEST_FLOAT = 3.4028234e38
"""What float32 can hold: beyond it a number is infinite where it is used."""


def refused(name: str, legal: str, value: object) -> UsageError:
    """Return the error for a value that is not legal.

    >>> str(refused("batch", "a whole number", "x"))
    "batch must be a whole number; 'x' was given."
    """
    return UsageError(f"{name} must be {legal}; {short_repr(value)} was given.")


class Validator:
    """What values a setting takes; `cli_type` is what the command line hands over: int, float, bool or str."""

    cli_type: ClassVar[type] = str

    @property
    def expected(self) -> str:
        """Return the legal values in words, behind "must be"."""
        raise NotImplementedError

    def validate(self, name: str, value: Any) -> Any:
        """Return the value in its own type; UsageError where it is not legal."""
        try:
            return self.convert(value)
        except Exception:  # a conversion of anyone's object may raise what it likes
            raise refused(name, self.expected, value) from None

    def convert(self, value: Any) -> Any:
        """Return the value in its own type; raise any error where it is not legal."""
        if not isinstance(value, self.cli_type):
            raise TypeError
        return value

    def from_text(self, text: str) -> Any:
        """Return the value that text of a command line or file stands for; raise any error where it is none."""
        return self.convert(self.cli_type(text))

    def from_any(self, value: Any) -> Any:
        """Return a value that may be text; raise any error where it is not legal."""
        return self.from_text(value) if isinstance(value, str) else self.convert(value)


@dataclass(frozen=True)
class Int(Validator):
    """Whole numbers from `least` to `most`; numpy's are welcome, true and false are none.

    >>> Int(1).validate("batch", 32)
    32
    """

    least: int = 0
    most: int = LARGEST
    cli_type = int

    @property
    def expected(self) -> str:
        least = f", {self.least} or more" if self.least > -LARGEST else ""
        return f"a whole number{least}" + (f", up to {self.most}" if self.most < LARGEST else "")

    def convert(self, value: Any) -> int:
        number = operator.index(value)
        if isinstance(value, bool) or not self.least <= number <= self.most:
            raise ValueError
        return number


@dataclass(frozen=True)
class Float(Validator):
    """Finite numbers between two bounds, where there are any.

    >>> Float(0, 1).validate("rho", 1)
    1.0
    """

    least: float = -LARGEST_FLOAT
    most: float = LARGEST_FLOAT
    cli_type = float

    @property
    def expected(self) -> str:
        if self.most < LARGEST_FLOAT:
            return f"a number from {self.least:g} to {self.most:g}"
        return f"a finite number, {self.least:g} or more" if self.least > -LARGEST_FLOAT else "a finite number"

    def convert(self, value: Any) -> float:
        number = float(value)
        if isinstance(value, str | bytes | bool) or not self.least <= number <= self.most:
            raise ValueError
        return number


class Share(Validator):
    """Shares of a whole that leave something on both sides.

    >>> Share().validate("validation", 1)
    Traceback (most recent call last):
    odedm.UsageError: validation must be a number between 0 and 1, and neither; 1 was given.
    """

    cli_type = float
    expected = "a number between 0 and 1, and neither"

    def convert(self, value: Any) -> float:
        number = Float(0, 1).convert(value)
        if number in (0, 1):
            raise ValueError
        return number


@dataclass(frozen=True)
class Bool(Validator):
    """True or false."""

    expected = "true or false"
    cli_type = bool

    def from_text(self, text: str) -> bool:
        return {"true": True, "false": False}[text.lower()]  # not by `bool`, which takes every text for true


@dataclass(frozen=True)
class Text(Validator):
    """Any text."""

    expected = "text"


@dataclass(frozen=True)
class Choice(Validator):
    """A name out of a table, or a class or object, which gets one there; `also` holds names that stand for a choice.

    >>> Choice("colour", {"red": 1}, also=("auto",)).expected
    'one of auto, red'
    """

    what: str
    table: Mapping[str, Any] = field(compare=False)
    also: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """Return all legal names, but for those of objects that have none of their own."""
        return [*self.also, *typed(self.table)]

    @property
    def expected(self) -> str:
        return f"one of {', '.join(self.names)}"

    def validate(self, name: str, value: Any) -> str:
        chosen = value if isinstance(value, str) else auto_register(self.table, value)
        if chosen is None:
            code = getattr(self.table, "needs", "")
            raise refused(name, f"a name, {self.expected}{code and f', or {code}'}", value)
        return check_name(self.what, chosen, self.table, self.also)


@dataclass(frozen=True)
class Device(Choice):
    """The name of a device, or torch's own object for it, the first of its kind.

    >>> import torch
    >>> Device("device", {"cpu": "", "cuda": ""}).validate("device", torch.device("cpu"))
    'cpu'
    """

    def validate(self, name: str, value: Any) -> str:
        if (type(value).__module__, type(value).__name__) == ("torch", "device"):
            value = str(value) if value.index else value.type
        return super().validate(name, value)


@dataclass(frozen=True)
class Pair(Validator):
    """Two whole numbers, or none; on the command line 3,4 or none.

    >>> Pair().validate("dac", "3,4"), Pair().validate("dac", [5, 3]), Pair().validate("dac", "none")
    ((3, 4), (5, 3), None)
    """

    expected = "a pair of whole numbers such as 3,4, or none"

    def convert(self, value: Any) -> tuple[int, int] | None:
        if value is None or value == "none":
            return None
        parts = value.split(",") if isinstance(value, str) else value
        first, second = map(Int().from_any, parts)
        return first, second


@dataclass(frozen=True)
class WordOr(Validator):
    """A word that stands for a choice, or a value of another kind.

    >>> WordOr("task", Int(1)).validate("candidates", "20"), WordOr("auto", Float(0, 1)).validate("share", "auto")
    (20, 'auto')
    """

    word: str
    other: Validator

    @property
    def expected(self) -> str:
        return f"'{self.word}' or {self.other.expected}"

    def convert(self, value: Any) -> Any:
        return self.word if isinstance(value, str) and value == self.word else self.other.from_any(value)


@dataclass(frozen=True)
class RowsOrBytes(Validator):
    """A number of rows, or of bytes as text, which stays text until the size of a row is known.

    >>> RowsOrBytes().validate("capacity", "200"), RowsOrBytes().validate("capacity", "0.5 MB")
    (200, '0.5MB')
    """

    expected = "a whole number of rows, 0 or more, or of bytes such as '500kB' or '2MB'"

    def convert(self, value: Any) -> int | str:
        text = value.replace(" ", "") if isinstance(value, str) else value
        return text if as_bytes(text) else Int().from_any(text)


BYTES = {"B": 1, "kB": 10**3, "MB": 10**6, "GB": 10**9, "KiB": 2**10, "MiB": 2**20, "GiB": 2**30}


def as_bytes(capacity: object) -> int | None:
    """Return how many bytes a text asks for; None where it is none, as a number of rows.

    >>> as_bytes("0.5MB"), as_bytes(200)
    (500000, None)
    """
    match = re.fullmatch(rf"(\d+(?:\.\d+)?)({'|'.join(BYTES)})", capacity) if isinstance(capacity, str) else None
    return int(float(match[1]) * BYTES[match[2]]) if match else None


@dataclass(frozen=True)
class NamedValues(Validator):
    """Values by name; on the command line NAME=VALUE, again and again."""

    expected = "a table of names and values"
    cli_type = list

    def convert(self, value: Any) -> dict[str, Any]:
        if not isinstance(value, Mapping) or not all(isinstance(key, str) and is_scalar(value[key]) for key in value):
            raise TypeError
        return dict(value)


def validate_params(**validators: Validator) -> Callable[[Callable[P, T]], Callable[P, T]]:
    """Check arguments of a function by their names, each in its own type; None stays where it is the default.

    >>> @validate_params(rows=Int(1))
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
            try:
                bound = signature.bind(*args, **kwargs)
            except TypeError:
                return function(*args, **kwargs)  # Python's own error names the function, that of `bind` does not
            for name, value in bound.arguments.items():
                if name in validators and not (value is None and signature.parameters[name].default is None):
                    bound.arguments[name] = validators[name].validate(name, value)
            return function(*bound.args, **bound.kwargs)

        return call

    return wrap


def is_scalar(value: object) -> bool:
    """Return whether this is a single value, as a file holds it."""
    return value is None or isinstance(value, bool | int | float | str)
