"""The experiments of the demo, and how their learning rates were chosen."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from odedm.memory.settings import ODEDM, Reservoir
from odedm.recipes.recommendations import recipe
from odedm.training.experiment import Experiment

DEMO_CAPACITY = 100
DEMO_RATES = {"der": 0.1, "derpp": 0.03}
"""Learning rates for the demo: the best of .01 .03 .1 .3 .5 1 for the *plain reservoir*, on training rows held out of
`fashion-mini` (seeds 100 to 102); ODEDM and the recipe get the same rate untuned. The test images had no part in it."""


def demo(seeds: int) -> list[Experiment]:
    """DER and DER++, each with a plain reservoir and with ODEDM, and what we recommend, on the embedded images.

    >>> len(demo(6))
    30
    """
    memories = (Reservoir(DEMO_CAPACITY), ODEDM(DEMO_CAPACITY, rho=0.25))
    shared: dict[str, Any] = {"data": "fashion-mini", "batch": 10, "device": "cpu"}
    plans = [
        Experiment(memory, method=method, options={"lr": rate}, **shared)
        for method, rate in DEMO_RATES.items()
        for memory in memories
    ]
    best = recipe("best", capacity=DEMO_CAPACITY, classes=10, colour=False, **shared)
    plans.append(replace(best, options={"lr": DEMO_RATES[best.method]}))
    return [plan.with_seed(seed) for seed in range(seeds) for plan in plans]
