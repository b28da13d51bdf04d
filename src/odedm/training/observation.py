"""What a run leaves beside its result, such as accuracy in mid-task or its model; doing so changes no other number."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar

from odedm.core.configuration import check_settings, from_dict, setting_field, to_dict
from odedm.core.validators import Bool, Int


@dataclass(frozen=True)
class Observation:
    """What a run is to look at and to keep.

    Args:
        evidence: keep how prototypes were chosen, and features by the final network of training rows and stored rows.
        anytime: tests in each task.
        keep_model: write the trained model, weights and memory, into the run's folder, where `odedm.load` finds it.

    `anytime` is how many times in each task the accuracy is measured, spread evenly over the task's rows. The last of
    them is the task's own test. One in between is made like it: on the test rows of all tasks up to the one under way,
    among the classes of these tasks, as the mean over the tasks. So the classes of a task count from its first batch
    on, before most of them are learned; a task of fewer batches has fewer tests, at most one a batch.
    """

    evidence: bool = setting_field(Bool(), False, "Keep features, and how prototypes were chosen.")
    anytime: int = setting_field(Int(0), 0, "Test N times in each task.")
    keep_model: bool = setting_field(Bool(), False, "Keep weights and memory, for odedm.load.")

    PANEL: ClassVar[str] = "Observe"

    def __post_init__(self) -> None:
        check_settings(self)

    def due(self, before: int, after: int, rows: int) -> bool:
        """Return whether a batch that took a task from `before` of its `rows` to `after` asks for a test in mid-task.

        >>> [after for after in range(1, 11) if Observation(anytime=3).due(after - 1, after, 10)]
        [4, 7]
        >>> [after for after in (4, 8, 10) if Observation(anytime=99).due(after - 4, after, 10)]
        [4, 8]
        """
        return after < rows and after * self.anytime // rows > before * self.anytime // rows

    def words(self) -> str:
        """Return what is looked at on the way, to stand behind a verb.

        >>> Observation().words(), Observation(evidence=True, anytime=5).words()
        ('without evidence or any-time accuracy', 'with evidence and 5 tests a task')
        """
        parts = ["evidence"] if self.evidence else []
        if self.anytime:
            parts.append(f"{self.anytime} test{'s' if self.anytime > 1 else ''} a task")
        return f"with {' and '.join(parts)}" if parts else "without evidence or any-time accuracy"

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return to_dict(self)

    @classmethod
    def from_dict(cls, plain: Mapping[str, Any]) -> Observation:
        """Return the same again, every entry checked; what is missing is not looked at.

        >>> Observation.from_dict(Observation(anytime=2).to_dict())
        Observation(evidence=False, anytime=2, keep_model=False)
        """
        return from_dict(cls, "observation", {**cls().to_dict(), **plain})
