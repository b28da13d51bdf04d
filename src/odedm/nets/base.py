"""What every network promises: features, a linear head with one output for every class of the whole stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from odedm.core.accel.triton_support import has_kernels
from odedm.core.errors import UsageError
from odedm.core.validators import Int
from odedm.nets.grouped_batch_norm import GroupedBatchNorm, every_norm_groups, frozen_batch_stats, grouped
from odedm.nets.second_derivatives import ConvolutionsDerivedTwice


class Net(nn.Module, ABC):
    """A backbone φ(x) and a linear head: logits h(x) = W φ(x) + b.

    All C outputs exist from the start: logits of classes that are still to come are part of what is stored.

    `compute` is the type that the backbone multiplies in: None for the weights' own, or bfloat16. Weights, BatchNorm's
    statistics, the head and so all losses keep the weights' type.
    """

    TRANSIENT: ClassVar[frozenset[str]] = frozenset({"compute"})

    classes: int
    head: nn.Module
    """A linear layer, unless a method has put its own in its place."""
    compute: torch.dtype | None = None
    gradient_rows: int = 0
    """Rows that went through the backbone for a gradient, since the network was built: what training has cost."""
    frozen: tuple[str, ...] = ()
    """Names of the modules that stay in evaluation mode while the network trains, as `start_training` found them."""
    capturable: ClassVar[bool] = True
    """Whether a step with it can be recorded on a GPU: it reads no value back and draws nothing."""

    def train(self, mode: bool = True) -> Self:
        """Set training or evaluation mode; what its author froze stays in evaluation mode."""
        super().train(mode)
        for name, module in self.named_modules() if self.frozen else ():
            if name in self.frozen:
                module.training = False
        return self

    @abstractmethod
    def backbone(self, x: Tensor) -> Tensor:
        """Return φ(x) [n, d] of inputs [n, ...]."""

    def features(self, x: Tensor) -> Tensor:
        """Return penultimate features φ(x) [n, d] of inputs [n, ...], computed as `compute` says."""
        if torch.is_grad_enabled():
            self.count_gradient_rows(x.shape[0])
        if self.compute is None:
            return self.backbone(x)
        # no cache: weights cast once are not for a later call, which may come after an update or inside a CUDA graph
        with torch.autocast(x.device.type, self.compute, cache_enabled=False):
            return self.backbone(x).to(x.dtype)

    def count_gradient_rows(self, rows: int) -> None:
        """Add to `gradient_rows` what no pass of this code counts, or take off what one has counted too much."""
        vars(self)["gradient_rows"] = self.gradient_rows + rows  # past torch's slow way to set an attribute

    def forward(self, x: Tensor) -> Tensor:
        """Return logits [n, C] of inputs [n, ...]."""
        logits: Tensor = self.head(self.features(x))
        return logits

    def forward_batches(self, *inputs: Tensor) -> list[Tensor]:
        """Return the logits of each batch of inputs, as a call for each in turn would, BatchNorm's statistics included.

        Where launches cost more than arithmetic it is one pass over all rows, in which BatchNorm treats every batch by
        itself: a third of the launches for three batches.
        """
        if not (inputs and joins(inputs[0]) and self.training):
            return [self(x) for x in inputs]
        sizes = tuple(len(x) for x in inputs)
        if not (min(sizes) > 1 and every_norm_groups(self)):
            return [self(x) for x in inputs]
        with grouped(self, sizes):
            logits: Tensor = self(torch.cat(inputs) if len(inputs) > 1 else inputs[0])
        return list(logits.split(sizes))

    def head_weight(self) -> Tensor:
        """Return what each class looks for in the features [C, d]: the weights of the head, or of its linear layer."""
        weight = getattr(self.head, "weight", None)
        if isinstance(weight, Tensor):
            return weight
        return next(module.weight for module in self.head.modules() if isinstance(module, nn.Linear))


def joins(x: Tensor) -> bool:
    """Return whether batches like x [n, ...] are worth one pass: on a processor three calls cost what one does."""
    return x.is_cuda


@contextmanager
def as_function(
    net: nn.Module, x: Tensor, *, double_backward: bool = False, starts: Tensor | None = None
) -> Iterator[None]:
    """Let a pass of inputs [n, ...] change nothing in the net inside the block, as in a function of weights.

    Args:
        net: the network.
        x: what will be passed through it.
        double_backward: whether gradients will be derived once more: where launches cost more than arithmetic, layers
            then have second derivatives of their own (`odedm.nets.second_derivatives`).
        starts: int32 [0, m, n] on the device where only the first m rows count and the others fill up; only where
            `can_fill_up` says so.
    """
    if not (net.training and joins(x) and len(x) > 1 and every_norm_groups(net)):
        with frozen_batch_stats(net):
            yield
        return
    double_backward = double_backward or starts is not None  # the kernels that know of such rows
    sizes = (len(x),) if starts is None else (len(x), len(x))
    with (
        frozen_batch_stats(net, sizes, double_backward=double_backward, starts=starts),
        ConvolutionsDerivedTwice() if double_backward else nullcontext(),
    ):
        yield


def copied_buffers(net: nn.Module) -> dict[str, Tensor]:
    """Return copies of the buffers that a pass may change: all but those of our own BatchNorm, see `as_function`."""
    return {
        f"{path}.{name}" if path else name: buffer.clone()
        for path, module in net.named_modules()
        if not isinstance(module, GroupedBatchNorm)
        for name, buffer in module.named_buffers(recurse=False)
    }


def can_fill_up(net: nn.Module, x: Tensor) -> bool:
    """Return whether a batch like x [n, ...] may be filled up with rows that change nothing: no layer mixes them in."""
    if not (net.training and joins(x) and every_norm_groups(net)):
        return False
    norms = any(isinstance(module, GroupedBatchNorm) for module in net.modules())
    images = x.dim() == 4 and x.dtype != torch.float64
    return not norms or (images and has_kernels("odedm.nets.second_derivatives_triton", x.device))


class evaluating:
    """Put a net into evaluation mode, without gradients, inside the block."""

    # a class, and past torch's slow ways to walk through modules and to set attributes: together they take longer than
    # small nets, and a learner enters it for each prediction

    _is_open = False

    def __init__(self, net: nn.Module) -> None:
        self._net = net

    def __enter__(self) -> None:
        self._gradients = torch.is_grad_enabled()
        self._training: list[dict[str, Any]] = []
        self._modes: list[tuple[nn.Module, bool]] = []
        self._is_open = True
        try:
            self._begin()
        except BaseException:
            torch._C._set_grad_enabled(self._gradients)
            self._put_back()
            raise

    def _begin(self) -> None:
        training, modules = [], [self._net]
        for module in modules:  # which grows meanwhile
            state = module.__dict__
            if type(module).train not in PLAIN_TRAIN or "training" not in state:
                self._modes = [(module, module.training) for module in self._net.modules()]
                self._net.eval()
                break
            if state["training"]:
                training.append(state)
            if state["_modules"]:
                modules += [child for child in state["_modules"].values() if child is not None]
        else:
            self._training = training
            for state in training:
                state["training"] = False
        torch._C._set_grad_enabled(False)

    def __exit__(self, *_error: object) -> None:
        torch._C._set_grad_enabled(self._gradients)
        self._put_back()

    def _put_back(self) -> None:
        """Put back the modes; a second call does what an interrupt has kept the first from."""
        for state in self._training:
            state["training"] = True
        for module, mode in self._modes:
            module.training = mode
        self._is_open = False

    def __del__(self) -> None:
        if self._is_open:  # an interrupt came before `__exit__` was over; gradients are another block's by now
            self._put_back()


PLAIN_TRAIN = (nn.Module.train, Net.train)
"""What `train` is where to set a module's mode is all that it does."""


@contextmanager
def modes_kept(net: nn.Module) -> Iterator[None]:
    """Give every module back the mode it had before the block: some may be frozen in evaluation mode."""
    modes = [(module, module.training) for module in net.modules()]
    try:
        yield
    finally:
        for module, mode in modes:
            module.training = mode


def start_training(net: Net) -> Net:
    """Put a net that was just made into training mode, except for what its author froze, which is remembered.

    Frozen are modules in evaluation mode inside a net in training mode. A net that is in evaluation mode as a whole,
    as after loading weights, trains except for the modules all of whose weights have `requires_grad=False`.

    >>> from odedm.nets.small import SmallCNN
    >>> net = SmallCNN((1, 8, 8), 2)
    >>> frozen = net.norm1.eval()
    >>> start_training(net).frozen, net.train().norm1.training, net.norm2.training
    (('norm1',), False, True)
    """
    frozen = {module for module in net.modules() if not module.training}
    if not net.training:
        parts = (module for module in net.modules() if module is not net and _has_no_trained_weight(module))
        frozen = {module for part in parts for module in part.modules()}
    if frozen:
        net.frozen = tuple(name for name, module in net.named_modules() if module in frozen)
    net.train()
    return net


def _has_no_trained_weight(module: nn.Module) -> bool:
    weights = list(module.parameters())
    return bool(weights) and not any(weight.requires_grad for weight in weights)


@contextmanager
def computed_in(net: nn.Module, dtype: torch.dtype | None) -> Iterator[None]:
    """Let the backbone multiply in a type inside the block (None: the weights' own), whatever `compute` says."""
    if getattr(net, "compute", None) is dtype:
        yield
        return
    before = {name: value for name, value in vars(net).items() if name == "compute"}
    vars(net)["compute"] = dtype
    try:
        yield
    finally:
        del vars(net)["compute"]
        vars(net).update(before)


def full_precision(net: nn.Module) -> AbstractContextManager[None]:
    """Let the backbone multiply in the weights' own type inside the block, whatever `compute` says."""
    return computed_in(net, None)


def channels(shape: tuple[int, ...], net: str) -> int:
    """Return how many channels images of this shape have; refuse vectors."""
    if len(shape) != 3:
        raise UsageError(
            f"The net '{net}' is for images; these rows are vectors of shape {shape}. Use the net 'mlp' (--net mlp)."
        )
    return shape[0]


def positive(net: str, **sizes: int) -> None:
    """Refuse sizes of a net below 1, or so large that not even its plan can be made.

    >>> positive("vit", depth=0)
    Traceback (most recent call last):
    odedm.UsageError: The net option depth of 'vit' must be a whole number, 1 or more, up to 16777216; 0 was given.
    """
    for name, size in sizes.items():
        Int(1, 1 << 24).validate(f"The net option {name} of '{net}'", size)
