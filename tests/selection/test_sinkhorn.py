"""The transport solvers against POT: exact transport and its own Sinkhorn."""

import numpy as np
import ot
import pytest
import torch
from clouds import blobs, relu_features

from odedm.selection.sinkhorn import solver as sinkhorn
from odedm.selection.sinkhorn.kernels import DenseKernel, GridKernel
from odedm.selection.sinkhorn.transport import Sinkhorn

F64 = torch.float64


def uniform(*shape, dtype=F64):
    return torch.full(shape, 1 / shape[-1], dtype=dtype)


def cost_of(n, m, seed=0, dtype=F64, shift=0.0):
    x, y = blobs(n, seed=seed, dtype=F64), blobs(m, seed=seed + 1, dtype=F64) + shift
    return (torch.cdist(x, y) ** 2).to(dtype)


def log_domain(cost, a, b, epsilon, iterations=3000):
    """The clear version: one problem [n, m], potentials by log-sum-exp, a fixed number of iterations."""
    scale = epsilon * (a @ cost @ b)
    g = torch.zeros_like(b)
    for _ in range(iterations):
        f = scale * (a.log() - torch.logsumexp((g - cost) / scale, 1))
        g = scale * (b.log() - torch.logsumexp((f[:, None] - cost) / scale, 0))
    plan = ((f[:, None] + g - cost) / scale).exp()
    return (plan * cost).sum()


class TestClouds:
    @pytest.mark.parametrize(("n", "m"), [(40, 40), (15, 60), (1, 9), (1, 1)])
    def test_near_exact_transport_for_small_epsilon(self, n, m):
        cost = cost_of(n, m)
        exact = ot.emd2(np.full(n, 1 / n), np.full(m, 1 / m), cost.numpy())
        got = sinkhorn.clouds(cost[None], uniform(1, n), uniform(1, m), epsilon=0.002, tolerance=1e-6, iterations=20000)
        assert float(got.cost) == pytest.approx(exact, rel=0.01)
        assert float(got.cost) >= exact * (1 - 1e-4)

    @pytest.mark.parametrize("epsilon", [0.05, 0.2])
    def test_is_pots_sinkhorn_at_equal_epsilon(self, epsilon):
        cost = cost_of(50, 70)
        a, b = uniform(1, 50), uniform(1, 70)
        theirs = ot.sinkhorn2(a[0].numpy(), b[0].numpy(), cost.numpy(), epsilon * float(cost.mean()), stopThr=1e-10)
        got = sinkhorn.clouds(cost[None], a, b, epsilon=epsilon, tolerance=1e-10, iterations=5000)
        assert float(got.cost) == pytest.approx(float(theirs), rel=1e-6)
        assert float(got.cost) == pytest.approx(float(log_domain(cost, a[0], b[0], epsilon)), rel=1e-6)

    def test_weights_that_are_not_uniform(self):
        cost = cost_of(20, 30)
        a = torch.rand(20, generator=torch.Generator().manual_seed(0), dtype=F64)
        a /= a.sum()
        b = uniform(1, 30)
        got = sinkhorn.clouds(cost[None], a[None], b, epsilon=0.1, tolerance=1e-9, iterations=5000)
        assert float(got.cost) == pytest.approx(float(log_domain(cost, a, b[0], 0.1)), rel=1e-6)

    def test_a_batch_is_its_problems_one_by_one_and_padding_is_nothing(self):
        sizes = [(10, 14), (25, 5), (1, 30)]
        problems = [cost_of(n, m, seed=s) for s, (n, m) in enumerate(sizes)]
        cost = torch.full((3, 25, 30), 77.0, dtype=F64)
        a, b = torch.zeros(3, 25, dtype=F64), torch.zeros(3, 30, dtype=F64)
        for i, (problem, (n, m)) in enumerate(zip(problems, sizes, strict=True)):
            cost[i, :n, :m], a[i, :n], b[i, :m] = problem, 1 / n, 1 / m
        together = sinkhorn.clouds(cost, a, b, epsilon=0.05, tolerance=1e-9, iterations=5000)
        for i, (problem, (n, m)) in enumerate(zip(problems, sizes, strict=True)):
            alone = sinkhorn.clouds(
                problem[None], uniform(1, n), uniform(1, m), epsilon=0.05, tolerance=1e-9, iterations=5000
            )
            assert float(together.cost[i]) == pytest.approx(float(alone.cost), rel=1e-6)
        assert float(together.marginal_error.max()) < 1e-9

    @pytest.mark.parametrize("epsilon", [0.05, 0.01, 0.003])
    def test_float32_does_not_collapse(self, epsilon):
        cost = cost_of(80, 80, shift=6.0)
        exact = ot.emd2(np.full(80, 1 / 80), np.full(80, 1 / 80), cost.numpy())
        weight = uniform(1, 80, dtype=torch.float32)
        got = sinkhorn.clouds(cost.float()[None], weight, weight, epsilon=epsilon, iterations=5000)
        reference = sinkhorn.clouds(
            cost[None], weight.double(), weight.double(), epsilon=epsilon, tolerance=1e-4, iterations=5000
        )
        assert float(got.cost) == pytest.approx(float(reference.cost), rel=1e-3)
        assert float(got.cost) >= 0.99 * exact

    def test_the_marginal_error_is_reported_truthfully(self):
        cost = cost_of(30, 30)[None]
        weight = uniform(1, 30)
        rough = sinkhorn.clouds(cost, weight, weight, epsilon=0.01, iterations=2)
        fine = sinkhorn.clouds(cost, weight, weight, epsilon=0.01, tolerance=1e-5, iterations=5000)
        assert rough.iterations == 2
        assert float(rough.marginal_error) > 1e-2
        assert float(fine.marginal_error) < 1e-5
        assert fine.iterations < 5000

    @pytest.mark.parametrize("dtype", [torch.float32, F64])
    def test_no_cost_at_all(self, dtype):
        got = sinkhorn.clouds(
            torch.zeros(1, 3, 4, dtype=dtype), uniform(1, 3, dtype=dtype), uniform(1, 4, dtype=dtype), epsilon=0.05
        )
        assert float(got.cost) == 0.0


def histograms(n, d, seed, dtype=F64):
    mass = relu_features(n, d, seed, dtype=dtype) + 1e-3 * (seed % 2)
    return mass / mass.sum(1, keepdim=True)


def ground(d, seed=0, dtype=F64):
    place = torch.randn(d, 3, generator=torch.Generator().manual_seed(seed), dtype=F64)
    return (torch.cdist(place, place) ** 2).to(dtype)


class TestHistograms:
    def test_is_pots_sinkhorn_for_each_pair(self):
        s, q, cost = histograms(6, 24, 2), histograms(4, 24, 1), ground(24)
        got = sinkhorn.histograms(s, q, DenseKernel.relative(cost, 0.1), tolerance=1e-10, iterations=3000)
        for i in range(6):
            for j in range(4):
                full = s[i] > 0  # POT divides by the weights
                theirs = ot.sinkhorn2(
                    s[i, full].numpy(),
                    q[j].numpy(),
                    cost[full].numpy(),
                    0.1 * float(cost.mean()),
                    stopThr=1e-11,
                    numItermax=5000,
                )
                assert float(got.cost[i, j]) == pytest.approx(float(theirs), rel=1e-6)
        assert bool((s == 0).any())

    def test_near_exact_transport_for_small_epsilon(self):
        s, q, cost = histograms(4, 24, 2), histograms(3, 24, 1), ground(24)
        got = sinkhorn.histograms(s, q, DenseKernel.relative(cost, 0.01), tolerance=1e-5, iterations=20000)
        for i in range(4):
            for j in range(3):
                exact = ot.emd2(s[i].numpy(), q[j].numpy(), cost.numpy())
                assert float(got.cost[i, j]) == pytest.approx(exact, rel=0.01)

    @pytest.mark.parametrize("k", [5, 70])
    def test_float32_reaches_the_tolerance_and_the_float64_costs(self, k):
        s, q, cost = histograms(9, 48, 2), histograms(k, 48, 1), ground(48)
        exact = sinkhorn.histograms(s, q, DenseKernel.relative(cost, 0.1), tolerance=1e-9, iterations=3000)
        got = sinkhorn.histograms(s.float(), q.float(), DenseKernel.relative(cost.float(), 0.1), tolerance=1e-4)
        torch.testing.assert_close(got.cost.double(), exact.cost, rtol=2e-3, atol=1e-5)
        assert float(got.marginal_error.max()) < 1e-4
        assert got.iterations < 300

    def test_chunking_changes_nothing(self, monkeypatch):
        s, q, kernel = histograms(7, 32, 4), histograms(70, 32, 3), DenseKernel.relative(ground(32), 0.1)
        together = sinkhorn.histograms(s, q, kernel, tolerance=1e-8)
        monkeypatch.setattr(sinkhorn, "CHUNK_BYTES", {"cpu": 32 * 8 * 11})
        chunked = sinkhorn.histograms(s, q, kernel, tolerance=1e-8)
        torch.testing.assert_close(chunked.cost, together.cost, rtol=1e-6, atol=1e-9)

    @pytest.mark.parametrize("k", [30, 70])
    def test_the_number_of_threads_changes_nothing(self, k, monkeypatch):
        s, q, cost = histograms(40, 32, 4).float(), histograms(k, 32, 3).float(), ground(32, dtype=torch.float32)
        monkeypatch.setattr(sinkhorn, "CHUNK_BYTES", {"cpu": 32 * 4 * 100})
        alone = sinkhorn.histograms(s, q, DenseKernel.relative(cost, 0.1))
        torch.set_num_threads(3)
        shared = sinkhorn.histograms(s, q, DenseKernel.relative(cost, 0.1))
        assert torch.get_num_threads() == 3
        assert torch.equal(alone.cost, shared.cost)
        assert alone.iterations == shared.iterations

    def test_an_error_on_a_thread_comes_through(self, monkeypatch):
        torch.set_num_threads(2)
        monkeypatch.setattr(sinkhorn, "_solve", lambda *_: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            sinkhorn.histograms(histograms(3, 8, 1), histograms(70, 8, 1), DenseKernel.relative(ground(8), 0.1))
        assert torch.get_num_threads() == 2

    def test_symmetric_and_least_to_itself(self):
        s = histograms(8, 24, 1)
        cost = sinkhorn.histograms(s, s, DenseKernel.relative(ground(24), 0.05), tolerance=1e-9, iterations=3000).cost
        torch.testing.assert_close(cost, cost.T, rtol=1e-5, atol=1e-8)
        assert cost.argmin(1).tolist() == list(range(8))

    def test_too_few_iterations_are_admitted(self):
        s, q, kernel = histograms(3, 24, 2), histograms(3, 24, 1), DenseKernel.relative(ground(24), 0.01)
        got = sinkhorn.histograms(s, q, kernel, iterations=2)
        assert got.iterations == 2
        assert float(got.marginal_error.min()) > 1e-3

    def test_mass_at_opposite_corners_in_float32(self):
        corner = torch.zeros(2, 32 * 32)
        corner[0, 0] = corner[1, -1] = 1.0
        got = sinkhorn.histograms(corner[:1], corner[1:], GridKernel(32, 32, 0.05))
        assert float(got.cost) == pytest.approx(2 * 31**2, rel=1e-4)
        assert float(got.marginal_error) < 1e-4


class TestGridKernel:
    @pytest.mark.parametrize(("height", "width"), [(4, 4), (3, 6), (1, 5), (1, 1)])
    def test_is_the_dense_kernel(self, height, width):
        place = torch.cartesian_prod(torch.arange(height), torch.arange(width)).double()
        dense = DenseKernel.relative(torch.cdist(place, place) ** 2, 0.1)
        grid = GridKernel(height, width, 0.1, F64)
        v = torch.rand(5, height * width, generator=torch.Generator().manual_seed(0), dtype=F64)
        torch.testing.assert_close(grid.apply(v), dense.apply(v))
        torch.testing.assert_close(grid.back(v), dense.back(v))
        torch.testing.assert_close(grid.apply_cost(v), dense.apply_cost(v))
        torch.testing.assert_close(grid.double().apply(v), dense.double().apply(v))


def test_over_relaxation_takes_fewer_iterations(monkeypatch):
    # bins in three clumps, between which mass moves slowly: what features of a young network look like
    rng = torch.Generator().manual_seed(0)
    place = torch.randn(3, 4, generator=rng).repeat_interleave(20, 0) + 0.3 * torch.randn(60, 4, generator=rng)
    kernel = DenseKernel.relative(torch.cdist(place, place).square(), 0.1)
    a, b = (torch.rand(n, 60, generator=rng).square() for n in (12, 10))
    a, b = a / a.sum(1, keepdim=True), b / b.sum(1, keepdim=True)
    fast = sinkhorn.histograms(a, b, kernel)
    monkeypatch.setattr(sinkhorn, "is_relaxed", lambda done, iterations: False)
    slow = sinkhorn.histograms(a, b, kernel)
    assert fast.marginal_error.max() < 1e-4
    assert fast.iterations < 0.75 * slow.iterations
    exact = sinkhorn.histograms(a.double(), b.double(), kernel.double(), tolerance=1e-6, iterations=20_000)
    torch.testing.assert_close(fast.cost.double(), exact.cost, rtol=2e-3, atol=1e-6)


@pytest.mark.parametrize("epsilon", [5e-4, 2e-3])
def test_clouds_with_heavy_tails_stay_finite_in_float32(epsilon):
    """Updates that go beyond the plain ones must not overflow between two looks."""
    for seed in range(30):
        own = torch.Generator().manual_seed(seed)
        x, y = torch.randn(60, 8, generator=own) ** 3, torch.randn(45, 8, generator=own) ** 3 + 10 * (seed % 2)
        found = Sinkhorn(epsilon=epsilon).between_sets(x, y)
        exact = Sinkhorn(epsilon=epsilon).between_sets(x.double(), y.double())
        assert found.isfinite()
        assert float(found) == pytest.approx(float(exact), rel=0.2), "half converged, both"
