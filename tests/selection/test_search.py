"""Which transport costs are solved: estimates of all, and the choice that a few decide."""

import numpy as np
import pytest
import torch
from clouds import network_features, rng
from hypothesis import given, settings
from hypothesis import strategies as st

from odedm.selection.distance import Sinkhorn
from odedm.selection.kmeans import kmeans
from odedm.selection.nearest import greedy_nearest
from odedm.selection.sinkhorn import solver as sinkhorn
from odedm.selection.sinkhorn.kernels import DenseKernel
from odedm.selection.sinkhorn.search import blur_and_separation, nearest_by_estimate, self_transport

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def features(dtype):
    x = network_features(200, 96).to(dtype)
    fitted = Sinkhorn().fit(x, None)
    return *(fitted._histograms(rows)[:, 0] for rows in (x, kmeans(x, 12, rng=rng()).centers)), fitted._kernel


@DTYPES
def test_the_nearest_row_is_among_the_first(dtype):
    source, target, kernel = features(dtype)
    cost = sinkhorn.histograms(source, target, kernel).cost
    separation = blur_and_separation(source, target, kernel)[1]
    rank = (separation < separation.gather(0, cost.argmin(0)[None])).sum(0)
    assert rank.max() <= 3
    assert torch.corrcoef(torch.stack([separation.flatten() ** (1 / 3), cost.flatten()]))[0, 1] > 0.8


@DTYPES
def test_own_costs_and_potentials_are_those_of_a_row_to_itself(dtype):
    source, _, kernel = features(dtype)
    potential, cost = self_transport(source, kernel)
    every = torch.arange(len(source))
    torch.testing.assert_close(cost, sinkhorn.matched(source, source, every, every, kernel).cost, rtol=2e-3, atol=1e-6)
    # the scaling that undoes the potential sends every bin what it has
    v = source * potential.exp()
    assert (v * kernel.apply(v) - source).abs().sum(1).max() < 2e-2


def test_the_number_of_threads_changes_nothing(monkeypatch):
    source, target, kernel = features(torch.float32)
    monkeypatch.setattr(sinkhorn, "CHUNK_BYTES", {"cpu": 96 * 4 * 30})
    alone = self_transport(source, kernel)
    torch.set_num_threads(3)
    assert all(map(torch.equal, alone, self_transport(source, kernel)))
    assert torch.get_num_threads() == 3


@DTYPES
@pytest.mark.parametrize("price", [0.0, 1.0])
def test_rows_of_one_bin_are_told_apart(dtype, price):
    # nothing is blurred, and at no price nothing costs anything
    rows = torch.eye(80, dtype=dtype)[torch.arange(240) % 80]
    cost = price * (1 - torch.eye(80, dtype=dtype)) * torch.rand(80, 80, generator=rng(), dtype=dtype).add(1)
    kernel = DenseKernel.relative((cost + cost.T) / 2, 0.03)
    blur, separation = blur_and_separation(rows, rows[:5], kernel)

    def solve(row, column):
        solved.extend(row)
        return sinkhorn.matched(rows, rows, torch.from_numpy(row), torch.from_numpy(column), kernel).cost.numpy()

    solved = []
    chosen = nearest_by_estimate(blur, separation, solve)
    if price:
        assert (chosen.row % 80).tolist() == list(range(5))
        assert len(solved) < 0.5 * 240 * 5
    else:
        assert chosen.center.tolist() == list(range(5))


@pytest.mark.parametrize("bad", ["blur", "separation", "cost"])
def test_what_is_no_number_ends_and_does_not_win(bad):
    cost = torch.rand(40, 5, dtype=torch.float64, generator=rng(0))
    lost = torch.rand(40, 5, generator=rng(1)) < 0.3
    parts = {"blur": torch.full_like(cost, 0.1), "separation": cost.clone(), "cost": cost.clone()}
    parts[bad][lost] = torch.nan
    answers = parts["cost"].numpy()
    found = nearest_by_estimate(parts["blur"], parts["separation"], lambda row, center: answers[row, center])
    assert found.row.equal(greedy_nearest(parts["cost"].nan_to_num(1e300)).row)


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 60), k=st.integers(1, 6), per=st.integers(1, 3), off=st.floats(0.0, 0.1), seed=st.integers(0, 999)
)
def test_estimates_that_are_a_little_off_choose_as_all_costs_do(n, k, per, off, seed):
    draws = np.random.default_rng(seed)
    separation = draws.uniform(0, 8, (n, k))
    exact = np.cbrt(1 + separation) * draws.uniform(0.5, 2, k)
    cost = exact * (1 + draws.uniform(-off, off, (n, k)))
    asked = []

    def solve(row, center):
        asked.extend(zip(row.tolist(), center.tolist(), strict=True))
        return cost[row, center]

    found = nearest_by_estimate(torch.ones(n, k), torch.tensor(separation), solve, per, margin=2.0)
    want = greedy_nearest(torch.tensor(cost), per)
    assert (found.row.tolist(), found.center.tolist()) == (want.row.tolist(), want.center.tolist())
    assert len(asked) == len(set(asked)), "nothing is solved twice"


def test_good_estimates_leave_little_to_solve_and_a_screen_less():
    draws = np.random.default_rng(0)
    separation = draws.uniform(0, 8, (400, 30))
    solved = []

    def amount(off, **settings):
        cost = np.cbrt(1 + separation) * (1 + draws.uniform(-off, off, (400, 30)))
        solved.clear()

        def solve(row, center):
            solved.extend(row)
            return cost[row, center]

        nearest_by_estimate(torch.ones(400, 30), torch.tensor(separation), solve, **settings)
        return len(solved)

    good, poor, screened = amount(0.01), amount(0.2), amount(0.2, screen=5)
    assert good < 0.1 * 400 * 30
    assert good < poor
    assert 5 * 30 <= screened < 7 * 30
    assert amount(0.01, margin=0.0) <= good


@pytest.mark.parametrize("per", [1, 3])
def test_few_pairs_of_features_are_solved(per, monkeypatch):
    x = network_features(200, 96)
    centers, fitted = kmeans(x, 12, rng=rng()).centers, Sinkhorn().fit(x, None)
    wanted = greedy_nearest(fitted.pairwise(x, centers), per)
    solved, matched = [], sinkhorn.matched
    monkeypatch.setattr(
        sinkhorn, "matched", lambda *given, **limits: solved.append(given[2]) or matched(*given, **limits)
    )
    chosen = fitted.nearest(x, centers, per)
    assert chosen.row.equal(wanted.row)
    assert chosen.center.equal(wanted.center)
    assert 0 < len(torch.cat(solved)) < 0.5 * 200 * 12
