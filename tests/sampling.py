"""Which pairs of a method and something else the tests run: all for the first ones, some for what came later.

`make matrix-full` runs every pair.
"""

import os

import pytest

from odedm.core.registry import METHODS

EVERYTHING = bool(os.environ.get("ODEDM_EVERYTHING"))
FIRST_METHODS = ("er", "der", "derpp", "refresh", "fdr", "icarl", "puridiver", "vrmcl", "pocl")
thorough = pytest.mark.skipif(not EVERYTHING, reason="takes long and repeats much: `make matrix-full` runs it")
"""For tests that hold what a quicker one holds too, in another way."""
KEEPING = [name for name, entry in METHODS.items() if "no memory" not in entry.load().requires]
"""All methods but bounds, which take no memory."""
QUICK = {"gdumb": {"fit_epochs": 4}}
"""Hyper-parameters with which a method that takes long does the same for less."""
FIRST_POLICIES = ("reservoir", "task-quota", "herded", "purity")


def pairs(methods, others, first_others=None, per_method=3):
    """Every pair of first ones; of the others about `per_method` of a method, so that each is there.

    `first_others` are those among `others` that were there from the start, all of them unless given.
    """
    first = set(others if first_others is None else first_others)
    step = max(3, len(others) // per_method)
    return [
        (method, other)
        for row, method in enumerate(methods)
        for column, other in enumerate(others)
        if EVERYTHING or (method in FIRST_METHODS and other in first) or (row + column) % step == 0
    ]
