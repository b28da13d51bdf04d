"""Features of a briefly trained network, for benchmarks of what happens to features."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odedm import Dataset, UsageError, load_dataset

WIDTHS = (32, 128, 512)


class Pooled(nn.Module):
    """Three convolutions and a mean over places: 512 features that are never negative, as a ResNet-18 has them."""

    def __init__(self, channels: int, classes: int) -> None:
        super().__init__()
        layers: list[nn.Module] = []
        for before, after in zip((channels, *WIDTHS), WIDTHS, strict=False):
            layers += [nn.Conv2d(before, after, 3, stride=2, padding=1), nn.BatchNorm2d(after), nn.ReLU()]
        self.backbone, self.head = nn.Sequential(*layers), nn.Linear(WIDTHS[-1], classes)

    def features(self, image: Tensor) -> Tensor:
        """Return features [n, 512] of raw images [n, c, h, w]."""
        return self.backbone(image.float() / 128 - 1).mean((2, 3))

    def forward(self, image: Tensor) -> Tensor:
        """Scores [n, classes]."""
        return self.head(self.features(image))


def real_features(rows: int, classes: int = 2, *, steps: int = 150, seed: int = 0) -> tuple[str, list[Tensor]]:
    """Whose features they are, and `rows` features [rows, 512] of each of the first classes, by a net trained on them.

    CIFAR-10 where `odedm data` has it, else fashion-mini, whose 300 rows of a class are shifted and flipped at random.
    """
    data, rng = _data(), torch.Generator().manual_seed(seed)
    images = [_views(data.image[data.label == c], rows, rng) for c in range(classes)]
    image, label = torch.cat(images), torch.arange(classes).repeat_interleave(rows)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        net = Pooled(image.shape[1], classes)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.05, momentum=0.9)
    for _ in range(steps):
        batch = torch.randint(len(image), (32,), generator=rng)
        optimizer.zero_grad()
        F.cross_entropy(net(image[batch]), label[batch]).backward()
        optimizer.step()
    net.eval()
    with torch.no_grad():
        return data.name, [torch.cat([net.features(part) for part in pictures.split(500)]) for pictures in images]


def _data() -> Dataset:
    try:
        return load_dataset("cifar10")
    except UsageError:
        return load_dataset("fashion-mini")


def _views(image: Tensor, amount: int, rng: torch.Generator) -> Tensor:
    """So many images: the given ones, and where these are too few, shifted and flipped copies of them."""
    if len(image) >= amount:
        return image[:amount]
    parts = [image]
    while sum(map(len, parts)) < amount:
        down, right = torch.randint(-2, 3, (2,), generator=rng).tolist()
        moved = image.roll((down, right), (2, 3))
        parts.append(moved.flip(3) if len(parts) % 2 else moved)
    return torch.cat(parts)[:amount]
