"""CoPE: continual prototype evolution, classes as unit vectors that follow their rows, and a loss by them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odedm.core.errors import UsageError
from odedm.core.rows import Rows
from odedm.core.stored_names import stored
from odedm.methods.base import Method, Replay, join
from odedm.nets.base import Net

WIDEST = 2**16


@stored("method/cope")
class CoPE(Method):
    """Pseudo-prototypical proxy loss over stream batch and a balanced draw together; the nearest prototype answers.

    The net's head becomes a linear layer of `width` outputs, scaled to length one, and a prototype of each class seen.
    A class begins with a random prototype; after a batch it is `alpha` of the old and 1 - `alpha` of the mean of its
    rows, scaled to length one. `temperature` divides all cosines. `iterations` are updates on the same batch, each with
    a draw of its own. With `repellor_gradient` rows of other classes are pushed away from both sides.
    """

    policy: ClassVar[str] = "balanced-reservoir"
    retrieval: ClassVar[str] = "balanced"
    unsupported: ClassVar[Mapping[str, str]] = {
        "stream_loss": "its loss is a contrast with prototypes, and has no cross-entropy",
        "predict": "it predicts by the nearest prototype",
    }
    capturable: ClassVar[bool] = True

    lr: float = 0.005
    temperature: float = 0.1
    alpha: float = 0.99
    width: int = 256
    iterations: int = 1
    repellor_gradient: bool = False
    starts: torch.Generator

    def __post_init__(self) -> None:
        if not 0 <= self.alpha <= 1:
            raise UsageError(f"cope's alpha is a share between 0 and 1; {self.alpha} was given.")
        if not self.temperature > 0 or not 0 < self.width <= WIDEST or self.iterations < 1:
            raise UsageError(f"cope needs a temperature above 0, a width from 1 to {WIDEST}, and 1 or more iterations.")
        self.starts = self.rng("prototypes")
        self.head = PrototypeHead.instead_of(self.net, self.width, self.temperature, self.rng("initialisation"))
        super().__post_init__()

    def observe(self, batch: Rows, replay: Replay) -> Rows:
        """Make updates by the PPP loss of stream and draw, then let every class's prototype follow its rows."""
        self.head.meet(batch["label"], self.starts)
        total = torch.zeros_like(self.head.prototypes)
        amount = total.new_zeros(len(total), 1)
        for turn in range(self.iterations):
            last = turn == self.iterations - 1
            rows = join(batch, replay())
            y = rows["label"]
            point = self.head.points(self.net.features(rows["input"]))
            new = 0 if last else len(batch["label"])  # new rows count once, replayed ones whenever they come
            member = (y[new:] == torch.arange(len(total), device=y.device)[:, None]).to(point.dtype)
            total, amount = total + member @ point.detach()[new:], amount + member.sum(1, keepdim=True)
            self.optimizer_step(self.proxy_loss(point, y), replay if last else None)
        self.head.follow(total, amount, self.alpha)
        return {}

    def proxy_loss(self, point: Tensor, label: Tensor) -> Tensor:
        """Return the PPP loss of unit vectors [n, d] with their labels [n], by the prototypes as they are."""
        return ppp_loss(
            point,
            label,
            self.head.prototypes,
            self.head.seen,
            self.temperature,
            repellor_gradient=self.repellor_gradient,
        )


@stored("net/prototype-head")
class PrototypeHead(nn.Module):
    """Scores [n, C] of features [n, f]: cosines to prototypes over the temperature, -inf for a class never seen."""

    prototypes: Tensor
    seen: Tensor

    def __init__(self, layer: nn.Linear, classes: int, temperature: float) -> None:
        super().__init__()
        self.layer, self.temperature = layer, temperature
        self.register_buffer("prototypes", layer.weight.new_zeros(classes, layer.out_features))
        self.register_buffer("seen", torch.zeros(classes, dtype=torch.bool, device=layer.weight.device))

    @classmethod
    def instead_of(cls, net: Net, width: int, temperature: float, rng: torch.Generator) -> PrototypeHead:
        """Put such a head in the place of a net's own; a CPU generator of the same seed decides its weights."""
        old = net.head_weight()
        layer = nn.Linear(old.shape[1], width, device=old.device, dtype=old.dtype)
        host, bound = torch.Generator().manual_seed(rng.initial_seed()), old.shape[1] ** -0.5
        with torch.no_grad():
            for weight in layer.parameters():
                weight.copy_(torch.empty(weight.shape, dtype=weight.dtype).uniform_(-bound, bound, generator=host))
        net.head = cls(layer, net.classes, temperature)
        return net.head

    @property
    def weight(self) -> Tensor:
        """Return what each class looks for in the features [C, f]: the direction of its prototype."""
        return self.prototypes @ self.layer.weight

    def grow(self, classes: int) -> None:
        """Room for the prototypes of so many classes; the new ones were not seen yet."""
        more = classes - len(self.seen)
        self.prototypes = F.pad(self.prototypes, (0, 0, 0, more))
        self.seen = F.pad(self.seen, (0, more))

    def points(self, feature: Tensor) -> Tensor:
        """Return unit vectors [n, d] of features [n, f]."""
        return F.normalize(self.layer(feature))

    def forward(self, feature: Tensor) -> Tensor:
        """Return scores [n, C] of features [n, f]."""
        return (self.points(feature) @ self.prototypes.T / self.temperature).masked_fill(~self.seen, -torch.inf)

    def meet(self, label: Tensor, rng: torch.Generator) -> None:
        """Give classes that were never seen a random prototype; all in place, and nothing is read back."""
        fresh = torch.rand(self.prototypes.shape, dtype=torch.float64, generator=rng, device=label.device)
        present = torch.zeros_like(self.seen).index_fill_(0, label, True)
        new = (present & ~self.seen)[:, None]
        self.prototypes.copy_(torch.where(new, F.normalize(fresh).to(self.prototypes.dtype), self.prototypes))
        self.seen |= present

    def follow(self, total: Tensor, amount: Tensor, alpha: float) -> None:
        """Move the prototype of every class with rows towards their mean: sums [C, d] over amounts [C, 1]."""
        moved = F.normalize(alpha * self.prototypes + (1 - alpha) * total / amount.clamp(min=1))
        self.prototypes.copy_(torch.where(amount > 0, moved, self.prototypes))


def ppp_loss(
    point: Tensor,
    label: Tensor,
    prototypes: Tensor,
    seen: Tensor,
    temperature: float,
    *,
    repellor_gradient: bool = False,
) -> Tensor:
    """The pseudo-prototypical proxy loss of unit vectors [n, d] with labels [n]; 0 while one class alone is seen.

    With σ(s(q, x)) for the chance that x belongs to the class of the proxy q, among it and the prototypes of all other
    classes: each row is drawn to the mean chance over its class's other rows and prototype, and each row of another
    class is pushed from the mean over row and prototype, all as constants, and the row itself with a gradient.
    """
    same = label[:, None] == label
    held = point if repellor_gradient else point.detach()
    score = point @ prototypes.T / temperature
    # rows j (first) against the class of row i (second): log Σ exp over the prototypes of all other classes
    other = seen & (label[:, None] != torch.arange(len(seen), device=label.device))
    rest = score[:, None].expand(-1, len(label), -1).masked_fill(~other, -torch.inf)
    rest = rest.masked_fill(~other.any(1)[:, None], 0.0).logsumexp(2)
    by_prototype = score[:, label] - rest
    pulled = F.logsigmoid(point @ point.detach().T / temperature - rest)
    itself = torch.eye(len(label), dtype=torch.bool, device=label.device)
    proxies = torch.cat(
        [pulled.masked_fill(~same | itself, -torch.inf), F.logsigmoid(by_prototype.diagonal())[:, None]], 1
    )
    attractor = (proxies.logsumexp(1) - same.sum(1).to(point.dtype).log()).sum()
    pushed = torch.logaddexp(F.logsigmoid(rest - point @ held.T / temperature), F.logsigmoid(-by_prototype))
    repellor = (pushed - math.log(2.0)).masked_fill(same, 0.0).sum()
    return -(attractor + repellor) / len(label) * (seen.sum() > 1)
