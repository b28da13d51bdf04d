"""What every network promises: features, a linear head with one output for every class of the whole stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

from odedm.compiled import has_kernels
from odedm.errors import UsageError


class Net(nn.Module, ABC):
    """A trunk φ(x) and a linear head: logits h(x) = W φ(x) + b.

    All C outputs exist from the start: logits of classes that are still to come are part of what is stored.

    `compute` is the type that the trunk multiplies in: None for the weights' own, or bfloat16. Weights, BatchNorm's
    statistics, the head and so all losses keep the weights' type.
    """

    classes: int
    head: nn.Module
    """A linear layer, unless a method has put its own in its place."""
    compute: torch.dtype | None = None

    @abstractmethod
    def trunk(self, x: Tensor) -> Tensor:
        """φ(x) [n, d] of inputs [n, ...]."""

    def features(self, x: Tensor) -> Tensor:
        """Penultimate features φ(x) [n, d] of inputs [n, ...], computed as `compute` says."""
        if self.compute is None:
            return self.trunk(x)
        # no cache: weights cast once are not for a later call, which may come after an update or inside a CUDA graph
        with torch.autocast(x.device.type, self.compute, cache_enabled=False):
            return self.trunk(x).to(x.dtype)

    def forward(self, x: Tensor) -> Tensor:
        """Logits [n, C] of inputs [n, ...]."""
        logits: Tensor = self.head(self.features(x))
        return logits

    def together(self, *inputs: Tensor) -> list[Tensor]:
        """Logits of each batch of inputs: the same mathematics as a call for each in turn, BatchNorm's included.

        Where launches cost more than arithmetic it is one pass over all rows, in which BatchNorm treats every batch by
        itself: a third of the launches for three batches.
        """
        sizes = tuple(len(x) for x in inputs)
        if not (sizes and self.training and joins(inputs[0]) and min(sizes) > 1 and _every_norm_groups(self)):
            return [self(x) for x in inputs]
        with grouped(self, sizes):
            logits: Tensor = self(torch.cat(inputs) if len(inputs) > 1 else inputs[0])
        return list(logits.split(sizes))

    def head_weight(self) -> Tensor:
        """What each class looks for in the features: the weights [C, d] of the head's linear layer."""
        return next(module.weight for module in self.head.modules() if isinstance(module, nn.Linear))


def joins(x: Tensor) -> bool:
    """Whether batches like x [n, ...] are worth one pass: on a processor three calls cost what one does."""
    return x.is_cuda


class GroupedNorm(nn.modules.batchnorm._BatchNorm):
    """BatchNorm that can treat parts of its batch as batches of their own, one after the other.

    A batch with a single value per channel (one row whose map has shrunk to 1×1) has no spread to be judged by, so the
    running statistics judge it, as in evaluation.
    """

    groups: tuple[int, ...] = ()
    """Sizes of the parts, set by `grouped`; none: one batch."""
    counters: dict[int, Tensor]

    def __init__(self, *sizes: Any, **words: Any) -> None:
        super().__init__(*sizes, **words)
        self.counters = {}  # the kernel's, by number of groups; no part of the network's state

    def forward(self, input: Tensor, beside: Tensor | None = None, *, relu: bool = False) -> Tensor:
        """Values [n, c, ...], normalised; then `beside` is added and the ReLU taken, where asked for."""
        if self.groups and self._has_kernel(input):
            return self._kernel(input, beside, relu)
        if self._has_kernel(input) and self._is_judged(input):
            return self._judged(input, beside, relu)
        parts = input.split(self.groups) if self.groups else (input,)
        y = self._norm(input) if len(parts) == 1 else torch.cat([self._norm(part) for part in parts])
        y = y if beside is None else y + beside
        return F.relu(y) if relu else y

    def _norm(self, x: Tensor) -> Tensor:
        if self.training and x.numel() == x.shape[1]:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        if not self.groups:
            return super().forward(x)
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, True, self.momentum or 0.0, self.eps
        )

    def _has_kernel(self, x: Tensor) -> bool:
        return x.dim() == 4 and x.dtype != torch.float64 and has_kernels("odedm.nets.norm_kernels", x.device)

    def _is_judged(self, x: Tensor) -> bool:
        """Whether it evaluates without gradients of any kind: those of torch.func and forward mode want torch's own."""
        plain = not (self.training or torch.is_grad_enabled() or torch._C._functorch.is_functorch_wrapped_tensor(x))
        whole = self.affine and self.running_mean is not None and self.running_var is not None
        return plain and whole and forward_ad._current_level < 0

    def _judged(self, x: Tensor, beside: Tensor | None, relu: bool) -> Tensor:
        from odedm.nets.norm_kernels import judged_norm  # Triton comes with torch for GPUs alone

        assert self.running_mean is not None
        assert self.running_var is not None
        return judged_norm(
            x, beside, self.weight, self.bias, self.running_mean, self.running_var, eps=self.eps, relu=relu
        )

    def _kernel(self, x: Tensor, beside: Tensor | None, relu: bool) -> Tensor:
        from odedm.nets.norm_kernels import group_norm  # Triton comes with torch for GPUs alone

        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        return group_norm(
            x, beside, self.weight, self.bias, self.running_mean, self.running_var, self._counters(x.device),
            sizes=self.groups, momentum=self.momentum, eps=self.eps, relu=relu,
        )  # fmt: skip

    def _counters(self, device: torch.device) -> Tensor:
        from odedm.nets.norm_kernels import counters_for

        kept = self.counters.get(len(self.groups))
        if kept is None or kept.device != device:
            kept = self.counters[len(self.groups)] = counters_for(self.num_features, len(self.groups), device)
        return kept

    def _check_input_dim(self, input: Tensor) -> None:
        """Any number of dimensions will do."""


class Norm2d(GroupedNorm, nn.BatchNorm2d):
    """BatchNorm for images, by group where a net asks for it."""


@contextmanager
def grouped(net: nn.Module, sizes: tuple[int, ...]) -> Iterator[None]:
    """Inside the block every BatchNorm of the net treats rows as batches of the given sizes."""
    norms = [module for module in net.modules() if isinstance(module, GroupedNorm)]
    try:
        for norm in norms:
            norm.groups = sizes
        yield
    finally:
        for norm in norms:
            norm.groups = ()
    counts = [norm.num_batches_tracked for norm in norms if norm.num_batches_tracked is not None]
    if counts:
        torch._foreach_add_(counts, len(sizes))


def _every_norm_groups(net: nn.Module) -> bool:
    """Whether no layer would mix the batches: foreign or unusual BatchNorms would, and dropout draws other masks."""
    for module in net.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            return False
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            plain = module.training and module.momentum is not None and module.affine and module.track_running_stats
            if not (plain and isinstance(module, GroupedNorm)):
                return False
    return True


@contextmanager
def evaluating(net: nn.Module) -> Iterator[None]:
    """Evaluation mode without gradients inside the block; the mode of before after it."""
    training = net.training
    net.eval()
    try:
        with torch.no_grad():
            yield
    finally:
        net.train(training)


def channels(shape: tuple[int, ...], net: str) -> int:
    """How many channels images of this shape have, or the sentence that the net is not for vectors."""
    if len(shape) != 3:
        raise UsageError(f"The net '{net}' is for images; these rows are vectors of shape {shape}. Use --net mlp.")
    return shape[0]


def positive(net: str, **sizes: int) -> None:
    """Refuse sizes of a net below 1.

    >>> positive("vit", depth=0)
    Traceback (most recent call last):
    odedm.errors.UsageError: The net option depth of 'vit' must be 1 or more; 0 was given.
    """
    for name, size in sizes.items():
        if size < 1:
            raise UsageError(f"The net option {name} of '{net}' must be 1 or more; {size} was given.")
