"""How this library reads the paper's memory, every setting written out: later defaults do not change what it was."""

from __future__ import annotations

from typing import Any

from odedm.core.errors import UsageError

READING: dict[str, Any] = {
    "replay": "auxiliary",
    "gamma": 1.0,
    "gamma_rule": "fixed",
    "distance": "sinkhorn",
    "space": "features",
    "candidates": "task",
    "rows_per_prototype": 1,
    "mixup": False,
    "screen": None,
    "short_policy": "native",
    "annotate": "end",
    "dac_distance": "sinkhorn",
    "epsilon": 0.05,
    "pair_epsilon": 0.1,
    "ground": "auto",
    "bandwidth": None,
}
"""The settings of ODEDM that the paper does not vary; those it does not report are our choices (REPRODUCTION.md)."""
OF_SINKHORN = {"pair_epsilon": None, "ground": None}
"""What another distance of rows to prototypes has none of."""
WITHOUT_TERM = {"gamma": None, "gamma_rule": None}
"""What a reading without the auxiliary term has none of."""
DAC = {0.25: (3, 4), 0.5: (3, 2), 0.75: (5, 3)}
"""(K, depth) by ρ in the paper's tables for λ of 200 and 500; (5, 3) for every ρ at 5120."""


def paper_reading(distance: str = "sinkhorn", replay: str = "auxiliary") -> dict[str, Any]:
    """The paper's settings of ODEDM with one of its distances, or with another reading than its own.

    >>> paper_reading()["ground"], paper_reading("l2")["ground"]
    ('auto', None)
    >>> paper_reading(replay="both")["gamma"], paper_reading(replay="union")["gamma"]
    (1.0, None)
    """
    idle = {**({} if distance == "sinkhorn" else OF_SINKHORN), **(WITHOUT_TERM if replay == "union" else {})}
    return {**READING, "distance": distance, "replay": replay, **idle}


def paper_dac(capacity: int, rho: float | None) -> tuple[int, int]:
    """The paper's clusters and depth for a share and a capacity; for one it does not have, those of the nearest share.

    >>> paper_dac(200, 0.25), paper_dac(5120, 0.25), paper_dac(200, 1.0)
    ((3, 4), (5, 3), (5, 3))
    """
    if rho is None:
        raise UsageError("dac = 'paper' goes by ρ: give rho beside it, also where k sets the size.")
    return (5, 3) if capacity >= 5120 else DAC[min(DAC, key=lambda known: abs(known - rho))]
