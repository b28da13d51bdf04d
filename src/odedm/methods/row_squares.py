"""Sums of the squares of single rows' gradients, by passes over many rows as over any batch.

What a row alone would do to a layer's weights follows from what enters the layer and from the gradient of what leaves
it, and one pass over many rows gives both, if no layer mixes rows: BatchNorm works over the places of one image here.
So a row's gradient is never held whole, and a GPU works on as many rows as it likes. Sums are rounded in another order
than by gradients that are made row by row.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odedm.core.accel.triton_support import has_kernels
from odedm.methods.gradients import trained
from odedm.nets.base import Net
from odedm.nets.grouped_batch_norm import Norm2d
from odedm.nets.resnet import BasicBlock, ResNet18
from odedm.nets.small import MLP, SmallCNN

AROUND = (ResNet18, BasicBlock, SmallCNN, MLP, nn.Sequential, nn.Identity, nn.Flatten, nn.ReLU)
"""Modules without weights of their own that never mix rows."""
KERNELS = "odedm.methods.row_squares_triton"
ENTRIES = 1 << 26
"""How many numbers the gradients of single rows by one convolution may hold at once, where there is no kernel."""
PIXELS, MOST_ROWS = 1 << 20, 256
"""How many values of inputs, and how many rows, go through the network together."""


def knows_squares(net: nn.Module) -> bool:
    """Whether every layer of the network is of a kind whose squares are known here, and every weight of one layer.

    >>> knows_squares(MLP((4,), 3)), knows_squares(nn.GRU(4, 3))
    (True, False)
    """
    kinds = (*AROUND, nn.Linear, nn.Conv2d, Norm2d)
    every = [weight for module in net.modules() for weight in module.parameters(recurse=False)]
    return len(every) == len({id(weight) for weight in every}) and all(
        type(module) in kinds and (not isinstance(module, nn.Conv2d) or _is_plain(module)) for module in net.modules()
    )


def _is_plain(layer: nn.Conv2d) -> bool:
    return layer.groups == 1 and layer.padding_mode == "zeros" and not isinstance(layer.padding, str)


def rows_together(x: Tensor) -> int:
    """Return how many rows like those of x [n, ...] are passed through the network at once.

    >>> rows_together(torch.zeros(1, 3, 32, 32)), rows_together(torch.zeros(1, 3, 128, 128))
    (256, 21)
    """
    return max(1, min(MOST_ROWS, PIXELS // max(1, x[0].numel())))


class RowSquares:
    """Adds up p(y|x) · (∂ log p(y|x) / ∂θ)² over rows, for every weight θ of a network that `knows_squares`.

    With `training`, BatchNorm works over the places of one image, otherwise by its running statistics; the network
    stays as it is. It computes in the network's own precision.

    >>> squares = RowSquares(MLP((4,), 3), training=True)
    >>> squares.add(torch.ones(2, 4), torch.tensor([0, 2]))
    >>> squares.total["head.bias"].shape
    torch.Size([3])
    """

    def __init__(self, net: Net, *, training: bool) -> None:
        self.net, self.training = net, training
        parameters = trained(net)
        self.total = {name: torch.zeros_like(weight) for name, weight in parameters.items()}
        self._sum: dict[Tensor, Tensor] = {weight: self.total[name] for name, weight in parameters.items()}
        self._leaves: list[Tensor] = []

    def add(self, x: Tensor, label: Tensor) -> None:
        """Add what rows with inputs x [n, ...] and labels [n] give."""
        with torch.enable_grad(), self._listening():
            log_p = -F.cross_entropy(self.net(x.detach()), label, reduction="none")
            # a row's factor goes into its gradient by its root, and is squared with it
            torch.autograd.grad((log_p.detach().exp().sqrt() * log_p).sum(), self._leaves)

    @contextmanager
    def _listening(self) -> Iterator[None]:
        """Inside the block layers hear what enters them and the gradient of what leaves them."""
        forward: dict[type, Callable[..., Tensor]] = {
            nn.Conv2d: self._conv,
            nn.Linear: self._linear,
            Norm2d: self._norm,
        }
        layers = [module for module in self.net.modules() if type(module) in forward]
        try:
            for layer in layers:
                vars(layer)["forward"] = partial(forward[type(layer)], layer)
            yield
        finally:
            for layer in layers:
                del vars(layer)["forward"]
            self._leaves.clear()

    def _heard(self, y: Tensor, then: Callable[[Tensor], None]) -> Tensor:
        """`y`, whose gradient will be told to `then`; the first of a network is where derivation ends."""
        if not y.requires_grad:
            self._leaves.append(y.requires_grad_())
        y.register_hook(then)
        return y

    def _add(self, weight: Tensor | None, squares: Callable[[], Tensor]) -> None:
        """Add squares [...] to those of a weight, if it is trained."""
        if weight is not None and weight in self._sum:
            self._sum[weight] += squares()

    def _linear(self, layer: nn.Linear, x: Tensor) -> Tensor:
        def squares(slope: Tensor) -> None:
            square = slope.to(layer.weight.dtype).square()
            # a row's gradient is the product of two vectors, and so are its squares
            self._add(layer.weight, lambda: square.T @ x.detach().to(square.dtype).square())
            self._add(layer.bias, lambda: square.sum(0))

        return self._heard(F.linear(x, layer.weight.detach(), _detached(layer.bias)), squares)

    def _conv(self, layer: nn.Conv2d, x: Tensor) -> Tensor:
        y = F.conv2d(x, layer.weight.detach(), _detached(layer.bias), layer.stride, layer.padding, layer.dilation)
        entered = x.detach().to(y.dtype)

        def squares(slope: Tensor) -> None:
            self._add(layer.weight, lambda: conv_squares(entered, slope, layer))
            self._add(layer.bias, lambda: slope.to(layer.weight.dtype).sum((2, 3)).square().sum(0))

        return self._heard(y, squares)

    def _norm(self, layer: Norm2d, x: Tensor, residual: Tensor | None = None, *, relu: bool = False) -> Tensor:
        by_image = self.training and x[0, 0].numel() > 1  # one place has no spread, as in `GroupedBatchNorm`
        if by_image and has_kernels(KERNELS, x.device):
            from odedm.methods.row_squares_triton import row_norm  # Triton comes with torch for GPUs alone

            def squares(turn: Tensor, shift: Tensor) -> None:
                self._add(layer.weight, lambda: turn.square().sum(0))
                self._add(layer.bias, lambda: shift.square().sum(0))

            return row_norm(x, residual, layer.weight.detach(), layer.bias.detach(), layer.eps, relu, squares)
        middle, variance = layer.running_mean, layer.running_var
        if by_image:
            y = F.batch_norm(x.flatten(2).flatten(0, 1)[None], None, None, training=True, eps=layer.eps).view_as(x)
        else:
            y = F.batch_norm(x, middle, variance, training=False, eps=layer.eps)
        for weight, joined in ((layer.weight, torch.mul), (layer.bias, torch.add)):
            weights = weight.detach()[None, :, None, None].expand(len(x), -1, 1, 1).clone().requires_grad_()
            self._leaves.append(weights)  # a weight for every row, so that its gradient is the row's own
            weights.register_hook(
                lambda slope, weight=weight: self._add(weight, lambda: slope[..., 0, 0].square().sum(0))
            )
            y = joined(y, weights)
        y = y.to(x.dtype) if residual is None else y.to(x.dtype) + residual
        return F.relu(y) if relu else y


def conv_squares(x: Tensor, slope: Tensor, layer: nn.Conv2d) -> Tensor:
    """Squares of single rows' gradients by a convolution's weights, added up over rows: like the weights.

    `x` [n, c, h, w] enters the convolution, `slope` [n, o, h', w'] is the gradient of what leaves it.
    """
    if has_kernels(KERNELS, x.device) and x.dtype != torch.float64:
        from odedm.methods.row_squares_triton import conv_squares as fused

        return fused(x, slope, layer).to(layer.weight.dtype)
    total = torch.zeros_like(layer.weight)
    assert not isinstance(layer.padding, str)  # see `_is_plain`
    size = layer.kernel_size, layer.dilation, layer.padding, layer.stride
    for part, gone in zip(*(maps.split(max(1, ENTRIES // total.numel())) for maps in (x, slope)), strict=True):
        gradients = gone.flatten(2).to(total.dtype) @ F.unfold(part.to(total.dtype), *size).mT
        total += gradients.square().sum(0).view_as(total)
    return total


def _detached(weight: Tensor | None) -> Tensor | None:
    return None if weight is None else weight.detach()
