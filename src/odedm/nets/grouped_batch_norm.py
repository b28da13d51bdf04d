"""BatchNorm that treats parts of a batch as batches of their own, so that one pass does the work of several."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional as F

from odedm.core.accel.triton_support import has_kernels
from odedm.core.stored_names import stored


class GroupedBatchNorm(nn.modules.batchnorm._BatchNorm):
    """BatchNorm that can treat parts of its batch as batches of their own, one after the other.

    A batch with a single value per channel (one row whose map has shrunk to 1×1) has no spread to be judged by, so the
    running statistics judge it, as in evaluation.
    """

    TRANSIENT: ClassVar[frozenset[str]] = frozenset({"counters"})

    groups: tuple[int, ...] = ()
    """Sizes of the parts, set by `grouped`; none: one batch."""
    starts: Tensor | None = None
    """Where the parts begin and the last one ends, where the device alone knows; their sizes are then upper bounds."""
    frozen_batch_stats: bool = False
    """Whether the running statistics stay as they are."""
    double_backward: bool = False
    """Whether gradients will be derived once more."""
    counters: dict[tuple[int, int], Tensor]

    def __init__(self, *sizes: Any, **words: Any) -> None:
        super().__init__(*sizes, **words)
        self.counters = {}  # the kernel's, by number of groups and stream; no part of the network's state

    def forward(self, input: Tensor, residual: Tensor | None = None, *, relu: bool = False) -> Tensor:
        """Return values [n, c, ...], normalised; then `residual` is added and the ReLU taken, where asked for."""
        if self.groups and self._has_kernel(input):
            return self._kernel(input, residual, relu)
        if self._has_kernel(input) and self._can_evaluate(input):
            return self._evaluate(input, residual, relu)
        parts = input.split(self.groups) if self.groups else (input,)
        y = self._norm(input) if len(parts) == 1 else torch.cat([self._norm(part) for part in parts])
        y = y if residual is None else y + residual
        return F.relu(y) if relu else y

    def _norm(self, x: Tensor) -> Tensor:
        if self.training and x.numel() == x.shape[1]:
            return F.batch_norm(x, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        if self.frozen_batch_stats and self.training:
            return F.batch_norm(x, None, None, self.weight, self.bias, True, 0.0, self.eps)
        if not self.groups:
            return super().forward(x)
        return F.batch_norm(
            x, self.running_mean, self.running_var, self.weight, self.bias, True, self.momentum or 0.0, self.eps
        )

    def _has_kernel(self, x: Tensor) -> bool:
        module = f"odedm.nets.{'second_derivatives' if self.double_backward else 'grouped_batch_norm'}_triton"
        return x.dim() == 4 and x.dtype != torch.float64 and has_kernels(module, x.device)

    def _can_evaluate(self, x: Tensor) -> bool:
        """Return whether it evaluates without gradients: those of torch.func and forward mode want torch's own."""
        plain = not (self.training or torch.is_grad_enabled() or torch._C._functorch.is_functorch_wrapped_tensor(x))
        whole = self.affine and self.running_mean is not None and self.running_var is not None
        return plain and whole and forward_ad._current_level < 0

    def _evaluate(self, x: Tensor, residual: Tensor | None, relu: bool) -> Tensor:
        from odedm.nets.grouped_batch_norm_triton import batch_norm_eval  # Triton comes with torch for GPUs alone

        assert self.running_mean is not None
        assert self.running_var is not None
        return batch_norm_eval(
            x, residual, self.weight, self.bias, self.running_mean, self.running_var, eps=self.eps, relu=relu
        )

    def _kernel(self, x: Tensor, residual: Tensor | None, relu: bool) -> Tensor:
        from odedm.nets.grouped_batch_norm_triton import group_norm  # Triton comes with torch for GPUs alone

        assert self.running_mean is not None
        assert self.running_var is not None
        assert self.momentum is not None
        if self.double_backward:
            from odedm.nets.second_derivatives_triton import TritonNorm, double_backward_norm

            kernels = TritonNorm(self.groups, self._counters(x.device), self.starts)
            return double_backward_norm(x, residual, self.weight, self.bias, kernels, eps=self.eps, relu=relu)
        return group_norm(
            x, residual, self.weight, self.bias, self.running_mean, self.running_var, self._counters(x.device),
            sizes=self.groups, momentum=0.0 if self.frozen_batch_stats else self.momentum, eps=self.eps, relu=relu,
        )  # fmt: skip

    def _counters(self, device: torch.device) -> Tensor:
        from odedm.nets.grouped_batch_norm_triton import counters_for

        # a stream each: passes beside each other must not count together
        kind = len(self.groups), torch.cuda.current_stream(device).cuda_stream
        kept = self.counters.get(kind)
        if kept is None or kept.device != device:
            kept = self.counters[kind] = counters_for(self.num_features, len(self.groups), device)
        return kept

    def _check_input_dim(self, input: Tensor) -> None:
        """Accept any number of dimensions."""


@stored("net/batch-norm")
class Norm2d(GroupedBatchNorm, nn.BatchNorm2d):
    """BatchNorm for images, by group where a net asks for it."""


@contextmanager
def grouped(net: nn.Module, sizes: tuple[int, ...]) -> Iterator[None]:
    """Let every BatchNorm of the net treat rows as batches of the given sizes, inside the block."""
    norms = [module for module in net.modules() if isinstance(module, GroupedBatchNorm)]
    try:
        for norm in norms:
            vars(norm)["groups"] = sizes
        yield
    finally:
        for norm in norms:  # nothing stays behind in the state: a replayed step does not come here
            vars(norm).pop("groups", None)
    counts = [norm.num_batches_tracked for norm in norms if norm.num_batches_tracked is not None]
    if counts:
        torch._foreach_add_(counts, len(sizes))


@contextmanager
def frozen_batch_stats(
    net: nn.Module, sizes: tuple[int, ...] = (), *, double_backward: bool = False, starts: Tensor | None = None
) -> Iterator[None]:
    """Keep every BatchNorm of this package from moving its running statistics and from counting, inside the block.

    Args:
        net: whose layers.
        sizes: batches as which the rows are treated, as by `grouped`; none: one batch, by torch's own operations.
        double_backward: whether gradients will be derived once more; needs `sizes`.
        starts: where the batches begin and the last one ends, int32 on the device, where the host knows no more than
            that none has more rows than its size; only with kernels.
    """
    norms = [module for module in net.modules() if isinstance(module, GroupedBatchNorm)]
    way = {"frozen_batch_stats": True, "groups": sizes, "double_backward": double_backward, "starts": starts}
    try:
        for norm in norms:
            vars(norm).update(way)
        yield
    finally:
        for norm in norms:
            for name in way:
                vars(norm).pop(name, None)


def every_norm_groups(net: nn.Module) -> bool:
    """Return whether no layer would mix the batches; foreign BatchNorms would, and dropout draws other masks."""
    for module in net.modules():
        if isinstance(module, nn.modules.dropout._DropoutNd) and module.p > 0:
            return False
        if isinstance(module, nn.modules.batchnorm._BatchNorm):
            plain = module.training and module.momentum is not None and module.affine and module.track_running_stats
            if not (plain and isinstance(module, GroupedBatchNorm)):
                return False
    return True
