"""Choose the demo's learning rates by the plain reservoir, on training rows held out of fashion-mini alone.

python tools/choose_demo_rates.py
"""

from __future__ import annotations

import statistics

import odedm
from odedm.data.builtin import fashion_mini

RATES = (0.01, 0.03, 0.1, 0.3, 0.5, 1.0)
SEEDS = (100, 101, 102)


def main() -> None:
    """Print mean ACC_5 for every method and rate."""
    full = fashion_mini()
    held_out = odedm.from_arrays(full.image, full.label, tasks=5, pad=2, flip=True, name="fashion-mini-held-out")
    for method in ("der", "derpp"):
        for rate in RATES:
            try:
                last = [_accuracy(held_out, method, rate, seed) for seed in SEEDS]
            except odedm.UsageError:
                print(f"{method} lr {rate}: diverged", flush=True)
                continue
            print(f"{method} lr {rate}: {statistics.mean(last):.1f} (sd {statistics.stdev(last):.1f})", flush=True)


def _accuracy(data: odedm.Dataset, method: str, rate: float, seed: int) -> float:
    memory = odedm.Reservoir(100)
    return odedm.train(data, method=method, options={"lr": rate}, memory=memory, batch=10, seed=seed).result.acc_last


if __name__ == "__main__":
    main()
