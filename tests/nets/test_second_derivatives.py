"""Second derivatives written out equal those that torch finds, and cost no more operations than they say."""

from collections import Counter

import pytest
import torch
from torch.autograd import gradcheck, gradgradcheck
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from odedm.core.accel.triton_support import has_kernels
from odedm.methods.meta_learning import NetFunction, Objective, hypergradient
from odedm.nets import base
from odedm.nets.grouped_batch_norm import Norm2d, frozen_batch_stats
from odedm.nets.resnet import slim_resnet18
from odedm.nets.second_derivatives import ConvolutionsDerivedTwice, convolved

DOUBLE = torch.float64


def draw(*shape):
    return torch.randn(*shape, dtype=DOUBLE).requires_grad_()


def bent(function, given, seed=3):
    """First and second derivatives of a random function of the outputs, in random directions."""
    rng = torch.Generator().manual_seed(seed)
    y = function(*given)
    loss = (y.square() * torch.randn(y.shape, generator=rng, dtype=y.dtype)).sum()
    first = torch.autograd.grad(loss, given, create_graph=True)
    ways = [torch.randn(each.shape, generator=rng, dtype=each.dtype) for each in first]
    second = torch.autograd.grad(first, given, ways)
    return [y, *first, *second]


@pytest.mark.parametrize(("stride", "padding", "kernel"), [(1, 1, 3), (2, 1, 3), (2, 0, 1)])
def test_a_convolution_derived_twice_is_that_of_torch(stride, padding, kernel):
    torch.manual_seed(0)
    given = [draw(3, 2, 5, 5), draw(4, 2, kernel, kernel)]
    mine, theirs = (
        bent(lambda x, w, how=how: how(x, w, None, stride, padding), given) for how in (convolved, F.conv2d)
    )
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-10)
    assert gradcheck(lambda x, w: convolved(x, w, None, stride, padding), given, fast_mode=True)
    assert gradgradcheck(lambda x, w: convolved(x, w, None, stride, padding), given, fast_mode=True)


class Convolutions(TorchDispatchMode):
    """Counts what is convolved, and with kernels of which size."""

    def __init__(self):
        super().__init__()
        self.calls, self.kernels = Counter(), set()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.__name__.split(".")[0]
        if "convolution" in name:
            back = name == "convolution_backward"
            self.calls[name] += sum(args[10]) if back else 1
            self.kernels.add(args[2 if back else 1].shape[2:])
        return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("first", [True, False])
def test_a_second_derivative_is_six_convolutions_with_kernels_of_the_same_size(first):
    torch.manual_seed(0)
    x, weight = draw(3, 2, 8, 8).detach().requires_grad_(not first), draw(4, 2, 3, 3)
    given = [weight] if first else [x, weight]
    with Convolutions() as count:
        with ConvolutionsDerivedTwice():
            y = torch.nn.functional.conv2d(x, weight, None, 1, 1).tanh()
        backward = torch.autograd.grad(y.square().sum(), given, create_graph=True)
        before = sum(count.calls.values())
        torch.autograd.grad(backward, given, [torch.ones_like(each) for each in backward])
    assert before == (2 if first else 3)
    assert sum(count.calls.values()) - before == (2 if first else 6)
    assert count.kernels == {(3, 3)}


def test_other_convolutions_are_left_to_torch_and_so_is_everything_after_the_block():
    torch.manual_seed(0)
    x, weight, bias = draw(2, 2, 4, 4), draw(3, 2, 3, 3), draw(3)
    with ConvolutionsDerivedTwice():
        with_bias = F.conv2d(x, weight, bias, padding="same")
        mine = F.conv2d(x, weight, padding=1)
    assert "Convolved" not in type(with_bias.grad_fn).__name__
    assert "Convolved" in type(mine.grad_fn).__name__
    assert "Convolved" not in type(F.conv2d(x, weight, padding=1).grad_fn).__name__
    assert mine.equal(F.conv2d(x, weight, padding=1))
    with ConvolutionsDerivedTwice(), torch.autocast("cpu", torch.bfloat16):
        half = F.conv2d(x.float(), weight.float(), padding=1)
    assert half.dtype == torch.bfloat16
    torch.autograd.grad(half.sum(), weight)


def a_net():
    torch.manual_seed(0)
    return slim_resnet18((3, 8, 8), 4, width=2).double().train()


def found_gradients(net, rate=0.3):
    rng = torch.Generator().manual_seed(5)
    x, label = torch.randn(6, 3, 8, 8, generator=rng, dtype=DOUBLE), torch.randint(4, (6,), generator=rng)
    goal = Objective(x, label, torch.full((6,), 1 / 6, dtype=DOUBLE), 0, 4)
    function = NetFunction(net)
    return hypergradient(function, function.weights(), rate, [goal, goal], goal, clip=0.5)


def test_a_hypergradient_through_them_is_the_one_by_torch_and_leaves_no_trace(monkeypatch):
    net = a_net()
    before = {name: value.clone() for name, value in net.state_dict().items()}
    theirs = found_gradients(net)
    monkeypatch.setattr(base, "joins", lambda _: True)
    with Convolutions() as count:
        mine = found_gradients(net)
    for a, b in zip(mine, theirs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-12)
    assert mine.by_weights.norm() > 0
    assert max(max(kernel) for kernel in count.kernels) == 3
    for name, value in net.state_dict().items():
        assert value.equal(before[name]), name
    assert all(set(vars(norm)) == set(vars(Norm2d(2))) for norm in net.modules() if isinstance(norm, Norm2d))


def test_running_statistics_stay_in_the_block_and_move_after_it():
    norm, x = Norm2d(3).train(), torch.randn(4, 3, 2, 2)
    with frozen_batch_stats(norm):
        inside = norm(x)
    assert norm.num_batches_tracked == 0
    assert norm.running_mean.eq(0).all()
    assert norm(x).equal(inside)
    assert norm.num_batches_tracked == 1
    norm.eval()
    with frozen_batch_stats(norm):
        assert norm(x).equal(norm(x)), "running statistics judge as ever"


gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")


@pytest.mark.gpu
@gpu
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "channels", "side"), [(8, 64, 32), (40, 512, 4), (7, 20, 9), (64, 33, 5)])
@pytest.mark.parametrize(("relu", "has_residual"), [(False, False), (True, False), (True, True)])
def test_kernels_derive_twice_as_the_formulas_do(dtype, rows, channels, side, relu, has_residual):
    assert has_kernels("odedm.nets.second_derivatives_triton", torch.device("cuda"))
    torch.manual_seed(0)
    norm = Norm2d(channels).cuda()
    torch.nn.init.normal_(norm.weight)
    maps = [(2 * torch.randn(rows, channels, side, side, device="cuda") + 3).to(dtype) for _ in range(1 + has_residual)]
    given = [each.to(memory_format=torch.channels_last).requires_grad_() for each in maps]

    def by_kernels(x, *rest):
        residual, (weight, bias) = (rest[0], rest[1:]) if has_residual else (None, rest)
        norm.weight, norm.bias = torch.nn.Parameter(weight.detach()), torch.nn.Parameter(bias.detach())
        own = {"weight": weight, "bias": bias}
        with frozen_batch_stats(norm, (rows,), double_backward=True):
            return torch.func.functional_call(norm, own, (x, residual), {"relu": relu})

    def by_formulas(x, *rest):
        return plain_norm(x, *(() if has_residual else (None,)), *rest, eps=norm.eps, relu=relu)

    weights = [each.detach().clone().requires_grad_() for each in (norm.weight, norm.bias)]
    wide = [each.detach().double().requires_grad_() for each in (*given, *weights)]
    rough = 2e-2 if dtype == torch.bfloat16 else 2e-5
    for a, b in zip(on_device(by_kernels, [*given, *weights]), on_device(by_formulas, wide), strict=True):
        # values next to 0 may come out on the other side of the ReLU
        assert ((a - b).abs() > rough * b.abs().max() + 1e-6).sum() <= 4
    assert not any(counters.any() for counters in norm.counters.values()), "ready for the next call"


def plain_norm(x, residual, weight, bias, *, eps, relu):
    y = F.batch_norm(x, None, None, weight, bias, True, 0.0, eps)
    y = y if residual is None else y + residual
    return y.relu() if relu else y


def on_device(function, given, seed=3):
    """As `bent`, with a loss that is linear in the outputs: rounding of these does not turn the ReLU over."""
    rng = torch.Generator().manual_seed(seed)
    y = function(*given)
    slope = torch.randn(y.shape, generator=rng).to(y)
    slope.requires_grad_()
    first = torch.autograd.grad(y, given, slope, create_graph=True)
    ways = [torch.randn(each.shape, generator=rng).to(each) for each in first]
    second = torch.autograd.grad(first, [slope, *given[:1], given[-2]], ways)
    return [y, *first, *second]


@pytest.mark.gpu
@gpu
def test_a_hypergradient_on_the_gpu_by_kernels_is_that_of_the_cpu():
    net = a_net()
    right = found_gradients(net, rate=0.01)  # at .3 float32 alone is off by a hundredth
    rng = torch.Generator().manual_seed(5)
    x, label = torch.randn(6, 3, 8, 8, generator=rng, dtype=DOUBLE), torch.randint(4, (6,), generator=rng)
    function = NetFunction(net.float().cuda())
    goal = Objective(x.float().cuda(), label.cuda(), torch.full((6,), 1 / 6, device="cuda"), 0, 4)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        for _ in range(2):
            found = hypergradient(function, function.weights(), 0.01, [goal, goal], goal, clip=0.5)
            for a, b in zip(found, right, strict=True):
                torch.testing.assert_close(a.double().cpu(), b, rtol=2e-3, atol=2e-4 * b.abs().max().item())
