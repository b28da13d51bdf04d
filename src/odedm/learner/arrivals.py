"""When rows of each class came: which classes are due to be consolidated, and how many updates a batch has."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from odedm.core.errors import require
from odedm.core.validators import LARGEST

START, CLASS_START, SLOWEST = 500, 50, 1 / 8
"""Rows of a stream, and of a class, with an update for each; and the updates a row that are left in the end."""


@dataclass
class Arrivals:
    """What came so far, by the numbers of classes.

    Args:
        rows: how many rows.
        batches: in how many batches.
        class_rows: rows of each class.
        last_seen: how many rows had come when each class was last seen; -1 of classes that were only announced.
        waiting: the classes with rows since they were consolidated; those that came last stand last.
    """

    rows: int = 0
    batches: int = 0
    class_rows: list[int] = field(default_factory=list)
    last_seen: list[int] = field(default_factory=list)
    waiting: dict[int, None] = field(default_factory=dict)
    all_seen: bool = field(default=False, init=False)
    """Whether no class was only announced."""

    def __post_init__(self) -> None:
        self.all_seen = min(self.last_seen, default=-1) >= 0

    def join(self, classes: int) -> None:
        """Make room for so many classes in all, of which the new ones have no row yet."""
        more = classes - len(self.last_seen)
        if more:
            self.class_rows += [0] * more
            self.last_seen += [-1] * more
            self.all_seen = False

    def count(self, numbers: list[int]) -> None:
        """Count a batch of rows of these classes."""
        self.rows += len(numbers)
        self.batches += 1
        for number in numbers:
            self.last_seen[number] = self.rows
            self.class_rows[number] += 1
            self.waiting.pop(number, None)  # so that it stands last
            self.waiting[number] = None
        if not self.all_seen:
            self.all_seen = min(self.last_seen) >= 0

    def updates_due(self, numbers: list[int]) -> int:
        """Return how many updates the next batch has, of rows of these classes.

        Each row has one at the start of the stream and of its class, and a share of one later.
        """
        least = max(SLOWEST, START / (self.rows + 1))
        shares = (min(1.0, max(least, CLASS_START / (self.class_rows[number] + 1))) for number in numbers)
        return max(1, round(sum(shares)))

    def fresh(self, rested: int = 0) -> list[int]:
        """Return the classes with rows since they were consolidated, of which none came among the last `rested`."""
        due = []
        for number in self.waiting:
            if self.rows - self.last_seen[number] < rested:
                break
            due.append(number)
        return sorted(due)

    def is_full_round(self, before: int, every: int | None) -> bool:
        """Return whether all classes are due after every so many rows, and now; `before` rows had come earlier."""
        return every is not None and self.rows // every > before // every

    def due(self, before: int, every: int | None, patience: int | None) -> list[int]:
        """Return the classes that are due by the number of rows."""
        if self.is_full_round(before, every):
            return self.fresh()
        return self.fresh(rested=patience) if patience else []

    def to_dict(self) -> dict[str, Any]:
        """Return a copy as plain data, ready for JSON."""
        lists = {name: [*getattr(self, name)] for name in ("class_rows", "last_seen", "waiting")}
        return {"rows": self.rows, "batches": self.batches, **lists}

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any], classes: int) -> Arrivals:
        """Return what `to_dict` gave, which may be of anyone's file. Raises `InvalidFileError`."""
        rows, class_rows, last_seen, waiting = (plain[name] for name in ("rows", "class_rows", "last_seen", "waiting"))
        sound = (
            _are_numbers([rows, plain["batches"]], 0, LARGEST)
            and _are_numbers(class_rows, 0, rows)
            and _are_numbers(last_seen, -1, rows)
            and _are_numbers(waiting, 0, classes - 1)
            and len(class_rows) == len(last_seen) == classes
        )
        require(sound, "its counts of rows are malformed")
        return cls(rows, plain["batches"], class_rows, last_seen, dict.fromkeys(waiting))


def _are_numbers(values: Any, least: int, most: int) -> bool:
    return isinstance(values, list) and all(type(value) is int and least <= value <= most for value in values)
