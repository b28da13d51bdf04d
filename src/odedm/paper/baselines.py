"""The paper's table of other methods as runs of ours: online, at 50 epochs, and the bounds that no table prints.

What is printed there comes from other papers, with batches of 10 and draws of 64, Adam and stronger views. Ours are by
the protocol of the paper's own tables, so they say how the methods stand here, not whether those numbers were right.
"""

from __future__ import annotations

from typing import Any

from odedm.paper.printed import EPOCHS
from odedm.paper.protocol import OWN_RETRIEVALS, with_explicit_settings
from odedm.studies.grid import PLAIN, Grid, Values

CAPACITIES = (200, 500)
ONLINE = ("agem", "gss", "er", "mir", "gdumb", "aser", "cope", "derpp")
OFFLINE = ("gem", "agem", "fdr")
BOUNDS = ("finetune", "joint")
RETRIEVAL_OPTIONS: dict[str, dict[str, Values]] = {
    "mir": {"candidates": (200,)},
    "aser": {"k": (3,), "per_class": (9,)},
}


def baseline_grids(data: str) -> tuple[Grid, ...]:
    """A grid for each method that chooses its rows by itself, one for all others, one of 50 epochs, and the bounds.

    >>> sum(len(grid.experiments()) for grid in baseline_grids("cifar10"))
    24
    """
    own = [(name, OWN_RETRIEVALS[name]) for name in ONLINE if name in OWN_RETRIEVALS]
    parts: list[dict[str, Any]] = [
        {"method": tuple(name for name in ONLINE if name not in OWN_RETRIEVALS)},
        *({"method": (name,), "retrieval": (retrieval,)} for name, retrieval in own),
        {"method": OFFLINE, "epochs": (max(EPOCHS),)},
        {"method": BOUNDS, "memory": ("none",), "capacity": (0,)},
    ]
    plain = {"data": (data,), "imbalance": ("standard",), "memory": (PLAIN,), "capacity": CAPACITIES}
    grids = [Grid({**plain, **part}, retrieval_options=_drawn(part)) for part in parts]
    return tuple(whole for grid in grids for whole in with_explicit_settings(grid))


def _drawn(part: dict[str, Any]) -> dict[str, dict[str, Values]]:
    (retrieval,) = part.get("retrieval", ("uniform",))
    return {retrieval: RETRIEVAL_OPTIONS[retrieval]} if retrieval in RETRIEVAL_OPTIONS else {}
