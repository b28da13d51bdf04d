"""What is looked at while a run goes on, beyond its result: an observation, which changes no other number of it."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from odedm.core.errors import UsageError


@dataclass(frozen=True)
class Looks:
    """What a run is to look at.

    `evidence` keeps how prototypes were chosen, and features by the final network of training rows and stored rows.

    `anytime` is how many times in each task the accuracy is measured, spread evenly over the task's rows. The last of
    them is the task's own test. One in between is made like it: on the test rows of all tasks up to the one under way,
    among the classes of these tasks, as the mean over the tasks. So the classes of a task count from its first batch
    on, before most of them are learned; a task of fewer batches has fewer tests, at most one a batch.
    """

    evidence: bool = False
    anytime: int = 0

    def __post_init__(self) -> None:
        if not isinstance(self.evidence, bool):
            raise UsageError(f"evidence must be true or false; {self.evidence!r} was given.")
        object.__setattr__(self, "anytime", _tests(self.anytime))

    def due(self, before: int, after: int, rows: int) -> bool:
        """Whether a batch that took a task from `before` of its `rows` to `after` asks for a test in mid-task.

        >>> [after for after in range(1, 11) if Looks(anytime=3).due(after - 1, after, 10)]
        [4, 7]
        >>> [after for after in (4, 8, 10) if Looks(anytime=99).due(after - 4, after, 10)]
        [4, 8]
        """
        return after < rows and after * self.anytime // rows > before * self.anytime // rows

    def words(self) -> str:
        """What is looked at, to stand behind a verb.

        >>> Looks().words(), Looks(evidence=True, anytime=5).words()
        ('without evidence or any-time accuracy', 'with evidence and 5 tests a task')
        """
        found = ["evidence"] if self.evidence else []
        if self.anytime:
            found.append(f"{self.anytime} test{'s' if self.anytime > 1 else ''} a task")
        return f"with {' and '.join(found)}" if found else "without evidence or any-time accuracy"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return asdict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Looks:
        """The looks again, every entry checked.

        >>> Looks.from_dict(Looks(anytime=2).to_dict())
        Looks(evidence=False, anytime=2)
        """
        return cls(**plain)


def _tests(value: Any) -> int:
    """A number of tests as a plain int; numpy's are welcome."""
    try:
        number = -1 if isinstance(value, bool) else operator.index(value)
    except TypeError:
        number = -1
    if number < 0:
        raise UsageError(
            f"anytime is the number of tests in each task, a whole number, 0 for none; {value!r} was given."
        )
    return number
