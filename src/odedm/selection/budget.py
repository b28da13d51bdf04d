"""How many prototypes a class gets: F_k."""

from __future__ import annotations

import math

from odedm.core.errors import UsageError
from odedm.core.text import counted
from odedm.core.validators import LARGEST, Float, Int, validate_params


@validate_params(rho=Float(), capacity=Int(), tasks=Int(), classes=Int(), rows_per_prototype=Int())
def prototypes_per_class(rho: float, capacity: int, *, tasks: int, classes: int, rows_per_prototype: int = 1) -> int:
    """Return how many prototypes each class pins when its task ends: k = ρλ / ((n − 1) · |C_i|), halves rounded up.

    The last task is never consolidated, hence n − 1. Halves go up because Python's `round` would give 12 where the
    paper has 13.

    Args:
        rho: the share ρ of the memory's rows that the long-term part holds in the end, above 0 and up to 1.
        capacity: rows in all (λ).
        tasks: the n tasks of the stream.
        classes: the |C_i| classes of one task.
        rows_per_prototype: rows that each prototype keeps; the quotient is divided by it.

    Returns:
        k, 1 or more; what rounds to 0 is refused by an error that says which ρ or λ gives 1.

    >>> [prototypes_per_class(rho, 200, tasks=5, classes=2) for rho in (0.25, 0.50, 0.75)]
    [6, 13, 19]
    """
    if not 0.0 < rho <= 1.0:
        raise UsageError(
            f"rho is the long-term share of the memory: it must lie in (0, 1], {rho} was given. "
            "For a memory without a long-term part use the plain reservoir."
        )
    for name, value in (("tasks", tasks), ("classes", classes), ("rows_per_prototype", rows_per_prototype)):
        if value < 1:
            raise UsageError(f"{name} must be 1 or more; {value} was given.")
    if tasks == 1:
        raise UsageError(
            "With a single task nothing is ever consolidated: prototypes are pinned when a task ends and another "
            "follows. Use a plain reservoir, or split the stream into 2 tasks or more."
        )
    slots = (tasks - 1) * classes * rows_per_prototype
    # the half's own float error must not turn 12.5 into 12: 0.3 * 50 is a hair below 15
    k = math.floor(rho * capacity / slots + 0.5 + 1e-9)
    if k < 1:
        least_rho = math.ceil(0.5 * slots / capacity * 1e4) / 1e4 if capacity > 0 else math.inf
        least_capacity = math.ceil(min(0.5 * slots / rho, LARGEST) - 1e-9)
        larger = f"rho of at least {least_rho:g}, or a " if least_rho <= 1 else ""
        raise UsageError(
            f"rho={rho:g} of {capacity} rows, shared by {counted(tasks - 1, 'consolidated task')} of "
            f"{counted(classes, 'class')} with {counted(rows_per_prototype, 'row')} per prototype, "
            f"rounds to 0 prototypes per class. One prototype per class needs a {larger}capacity of at least "
            f"{least_capacity} rows."
        )
    return k
