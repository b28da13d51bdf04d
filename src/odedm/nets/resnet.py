"""ResNet-18 for images of 32 to 128 pixels: a 3×3 stem, no pooling before the last stage, in two widths."""

from __future__ import annotations

from typing import final

from torch import Tensor, nn

from odedm.core.stored_names import stored
from odedm.nets.base import Net, channels, positive
from odedm.nets.grouped_batch_norm import Norm2d
from odedm.nets.small import conv


@stored("net/resnet18")
@final
class ResNet18(Net):
    """ResNet-18 with a 3×3 stem and no pooling before the last stage, as usual for 32×32 images.

    >>> sum(p.numel() for p in ResNet18((3, 32, 32), 10).parameters())
    11173962
    """

    def __init__(self, shape: tuple[int, ...], classes: int, width: int = 64) -> None:
        super().__init__()
        positive("resnet18", width=width)
        self.classes = classes
        self.stem, self.norm = conv(channels(shape, "resnet18"), width), Norm2d(width)
        blocks: list[nn.Module] = []
        before = width
        for stage in range(4):
            after = width * 2**stage
            blocks += [BasicBlock(before, after, 1 if stage == 0 else 2), BasicBlock(after, after, 1)]
            before = after
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(before, classes)

    def backbone(self, x: Tensor) -> Tensor:
        """Return the last stage averaged over places [n, 8 · width], all entries ≥ 0."""
        maps: Tensor = self.blocks(self.norm(self.stem(x), relu=True))
        return maps.mean((2, 3))


def slim_resnet18(shape: tuple[int, ...], classes: int, width: int = 20) -> ResNet18:
    """Make the same network at less than a third of the width, a tenth of the weights.

    >>> sum(p.numel() for p in slim_resnet18((3, 32, 32), 10).parameters())
    1094750
    """
    return ResNet18(shape, classes, width)


@stored("net/resnet-block")
@final
class BasicBlock(nn.Module):
    """Two 3×3 convolutions and a way around them."""

    def __init__(self, before: int, after: int, stride: int) -> None:
        super().__init__()
        self.conv1, self.norm1 = conv(before, after, stride), Norm2d(after)
        self.conv2, self.norm2 = conv(after, after), Norm2d(after)
        self.around: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.around = nn.Sequential(nn.Conv2d(before, after, 1, stride, bias=False), Norm2d(after))

    def forward(self, x: Tensor) -> Tensor:
        """Return maps [n, after, h / stride, w / stride]."""
        y: Tensor = self.norm1(self.conv1(x), relu=True)
        z: Tensor = self.norm2(self.conv2(y), self.around(x), relu=True)
        return z
