"""What every network promises: features, a linear head with one output for every class of the whole stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odedm.errors import UsageError


class Net(nn.Module, ABC):
    """A trunk φ(x) and a linear head: logits h(x) = W φ(x) + b.

    All C outputs exist from the start: logits of classes that are still to come are part of what is stored.
    """

    classes: int
    head: nn.Module
    """A linear layer, unless a method has put its own in its place."""

    @abstractmethod
    def features(self, x: Tensor) -> Tensor:
        """Penultimate features φ(x) [n, d] of inputs [n, ...]."""

    def forward(self, x: Tensor) -> Tensor:
        """Logits [n, C] of inputs [n, ...]."""
        logits: Tensor = self.head(self.features(x))
        return logits

    def head_weight(self) -> Tensor:
        """What each class looks for in the features: the weights [C, d] of the head's linear layer."""
        return next(module.weight for module in self.head.modules() if isinstance(module, nn.Linear))


class Norm2d(nn.BatchNorm2d):
    """BatchNorm for images that also takes a single value per channel: one row whose map has shrunk to 1×1.

    Such a value has no spread to be judged by, so the running statistics judge it, as in evaluation.
    """

    def forward(self, input: Tensor) -> Tensor:
        """Maps [n, c, h, w], normalised."""
        if self.training and input.numel() == input.shape[1]:
            return F.batch_norm(input, self.running_mean, self.running_var, self.weight, self.bias, eps=self.eps)
        return super().forward(input)


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
