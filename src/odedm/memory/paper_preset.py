"""How this library reads the paper's memory, every setting written out: later defaults do not change what it was."""

from __future__ import annotations

from typing import Any

from odedm.core.errors import UsageError
from odedm.core.registry import DISTANCES
from odedm.selection.flat_settings import flattened
from odedm.selection.prototype_settings import DAC, OneDistance, Prototypes, Sinkhorn

AUXILIARY: dict[str, Any] = {"replay": "auxiliary", "gamma": 1.0, "gamma_rule": "fixed"}
"""How a method meets long-term rows; our choice, as the paper does not report it (REPRODUCTION.md)."""
REST: dict[str, Any] = {"candidates": "task", "rows_per_prototype": 1, "short_policy": "native", "annotate": "end"}
"""What else the paper does not vary."""
DAC_BY_RHO = {0.25: (3, 4), 0.5: (3, 2), 0.75: (5, 3)}
"""(K, depth) by ρ in the paper's tables for λ of 200 and 500; (5, 3) for every ρ at 5120."""


def paper_selection(capacity: int, rho: float | None, distance: Any = "sinkhorn") -> Prototypes:
    """Return the paper's choice of prototypes, by one of its distances: clusters of DAC are compared by all their rows.

    >>> paper_selection(200, 0.25, "l2")
    Prototypes(distance=L2(), dac=DAC(clusters=3, depth=4, distance=Sinkhorn(epsilon=0.05), sample=None))
    """
    measure = OneDistance("distance", DISTANCES).validate("distance", distance)
    if measure == Sinkhorn():
        measure = Sinkhorn(epsilon=0.1, ground="auto")
    dac = DAC(*paper_dac(capacity, rho), distance=Sinkhorn(epsilon=0.05), sample=None)
    return Prototypes(measure, dac, space="features", mixup=False)


def paper_preset(distance: str = "sinkhorn") -> dict[str, Any]:
    """Return the paper's settings of ODEDM side by side, but for its sizes and what DAC is at them.

    >>> paper_preset()["ground"], paper_preset("l2")["ground"]
    ('auto', None)
    """
    selection = flattened(paper_selection(200, 0.25, distance))
    del selection["dac"]
    return {**AUXILIARY, **selection, **REST}


def paper_dac(capacity: int, rho: float | None) -> tuple[int, int]:
    """Return the paper's clusters and depth for a share and a capacity; those of the nearest share it has.

    >>> paper_dac(200, 0.25), paper_dac(5120, 0.25), paper_dac(200, 1.0)
    ((3, 4), (5, 3), (5, 3))
    """
    if rho is None:
        raise UsageError("dac = 'paper' goes by ρ: give rho beside it, also where k sets the size.")
    return (5, 3) if capacity >= 5120 else DAC_BY_RHO[min(DAC_BY_RHO, key=lambda known: abs(known - rho))]
