"""How often a run's state is stored: the words of `--checkpoint` as data."""

from __future__ import annotations

import re
from dataclasses import dataclass

from odedm.core.errors import UsageError

LEGAL = "'auto', 'task' (after each task), 'N steps' or 'N seconds' (e.g. '500 steps'), or 'never'"
SHARE = 0.02
"""Of a run's time that checkpoints may take unless more were asked for."""
EVERY = re.compile(r"(?:every\s+)?(\d{1,12})\s*(steps?|seconds?|s)")


@dataclass(frozen=True)
class Schedule:
    """Store every so many steps or seconds, and after each task; or never, but where the run is asked to stop.

    With a `share` a border is passed over where storing would take more than this of the time so far; the first never
    is. So what is short anyway is not slowed down, and what is long is stored after each task.
    """

    steps: int | None = None
    seconds: int | None = None
    tasks: bool = True
    share: float | None = SHARE

    @classmethod
    def parse(cls, text: str) -> Schedule:
        """Read a schedule in words.

        >>> Schedule.parse("task").tasks, Schedule.parse("every 500 steps").steps, Schedule.parse("30 s").seconds
        (True, 500, 30)
        >>> Schedule.parse("often")
        Traceback (most recent call last):
        odedm.UsageError: --checkpoint takes 'auto', 'task' (after each task), 'N steps' or 'N seconds' (e.g. '500 steps'), or 'never'; 'often' was given.
        """  # noqa: E501 - the sentence as it is
        words = " ".join(text.lower().split())
        if words == "auto":
            return cls()
        if words in ("task", "each task", "never"):
            return cls(tasks=words != "never", share=None)
        match = EVERY.fullmatch(words)
        if match is None or int(match[1]) == 0:
            raise UsageError(f"--checkpoint takes {LEGAL}; '{text}' was given.")
        number = int(match[1])
        return cls(number, share=None) if match[2].startswith("step") else cls(seconds=number, share=None)

    def due(self, steps: int, seconds: float) -> bool:
        """Return whether it is time, so many steps and seconds after the last one."""
        return bool((self.steps and steps >= self.steps) or (self.seconds and seconds >= self.seconds))
