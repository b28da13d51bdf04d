"""Every distance keeps the promises of the protocol; each its own formulas."""

import math

import numpy as np
import ot
import pytest
import torch
from clouds import blobs, relu_features, rng
from hypothesis import given, settings
from hypothesis import strategies as st

from odedm.core.errors import UsageError
from odedm.selection import distance as module
from odedm.selection.distance import DISTANCES, L1, L2, MMD, Sinkhorn
from odedm.selection.kmeans import kmeans
from odedm.selection.select import nearest

EVERY = pytest.mark.parametrize("distance", list(DISTANCES.values()), ids=list(DISTANCES))


class TestContract:
    @EVERY
    @pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
    def test_shapes_types_and_signs(self, distance, dtype):
        x, y = relu_features(30, 12, dtype=dtype), relu_features(5, 12, seed=1, dtype=dtype)
        fitted = distance.fit(x, None)
        pairs, clouds = fitted.pairwise(x, y), fitted.between_sets(x, y)
        assert pairs.shape == (30, 5)
        assert clouds.shape == ()
        assert pairs.dtype == clouds.dtype == dtype
        assert bool((pairs >= 0).all())
        assert float(clouds) > 0

    @EVERY
    def test_clouds_are_symmetric(self, distance):
        x, y = blobs(25, dtype=torch.float64), blobs(40, seed=2, dtype=torch.float64)
        for measure in (distance, distance.fit(x, None)):
            assert float(measure.between_sets(x, y)) == pytest.approx(float(measure.between_sets(y, x)), rel=1e-3)

    @EVERY
    def test_a_row_is_nearest_to_itself(self, distance):
        x = relu_features(20, 12, dtype=torch.float64)
        pairs = distance.fit(x, None).pairwise(x, x)
        assert pairs.argmin(1).tolist() == list(range(20))

    @EVERY
    def test_nearer_clouds_are_nearer(self, distance):
        x = blobs(30)
        fitted = distance.fit(torch.cat([x, x + 1.0, x + 3.0]), None)
        assert float(fitted.between_sets(x, x + 1.0)) < float(fitted.between_sets(x, x + 3.0))

    @EVERY
    def test_pairs_do_not_depend_on_the_company(self, distance):
        x, y = relu_features(40, 16, dtype=torch.float64), relu_features(7, 16, seed=3, dtype=torch.float64)
        fitted = distance.fit(x, None)
        whole = fitted.pairwise(x, y)
        torch.testing.assert_close(fitted.pairwise(x[11:13], y[4:5]), whole[11:13, 4:5], rtol=1e-3, atol=1e-9)

    @EVERY
    def test_unprepared_is_prepared_on_the_rows(self, distance):
        x, y = relu_features(20, 12), relu_features(4, 12, seed=1)
        assert torch.equal(distance.pairwise(x, y), distance.fit(x, None).pairwise(x, y))

    @EVERY
    @pytest.mark.parametrize(
        ("x", "y"),
        [
            (torch.zeros(1, 3), torch.zeros(1, 3)),
            (torch.zeros(5, 3), torch.zeros(2, 3)),
            (torch.full((4, 3), 7.0), torch.full((3, 3), 7.0)),
            (blobs(10, 3), blobs(10, 3) + 1e6),
            (blobs(10, 3) * 1e-6, blobs(12, 3, seed=1) * 1e-6),
            (blobs(1, 3), blobs(40, 3)),
            (blobs(5, 3).repeat(4, 1), blobs(5, 3).repeat(2, 1)),
            (blobs(10, 3), blobs(10, 3)),
            (-blobs(10, 3).abs(), blobs(4, 3).abs()),
            (torch.eye(3), torch.eye(3)),
        ],
        ids=["points", "zeros", "constant", "far", "tiny", "one to many", "copies", "same", "negative", "one-hot"],
    )
    def test_always_finite(self, distance, x, y):
        for measure in (distance, distance.fit(x, None)):
            assert bool(measure.pairwise(x, y).isfinite().all())
            assert bool(measure.between_sets(x, y).isfinite())

    @EVERY
    @settings(max_examples=15, deadline=None)
    @given(n=st.integers(1, 12), k=st.integers(1, 6), d=st.integers(1, 6), seed=st.integers(0, 99))
    def test_any_size_works(self, distance, n, k, d, seed):
        x, y = relu_features(n, d, seed=seed), relu_features(k, d, seed=seed + 1)
        pairs = distance.fit(x, None).pairwise(x, y)
        assert pairs.shape == (n, k)
        assert bool(pairs.isfinite().all())


class TestLinear:
    def test_formulas(self):
        x, y = blobs(6, 3, dtype=torch.float64), blobs(4, 3, seed=1, dtype=torch.float64)
        gap = x[:, None] - y
        torch.testing.assert_close(L1().pairwise(x, y), gap.abs().sum(2))
        torch.testing.assert_close(L2().pairwise(x, y), (gap**2).sum(2).sqrt())
        torch.testing.assert_close(L1().between_sets(x, y), gap.abs().sum(2).mean())
        torch.testing.assert_close(L2().between_sets(x, y), (gap**2).sum(2).sqrt().mean())

    @EVERY
    def test_blocks_do_not_show(self, distance, monkeypatch):
        x, y = blobs(30, dtype=torch.float64), blobs(20, seed=1, dtype=torch.float64)
        whole = distance.between_sets(x, y)
        monkeypatch.setattr(module, "BLOCK", 45)
        torch.testing.assert_close(distance.between_sets(x, y), whole)

    def test_l2_far_from_the_origin_in_float32(self):
        x, y = blobs(50, dtype=torch.float64) + 1e3, blobs(9, seed=1, dtype=torch.float64) + 1e3
        torch.testing.assert_close(
            L2().pairwise(x.float(), y.float()),
            torch.cdist(x.float().double(), y.float().double()).float(),
            rtol=1e-3,
            atol=1e-3,
        )


class TestMmd:
    def test_against_a_double_loop(self):
        x, y = blobs(7, 3, dtype=torch.float64).numpy(), blobs(5, 3, seed=1, dtype=torch.float64).numpy()
        width = 1.7

        def mean(p, q):
            total = 0.0
            for one in p:
                for two in q:
                    total += math.exp(-sum((one - two) ** 2) / (2 * width**2))
            return total / (len(p) * len(q))

        slow = mean(x, x) + mean(y, y) - 2 * mean(x, y)
        assert float(MMD(width).between_sets(torch.tensor(x), torch.tensor(y))) == pytest.approx(slow, rel=1e-10)

    def test_between_single_points(self):
        x, y = torch.tensor([[1.0, 2.0]], dtype=torch.float64), torch.tensor([[0.0, 4.0]], dtype=torch.float64)
        expected = 2 - 2 * math.exp(-5 / (2 * 1.5**2))
        assert float(MMD(1.5).pairwise(x, y)) == pytest.approx(expected)
        assert float(MMD(1.5).between_sets(x, y)) == pytest.approx(expected)

    def test_a_row_and_a_cluster_against_a_double_loop(self):
        x, label, width = blobs(12, 3, dtype=torch.float64), torch.arange(12) % 3, 1.7
        far = MMD(width).to_clusters(x, label, 3)

        def kernel(one, two):
            return math.exp(-float(((one - two) ** 2).sum()) / (2 * width**2))

        for i, row in enumerate(x):
            for c in range(3):
                points = x[label == c]
                to_points = sum(kernel(row, point) for point in points) / len(points)
                within = sum(kernel(one, two) for one in points for two in points) / len(points) ** 2
                assert float(far[i, c]) == pytest.approx(1 - 2 * to_points + within, abs=1e-12)

    def test_a_dense_part_of_a_cluster_is_nearer_than_its_middle(self):
        """So MMD does not rank as L2 does, which takes the row nearest to the mean."""
        x = torch.tensor([[0.0], [0.1], [0.2], [1.8], [4.0], [4.1]], dtype=torch.float64)
        clusters = kmeans(x, 1, rng=torch.Generator().manual_seed(0))
        chosen = [int(nearest(distance, x, clusters).row) for distance in (MMD(0.5), L2())]
        assert chosen == [1, 3]

    def test_the_bandwidth_is_the_median_distance(self):
        x = blobs(41, 3, dtype=torch.float64)
        median = float(torch.pdist(x).median())
        assert MMD().fit(x, None).bandwidth == pytest.approx(median, rel=1e-6)
        assert MMD(3.0).fit(x, None).bandwidth == 3.0

    def test_a_bandwidth_of_zero_is_refused(self):
        with pytest.raises(UsageError, match="bandwidth"):
            MMD(0.0)


class TestSinkhorn:
    def test_clouds_are_pots(self):
        x, y = blobs(30, dtype=torch.float64), blobs(45, seed=1, dtype=torch.float64)
        cost = (torch.cdist(x, y) ** 2).numpy()
        theirs = ot.sinkhorn2(np.full(30, 1 / 30), np.full(45, 1 / 45), cost, 0.05 * cost.mean(), stopThr=1e-9)
        assert float(Sinkhorn().between_sets(x, y)) == pytest.approx(float(theirs), rel=1e-3)

    def test_profile_pairs_are_pots(self):
        x, y = relu_features(50, 16, dtype=torch.float64), relu_features(3, 16, seed=1, dtype=torch.float64) + 0.01
        z = (x - x.mean(0)) / x.std(0, unbiased=False)
        cost = np.array([[float(((z[:, p] - z[:, q]) ** 2).mean()) for q in range(16)] for p in range(16)])
        got = Sinkhorn().fit(x, None).pairwise(x[:4], y)
        for i in range(4):
            for j in range(3):
                full = (x[i] > 0).numpy()
                a, b = (x[i] / x[i].sum()).numpy()[full], (y[j] / y[j].sum()).numpy()
                theirs = ot.sinkhorn2(a, b, cost[full], 0.1 * cost.mean(), stopThr=1e-9, numItermax=5000)
                assert float(got[i, j]) == pytest.approx(float(theirs), rel=2e-3)

    def test_between_single_points_it_ranks_exactly_as_l2(self):
        x, y = relu_features(60, 24, dtype=torch.float64), relu_features(3, 24, seed=1, dtype=torch.float64)
        points = torch.stack([torch.stack([Sinkhorn().between_sets(p[None], q[None]) for q in y]) for p in x])
        assert torch.equal(points.argsort(0), L2().pairwise(x, y).argsort(0))

    def test_profile_ground_does_not_rank_as_l2(self):
        x, y = relu_features(200, 24, dtype=torch.float64), relu_features(6, 24, seed=1, dtype=torch.float64)
        assert not torch.equal(Sinkhorn().pairwise(x, y).argsort(0), L2().pairwise(x, y).argsort(0))

    def test_mass_moves_cheaply_between_units_that_fire_together(self):
        fire = torch.rand(300, 2, generator=rng(), dtype=torch.float64)
        x = torch.stack([fire[:, 0], fire[:, 0] + 0.01 * fire[:, 1], fire[:, 1]], 1)
        unit = torch.eye(3, dtype=torch.float64)
        cost = Sinkhorn().fit(x, None).pairwise(unit, unit)
        assert float(cost[0, 1]) < 0.01 * float(cost[0, 2])

    def test_negative_columns_are_shifted_to_zero(self):
        x, y = relu_features(30, 8, dtype=torch.float64), relu_features(3, 8, seed=1, dtype=torch.float64)
        x[0] = 0.0  # so that the columns' least value is zero before the shift
        shift = torch.arange(8, dtype=torch.float64)
        plain, shifted = Sinkhorn().fit(x, None), Sinkhorn().fit(x - shift, None)
        torch.testing.assert_close(shifted.pairwise(x - shift, y - shift), plain.pairwise(x, y), rtol=1e-4, atol=1e-8)

    def test_a_row_of_zeros_is_uniform(self):
        x = relu_features(30, 8, dtype=torch.float64)
        fitted = Sinkhorn().fit(x, None)
        zero, one = torch.zeros(1, 8, dtype=torch.float64), torch.ones(1, 8, dtype=torch.float64)
        torch.testing.assert_close(fitted.pairwise(zero, x), fitted.pairwise(one, x))

    def test_a_constant_column_is_like_any_other(self):
        x = relu_features(40, 8, dtype=torch.float64)
        x[:, 3] = 0.25
        x[:, 5] = 0.0
        assert bool(Sinkhorn().pairwise(x, x[:3]).isfinite().all())

    def test_grid_moves_within_channels_and_averages_them(self):
        image = torch.zeros(2, 2, 1, 4, dtype=torch.float64)
        image[0, 0, 0, 0] = image[0, 1, 0, 0] = 3.0  # channel 0 moves by three pixels, channel 1 stays
        image[1, 0, 0, 3] = image[1, 1, 0, 0] = 5.0
        flat = image.flatten(1)
        cost = Sinkhorn().fit(flat, (2, 1, 4)).pairwise(flat, flat)
        torch.testing.assert_close(
            cost, torch.tensor([[0.0, 4.5], [4.5, 0.0]], dtype=torch.float64), rtol=1e-4, atol=1e-6
        )

    def test_grid_without_channels_is_one_channel(self):
        x = torch.rand(4, 12, generator=rng(), dtype=torch.float64)
        one, two = (Sinkhorn(ground="grid").fit(x, shape).pairwise(x, x) for shape in ((3, 4), (1, 3, 4)))
        assert torch.equal(one, two)

    def test_grid_needs_images(self):
        for shape in (None, (12,), (1, 1, 3, 4)):
            with pytest.raises(UsageError, match="grid"):
                Sinkhorn(ground="grid").fit(torch.rand(4, 12), shape)

    @pytest.mark.parametrize("screen", [40, 41, 1000])
    def test_screening_all_rows_is_exact(self, screen):
        x, y = relu_features(40, 24), relu_features(6, 24, seed=1)
        assert torch.equal(Sinkhorn(screen=screen).pairwise(x, y), Sinkhorn().pairwise(x, y))

    def test_screening_refines_the_best_and_ranks_the_rest_behind(self):
        x, y = relu_features(60, 24), relu_features(5, 24, seed=1)
        exact, screened = Sinkhorn().pairwise(x, y), Sinkhorn(screen=12).pairwise(x, y)
        assert bool(screened.isfinite().all())
        for j in range(5):
            order = screened[:, j].argsort()
            torch.testing.assert_close(screened[order[:12], j], exact[order[:12], j], rtol=1e-3, atol=1e-6)
            assert float(screened[order[12:], j].min()) > float(screened[order[:12], j].max())

    @pytest.mark.parametrize(
        "wrong",
        [
            {"epsilon": 0.0},
            {"pair_epsilon": -1.0},
            {"pair_epsilon": 0.001},
            {"tolerance": 0.0},
            {"iterations": 0},
            {"screen": 0},
            {"margin": -0.1},
        ],
    )
    def test_settings_out_of_range(self, wrong):
        with pytest.raises(UsageError, match=next(iter(wrong))):
            Sinkhorn(**wrong)

    def test_an_unknown_ground_is_named(self):
        with pytest.raises(UsageError, match="did you mean 'profile'"):
            Sinkhorn(ground="profil")


def test_the_median_is_of_no_more_rows_than_is_said(monkeypatch):
    seen = []
    monkeypatch.setattr(module, "squares", lambda x, y: seen.append(len(x)) or torch.cdist(x, y).square())
    for rows in (2000, 2001, 3999, 4000, 4001):
        MMD().fit(torch.rand(rows, 1), None)
    assert max(seen) <= 2000
    assert min(seen) > 1000
