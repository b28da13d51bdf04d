"""The experiments of the demo, and how their learning rates were chosen."""

from __future__ import annotations

from odedm.memory.settings import ODEDM, Reservoir
from odedm.training.experiment import Experiment

DEMO_CAPACITY = 100
DEMO_RATES = {"der": 0.1, "derpp": 0.3}
"""Learning rates for the demo: the best of .01 .03 .1 .3 .5 1 for the *plain reservoir*, on training rows held out of
`fashion-mini` (seeds 100 to 102); ODEDM gets the same rate untuned. The test images had no part in it."""


def demo(seeds: int) -> list[Experiment]:
    """DER and DER++, each with a plain reservoir and with ODEDM, on the embedded images.

    >>> len(demo(5))
    20
    """
    memories = (Reservoir(DEMO_CAPACITY), ODEDM(DEMO_CAPACITY, rho=0.25))
    return [
        Experiment(memory, method=method, options={"lr": rate}, data="fashion-mini", batch=10, seed=seed, device="cpu")
        for method, rate in DEMO_RATES.items()
        for memory in memories
        for seed in range(seeds)
    ]
