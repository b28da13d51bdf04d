"""Small networks: one layer or two hidden ones for vectors, two or three convolutions for small images."""

from __future__ import annotations

import math
from typing import final

import torch
from torch import Tensor, nn

from odedm.core.stored_names import stored
from odedm.nets.base import Net, channels, positive
from odedm.nets.grouped_batch_norm import Norm2d


@stored("net/linear")
@final
class Linear(Net):
    """A linear layer on flattened inputs, which are the features.

    >>> Linear((4,), 3).features(torch.ones(1, 4))
    tensor([[1., 1., 1., 1.]])
    """

    def __init__(self, shape: tuple[int, ...], classes: int) -> None:
        super().__init__()
        self.classes = classes
        self.head = nn.Linear(torch.Size(shape).numel(), classes)

    def backbone(self, x: Tensor) -> Tensor:
        """Return the inputs [n, d]."""
        return x.flatten(1)


@stored("net/mlp")
@final
class MLP(Net):
    """Two hidden layers with ReLU on flattened inputs.

    >>> MLP((4,), 3)(torch.zeros(2, 4)).shape
    torch.Size([2, 3])
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 64) -> None:
        super().__init__()
        positive("mlp", width=width)
        self.classes = classes
        self.hidden = nn.Sequential(
            nn.Flatten(), nn.Linear(torch.Size(shape).numel(), width), nn.ReLU(), nn.Linear(width, width), nn.ReLU()
        )
        self.head = nn.Linear(width, classes)

    def backbone(self, x: Tensor) -> Tensor:
        """Return the second hidden layer [n, width]."""
        hidden: Tensor = self.hidden(x)
        return hidden


@stored("net/cnn")
@final
class SmallCNN(Net):
    """Three 3×3 convolutions with BatchNorm, halving the image twice, then the average over places.

    >>> SmallCNN((1, 28, 28), 10).features(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 64])
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 16) -> None:
        super().__init__()
        positive("cnn", width=width)
        self.classes = classes
        self.conv1, self.norm1 = conv(channels(shape, "cnn"), width), Norm2d(width)
        self.conv2, self.norm2 = conv(width, 2 * width, stride=2), Norm2d(2 * width)
        self.conv3, self.norm3 = conv(2 * width, 4 * width, stride=2), Norm2d(4 * width)
        self.head = nn.Linear(4 * width, classes)

    def backbone(self, x: Tensor) -> Tensor:
        """Return the last convolution averaged over places [n, 4 · width]."""
        x = self.norm1(self.conv1(x), relu=True)
        x = self.norm2(self.conv2(x), relu=True)
        x = self.norm3(self.conv3(x), relu=True)
        return x.mean((2, 3))


@stored("net/plain-cnn")
@final
class PlainCNN(Net):
    """Two strided 3×3 convolutions with BatchNorm, then a hidden layer that sees every place; for small images.

    >>> PlainCNN((1, 28, 28), 10).features(torch.zeros(2, 1, 28, 28)).shape
    torch.Size([2, 64])
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 16, hidden: int = 64) -> None:
        super().__init__()
        positive("plain-cnn", width=width, hidden=hidden)
        self.classes = classes
        self.conv1, self.norm1 = conv(channels(shape, "plain-cnn"), width, stride=2), Norm2d(width)
        self.conv2, self.norm2 = conv(width, 2 * width, stride=2), Norm2d(2 * width)
        places = math.ceil(shape[1] / 4) * math.ceil(shape[2] / 4)
        self.hidden = nn.Linear(2 * width * places, hidden)
        self.head = nn.Linear(hidden, classes)

    def backbone(self, x: Tensor) -> Tensor:
        """Return the hidden layer [n, hidden]."""
        x = self.norm1(self.conv1(x), relu=True)
        x = self.norm2(self.conv2(x), relu=True)
        hidden: Tensor = self.hidden(x.flatten(1))
        return hidden.relu()


def conv(before: int, after: int, stride: int = 1) -> nn.Conv2d:
    """Make a 3×3 convolution that keeps the size at stride 1; no bias, for a BatchNorm follows."""
    return nn.Conv2d(before, after, 3, stride, padding=1, bias=False)
