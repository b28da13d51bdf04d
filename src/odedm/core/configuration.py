"""Settings that describe themselves: help, legal values, default. Every door to the library is made from them.

A field of `Experiment` or of a memory is written once, with `described`. The command line's options, the axes of a
study, the keywords of `train` and the reference tables are read off it, and so are its check and its place in files.
"""

from __future__ import annotations

import dataclasses
import functools
import json
import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass
from typing import Any, ClassVar, TypeVar

from odedm.core.errors import UsageError, shown
from odedm.core.outside import code_for, known, name_of
from odedm.core.registry import typed

T = TypeVar("T")
LARGEST = 2**63 - 1
"""What the libraries below can count to."""
ALWAYS = object()
"""What `introduced` is for a field that every file has: part of what a run is, whatever it holds."""


def refused(name: str, legal: str, value: object) -> UsageError:
    """The error for a value that is not legal.

    >>> str(refused("batch", "a whole number", "x"))
    "batch must be a whole number; 'x' was given."
    """
    return UsageError(f"{name} must be {legal}; {shown(value)} was given.")


class Kind:
    """What values a setting takes; `given_as` is what the command line hands over: int, float, bool or str."""

    given_as: ClassVar[type] = str

    @property
    def legal(self) -> str:
        """The legal values in words, behind "must be"."""
        raise NotImplementedError

    def read(self, name: str, value: Any) -> Any:
        """The value in its own type; UsageError where it is not legal."""
        try:
            return self.convert(value)
        except Exception:  # a conversion of anyone's object may raise what it likes
            raise refused(name, self.demanded(value), value) from None

    def demanded(self, value: Any) -> str:  # noqa: ARG002 - most say the same of every value
        """The legal values in the words that fit a value which is none."""
        return self.legal

    def convert(self, value: Any) -> Any:
        """The value in its own type; any error of a conversion where it is not legal."""
        if not isinstance(value, self.given_as):
            raise TypeError
        return value


@dataclass(frozen=True)
class Whole(Kind):
    """Whole numbers from `least` to `most`; numpy's are welcome, true and false are none.

    >>> Whole(1).read("batch", 32)
    32
    """

    least: int = 0
    most: int = LARGEST
    given_as = int

    @property
    def legal(self) -> str:
        """In words."""
        return f"a whole number, {self.least} or more" + (f", up to {self.most}" if self.most < LARGEST else "")

    def demanded(self, value: Any) -> str:
        """With the bound that libraries set, where it is this that a value is beyond."""
        beyond = isinstance(value, int) and value > self.most == LARGEST
        return f"{self.legal}, up to {self.most}" if beyond else self.legal

    def convert(self, value: Any) -> int:
        """A plain int."""
        number = operator.index(value)
        if isinstance(value, bool) or not self.least <= number <= self.most:
            raise ValueError
        return number


@dataclass(frozen=True)
class Number(Kind):
    """Finite numbers between two bounds, where there are any.

    >>> Number(0, 1).read("rho", 1)
    1.0
    """

    least: float = -math.inf
    most: float = math.inf
    given_as = float

    @property
    def legal(self) -> str:
        """In words."""
        if self.most < math.inf:
            return f"a number from {self.least:g} to {self.most:g}"
        return f"a finite number, {self.least:g} or more" if self.least > -math.inf else "a finite number"

    def convert(self, value: Any) -> float:
        """A plain float."""
        number = float(value)
        if isinstance(value, str | bytes | bool) or not math.isfinite(number) or not self.least <= number <= self.most:
            raise ValueError
        return number


@dataclass(frozen=True)
class Flag(Kind):
    """True or false."""

    legal = "true or false"
    given_as = bool


@dataclass(frozen=True)
class Text(Kind):
    """Any text."""

    legal = "text"


@dataclass(frozen=True)
class OneOf(Kind):
    """A name out of a table, or a class or object, which gets one there; `also` holds names that stand for a choice.

    >>> OneOf("colour", {"red": 1}, also=("auto",)).legal
    'one of auto, red'
    """

    what: str
    table: Mapping[str, Any] = dataclasses.field(compare=False)
    also: tuple[str, ...] = ()

    @property
    def names(self) -> list[str]:
        """All legal names, but for those of objects that have none of their own."""
        return [*self.also, *typed(self.table)]

    @property
    def legal(self) -> str:
        """In words."""
        return f"one of {', '.join(self.names)}"

    def read(self, name: str, value: Any) -> str:
        """The name; an error with the nearest one where there is none such."""
        found = value if isinstance(value, str) else name_of(self.table, value)
        if found is None:
            code = code_for(self.table)
            raise refused(name, f"a name, {self.legal}{code and f', or {code}'}", value)
        return known(self.what, found, self.table, self.also)


@dataclass(frozen=True)
class Device(OneOf):
    """The name of a device, or torch's own object for it, the first of its kind.

    >>> import torch
    >>> Device("device", {"cpu": "", "cuda": ""}).read("device", torch.device("cpu"))
    'cpu'
    """

    def read(self, name: str, value: Any) -> str:
        """The name; torch need not be here for it."""
        if (type(value).__module__, type(value).__name__) == ("torch", "device"):
            value = str(value) if value.index else value.type
        return super().read(name, value)


@dataclass(frozen=True)
class Pair(Kind):
    """Two whole numbers, or none; on the command line 3,4 or none.

    >>> Pair().read("dac", "3,4"), Pair().read("dac", [5, 3]), Pair().read("dac", "none")
    ((3, 4), (5, 3), None)
    """

    legal = "a pair of whole numbers such as 3,4, or none"

    def convert(self, value: Any) -> tuple[int, int] | None:
        """A tuple of two, or None."""
        if value is None or value == "none":
            return None
        parts = value.split(",") if isinstance(value, str) else value
        first, second = (Whole().convert(int(part) if isinstance(part, str) else part) for part in parts)
        return first, second


@dataclass(frozen=True)
class WordOr(Kind):
    """A word that stands for a choice, or a value of another kind.

    >>> WordOr("task", Whole(1)).read("candidates", "20"), WordOr("auto", Number(0, 1)).read("share", "auto")
    (20, 'auto')
    """

    word: str
    other: Kind

    @property
    def legal(self) -> str:
        """In words."""
        return f"'{self.word}' or {self.other.legal}"

    def convert(self, value: Any) -> Any:
        """The word, or a value of the other kind."""
        if isinstance(value, str):
            return self.word if value == self.word else self.other.convert(self.other.given_as(value))
        return self.other.convert(value)


@dataclass(frozen=True)
class NamedValues(Kind):
    """Values by name; on the command line NAME=VALUE, again and again."""

    legal = "a table of names and values"
    given_as = list

    def convert(self, value: Any) -> dict[str, Any]:
        """A dictionary of scalars."""
        if not isinstance(value, Mapping) or not all(isinstance(key, str) and is_scalar(value[key]) for key in value):
            raise TypeError
        return dict(value)


def is_scalar(value: object) -> bool:
    """Whether this is a single value, as a file holds it."""
    return value is None or isinstance(value, bool | int | float | str)


@dataclass(frozen=True)
class Setting:
    """What a field says of itself.

    `panel` is the heading it stands under in help. `default_words` says what a default of None stands for. `pace`: sets
    how fast a run is, not what it is. `axis`: a study can vary it. `introduced` is the value that runs from before the
    field had, frozen when the field was added: a file without the field has it, and a run that holds it has the same
    identity as before.
    """

    kind: Kind
    help: str
    panel: str = ""
    default_words: str | None = None
    metavar: str | None = None
    optional: bool = False
    pace: bool = False
    axis: bool = True
    introduced: Any = ALWAYS


def described(kind: Kind, default: Any, help: str, **more: Any) -> Any:
    """A field of a data class that describes itself: see `Setting`.

    >>> @dataclass(frozen=True)
    ... class Plan:
    ...     batch: int = described(Whole(1), 32, "Rows per step.")
    >>> settings_of(Plan)["batch"].help
    'Rows per step.'
    """
    own = Setting(kind, help, optional=default is None or more.pop("optional", False), **more)
    if callable(default):
        return dataclasses.field(default_factory=default, hash=False, metadata={"setting": own})  # tables have none
    return dataclasses.field(default=default, metadata={"setting": own})


def _settings_of(kind: Any) -> dict[str, Setting]:
    """The settings of a data class by name, in its order; one without a panel stands under the class's `PANEL`."""
    found = {each.name: each.metadata["setting"] for each in dataclasses.fields(kind) if "setting" in each.metadata}
    panel = getattr(kind, "PANEL", "")
    return {name: own if own.panel else dataclasses.replace(own, panel=panel) for name, own in found.items()}


settings_of: Callable[[Any], dict[str, Setting]] = functools.cache(_settings_of)  # large studies ask for every run


def check_settings(plan: Any) -> None:
    """Put every setting of a data class into its own type, or refuse it; for `__post_init__`."""
    for name, own in settings_of(type(plan)).items():
        value = getattr(plan, name)
        if value is not None or not own.optional:
            object.__setattr__(plan, name, own.kind.read(name, value))


def default_of(kind: Any, name: str) -> Any:
    """The default of a field; MISSING where it has none."""
    own = next(each for each in dataclasses.fields(kind) if each.name == name)
    return own.default if own.default_factory is MISSING else own.default_factory()


def to_plain(plan: Any) -> dict[str, Any]:
    """The settings of a data class as plain data, as a file will give them back.

    >>> @dataclass(frozen=True)
    ... class Plan:
    ...     dac: tuple[int, int] | None = described(Pair(), (3, 4), "…", optional=True)
    >>> to_plain(Plan())
    {'dac': [3, 4]}
    """
    values = {name: getattr(plan, name) for name in settings_of(type(plan))}
    found: dict[str, Any] = json.loads(json.dumps(values, default=str))
    return found


def from_plain(
    kind: Callable[..., T], what: str, plain: Mapping[str, Any], known: Mapping[str, Setting] | None = None
) -> T:
    """A data class from plain data of anyone's: the very settings it has, each checked.

    A setting that the data lack takes the value that it had before there was such a field.
    """
    known = settings_of(kind) if known is None else known
    strange = [str(name)[:60] for name in plain if name not in known]
    if strange:
        raise UsageError(
            f"A stored {what} has '{strange[0]}', which this version of odedm does not know. Known: {', '.join(known)}."
        )
    values = {name: own.introduced for name, own in known.items() if own.introduced is not ALWAYS} | dict(plain)
    missing = [name for name in known if name not in values]
    if missing:
        raise UsageError(f"A stored {what} lacks '{missing[0]}'; it has {', '.join(map(str, plain))}.")
    return kind(**values)


def introduced(kind: Any) -> dict[str, Any]:
    """The settings that were added after the first ones, with the values that runs had before."""
    return {name: own.introduced for name, own in settings_of(kind).items() if own.introduced is not ALWAYS}


def identity(kind: Any, plain: Mapping[str, Any]) -> dict[str, Any]:
    """What of the plain data decides what a run is: not its pace, and nothing that is as it was before its field."""
    idle = {name for name, own in settings_of(kind).items() if own.pace or own.introduced == plain.get(name)}
    return {name: value for name, value in plain.items() if name not in idle}
