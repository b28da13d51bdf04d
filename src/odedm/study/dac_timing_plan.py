"""Which choices of prototypes are timed with and without divide-and-conquer, and the file that keeps the times.

The features are those of a data set's first class by a network that has learned its first task, or synthetic ones
from a seeded generator: what is asked is how seconds grow with rows and prototypes.
"""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import product
from pathlib import Path
from typing import Any, NamedTuple

from odedm.core.checksums import read_json
from odedm.core.errors import UsageError
from odedm.core.files import write_text
from odedm.core.registry import DISTANCES
from odedm.core.validators import Int, Pair, Text, Validator
from odedm.selection.prototype_settings import DistanceName
from odedm.study.grid import from_table
from odedm.training.hold_out import check_values

FILE = "runtime.json"
MOST = 1 << 40
"""No size and no time is larger: a file that says so is not ours."""
MOST_BYTES = 1 << 26
MOST_TIMINGS = 10_000
MOST_ROWS = 10_000_000
SIZES: dict[str, Validator] = {"rows": Int(2), "k": Int(1), "dimension": Int(2)}
LISTS: dict[str, Validator] = {**SIZES, "dac": Pair(), "distance": DistanceName("distance", DISTANCES)}
"""What a plan has several of."""


class TimingCell(NamedTuple):
    """What is timed: one class of `n` rows with `dimension` features each, `k` prototypes, DAC (None: without)."""

    distance: str
    dimension: int
    dac: tuple[int, int] | None
    n: int
    k: int

    @property
    def title(self) -> str:
        """A few words for people."""
        how = "without DAC" if self.dac is None else f"DAC {self.dac[0]}×{self.dac[1]}"
        return f"n={self.n} · k={self.k} · {how} · {self.distance}"


@dataclass(frozen=True)
class Timing:
    """One measurement of a cell."""

    cell: TimingCell
    repeat: int
    seconds: float


@dataclass(frozen=True)
class Runtime:
    """Which choices are timed, as data.

    `rows` are those of one class, each timed at the largest `k`; each `k` is timed at the largest number of rows. Every
    one of them is timed without DAC and with each setting of it, `repeats` times on features drawn anew from `seed`: of
    `data`, or synthetic where none is named.

    >>> plan = Runtime(rows=(100, 200), k=(3, 6), repeats=1)
    >>> [(cell.n, cell.k, cell.dac) for cell, _ in plan.timings()][:4]
    [(100, 6, None), (100, 6, (3, 4)), (200, 3, None), (200, 3, (3, 4))]
    """

    rows: tuple[int, ...] = (250, 500, 1000)
    k: tuple[int, ...] = (6, 12, 24)
    dac: tuple[tuple[int, int], ...] = ((3, 4),)
    distance: tuple[str, ...] = ("sinkhorn",)
    dimension: tuple[int, ...] = (128,)
    repeats: int = 3
    seed: int = 0
    data: str = ""

    def __post_init__(self) -> None:
        for name, kind in LISTS.items():
            check_values(f"runtime.{name}", getattr(self, name), kind)
        for name in SIZES:
            if (largest := max(getattr(self, name))) > MOST_ROWS:
                raise UsageError(f"'runtime.{name}' are whole numbers up to {MOST_ROWS}; {largest} was given.")
        if max(self.k) > min(self.rows):
            raise UsageError(
                f"'runtime.k' goes up to {max(self.k)}, but 'runtime.rows' down to {min(self.rows)}: a class cannot "
                "have more prototypes than rows. Lower the one or raise the other."
            )
        if not all(isinstance(each, tuple) for each in self.dac):
            raise UsageError("'runtime.dac' is [clusters, depth] or a list of such; runs without DAC are always timed.")
        Int(1).validate("'runtime.repeats'", self.repeats)
        Int(0).validate("'runtime.seed'", self.seed)
        Text().validate("'runtime.data'", self.data)
        if self.repeats * len(self.cells()) > MOST_TIMINGS:
            raise UsageError(f"[runtime] stands for more than {MOST_TIMINGS} timings; cut its lists.")

    def cells(self) -> list[TimingCell]:
        """What is timed, small sizes first."""
        sizes = {(n, max(self.k)) for n in self.rows} | {(max(self.rows), k) for k in self.k}
        ordered = sorted(sizes, key=lambda size: (size[0] * size[1], size))
        return [
            TimingCell(distance, dimension, dac, n, k)
            for distance, dimension in product(self.distance, self.dimension)
            for n, k in ordered
            for dac in (None, *self.dac)
        ]

    def timings(self) -> list[tuple[TimingCell, int]]:
        """Every measurement: each cell once, then each a second time, so that one cut short can still be drawn."""
        return [(cell, repeat) for repeat in range(self.repeats) for cell in self.cells()]


@dataclass(frozen=True)
class Measured:
    """What a study has timed so far, and where."""

    plan: Runtime
    timings: tuple[Timing, ...] = ()
    provenance: Mapping[str, Any] = field(default_factory=dict)
    name: str = ""
    """Of the study, for a heading where there are several."""

    def missing(self) -> list[tuple[TimingCell, int]]:
        """What is not measured yet."""
        there = {(each.cell, each.repeat) for each in self.timings}
        return [each for each in self.plan.timings() if each not in there]

    def save(self, folder: Path) -> None:
        """Write the file, whole or not at all."""
        plain = {
            "about": "Seconds to reduce, centre and select, for the features of one class; one process, alone.",
            "plan": asdict(self.plan),
            "timings": [
                {**each.cell._asdict(), "repeat": each.repeat, "seconds": each.seconds} for each in self.timings
            ],
            "provenance": dict(self.provenance),
        }
        write_text(folder / FILE, json.dumps(plain, indent=1) + "\n")


def load(folder: Path) -> Measured | None:
    """What a study's folder holds; None where nothing was timed, an error where the file is not sound."""
    path = folder / FILE
    if not path.exists():
        return None
    try:
        plain = read_json(path, MOST_BYTES)
        own = plain["provenance"]
        if not isinstance(own, dict):
            raise TypeError("its provenance is no object")
        timings = tuple(_timing(each) for each in plain["timings"])
        return Measured(from_table(Runtime, "runtime", plain["plan"]), timings, own, folder.name)
    except (OSError, RecursionError, LookupError, TypeError, ValueError, ArithmeticError, AttributeError) as error:
        advice = "Remove it, and let the study measure again."
        raise UsageError(f"Cannot read '{path}' as what a study writes ({error}). {advice}") from None


def expected(cell: TimingCell, timings: Sequence[Timing]) -> float | None:
    """Seconds to expect: those of the nearest size of the same kind in proportion to rows times prototypes.

    >>> small, large = (TimingCell("l2", 8, None, n, 5) for n in (100, 300))
    >>> expected(large, [Timing(small, 0, 2.0)]), expected(large, [])
    (6.0, None)
    """
    kind = [each for each in timings if each.cell[:3] == cell[:3]]
    if not kind:
        return None
    size = cell.n * cell.k
    apart = [abs(math.log(each.cell.n * each.cell.k / size)) for each in kind]
    near = [each for each, far in zip(kind, apart, strict=True) if far == min(apart)]
    return sum(each.seconds * size / (each.cell.n * each.cell.k) for each in near) / len(near)


def _timing(plain: Mapping[str, Any]) -> Timing:
    dac, seconds = plain["dac"], float(plain["seconds"])
    sizes = [plain["dimension"], plain["n"], plain["k"], plain["repeat"] + 1, *((1, 1) if dac is None else dac)]
    if not all(type(each) is int and 0 < each <= MOST for each in sizes) or len(sizes) != 6:
        raise ValueError(f"{sizes} are not all whole numbers from 1 on")
    if not 0 < seconds <= MOST:
        raise ValueError(f"{seconds} seconds")
    cell = TimingCell(str(plain["distance"]), plain["dimension"], Pair().validate("dac", dac), plain["n"], plain["k"])
    return Timing(cell, plain["repeat"], seconds)
