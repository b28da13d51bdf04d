"""The choice of prototypes on features of real pictures, which are the same to the last bit on every machine."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .case import Case, Parts

DISTANCES = ("sinkhorn", "l2", "l1", "mmd")
DRAWS = 25
"""Sets of rows for each distance, with and without divide-and-conquer: 200 cases."""
SHORT = 4
"""Of them in the tests."""


@dataclass(frozen=True)
class Choice:
    """One call of `select` on features of `rows` pictures of one class, or of two."""

    distance: str
    dac: tuple[int, int] | None
    number: int

    @property
    def name(self) -> str:
        """How lists call it."""
        return f"select {self.distance}, {f'dac {self.dac[0]} {self.dac[1]}' if self.dac else 'no dac'}, {self.number}"

    @property
    def k(self) -> int:
        """Prototypes to choose."""
        return (1, 2, 3, 5, 8, 12, 20)[self.number % 7]

    @property
    def seed(self) -> int:
        """Of the choice."""
        return self.number

    def points(self, api: Any) -> Tensor:
        """Features [n, d] to choose from."""
        features, label = real_features(api)
        rng = torch.Generator().manual_seed(self.number)
        wanted = label == self.number % 10
        if self.number % 5 == 4:
            wanted |= label == (self.number + 3) % 10
        rows = wanted.nonzero().flatten()
        amount = (60, 100, 160, 240, 300)[self.number % 5]
        width = (24, 64, 128, 256)[self.number % 4]
        kept = rows[torch.randperm(len(rows), generator=rng)[:amount]]
        return features[kept][:, torch.randperm(features.shape[1], generator=rng)[:width]].contiguous()

    def chosen(self, api: Any) -> Tensor:
        """The rows that are chosen."""
        points = self.points(api)
        rows: Tensor = api.make("select", points, k=self.k, distance=self.distance, dac=self.dac, seed=self.seed)
        return rows


def choices() -> list[Choice]:
    """The 200 cases."""
    return [
        Choice(distance, ((3, 4), (2, 3), (4, 2))[number % 3] if dac else None, number)
        for distance in DISTANCES
        for dac in (False, True)
        for number in range(DRAWS)
    ]


@cache
def real_features(api: Any) -> tuple[Tensor, Tensor]:
    """Features [n, 256] of the embedded pictures, and their classes.

    Random filters with whole weights, a rectifier and sums over cells: every number on the way is whole and exact.
    """
    data = api.make("open_data", "fashion-mini")
    image = api.read("Dataset", data, "image").double()
    weight = torch.randint(-4, 5, (16, 1, 5, 5), generator=torch.Generator().manual_seed(11)).double()
    made = F.conv2d(image, weight, padding=2).relu_()
    cells = F.avg_pool2d(made, 7, divisor_override=1).flatten(1)
    return (cells / 2**14).float(), api.read("Dataset", data, "label")


def chosen(choice: Choice, api: Any, _place: Path) -> Parts:
    """The rows of a choice."""
    return {"rows": choice.chosen(api)}


def centres(choice: Choice, api: Any, _place: Path) -> Parts:
    """The centres of the clusters from which the rows of a choice without DAC come."""
    return {"centres": api.kmeans(choice.points(api), choice.k, choice.seed)}


def other(settings: dict[str, Any], api: Any, _place: Path) -> Parts:
    """A choice by other settings."""
    points = Choice("sinkhorn", None, 3).points(api)
    return {"rows": api.make("select", points, **settings)}


def cases() -> Iterator[Case]:
    """All of them."""
    for choice in choices():
        yield Case(choice.name, partial(chosen, choice), short=choice.number < SHORT)
        if choice.distance == "l2" and choice.dac is None:
            yield Case(f"k-means {choice.number}", partial(centres, choice), short=choice.number < SHORT)
    for name, settings in {
        "random": {"k": 5, "distance": "random", "seed": 2},
        "herding": {"k": 5, "distance": "herding"},
        "mmd-centroid": {"k": 5, "distance": "mmd-centroid"},
        "two rows": {"k": 4, "rows_per_prototype": 2, "seed": 3},
        "images": {"k": 4, "image_shape": (1, 16, 16)},
        "all rows": {"k": 240, "distance": "l2"},
    }.items():
        yield Case(f"select {name}", partial(other, settings), short=True)
