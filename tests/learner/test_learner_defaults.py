"""What a learner makes of streams with nothing but defaults."""

import numpy as np
import pytest
import torch

from odedm import Learner
from odedm.learner.running_scaler import HORIZON, RunningScaler

rng = np.random.default_rng(0)
CENTERS = rng.normal(size=(4, 6)) * 3


def rows(amount, seed=0):
    generator = np.random.default_rng(seed)
    y = generator.integers(0, 4, amount)
    return (CENTERS[y] + generator.normal(size=(amount, 6))).astype(np.float32), y


X, Y = rows(600)
TEST = rows(400, seed=1)


def learned(x, y, call=32, **settings):
    learner = Learner(**settings)
    for start in range(0, len(x), call):
        learner.partial_fit(x[start : start + call], y[start : start + call])
    return learner


@pytest.mark.parametrize(("kind", "least"), [("shuffled", 0.93), ("by class", 0.82)])
def test_digits_are_learned_in_any_order(kind, least):
    x, y = pytest.importorskip("sklearn.datasets").load_digits(return_X_y=True)
    order = np.random.default_rng(0).permutation(len(y))
    train, test = order[:1297], order[1297:]
    if kind == "by class":
        train = train[np.argsort(y[train], kind="stable")]
    assert learned(x[train], y[train]).score(x[test], y[test]) > least


def test_rows_count_and_not_calls():
    learners = [learned(X, Y, call) for call in (1, 7, 64, 600)]
    scores = [learner.score(*TEST) for learner in learners]
    assert min(scores) > 0.9
    assert max(scores) - min(scores) < 0.04


def test_updates_fall_from_one_a_row_to_one_for_eight():
    arrivals = learned(X, Y, 600)._fitted.arrivals
    arrivals.rows, arrivals.class_rows = 0, [0] * 4
    assert arrivals.updates_due([0, 1, 2, 3] * 8) == 32
    arrivals.rows, arrivals.class_rows = 1_000_000, [250_000] * 4
    assert arrivals.updates_due([0, 1, 2, 3] * 8) == 4
    assert arrivals.updates_due([0]) == 1
    arrivals.class_rows[0] = 0
    assert arrivals.updates_due([0] * 32) == 32


@pytest.mark.parametrize("at", [3, 20, 400])
@pytest.mark.parametrize("call", [1, 32])
def test_a_broken_row_costs_little(at, call):
    x = X.copy()
    x[at] = 1e5
    learner = learned(x, Y, call)
    assert learner.score(*TEST) > learned(X, Y, call).score(*TEST) - 0.05


def test_broken_rows_now_and_then_cost_little():
    x = X.copy()
    x[::50, 2] = -1e6
    assert learned(x, Y).score(*TEST) > 0.85


def test_a_constant_column_costs_nothing():
    with_constant = [np.concatenate([part, np.full((len(part), 1), 1e4, np.float32)], 1) for part in (X, TEST[0])]
    learner = learned(with_constant[0], Y)
    assert learner.score(with_constant[1], TEST[1]) > 0.9
    with_constant[1][:, -1] += 1  # it begins to say something
    assert learner.partial_fit(with_constant[1], TEST[1]).score(with_constant[1], TEST[1]) > 0.9


@pytest.mark.parametrize("factor", [1e-2, 1e3])
def test_a_column_whose_scale_drifts_is_followed(factor):
    x, y = rows(4000)
    scale = np.ones((4000, 6), np.float32)
    scale[:, 1] = factor ** np.linspace(0, 1, 4000)
    end = TEST[0].copy()
    end[:, 1] *= factor
    assert learned(x * scale, y).score(end, TEST[1]) > 0.9


def test_first_outliers_are_left_out_and_later_ones_bounded():
    values = torch.from_numpy(np.random.default_rng(1).normal(5, 2, (2000, 1)).astype(np.float32))
    values[4] = values[1500] = 1e5
    scaler = RunningScaler((1,), torch.device("cpu"))
    for part in values.split(10):
        scaler.update(part)
    assert abs(float(scaler.transform.shift) - 5) < 0.2
    assert abs(1 / float(scaler.transform.scale) - 2) < 0.2
    assert scaler.transform.normalize(values).abs().max() == 10


@pytest.mark.parametrize("call", [1, 5, 1000])
def test_constants_do_not_depend_on_calls(call):
    values = torch.from_numpy(np.random.default_rng(1).normal(1e3, 2, (1000, 2)).astype(np.float32))
    scaler = RunningScaler((2,), torch.device("cpu"))
    for part in values.split(call):
        scaler.update(part)
    assert scaler.mean.numpy() == pytest.approx(values.double().mean(0).numpy())
    deviation = torch.sqrt(scaler.square / scaler.number)
    assert deviation.numpy() == pytest.approx(values.double().std(0, correction=0).numpy())


def test_a_scale_that_grows_is_followed_soon_and_one_that_shrinks_slowly():
    generator = torch.Generator().manual_seed(0)
    scaler = RunningScaler((1,), torch.device("cpu"))
    for _ in range(100):
        scaler.update(torch.randn(100, 1, generator=generator))
    for _ in range(200):
        scaler.update(1000 * torch.randn(10, 1, generator=generator))
    assert 1 / float(scaler.transform.scale) > 200
    for _ in range(HORIZON // 100):
        scaler.update(torch.randn(100, 1, generator=generator))
    assert 100 < 1 / float(scaler.transform.scale) < 1000


def test_images_are_scaled_by_channel():
    images = torch.rand(50, 3, 4, 4) * torch.tensor([1.0, 10.0, 100.0]).view(3, 1, 1)
    scaler = RunningScaler((3, 4, 4), torch.device("cpu"))
    scaler.update(images)
    assert torch.allclose(scaler.transform.shift.flatten(), images.mean((0, 2, 3)), rtol=1e-4)
    assert torch.allclose(1 / scaler.transform.scale.flatten(), images.std((0, 2, 3), correction=0), rtol=1e-4)
