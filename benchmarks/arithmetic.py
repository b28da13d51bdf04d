"""What a step must compute by each method's formulas, in forwards of one row; benchmarks divide their times by it.

The way back is two more for each row, and that of a gradient through a gradient six more. Augmentation, optimizer and
memory do not count, but for rows that the method's own memory passes through the network.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Step:
    """How large a step is; of methods whose steps grow, `tasks` makes it the mean over the tasks after the first."""

    batch: int
    draw: int
    capacity: int
    tasks: int
    options: Mapping[str, Any] = field(default_factory=dict)
    long_term: int = 0
    """Rows of the long-term draw."""


def plain(draws: int) -> Callable[[Step], float]:
    """Return one way there and back for the batch and so many draws."""
    return lambda step: 3.0 * (step.batch + draws * step.draw + step.long_term)


def _gem(step: Step) -> float:
    return 3.0 * (step.batch + step.capacity + step.long_term)


def _refresh(step: Step) -> float:
    """Return a gradient of the batch for every move beside the step of DER++; what a border costs is not in it."""
    return plain(2)(step) + 3.0 * step.batch * int(step.options.get("unlearn_steps", 1))


def _vrmcl(step: Step) -> float:
    """For both look-aheads the batch with Hessians, and a gradient of the query after each chunk; refreshes."""
    chunks = math.ceil(step.batch / max(1, int(step.options.get("chunk", 8))))
    inner, query = 9 if step.options.get("second_order", True) else 3, step.batch + step.draw + step.long_term
    once = 2 * (inner * step.batch + 3 * chunks * query) + int(step.options.get("bn_refreshes", 1)) * query
    return float(once * int(step.options.get("meta_updates", 1)))


def _pocl(step: Step) -> float:
    """Return every row with a Hessian once, a gradient of all of them for each task that is heard, and the refresh."""
    rows = step.batch + min(int(step.options.get("pool", 300)), step.capacity) + step.long_term
    heard = (max(step.tasks, 2) + 2) / 2
    return rows * ((9 if step.options.get("second_order", True) else 3) + 3 * heard + 1)


def _scr(step: Step) -> float:
    return 3.0 * (2 * (step.batch + step.draw) + step.long_term)


def _onpro(step: Step) -> float:
    views = 2 * int(step.options.get("turns", 16)) + 3
    return 3.0 * (views * (step.batch + step.draw) + step.long_term)


ROW_FORWARDS: dict[str, Callable[[Step], float]] = {
    **dict.fromkeys(("finetune", "joint", "gdumb"), plain(0)),
    **dict.fromkeys(("er", "der", "er-ace", "mir", "fdr", "agem", "aser", "gss", "cope"), plain(1)),
    "derpp": plain(2),
    "gem": _gem,
    "refresh": _refresh,
    "icarl": lambda step: plain(0)(step) + step.batch,  # the teacher's forward
    "vrmcl": _vrmcl,
    "pocl": _pocl,
    "scr": _scr,
    "onpro": _onpro,
    # the look at all stored rows and the batch by which the policy "purity" chooses
    "puridiver": lambda step: plain(1)(step) + step.capacity + step.batch,
}
