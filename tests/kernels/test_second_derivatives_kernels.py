"""`second_derivatives_triton` does what torch does in float64, one batch after the other."""

import pytest
import torch
from kernel_inputs import LAYOUTS, normal
from torch.nn import functional as F

from odedm.nets.grouped_batch_norm_triton import counters_for
from odedm.nets.second_derivatives_triton import TritonNorm, double_backward_norm, trial


def first_and_second(function, given, slope, *, seed=3):
    """Outputs, first derivatives, and second ones in random directions, of a loss that is linear in the outputs."""
    slope = slope.clone().requires_grad_()
    y = function(*given)
    first = torch.autograd.grad(y, given, slope, create_graph=True)
    rng = torch.Generator().manual_seed(seed)
    ways = [torch.randn(value.shape, generator=rng, dtype=torch.float64).to(value.dtype) for value in first]
    second = torch.autograd.grad(first, [slope, given[0], given[-2]], ways)
    return [y, *first, *second]


def norm(x, residual, weight, bias, *, eps, relu):
    """BatchNorm, a sum and a ReLU by torch's own operations."""
    mean, variance = x.mean((0, 2, 3), keepdim=True), x.var((0, 2, 3), correction=0, keepdim=True)
    y = (x - mean) * (variance + eps).rsqrt() * weight[:, None, None] + bias[:, None, None]
    y = y if residual is None else y + residual
    return F.relu(y) if relu else y


def both(sizes, channels, sides, *, relu, has_residual, dtype=torch.float32, layout="dense", starts=None, bounds=None):
    """By the kernels, and by the formulas in float64; `bounds` are the sizes that the host believes in."""
    maps = [(2 * part + 3).to(dtype) for part in normal(1 + has_residual, sum(sizes), channels, *sides)]
    given = [*map(LAYOUTS[layout], maps), *normal(2, channels, seed=5)]
    counters = counters_for(channels, len(sizes), torch.device("cpu"))

    def by_kernels(x, *rest):
        residual, (weight, bias) = (rest[0], rest[1:]) if has_residual else (None, rest)
        kernels = TritonNorm(bounds or sizes, counters, starts)
        return double_backward_norm(x, residual, weight, bias, kernels, eps=1e-5, relu=relu)

    def by_formulas(x, *rest):
        residual, (weight, bias) = (rest[0].split(sizes), rest[1:]) if has_residual else ([None] * len(sizes), rest)
        parts = zip(x.split(sizes), residual, strict=True)
        return torch.cat([norm(*part, weight, bias, eps=1e-5, relu=relu) for part in parts])

    mine = [x.detach().requires_grad_() for x in given]
    theirs = [x.detach().double().requires_grad_() for x in given]
    with torch.no_grad():
        near = by_formulas(*theirs).abs() < 0.05
    # where rounding decides on which side of the ReLU a value lies, no gradient is asked for
    slope = normal(sum(sizes), channels, *sides, seed=9).masked_fill(near & relu, 0.0)
    found = first_and_second(by_kernels, mine, LAYOUTS[layout](slope.to(dtype)))
    right = first_and_second(by_formulas, theirs, slope.to(dtype).double())
    assert not counters.any(), "ready for the next call"
    return found, right, near & relu


def hold(found, right, near, rough):
    """Every derivative, but for that by a slope whose value lies next to the ReLU's corner."""
    assert len(found) == len(right)
    for mine, theirs in zip(found, right, strict=True):
        off = (mine.double() - theirs).abs()
        off = off.masked_fill(near, 0.0) if off.shape == near.shape else off
        assert off.max() <= rough * theirs.abs().max() + 1e-5


CASES = [
    ((2,), 1, (1, 1)),
    ((1,), 3, (2, 2)),
    ((3, 2), 20, (3, 5)),
    ((7,), 33, (1, 1)),
    ((5, 8), 40, (3, 4)),
]


@pytest.mark.parametrize(("relu", "has_residual"), [(False, False), (True, False), (True, True), (False, True)])
@pytest.mark.parametrize(("sizes", "channels", "sides"), CASES)
def test_derivatives(sizes, channels, sides, relu, has_residual):
    hold(*both(sizes, channels, sides, relu=relu, has_residual=has_residual), 1e-4)


def test_derivatives_of_maps_with_large_strides():
    hold(*both((3, 2), 20, (3, 5), relu=True, has_residual=True, layout="strided"), 1e-4)


def test_derivatives_in_half_precision():
    hold(*both((6, 3), 20, (3, 5), relu=True, has_residual=True, dtype=torch.bfloat16), 4e-2)


@pytest.mark.parametrize("sizes", [(5, 3), (2, 1), (7, 1), (1, 7)])
def test_batches_whose_border_the_device_alone_knows(sizes):
    rows = sum(sizes)
    starts = torch.tensor([0, sizes[0], rows], dtype=torch.int32)
    hold(*both(sizes, 20, (3, 3), relu=True, has_residual=True, starts=starts, bounds=(rows, rows)), 1e-4)


def test_the_trial_runs():
    trial(torch.device("cpu"))
