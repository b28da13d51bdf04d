"""SCR: supervised contrastive replay, with the nearest class mean in place of a linear head."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor, nn

from odedm.core.rows import Rows
from odedm.core.stored_names import stored
from odedm.methods.base import Load, Method, Replay
from odedm.methods.contrastive import Projection, supervised_contrastive
from odedm.methods.contrastive_views import random_view
from odedm.methods.meta_learning import at_least


@stored("method/scr")
@dataclass(kw_only=True, eq=False)
class SCR(Method):
    """Stream batch and a large replay draw, each row as it is and in a strong view: rows of a class move together.

    The loss is SupCon on a projection of the features; the network's linear head is not trained. Prediction is by the
    nearest mean of the memory's features. The auxiliary term of ODEDM is the same loss on a long-term draw.
    """

    capturable: ClassVar[bool] = True
    reading_rule: ClassVar[str] = "share"
    needs_memory: ClassVar[bool] = True
    predicts: ClassVar[str] = "nearest-mean"
    no_stream_loss: ClassVar[str] = "its loss is a contrast of rows, and has no cross-entropy"
    no_views: ClassVar[str] = "its loss compares views of its own"
    spare_networks: ClassVar[float] = 1

    lr: float = 0.1
    temperature: float = 0.07
    dims: int = 128
    area: float = 0.2
    projection: Projection = field(init=False, repr=False)
    views: torch.Generator = field(init=False, repr=False)

    @classmethod
    def rows_at_once(cls, load: Load) -> int:
        """Two views of batch and draw."""
        return 2 * (load.batch + load.draw)

    def __post_init__(self) -> None:
        at_least("scr", 1, dims=self.dims)
        at_least("scr", 1e-3, temperature=self.temperature, area=self.area)
        weight, seed = self.net.head_weight(), self.rng("projection").initial_seed()
        self.projection = Projection(weight.shape[1], self.dims, like=weight, seed=seed, hidden=True)
        self.views = self.rng("contrastive views")
        super().__post_init__()

    def trained(self) -> list[nn.Parameter]:
        """The network and the projection."""
        return [*super().trained(), *self.projection.parameters()]

    def step(self, batch: Rows, replay: Replay) -> Rows:
        """SupCon over stream and replay in two views."""
        image, label = batch["image"], batch["label"]
        if replay:
            past = replay(self.draw)
            image, label = torch.cat([image, past["image"]]), torch.cat([label, past["label"]])
        loss = self.contrast(image, label, replay)
        if (long := replay.auxiliary()) is not None:
            self.auxiliary_loss = replay.gamma * self.contrast(long["image"], long["label"], replay)
        self.descend(loss, replay)
        return {}

    def contrast(self, image: Tensor, label: Tensor, replay: Replay) -> Tensor:
        """SupCon (0-d) of raw images [n, ...] as they are and in a strong view, each normalised by itself."""
        strong = random_view(image, self.views, area=min(self.area, 1.0), grey=0.2, colours=(0.4, 0.1))
        points = [self.projection(self.net.features(replay.plain(view))) for view in (image, strong)]
        return supervised_contrastive(torch.cat(points), label.repeat(2), self.temperature)
