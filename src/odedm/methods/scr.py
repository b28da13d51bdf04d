"""SCR: supervised contrastive replay, with the nearest class mean in place of a linear head."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn

from odedm.core.rows import Rows
from odedm.core.stored_names import stored
from odedm.methods.base import Method, Replay, join
from odedm.methods.contrastive import Projection, supcon_loss
from odedm.methods.contrastive_views import random_view


@stored("method/scr")
class SCR(Method):
    """Stream batch and a large replay draw, each row as it is and in a strong view: rows of a class move together.

    The loss is SupCon on a projection of the features; the network's linear head is not trained. Prediction is by the
    nearest mean of the memory's features. The auxiliary term of ODEDM is the same loss on a long-term draw.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"memory", "nearest mean"})
    unsupported: ClassVar[Mapping[str, str]] = {
        "stream_loss": "its loss is a contrast of rows, and has no cross-entropy",
        "views": "its loss compares views of its own",
    }
    capturable: ClassVar[bool] = True

    lr: float = 0.1
    temperature: float = 0.07
    dims: int = 128
    area: float = 0.2
    projection: Projection
    views: torch.Generator

    def __post_init__(self) -> None:
        self.check_least(1, "dims")
        self.check_least(1e-3, "temperature", "area")
        weight, seed = self.net.head_weight(), self.rng("projection").initial_seed()
        self.projection = Projection(weight.shape[1], self.dims, like=weight, seed=seed, hidden=True)
        self.views = self.rng("contrastive views")
        super().__post_init__()

    def trained(self) -> list[nn.Parameter]:
        return [*super().trained(), *self.projection.parameters()]

    def loss(self, batch: Rows, replay: Replay) -> tuple[Tensor, Rows]:
        """SupCon over stream and replay in two views."""
        return self.contrast(join(batch, replay(), columns=("image", "label")), replay), {}

    def long_term_loss(self, rows: Rows, replay: Replay) -> Tensor:
        """SupCon over the long-term draw alone."""
        return self.contrast(rows, replay)

    def contrast(self, rows: Rows, replay: Replay) -> Tensor:
        """SupCon (0-d) of raw images as they are and in a strong view, each normalised by itself."""
        image, label = rows["image"], rows["label"]
        strong = random_view(image, self.views, area=min(self.area, 1.0), grey=0.2, colours=(0.4, 0.1))
        points = [self.projection(self.net.features(replay.normalize(view))) for view in (image, strong)]
        return supcon_loss(torch.cat(points), label.repeat(2), self.temperature)
