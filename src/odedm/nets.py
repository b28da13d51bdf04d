"""Networks: features and a linear head with one output for every class of the whole stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from contextlib import contextmanager

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odedm.catalogue import NETS
from odedm.errors import UsageError, choose
from odedm.randomness import derive


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


class MLP(Net):
    """Two hidden layers with ReLU on flattened inputs.

    >>> MLP((4,), 3)(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 64) -> None:
        super().__init__()
        self.classes = classes
        self.hidden = nn.Sequential(
            nn.Flatten(), nn.Linear(torch.Size(shape).numel(), width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.head = nn.Linear(width, classes)

    def features(self, x: Tensor) -> Tensor:
        """Second hidden layer [n, width]."""
        hidden: Tensor = self.hidden(x)
        return hidden


class SmallCNN(Net):
    """Three 3×3 convolutions with BatchNorm, halving the image twice, then the average over places.

    >>> SmallCNN((1, 28, 28), 10).features(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 64])
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 16) -> None:
        super().__init__()
        self.classes = classes
        channels = _channels(shape, "cnn")
        self.conv1, self.norm1 = _conv(channels, width), nn.BatchNorm2d(width)
        self.conv2, self.norm2 = _conv(width, 2 * width, stride=2), nn.BatchNorm2d(2 * width)
        self.conv3, self.norm3 = _conv(2 * width, 4 * width, stride=2), nn.BatchNorm2d(4 * width)
        self.head = nn.Linear(4 * width, classes)

    def features(self, x: Tensor) -> Tensor:
        """The last convolution averaged over places [n, 4 · width]."""
        x = F.relu(self.norm1(self.conv1(x)))
        x = F.relu(self.norm2(self.conv2(x)))
        x = F.relu(self.norm3(self.conv3(x)))
        return x.mean((2, 3))


class ResNet18(Net):
    """ResNet-18 with a 3×3 stem and no pooling before the last stage, as usual for 32×32 images.

    >>> sum(p.numel() for p in ResNet18((3, 32, 32), 10).parameters())
    11173962
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 64) -> None:
        super().__init__()
        self.classes = classes
        self.stem, self.norm = _conv(_channels(shape, "resnet18"), width), nn.BatchNorm2d(width)
        blocks: list[nn.Module] = []
        before = width
        for stage in range(4):
            after = width * 2**stage
            blocks += [BasicBlock(before, after, 1 if stage == 0 else 2), BasicBlock(after, after, 1)]
            before = after
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(before, classes)

    def features(self, x: Tensor) -> Tensor:
        """The last stage averaged over places [n, 8 · width], all entries ≥ 0."""
        maps: Tensor = self.blocks(F.relu(self.norm(self.stem(x))))
        return maps.mean((2, 3))


class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a way around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = _conv(before, after, stride), nn.BatchNorm2d(after)
        self.conv2, self.norm2 = _conv(after, after), nn.BatchNorm2d(after)
        self.around: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.around = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), nn.BatchNorm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        """Maps [n, after, h / stride, w / stride]."""
        y = F.relu(self.norm1(self.conv1(x)))
        return F.relu(self.norm2(self.conv2(y)) + self.around(x))


def _conv(before: int, after: int, stride: int = 1) -> nn.Conv2d:
    return nn.Conv2d(before, after, 3, stride, padding=1, bias=False)


def _channels(shape: tuple[int, ...], net: str) -> int:
    if len(shape) != 3:
        raise UsageError(f"The net '{net}' is for images; these rows are vectors of shape {shape}. Use --net mlp.")
    return shape[0]


def pick(name: str, shape: tuple[int, ...]) -> str:
    """The net that `auto` stands for: by the input's shape.

    >>> pick("auto", (16,)), pick("auto", (1, 28, 28)), pick("auto", (3, 32, 32))
    ('mlp', 'cnn', 'resnet18')
    """
    if name != "auto":
        choose("net", name, {**NETS, "auto": None})
        return name
    if len(shape) == 1:
        return "mlp"
    return "resnet18" if min(shape[1:]) >= 32 else "cnn"


def build(name: str, shape: tuple[int, ...], classes: int, *, seed: int) -> Net:
    """A freshly initialised net; the seed alone decides its weights, whatever was drawn before."""
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(derive(seed, "init"))
        net: Net = choose("net", pick(name, shape), NETS).load()(shape, classes)
    return net


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
