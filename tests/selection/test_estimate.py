"""What is said of all costs before any is solved."""

import pytest
import torch
from clouds import network_features, rng

from odedm.core.accel import device
from odedm.selection.distance import Sinkhorn
from odedm.selection.kmeans import kmeans
from odedm.selection.nearest import greedy_nearest
from odedm.selection.sinkhorn import solver as sinkhorn
from odedm.selection.sinkhorn import transport
from odedm.selection.sinkhorn.estimate import foresee, own
from odedm.selection.sinkhorn.kernels import DenseKernel

DTYPES = pytest.mark.parametrize("dtype", [torch.float32, torch.float64])


def features(dtype):
    x = network_features(200, 96).to(dtype)
    fitted = Sinkhorn().fit(x, None)
    return *(fitted._histograms(each)[:, 0] for each in (x, kmeans(x, 12, rng=rng()).centers)), fitted._kernel


@DTYPES
def test_the_nearest_row_is_among_the_first(dtype):
    source, target, kernel = features(dtype)
    cost = sinkhorn.histograms(source, target, kernel).cost
    estimate = foresee(source, target, kernel)
    rank = (estimate < estimate.gather(0, cost.argmin(0)[None])).sum(0)
    assert rank.max() <= 3
    assert torch.corrcoef(torch.stack([estimate.flatten(), cost.flatten()]))[0, 1] > 0.8


@DTYPES
def test_own_costs_and_potentials_are_those_of_a_row_to_itself(dtype):
    source, _, kernel = features(dtype)
    potential, cost = own(source, kernel)
    every = torch.arange(len(source))
    torch.testing.assert_close(cost, sinkhorn.matched(source, source, every, every, kernel).cost, rtol=2e-3, atol=1e-6)
    # the scaling that undoes the potential sends every bin what it has
    v = source * potential.exp()
    assert (v * kernel.apply(v) - source).abs().sum(1).max() < 2e-2


def test_the_number_of_threads_changes_nothing(monkeypatch):
    source, target, kernel = features(torch.float32)
    monkeypatch.setattr(sinkhorn, "CHUNK_BYTES", {"cpu": 96 * 4 * 30})
    alone = own(source, kernel)
    torch.set_num_threads(3)
    assert all(map(torch.equal, alone, own(source, kernel)))
    assert torch.get_num_threads() == 3


@DTYPES
@pytest.mark.parametrize("price", [0.0, 1.0])
def test_rows_of_one_bin_have_finite_estimates(dtype, price):
    # nothing is blurred, and at no price nothing costs anything
    rows = torch.eye(80, dtype=dtype)[torch.arange(240) % 80]
    cost = price * (1 - torch.eye(80, dtype=dtype)) * torch.rand(80, 80, generator=rng(), dtype=dtype).add(1)
    estimate = foresee(rows, rows[:5], DenseKernel.relative((cost + cost.T) / 2, 0.03))
    assert estimate.isfinite().all()
    same = torch.arange(240)[:, None] % 80 == torch.arange(5)
    if price:
        assert estimate[same].max() < 0.1 * estimate[~same].min()


@pytest.mark.parametrize("per", [1, 3])
def test_on_a_gpu_few_iterations_of_all_pairs_choose_as_all_costs_would(per, monkeypatch):
    x = network_features(200, 96)
    centre, fitted = kmeans(x, 12, rng=rng()).centers, Sinkhorn().fit(x, None)
    wanted = greedy_nearest(fitted.pairwise(x, centre), per)
    solved, matched = [], sinkhorn.matched
    monkeypatch.setattr(device, "launch_bound", lambda _: True)
    monkeypatch.setattr(transport, "SMALL_BATCH", 0)
    monkeypatch.setattr(
        sinkhorn, "matched", lambda *given, **limits: solved.append(given[2]) or matched(*given, **limits)
    )
    chosen = fitted.nearest(x, centre, per)
    assert chosen.row.equal(wanted.row)
    assert chosen.center.equal(wanted.center)
    assert 0 < len(torch.cat(solved)) < 0.5 * 200 * 12
