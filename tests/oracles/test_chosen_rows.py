"""The rows that `ODEDM.paper` and `odedm.select` keep, against Equation 6 and against Algorithm 1 as a whole."""

import numpy as np
import pytest
from sampling import EVERYTHING

import odedm
from oracles.consolidation import consolidate, row_costs
from oracles.points import nested, of_class, pictures
from oracles.selection import nearest_rows, price
from oracles.sinkhorn import grid_cost, histograms, pair_distances
from oracles.watched import long_term, numbers_of, paper_with, watch

DEAR, CLEAR = 1.01, 1.002
"""By how much a chosen row may cost more than the best, and from which margin on the choice must be the oracle's."""


def check_choice(cost, taken, rows_per_prototype=1):
    """Each row is among the best that were free, and the very best where that is clear; how many are the very best."""
    factors, margins = price(cost, taken, rows_per_prototype)
    assert len(set(taken)) == len(taken)
    assert factors.max() <= DEAR
    assert (factors[margins > CLEAR] == 1).all()
    return (factors == 1).mean()


@pytest.mark.parametrize(
    ("k", "dac", "amount", "width", "classes"),
    [
        (6, (3, 4), 150, 48, range(10)),
        (13, (3, 2), 150, 48, (0, 2, 4, 6)),
        (19, (5, 3), 150, 48, (1, 3, 5)),
        (6, None, 100, 48, (7, 8, 9)),
        (13, None, 250, 80, (0, 9) if EVERYTHING else (9,)),
    ],
    ids=["25 %", "50 %", "75 %", "no dac", "many"],
)
def test_rows_of_pictures_are_the_nearest_to_their_prototypes(k, dac, amount, width, classes):
    equal = []
    for label in classes:
        points = of_class(label, amount, width)
        settings, seen, _ = watch(200, 0.25, k=k, dac=dac)
        long_term(settings, points, seed=label)
        kept = numbers_of(points.astype(np.float64), seen[0].kept)
        cost = row_costs(seen[0].candidates, kept, seen[0].centres)
        chosen = long_term(paper_with(200, 0.25, k=k, dac=dac), points, seed=label)
        assert len(chosen) == k
        equal.append(check_choice(cost, [kept.index(row) for row in chosen]))
    assert np.mean(equal) >= 0.95


def test_two_rows_of_each_prototype():
    points = of_class(4)
    settings, classes, _ = watch(200, 0.25, k=5, rows_per_prototype=2)
    long_term(settings, points)
    kept = numbers_of(points.astype(np.float64), classes[0].kept)
    cost = row_costs(classes[0].candidates, kept, classes[0].centres)
    chosen = long_term(odedm.ODEDM.paper(200, 0.25, k=5, rows_per_prototype=2), points)
    assert len(chosen) == 10
    check_choice(cost, [kept.index(row) for row in chosen], 2)


def test_pictures_themselves_move_mass_between_pixels():
    images, labels = pictures()
    x = images[labels == 8][:40, ::2, ::2].astype(np.float32) / 255
    flat = x.reshape(len(x), -1).astype(np.float64)
    settings, classes, _ = watch(200, 0.25, k=4, dac=None, space="pixels")
    long_term(settings, x[:, None])
    rows, centres = (histograms(points, flat) for points in (flat, classes[0].centres))
    chosen = long_term(paper_with(200, 0.25, k=4, dac=None, space="pixels"), x[:, None])
    check_choice(pair_distances(rows, centres, grid_cost(14, 14)), chosen)


@pytest.mark.parametrize("seed", range(5))
def test_clear_clusters_have_one_result_whatever_is_drawn(seed):
    """The whole of Algorithm 1 by the oracle's own draws."""
    points = nested(seed)
    expected = sorted(consolidate(points.astype(np.float64), 6, (3, 2), np.random.default_rng(seed)))
    assert sorted(long_term(odedm.ODEDM.paper(200, 0.5, k=6), points, seed=seed)) == expected
    assert sorted(odedm.select(points, k=6, dac=(3, 2), seed=seed).tolist()) == expected


def test_classes_are_chosen_one_by_one():
    parts = [nested(seed) for seed in range(3)]
    points, labels = np.concatenate(parts), np.repeat([4, 0, 7], [len(part) for part in parts])
    order = np.random.default_rng(0).permutation(len(points))
    chosen = long_term(odedm.ODEDM.paper(200, 0.5, k=6), points[order], labels[order], seed=1)
    expected = [consolidate(part.astype(np.float64), 6, (3, 2), np.random.default_rng(9)) for part in parts]
    rows = [row + place * len(parts[0]) for place, found in enumerate(expected) for row in found]
    assert sorted(order[chosen]) == sorted(rows)


def test_the_nearest_rows_by_hand():
    cost = np.array([[1.0, 1.0], [2.0, 1.5], [3.0, 9.0]])
    assert nearest_rows(cost) == [0, 1]
    assert nearest_rows(cost, 2) == [0, 1, 2]
