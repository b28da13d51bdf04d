"""Learning rates that `odedm tune` chose for the paper's tables, which do not report theirs.

`tuned_rates.csv` holds a line for each; the paper's studies then run the cell with this rate too, beside the other.
"""

from __future__ import annotations

import csv
from functools import cache
from importlib.resources import files


def tuned_rate(data: str, capacity: int, method: str) -> float | None:
    """The rate that did best on held-out training rows; None where nobody has tuned it yet.

    >>> tuned_rate("fashion-mini", 100, "derpp") is None
    True
    """
    return tuned_rates().get((data, capacity, method))


@cache
def tuned_rates() -> dict[tuple[str, int, str], float]:
    """Every tuned rate by data set, λ and method."""
    text = files(__package__).joinpath("tuned_rates.csv").read_text(encoding="utf-8")
    lines = csv.DictReader(text.splitlines())
    return {(line["data"], int(line["capacity"]), line["method"]): float(line["lr"]) for line in lines}
