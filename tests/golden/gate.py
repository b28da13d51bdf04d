"""What a changed algorithm for the choice of prototypes is held to, where its bits may differ from those of b1acfb6.

Choices on features of real pictures: as good as equal ones in 95 % of 200 cases. K-means: an inertia of at most 1.01
times b1acfb6's. Sinkhorn: chosen rows that cost at most 1.01 times what the float64 oracle takes for the same centres.
"""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor

from .cases_b1acfb6.selection import Choice, choices, real_features

EQUAL, INERTIA, COST = 0.95, 1.01, 1.01
SEEDS = 8
"""Of each clustering, as one that draws otherwise must not be judged by its luck."""
PICTURES, LARGE = 8, 6
"""Sets that the oracle looks at: small ones whose pairs are all solved, and ones where estimates rule pairs out."""

Measures = dict[str, dict[str, Any]]


def measures(api: Any) -> Measures:
    """All that the gate looks at, of whatever `odedm` the adapter speaks to."""
    plain = [choice for choice in choices() if choice.distance == "l2" and choice.dac is None]
    return {
        "rows": {choice.name: choice.chosen(api).tolist() for choice in choices()},
        "inertia": {choice.name: inertia(choice, api) for choice in plain},
        "cost": {name: cost(points, k, api) for name, (points, k) in judged(api).items()},
    }


def inertia(choice: Choice, api: Any) -> float:
    """The mean squared distance of points to their nearest centre, in float64, over several seeds."""
    points = choice.points(api)
    found = [nearest(points, api.kmeans(points, choice.k, seed)).mean() for seed in range(SEEDS)]
    return float(sum(found)) / SEEDS


def nearest(points: Tensor, centres: Tensor) -> Tensor:
    """Squared distances [n] to the nearest centre, in float64."""
    x, y = points.double(), centres.double()
    return torch.stack([(x - centre).square().sum(1) for centre in y]).amin(0)


def judged(api: Any) -> dict[str, tuple[Tensor, int]]:
    """Points and numbers of prototypes that the oracle looks at."""
    features, label = real_features(api)
    found = {}
    for number in range(PICTURES + LARGE):
        rows, width, k = (200, 128, 8) if number >= PICTURES else (80 + 10 * number, 48 + 16 * (number % 3), 3)
        own = (label == number % 10).nonzero().flatten()[:rows]
        rng = torch.Generator().manual_seed(number)
        found[f"{rows} x {width}, k={k}, {number}"] = (
            features[own][:, torch.randperm(features.shape[1], generator=rng)[:width]].contiguous(),
            k,
        )
    return found


def cost(points: Tensor, k: int, api: Any) -> float:
    """By which factor the chosen rows cost more than those the oracle takes for the same centres."""
    from oracles.selection import nearest_rows
    from oracles.sinkhorn import histograms, pair_distances, profile_cost

    x, centres = points.double().numpy(), api.kmeans(points, k, 0).double().numpy()
    ground = profile_cost(x)
    table = pair_distances(histograms(x, x), histograms(centres, x), ground)
    chosen = api.make("select", points, k=k, distance="sinkhorn", seed=0).tolist()
    best = nearest_rows(table)
    columns = list(range(len(best)))
    return float(table[chosen, columns].sum() / table[best, columns].sum())


def verdict(then: Measures, now: Measures) -> tuple[list[str], bool]:
    """What the gate says, line by line, and whether all of it holds."""
    unlike = [name for name, rows in then["rows"].items() if sorted(now["rows"].get(name, [])) != sorted(rows)]
    equal = 1 - len(unlike) / len(then["rows"])
    kept = [len({*rows} & {*now["rows"].get(name, [])}) / len(rows) for name, rows in then["rows"].items()]
    inertias = {name: now["inertia"][name] / before for name, before in then["inertia"].items()}
    mean = _mean(list(inertias.values()))
    spent, before = _mean(list(now["cost"].values())), _mean(list(then["cost"].values()))
    same, all_rows, single = len(kept) - len(unlike), len(kept), inertias.values()
    lines = [f"other rows: {name}: {then['rows'][name]} -> {now['rows'].get(name)}" for name in unlike]
    lines += [
        f"{_said(equal >= EQUAL)} choices: {same} of {all_rows} equal, {equal:.1%} (at least {EQUAL:.0%}); "
        f"{sum(kept) / all_rows:.1%} of the rows are the same",
        f"{_said(mean <= INERTIA)} k-means: inertia {mean:.5f} times b1acfb6's (at most {INERTIA}); single sets "
        f"{min(single):.4f} to {max(single):.4f}",
        f"{_said(spent <= COST)} Sinkhorn: chosen rows cost {spent:.5f} times the oracle's (at most {COST}), worst "
        f"{max(now['cost'].values()):.5f}; b1acfb6's {before:.5f}",
    ]
    return lines, equal >= EQUAL and mean <= INERTIA and spent <= COST


def _mean(ratios: list[float]) -> float:
    return math.exp(sum(map(math.log, ratios)) / len(ratios))


def _said(holds: bool) -> str:
    return "holds " if holds else "BROKEN"
