"""The learner as a memory sees it: features, scores, losses and gradients of raw images, in bounded memory."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional as F

from odedm.core.rows import Rows, count
from odedm.methods.base import Method
from odedm.methods.ema import applied
from odedm.methods.nearest_mean import means_of_rows, nearest_mean_scores
from odedm.methods.per_sample_gradients import per_sample_gradients, rows_at_once, weights_of
from odedm.nets.base import evaluating
from odedm.stream.augment import Transform
from odedm.training.evaluation import BATCH, in_chunks


@dataclass(frozen=True)
class MethodView:
    """What a memory may ask of the learner, over raw images and in bounded memory."""

    method: Method
    transform: Transform
    stored: Callable[[], Rows] | None = None
    """Gives the memory's rows where classes are predicted by the nearest of their means; else None."""

    def embed(self, image: Tensor) -> Tensor:
        """Return features [n, d] of raw images."""
        return in_chunks(lambda part: self.method.embed(self.transform.normalize(part)), image)

    def annotate(self, rows: Rows) -> Rows:
        """Return the method's declared fields for rows with raw images."""
        parts, size = [], BATCH.get(rows["image"].device.type, 512)
        with evaluating(self.method.net):
            for start in range(0, max(1, count(rows)), size):
                part = {name: column[start : start + size] for name, column in rows.items()}
                parts.append(self.method.annotate({**part, "input": self.transform.normalize(part["image"])}))
        return {name: torch.cat([part[name] for part in parts]) for name in parts[0]}

    def features_and_losses(self, rows: Rows) -> tuple[Tensor, Tensor]:
        """Return features [n, d] and cross-entropies [n] of the head on them."""
        features = self.embed(rows["image"])
        with evaluating(self.method.net):
            return features, F.cross_entropy(self.method.net.head(features), rows["label"], reduction="none")

    def class_weights(self) -> Tensor:
        """Return the head's weights [C, d]."""
        return self.method.net.head_weight().detach()

    def training_loss(self) -> Tensor:
        """Return the loss of the last update."""
        return self.method.last_loss

    def predict(self, image: Tensor) -> Tensor:
        """Return scores [n, C] of raw images."""
        return in_chunks(self.predictor(), image)

    def predictor(self) -> Callable[[Tensor], Tensor]:
        """Return what gives scores [n, C] of raw images by the learner and the memory as they are now.

        By nearest mean the class means are taken here, once for all that is asked of it. While nothing is stored the
        method predicts; a class without a stored row is never the nearest.
        """
        means = self.class_means()
        if means is None:
            return self._scores
        normalised = self.method.class_mean_options.get("normalised", True)
        return lambda image: nearest_mean_scores(self._points(image), means, normalised=normalised)

    def class_means(self) -> tuple[Tensor, Tensor] | None:
        """Return the class means [C, d] of stored rows by which it predicts, and whether a class has any [C].

        None where it predicts by the method, and while nothing is stored.
        """
        rows = self.stored() if self.stored is not None else None
        if rows is None or count(rows) == 0:
            return None
        return means_of_rows(rows, self._points, self.method.net.classes, **self.method.class_mean_options)

    def _scores(self, image: Tensor) -> Tensor:
        with applied(self.method):
            return self.method.predict(self.transform.normalize(image))

    def _points(self, image: Tensor) -> Tensor:
        with applied(self.method):
            points = self.method.embed(self.transform.normalize(image))
            return points.to(torch.promote_types(points.dtype, torch.float32))

    def gradients(self, rows: Rows, *, of: str = "head", then: Callable[[Tensor], Tensor] | None = None) -> Tensor:
        """Return each row's own gradient [n, P] of its cross-entropy, as `ModelView` says."""
        size, net = rows_at_once(weights_of(self.method.net, of)), self.method.net
        parts = []
        for image, label in zip(rows["image"].split(size), rows["label"].split(size), strict=True):
            gradients = per_sample_gradients(net, self.transform.normalize(image), label, of)
            parts.append(then(gradients) if then else gradients)
        return torch.cat(parts)
