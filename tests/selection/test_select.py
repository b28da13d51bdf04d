"""Nearest distinct rows against a slow loop, and the public `select`."""

import numpy as np
import pytest
import torch
from clouds import blobs, relu_features, rng
from hypothesis import given, settings
from hypothesis import strategies as st

from odedm.core.errors import UsageError
from odedm.selection.dac import Dac
from odedm.selection.distance import DISTANCES, L2
from odedm.selection.select import greedy_nearest, select


def slow(cost, per):
    taken, rows, centroids = set(), [], []
    for centroid in range(len(cost[0]) if cost else 0):
        for row in sorted(range(len(cost)), key=lambda i: (cost[i][centroid], i)):
            if row not in taken and centroids.count(centroid) < per:
                taken.add(row)
                rows.append(row)
                centroids.append(centroid)
    return rows, centroids


@settings(max_examples=60, deadline=None)
@given(
    n=st.integers(1, 12), k=st.integers(1, 6), per=st.integers(1, 4), levels=st.integers(1, 9), seed=st.integers(0, 999)
)
def test_equals_the_slow_loop(n, k, per, levels, seed):
    cost = torch.randint(levels, (n, k), generator=rng(seed)).double()
    chosen = greedy_nearest(cost, per)
    assert (chosen.row.tolist(), chosen.center.tolist()) == slow(cost.tolist(), per)


def test_infinite_costs_are_still_rows():
    assert greedy_nearest(torch.full((3, 2), torch.inf)).row.tolist() == [0, 1]


@pytest.mark.parametrize(("cost", "per"), [(torch.zeros(3), 1), (torch.zeros(3, 2), 0)])
def test_nearest_distinct_refuses(cost, per):
    with pytest.raises(UsageError, match="given"):
        greedy_nearest(cost, per)


@pytest.mark.parametrize("name", list(DISTANCES))
@pytest.mark.parametrize("dac", [None, (3, 2), Dac(3, 2, L2())])
def test_distinct_repeatable_and_complete(name, dac):
    x = relu_features(80, 16)
    one, same = (select(x, k=7, distance=name, dac=dac, rows_per_prototype=2, seed=3) for _ in range(2))
    assert one.dtype == torch.int64
    assert len(one) == len(one.unique()) == 14
    assert torch.equal(one, same)
    assert bool(((one >= 0) & (one < 80)).all())


def test_another_seed_chooses_otherwise():
    x = torch.rand(300, 4, generator=rng(1))
    assert not torch.equal(select(x, k=20, distance="l2", seed=0), select(x, k=20, distance="l2", seed=1))


def test_one_row_of_each_blob():
    rows = blobs(90, modes=3, spread=0.01, seed=4)
    chosen = rows[select(rows, k=3, distance="l2")]
    assert float(torch.pdist(chosen).min()) > 0.5


def test_numpy_and_torch_agree():
    x = relu_features(60, 16)
    from_numpy = select(x.numpy(), k=5)
    assert isinstance(from_numpy, np.ndarray)
    assert from_numpy.dtype == np.int64
    assert from_numpy.tolist() == select(x, k=5).tolist()


@pytest.mark.parametrize("dtype", [np.uint8, np.int32, np.float16, np.float32, np.float64, np.bool_])
def test_any_real_type(dtype):
    x = np.random.default_rng(0).integers(0, 2, (30, 6)).astype(dtype)
    assert len(select(x, k=3)) == 3


@pytest.mark.parametrize("dtype", [torch.uint8, torch.int64, torch.float16, torch.bfloat16])
def test_any_tensor_type(dtype):
    assert len(select(torch.randint(0, 9, (30, 6), generator=rng()).to(dtype), k=3)) == 3


def test_views_that_are_not_contiguous():
    x = relu_features(40, 12)
    assert select(x.T.contiguous().T, k=4).tolist() == select(x, k=4).tolist()
    assert select(x.numpy()[::-1, ::2], k=4).shape == (4,)


def test_lists_and_frames_are_rows_as_arrays_are():
    x = relu_features(40, 12)
    own = select(x.numpy(), k=4).tolist()
    chosen = select(x.tolist(), k=4)
    assert isinstance(chosen, np.ndarray)
    assert chosen.tolist() == own
    pandas = pytest.importorskip("pandas")
    assert select(pandas.DataFrame(x.numpy()), k=4).tolist() == own


@pytest.mark.parametrize("name", [*DISTANCES, "herding"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_power_of_two_changes_no_choice(name, dtype):
    x = relu_features(60, 16).to(dtype)
    own = select(x, k=5, distance=name).tolist()
    assert len(own) == 5
    for power in (-20, 30):
        assert select(x * 2.0**power, k=5, distance=name).tolist() == own, power


@pytest.mark.parametrize("power", [-100, -40, 45, 100])
def test_rows_that_cannot_be_squared_are_refused(power):
    """Squares of such values overflow or vanish, and fewer rows than asked for would be chosen."""
    with pytest.raises(UsageError, match="largest value of x is .*, which cannot be squared without loss"):
        select(relu_features(60, 16) * 2.0**power, k=3, distance="l2")


def test_zeros_are_rows():
    assert select(torch.zeros(2, 2), k=1).tolist() == [0]


def test_images_are_flattened_and_move_mass_on_the_grid():
    x = torch.rand(30, 3, 4, 4, generator=rng())
    assert select(x, k=4, image_shape=(3, 4, 4)).shape == (4,)
    assert select(x, k=4, distance="l2").tolist() == select(x.flatten(1), k=4, distance="l2").tolist()


def test_fewer_rows_than_asked_for():
    x = relu_features(5, 8)
    assert sorted(select(x, k=9).tolist()) == [0, 1, 2, 3, 4]
    assert sorted(select(x, k=2, rows_per_prototype=9).tolist()) == [0, 1, 2, 3, 4]
    assert select(x[:1], k=1).tolist() == [0]


def test_copies_give_as_many_rows_as_there_are_distinct_ones():
    x = relu_features(4, 8).repeat(5, 1)
    chosen = select(x, k=10)
    assert len(chosen) == 4
    assert len(x[chosen].unique(dim=0)) == 4


@pytest.mark.parametrize(
    ("x", "said"),
    [
        (np.zeros((0, 3)), "nothing to choose"),
        (np.zeros((3, 0)), "nothing to choose"),
        (np.zeros(3), r"\[n, d\]"),
        (np.array([[0.0], [np.nan]]), "row 1"),
        (torch.tensor([[torch.inf]]), "row 0"),
        (np.array([["a"]]), "must hold numbers"),
        (np.array([[1j]]), "must hold numbers"),
        (torch.zeros(2, 2, dtype=torch.complex64), "real"),
        ([[1.0], [2.0, 3.0]], "x is not an array"),
        (5, r"\[n, d\]"),
        ({"a": [1]}, "must hold numbers"),
    ],
)
def test_arrays_that_are_refused(x, said):
    with pytest.raises(UsageError, match=said):
        select(x, k=1)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"k": 0}, "k must be"),
        ({"rows_per_prototype": 0}, "rows_per_prototype"),
        ({"distance": "sinkhron"}, "did you mean 'sinkhorn'"),
        ({"dac": (1, 2)}, "2 to 12"),
        ({"image_shape": (2, 2)}, "image_shape"),
    ],
)
def test_arguments_that_are_refused(wrong, said):
    with pytest.raises(UsageError, match=said):
        select(np.ones((5, 3)), **({"k": 2} | wrong))
