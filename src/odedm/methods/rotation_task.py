"""Self-supervision by rotations: which of four quarter turns was an image given, told from its features."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odedm.core.rows import Rows
from odedm.nets.base import Net

TURNS = 4


class RotationTask:
    """A second head that names the quarter turn, trained with the network: one cross-entropy more in each main update.

    L_turn = mean over rows x and turns r of CE(W φ(turned(x, r)) + b, r). To name the turn the features must keep what
    a few classes could be told apart without. The head starts from zero, so no draw is made for it, and nobody asks it
    when the run is over.
    """

    def __init__(self, net: Net) -> None:
        like = net.head_weight()
        self.weight = nn.Parameter(torch.zeros(TURNS, like.shape[1], dtype=like.dtype, device=like.device))
        self.bias = nn.Parameter(torch.zeros(TURNS, dtype=like.dtype, device=like.device))

    def parameters(self) -> list[nn.Parameter]:
        """What the optimiser trains beside the network."""
        return [self.weight, self.bias]

    def loss(self, net: Net, rows: Rows) -> Tensor:
        """The term (0-d) on `input` [n, ...] with its `turn` [n]."""
        return F.cross_entropy(F.linear(net.features(rows["input"]), self.weight, self.bias), rows["turn"])


def turned(x: Tensor) -> Rows:
    """Square images x [n, c, h, h] in all four turns, below each other: `input` [4n, ...] and `turn` [4n].

    >>> turned(torch.zeros(2, 1, 3, 3))["turn"].tolist()
    [0, 0, 1, 1, 2, 2, 3, 3]
    """
    every = torch.cat([x.rot90(turn, (2, 3)) for turn in range(TURNS)])
    return {"input": every, "turn": torch.arange(TURNS, device=x.device).repeat_interleave(len(x))}
