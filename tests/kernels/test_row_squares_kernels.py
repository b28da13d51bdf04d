"""`row_squares_triton` adds up the squares that single rows' gradients have in float64."""

import pytest
import torch
from kernel_inputs import LAYOUTS, normal
from torch import nn
from torch.nn import functional as F

from odedm.methods import row_squares
from odedm.methods.row_squares import RowSquares
from odedm.methods.row_squares_triton import conv_squares, row_norm, trial
from odedm.nets.small import SmallCNN

CONVOLUTIONS = {
    "one row": (1, 3, 5, (6, 6), {"kernel_size": 3, "padding": 1}),
    "no row": (0, 3, 5, (6, 6), {"kernel_size": 3}),
    "one place, one channel": (4, 1, 1, (1, 1), {"kernel_size": 1}),
    "stride": (5, 16, 20, (9, 7), {"kernel_size": 3, "stride": (2, 1), "padding": (1, 0)}),
    "dilation": (3, 4, 6, (11, 10), {"kernel_size": (3, 2), "dilation": (2, 3), "padding": (2, 3)}),
    "more channels than a tile": (2, 130, 17, (3, 3), {"kernel_size": 1}),
    "more places than a turn": (2, 3, 8, (12, 11), {"kernel_size": (1, 3), "padding": (0, 1)}),
}
"""Rows, channels, output channels, sides, and the layer's other numbers."""


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("case", CONVOLUTIONS)
def test_squares_of_a_convolution(case, dtype, layout):
    rows, channels, out, sides, numbers = CONVOLUTIONS[case]
    layer = nn.Conv2d(channels, out, bias=False, **numbers)
    x = normal(rows, channels, *sides).to(dtype)
    slope = normal(*layer(torch.zeros(rows, channels, *sides)).shape, seed=1).to(dtype)
    with torch.backends.cudnn.flags(allow_tf32=False):
        found = conv_squares(LAYOUTS[layout](x), LAYOUTS[layout](slope), layer)
    size = layer.kernel_size, layer.dilation, layer.padding, layer.stride
    own = slope.double().flatten(2) @ F.unfold(x.double(), *size).mT if rows else torch.zeros(1, layer.weight.numel())
    right = own.square().sum(0).view_as(layer.weight).double()
    assert found.dtype == torch.float32
    assert (found - right).abs().max() <= 1e-5 * right.max()  # products of two numbers in bfloat16 are exact


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("dtype", "rough"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
@pytest.mark.parametrize(("rows", "channels", "sides"), [(1, 1, (1, 2)), (3, 20, (3, 5)), (2, 33, (13, 11))])
@pytest.mark.parametrize(("relu", "has_residual"), [(False, False), (True, False), (True, True), (False, True)])
def test_one_image_normalised_by_itself(rows, channels, sides, relu, has_residual, dtype, rough, layout):
    given = [
        LAYOUTS[layout]((2 * maps + 3).to(dtype)).requires_grad_()
        for maps in normal(1 + has_residual, rows, channels, *sides)
    ]
    weight, bias = normal(2, channels, seed=5)
    told = []
    y = row_norm(*given, *([] if has_residual else [None]), weight, bias, 1e-5, relu, lambda *by: told.append(by))
    wide = [maps.detach().double().requires_grad_() for maps in given]
    hat = F.instance_norm(wide[0], eps=1e-5)
    ways = [value.double().expand(rows, -1).clone().requires_grad_() for value in (weight, bias)]
    right = hat * ways[0][:, :, None, None] + ways[1][:, :, None, None] + (wide[1] if has_residual else 0.0)
    right = right.relu() if relu else right
    # where rounding decides on which side of the ReLU a value lies, no gradient is asked for
    slope = normal(*y.shape, seed=6).masked_fill((right.detach().abs() < 0.05) & relu, 0.0).to(dtype)
    found = torch.autograd.grad(y, given, LAYOUTS[layout](slope))
    *wanted, by_weight, by_bias = torch.autograd.grad(right, [*wide, *ways], slope.double())
    pairs = [(y, right), *zip(found, wanted, strict=True), (told[0][0], by_weight), (told[0][1], by_bias)]
    for mine, theirs in pairs:
        assert (mine - theirs).abs().max() <= 10 * rough * theirs.abs().max() + 1e-4
    assert len(told) == 1


def test_a_network_by_kernels(monkeypatch):
    torch.manual_seed(0)
    net = SmallCNN((3, 9, 9), 5, width=3).train()
    x, label = normal(4, 3, 9, 9), torch.arange(4) % 5

    def found(of, x):
        squares = RowSquares(of, training=True)
        squares.add(x, label)
        return squares.total

    right = found(net.double(), x.double())
    asked = []
    monkeypatch.setattr(row_squares, "has_kernels", lambda *given: asked.append(given) or True)
    with torch.backends.cudnn.flags(allow_tf32=False):
        mine = found(net.float(), x)
    assert asked
    for name, value in mine.items():
        assert (value.double() - right[name]).norm() <= 1e-4 * right[name].norm(), name


def test_the_trial_runs():
    trial(torch.device("cpu"))
