"""OnPro: online prototypes in equilibrium, and replay of the classes whose prototypes come near each other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import field
from typing import Any, ClassVar, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odedm.core.errors import UsageError, short_repr
from odedm.core.rows import Rows, Task
from odedm.core.stored_names import stored
from odedm.methods.base import Method, Replay
from odedm.methods.contrastive import (
    Projection,
    class_prototypes,
    ocm_replay_loss,
    ocm_stream_loss,
    ope_loss,
)
from odedm.methods.contrastive_views import in_turns, random_view

CIFAR_10 = 10
"""Classes up to which the release's settings for CIFAR-10 are the defaults."""
POOL = 512
"""Stored rows among which partners of confused classes are looked for; of a smaller memory all."""


class Mixed(NamedTuple):
    """Raw images [n, ...], each a mixture of two rows: labels [n] of both, and the second one's share [n]."""

    image: Tensor
    label: Tensor
    other: Tensor
    share: Tensor


@stored("method/onpro")
class OnPro(Method):
    """Three losses: contrast of rows in turned views, contrast of class prototypes, and cross-entropy on replayed rows.

    In the first task the cross-entropy is the stream's, later only that of replayed rows, of which a share
    1 - `base_rate` are mixtures of classes that are confused: pairs are drawn by how near their prototypes are. One
    optimizer, Adam, goes through the whole stream.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"memory", "borders"})
    unsupported: ClassVar[Mapping[str, str]] = {
        "stream_loss": "its stream has no cross-entropy after the first task",
        "views": "its losses compare views and turns of its own",
        "momentum": "its optimizer is Adam, with the release's moments",
    }
    capturable: ClassVar[bool] = True

    lr: float = 5e-4
    weight_decay: float = 1e-4
    temperature: float = 0.07
    prototype_temperature: float = 0.5
    similarity: float = 0.5
    dims: int = 128
    turns: int = 16
    per_class: int = 7
    base_rate: float = 0.75
    mixup: float = 0.6
    mixup_most: float = 0.6
    mixup_alpha: float = 0.4
    projection: Projection
    prototypes: Tensor
    """Of the last replay draw [C, dims], in place; 0 for a class that was not in it."""
    quantiles: Tensor
    chance: torch.Generator
    seen: int = field(init=False, default=0)
    replaying: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        if self.turns not in (1, 4, 16):
            raise UsageError(f"onpro's turns must be 1, 4 or 16; {short_repr(self.turns)} was given.")
        self.check_least(1, "dims", "per_class")
        self.check_least(0.01, "mixup_alpha")
        self.check_least(1e-3, "temperature", "prototype_temperature")
        self.check_least(0, "base_rate", "mixup", "mixup_most")
        weight, seed = self.net.head_weight(), self.rng("projection").initial_seed()
        dims = min(self.dims, weight.shape[1])
        self.projection = Projection(weight.shape[1], dims, like=weight, seed=seed)
        self.prototypes = torch.zeros(self.net.classes, dims, dtype=weight.dtype, device=weight.device)
        self.quantiles = beta_quantiles(self.mixup_alpha).to(weight.device)
        self.chance = self.rng("onpro")
        super().__post_init__()

    @classmethod
    def defaults_for(cls, classes: int) -> Mapping[str, Any]:
        """Return the release's for CIFAR-10, and with more classes those for CIFAR-100 and Tiny-ImageNet."""
        return {} if classes <= CIFAR_10 else {"similarity": 1.0, "mixup": 0.2, "base_rate": 0.9}

    def trained(self) -> list[nn.Parameter]:
        return [*super().trained(), *self.projection.parameters()]

    def new_optimizer(self) -> torch.optim.Optimizer:
        weights = self.trained()
        return torch.optim.Adam(
            weights, lr=self.lr, betas=(0.9, 0.99), weight_decay=self.weight_decay, capturable=weights[0].is_cuda
        )

    def begin_task(self, task: Task) -> None:
        super().begin_task(task)
        self.seen, self.replaying = max(self.seen, max(task.classes) + 1), task.index > 0

    def loss(self, batch: Rows, replay: Replay) -> tuple[Tensor, Rows]:
        """Contrast of rows + contrast of prototypes + CE."""
        image, label = batch["image"].float(), batch["label"]
        past = replay(min(self.draw, self.per_class * self.seen) if self.replaying else self.draw)
        mixed = self.mix(past, replay(POOL)) if past and self.replaying else None
        loss = self.row_contrast(image, label, mixed, replay)
        if past:
            loss = loss + self.replayed_equilibrium(past, replay)
        return loss + self.named(mixed or unmixed(image, label), replay), {}

    def row_contrast(self, image: Tensor, label: Tensor, mixed: Mixed | None, replay: Replay) -> Tensor:
        """Return the contrast of rows in two views and all turns, and that of the stream's prototypes, by one pass."""
        rows, names = self.turned(image, label)
        inputs, stream_rows = [rows, self.view(rows)], 2 * len(rows)
        if mixed is not None:  # a mixture is a class of its own, between two others
            again, other = self.turned(mixed.image, torch.lerp(mixed.label.float(), mixed.other.float(), mixed.share))
            inputs += [again, self.view(again)]
        features = self.net.features(replay.normalize(torch.cat(inputs)))
        points = self.projection(features)
        loss = self.equilibrium(points[: len(label)], points[len(rows) : len(rows) + len(label)], label)
        alike = self.alike(features[:stream_rows], points[:stream_rows])
        if mixed is None:
            return loss + ocm_stream_loss(alike, names, self.temperature)
        loss = loss + ocm_stream_loss(self.similarity * alike, names, self.temperature)
        alike = self.similarity * self.alike(features[stream_rows:], points[stream_rows:])
        return loss + ocm_replay_loss(alike, other, self.temperature)

    def replayed_equilibrium(self, past: Rows, replay: Replay) -> Tensor:
        """The contrast of a draw's prototypes in two views; they are kept, to tell which classes are confused."""
        views, label = [past["image"].float(), self.view(past["image"])], past["label"]
        one, other = self.projection(self.net.features(replay.normalize(torch.cat(views)))).chunk(2)
        self.prototypes.copy_(class_prototypes((one + other).detach() / 2, label, self.net.classes))
        return self.equilibrium(one, other, label)

    def named(self, rows: Mixed, replay: Replay) -> Tensor:
        """(1 - s)·CE(h(x), y) + s·CE(h(x), y') of a view of mixed rows."""
        logits = self.net(replay.normalize(self.view(rows.image)))
        losses = [F.cross_entropy(logits, label, reduction="none") for label in (rows.label, rows.other)]
        return torch.lerp(losses[0], losses[1], rows.share.to(logits.dtype)).mean()

    def equilibrium(self, one: Tensor, other: Tensor, label: Tensor) -> Tensor:
        """Return the contrast of the classes' prototypes in two views [n, dims]."""
        first, second = (class_prototypes(points, label, self.net.classes) for points in (one, other))
        return ope_loss(first, second, self.prototype_temperature)

    def alike(self, features: Tensor, points: Tensor) -> Tensor:
        """Return how alike rows are [n, n]: projections with each other and with a random stretch of the features."""
        room, dims = features.shape[1] - points.shape[1], points.shape[1]
        start = (torch.rand((), generator=self.chance, device=points.device) * max(1, room)).long()
        place = torch.arange(features.shape[1], device=points.device)
        # a product, not an index: its way back is the same bits on every run of a GPU
        stretch = F.normalize(features) @ (place[:, None] == start + place[:dims]).to(features.dtype)
        return points @ stretch.T + points @ points.T

    def turned(self, image: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        """Return images in every turn below each other, and their labels: a turned class is a class of its own."""
        every = in_turns(image, self.turns)
        return torch.cat(every), torch.cat([label + self.net.classes * turn for turn in range(len(every))])

    def view(self, image: Tensor) -> Tensor:
        """Return a view of raw images: mirrored, grey a quarter of the time, a crop of at least .3 of the area."""
        return random_view(image, self.chance, area=0.3, grey=0.25)

    def mix(self, past: Rows, pool: Rows) -> Mixed:
        """Most rows of the draw mixed with each other at random, and pairs of confused classes from the pool."""
        amount = len(past["label"])
        base = min(amount, int(amount * self.base_rate))
        draw = torch.rand(3, amount, generator=self.chance, device=past["label"].device)
        order = draw[0, :base].argsort()
        first, second = self.confused(pool, amount - base)
        image = torch.cat([past["image"][:base], pool["image"][first]]).float()
        other = torch.cat([past["image"][:base][order], pool["image"][second]]).float()
        label = torch.cat([past["label"][:base], pool["label"][first]])
        other_label = torch.cat([past["label"][:base][order], pool["label"][second]])
        place = (draw[1, base:] * (len(self.quantiles) - 1)).long()
        share = torch.cat([self.mixup_most * draw[1, :base], self.quantiles[place]])
        is_mixed = draw[2] < self.mixup
        # in the release a whole draw is left as it is, or else each of its rows is, both by the same probability
        is_mixed[:base] &= torch.rand((), generator=self.chance, device=is_mixed.device) < self.mixup
        share = torch.where(is_mixed, share, 0.0)
        return Mixed(torch.lerp(image, other, share.view(-1, *[1] * (image.dim() - 1))), label, other_label, share)

    def confused(self, pool: Rows, amount: int) -> tuple[Tensor, Tensor]:
        """Return positions [amount] of two rows of the pool: of two classes, likelier the nearer their prototypes.

        With fewer than two prototypes there is no pair: any rows.
        """
        classes, known = self.net.classes, self.prototypes.abs().sum(1) > 0
        nearness = 1 / torch.cdist(self.prototypes, self.prototypes).clamp(min=1e-3)
        pairs = (known[:, None] & known).triu(1)
        noise = torch.rand(amount, classes**2, generator=self.chance, device=known.device).clamp(min=1e-20)
        # the largest of logits plus Gumbel noise is a draw by their softmax
        chosen = (nearness.masked_fill(~pairs, -torch.inf).flatten() - (-noise.log()).log()).argmax(1)
        positions = []
        for label in (chosen // classes, chosen % classes):
            noise = torch.rand(amount, len(pool["label"]), generator=self.chance, device=known.device)
            positions.append((noise + (pool["label"] == label[:, None]) * pairs.any()).argmax(1))
        return positions[0], positions[1]


def unmixed(image: Tensor, label: Tensor) -> Mixed:
    """Return rows as they are."""
    return Mixed(image, label, label, torch.zeros(len(label), device=label.device))


def beta_quantiles(alpha: float, amount: int = 4096) -> Tensor:
    """Return numbers in rising order that are Beta(α, α) distributed: one of them at random is a draw.

    >>> bool((beta_quantiles(1.0) - torch.linspace(0, 1, 4096)).abs().max() < 1e-3)
    True
    """
    # x = sin² t turns the density into sin^(2α-1) t · cos^(2α-1) t, which is tame
    t = (torch.arange(8 * amount, dtype=torch.float64) + 0.5) * (math.pi / 2 / (8 * amount))
    mass = (t.sin() * t.cos()).pow(2 * alpha - 1).cumsum(0)
    targets = (torch.arange(amount, dtype=torch.float64) + 0.5) / amount * mass[-1]
    return t[torch.searchsorted(mass, targets).clamp(max=len(t) - 1)].sin().square().float()
