"""`grouped_batch_norm_triton` does what BatchNorm in float64 does, one batch after the other."""

import pytest
import torch
from kernel_inputs import LAYOUTS, normal
from torch.nn import functional as F

from odedm.nets.grouped_batch_norm_triton import batch_norm_eval, counters_for, group_norm, trial

ROUGH = {torch.float32: 1e-5, torch.float16: 2e-3, torch.bfloat16: 1e-2}
MAPS = {**LAYOUTS, "channels last": lambda x: x.contiguous(memory_format=torch.channels_last)}


def parameters(channels):
    """Weight, bias, running mean and running variance."""
    weight, bias, mean, spread = normal(4, channels, seed=7)
    return weight, bias, mean, spread.abs() + 0.5


def by_torch(x, residual, weight, bias, mean, variance, sizes, momentum, relu):
    """One batch after the other in float64; moves the running statistics in place."""
    y = torch.cat([F.batch_norm(part, mean, variance, weight, bias, True, momentum, 1e-5) for part in x.split(sizes)])
    y = y if residual is None else y + residual
    return y.relu() if relu else y


CASES = [
    ((2,), 1, (1, 1)),
    ((2, 2), 33, (1, 1)),
    ((1,), 5, (2, 3)),
    ((1, 1, 1), 3, (1, 2)),
    ((3, 2, 4), 20, (3, 5)),
    ((12, 5), 40, (4, 4)),
    ((5, 1), 2, (17, 9)),
]
"""Sizes of the batches, channels, and sides of the maps."""


@pytest.mark.parametrize(("relu", "has_residual"), [(False, False), (True, False), (True, True), (False, True)])
@pytest.mark.parametrize(("sizes", "channels", "sides"), CASES)
def test_batches_side_by_side(sizes, channels, sides, relu, has_residual):
    hold(sizes, channels, sides, relu, has_residual, "dense", torch.float32)


@pytest.mark.parametrize("layout", ["strided", "channels last"])
@pytest.mark.parametrize(("sizes", "channels", "sides"), CASES[2:5])
def test_batches_of_maps_laid_out_in_other_ways(sizes, channels, sides, layout):
    hold(sizes, channels, sides, True, True, layout, torch.float32)


def hold(sizes, channels, sides, relu, has_residual, layout, dtype):
    """Outputs, gradients and running statistics are those of float64."""
    x, residual, slope = (2 * normal(3, sum(sizes), channels, *sides) + 3).to(dtype)
    given = [MAPS[layout](maps).requires_grad_() for maps in ((x, residual) if has_residual else (x,))]
    weight, bias, mean, variance = parameters(channels)
    exact = [value.double() for value in (weight, bias, mean, variance)]
    weights, counters = [weight.requires_grad_(), bias.requires_grad_()], counters_for(channels, len(sizes), x.device)
    y = group_norm(
        given[0], given[1] if has_residual else None, *weights, mean, variance, counters,
        sizes=sizes, momentum=0.1, eps=1e-5, relu=relu,
    )  # fmt: skip
    wide = [maps.detach().double().requires_grad_() for maps in given]
    wide_weights = [value.requires_grad_() for value in exact[:2]]
    right = by_torch(wide[0], wide[1] if has_residual else None, *wide_weights, *exact[2:], sizes, 0.1, relu)
    # where rounding decides on which side of the ReLU a value lies, no gradient is asked for
    slope = MAPS[layout](slope.where((right.detach().abs() > 0.05) | (not relu), 0.0).to(dtype))
    found = torch.autograd.grad(y, [*given, *weights], slope)
    wanted = torch.autograd.grad(right, [*wide, *wide_weights], slope.double())
    assert y.dtype == dtype
    # what is added up: where sums cancel, rounding is as large as the summands have it
    rate = max(part.var((0, 2, 3), correction=0).add(1e-5).rsqrt().max() for part in wide[0].detach().split(sizes))
    steep, summed = slope.abs().max().double(), slope.double().abs().sum((0, 2, 3)).max()
    sizes_of = [
        right.detach().abs().max(),
        rate * weight.abs().max() * steep,
        *[steep][:has_residual],
        2 * summed,
        summed,
    ]
    for mine, theirs, size in zip((y, *found), (right, *wanted), sizes_of, strict=True):
        assert (mine - theirs).abs().max() <= ROUGH[dtype] * size
    for mine, theirs in zip((mean, variance), exact[2:], strict=True):
        torch.testing.assert_close(mine.double(), theirs, rtol=1e-5, atol=1e-5)
    assert not counters.any(), "ready for the next call"


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize(("sizes", "channels", "sides"), CASES[3:5])
def test_batches_in_half_precision(sizes, channels, sides, dtype):
    hold(sizes, channels, sides, True, True, "channels last", dtype)


def test_gradients_that_repeat_one_number_and_statistics_that_stay():
    weight, bias, mean, variance = parameters(3)
    kept, x = [mean.clone(), variance.clone()], normal(4, 3, 2, 2).requires_grad_()
    words = {"sizes": (2, 2), "momentum": 0.0, "eps": 1e-5, "relu": True}
    y = group_norm(x, None, weight, bias, mean, variance, counters_for(3, 2, x.device), **words)
    y.sum().backward()  # its gradient has strides of 0
    wide = x.detach().double().requires_grad_()
    by_torch(wide, None, weight.double(), bias.double(), None, None, (2, 2), 0.0, True).sum().backward()
    torch.testing.assert_close(x.grad, wide.grad.float(), rtol=1e-4, atol=1e-5)
    assert mean.equal(kept[0])
    assert variance.equal(kept[1])


def test_a_value_that_is_no_number_stays_in_its_batch_and_its_channel():
    weight, bias, mean, variance = parameters(4)
    x = normal(6, 4, 2, 2)
    x[1, 2, 0, 1] = float("nan")
    words = {"sizes": (3, 3), "momentum": 0.1, "eps": 1e-5, "relu": True}
    y = group_norm(x, None, weight, bias, mean, variance, counters_for(4, 2, x.device), **words)
    assert y[:3, 2].isnan().all()
    assert y.isnan().sum() == y[:3, 2].numel()
    assert mean.isnan().tolist() == [False, False, True, False]


@pytest.mark.parametrize(
    ("dtype", "layout"),
    [(torch.float32, "dense"), (torch.float32, "strided"), (torch.bfloat16, "channels last"), (torch.float16, "dense")],
)
@pytest.mark.parametrize(
    ("rows", "channels", "sides"), [(0, 16, (4, 4)), (1, 1, (1, 1)), (1, 20, (9, 3)), (7, 130, (2, 5))]
)
@pytest.mark.parametrize(("relu", "has_residual"), [(False, False), (True, False), (True, True)])
def test_evaluation(rows, channels, sides, relu, has_residual, dtype, layout):
    x, residual = (MAPS[layout](maps.to(dtype)) for maps in normal(2, rows, channels, *sides))
    weight, bias, mean, variance = parameters(channels)
    y = batch_norm_eval(x, residual if has_residual else None, weight, bias, mean, variance, eps=1e-5, relu=relu)
    wide = (value.double() for value in (x, mean, variance, weight, bias))
    right = F.batch_norm(*wide, eps=1e-5)
    right = right + residual.double() if has_residual else right
    right = right.relu() if relu else right
    assert y.dtype == dtype
    torch.testing.assert_close(y.double(), right, rtol=ROUGH[dtype], atol=ROUGH[dtype])


def test_the_trial_runs():
    trial(torch.device("cpu"))
