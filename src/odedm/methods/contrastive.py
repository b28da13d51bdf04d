"""Contrastive losses: rows of one class near each other, others far, after a projection that only training needs."""

from __future__ import annotations

import math
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils import skip_init

from odedm.core.errors import UsageError, short_repr
from odedm.core.stored_names import stored

MOST = 1 << 16
LEAST = 1e-8
"""OCM's ε, added to sums and to probabilities."""


@stored("projection")
class Projection(nn.Module):
    """A small head φ(x) → unit vectors [n, dims]: one linear layer, or two with a ReLU between them.

    Contrast is asked of the projection, so that the features may keep what it does not need. Its weights are drawn on
    the CPU from the seed alone.
    """

    def __init__(self, features: int, dims: int, *, like: Tensor, seed: int, hidden: bool = False) -> None:
        super().__init__()
        if dims > MOST:
            raise UsageError(f"A projection has {MOST} dimensions at most; {short_repr(dims)} were asked for.")
        form: Any = {"device": like.device, "dtype": like.dtype}
        # without weights of torch's own, which would be drawn from the generator that dropout draws from
        before = [skip_init(nn.Linear, features, features, **form), nn.ReLU()] if hidden else []
        self.layers = nn.Sequential(*before, skip_init(nn.Linear, features, dims, **form))
        host = torch.Generator().manual_seed(seed)
        with torch.no_grad():
            for weight in self.parameters():
                weight.copy_(torch.empty(weight.shape).uniform_(-1, 1, generator=host) / math.sqrt(features))

    def forward(self, features: Tensor) -> Tensor:
        """Return unit vectors [n, dims] of features [n, d]."""
        return F.normalize(self.layers(features))


def supcon_loss(points: Tensor, label: Tensor, temperature: float) -> Tensor:
    """SupCon (0-d) of unit vectors [n, d] with labels [n]: −mean log p(j | i) over the other rows j of i's class.

    p(j | i) ∝ exp(p_i · p_j / temperature) over all j ≠ i. A row that is alone in its class counts 0.

    >>> one = F.normalize(torch.tensor([[1.0, 0.0], [1.0, 0.0], [0.0, 1.0], [0.0, 1.0]]))
    >>> good, bad = (supcon_loss(one, torch.tensor(y), 0.1) for y in ([0, 0, 1, 1], [0, 1, 0, 1]))
    >>> bool(good < 0.001 < 9 < bad)
    True
    """
    itself = torch.eye(len(label), dtype=torch.bool, device=label.device)
    log_p = (points @ points.T / temperature).masked_fill(itself, -torch.inf).log_softmax(1)
    alike = (label[:, None] == label) & ~itself
    return -(log_p.masked_fill(~alike, 0.0).sum(1) / alike.sum(1).clamp(min=1)).mean()


def ocm_stream_loss(similarity: Tensor, label: Tensor, temperature: float) -> Tensor:
    """Return the loss (0-d) of stream rows in two views below each other: similarity [2n, 2n], labels [n] of one view.

    −mean over i of log p(i's other view | i) + 2 · mean over j of i's class of log p(j | i), where p(i | i) is 0: it is
    OCM's, with its constant.
    """
    n = len(label)
    log_p = _log_shares(similarity, temperature, itself=False)
    twin = torch.cat([log_p[:n, n:].diagonal(), log_p[n:, :n].diagonal()])
    return -(twin + 2 * _class_mean(log_p, label)).mean()


def ocm_replay_loss(similarity: Tensor, label: Tensor, temperature: float) -> Tensor:
    """Return the loss (0-d) of replayed rows in two views: −mean log p(j | i) over i's class, i itself among them."""
    return -_class_mean(_log_shares(similarity, temperature, itself=True), label).mean()


def _log_shares(similarity: Tensor, temperature: float, *, itself: bool) -> Tensor:
    """Return log (p(j | i) + ε) [n, n] with p ∝ exp(similarity / temperature), over j ≠ i or over all j.

    ε is part of the loss: pairs that are further apart than that are not pulled together.
    """
    weight = ((similarity - similarity.detach().amax(1, keepdim=True)) / temperature).exp()
    if not itself:
        weight = weight.masked_fill(torch.eye(len(weight), dtype=torch.bool, device=weight.device), 0.0)
    return (weight / (weight.sum(1, keepdim=True) + LEAST) + LEAST).log()


def _class_mean(log_p: Tensor, label: Tensor) -> Tensor:
    """Return the mean [2n] over the rows of a row's class, in both views."""
    alike = (label.repeat(2)[:, None] == label.repeat(2)).to(log_p.dtype)
    return (log_p * alike).sum(1) / (alike.sum(1) + LEAST)


def class_prototypes(points: Tensor, label: Tensor, classes: int) -> Tensor:
    """Return the mean [C, d] of the points [n, d] of each class; 0 for a class without any."""
    member = (torch.arange(classes, device=label.device)[:, None] == label).to(points.dtype)
    return member @ points / member.sum(1, keepdim=True).clamp(min=1)


def ope_loss(one: Tensor, other: Tensor, temperature: float) -> Tensor:
    """The contrast (0-d) of prototypes [C, d] of two views: a class against all others; zero rows are no classes.

    >>> same = torch.eye(3)
    >>> apart, mixed = (ope_loss(same, view, 0.1) for view in (same, same.roll(1, 0)))
    >>> bool(apart < 0.01 < mixed)
    True
    """
    classes = len(one)
    present = one.detach().abs().sum(1) > 0
    points, present = torch.cat([F.normalize(one), F.normalize(other)]), present.repeat(2)
    left_out = ~present | torch.eye(2 * classes, dtype=torch.bool, device=one.device)
    # a finite number, for the rows of absent classes must have a gradient that is none, not NaN
    log_p = (points @ points.T / temperature).masked_fill(left_out, -1e4).log_softmax(1)
    twin = torch.cat([log_p[:classes, classes:].diagonal(), log_p[classes:, :classes].diagonal()])
    return -torch.where(present, twin, 0.0).sum() / present.sum().clamp(min=1)
