"""Turned images as a further task: which of four quarter turns was an image given, alone or together with its class."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odedm.core.rows import Rows
from odedm.core.stored_names import stored
from odedm.nets.base import Net

TURNS = 4
TURNED = {"rotations": False, "turned-classes": True, "strong-turned": True}
"""Views with this task, and whether it asks for the class as well."""


@stored("rotation-task")
class RotationTask(nn.Module):
    """A second head that names the quarter turn, trained with the network: one cross-entropy more in each main update.

    L_turn = mean over rows x and turns r of CE(W φ(turned(x, r)) + b, r). To name the turn the features must keep what
    a few classes could be told apart without. By class, every class has four outputs, one for each turn, and the answer
    is (y, r). The head starts from zero, so no draw is made for it, and nobody asks it when the run is over.
    """

    def __init__(self, net: Net, *, by_class: bool = False) -> None:
        super().__init__()
        like, self.classes = net.head_weight(), net.classes if by_class else 0
        outputs = TURNS * max(1, self.classes)
        self.weight = nn.Parameter(torch.zeros(outputs, like.shape[1], dtype=like.dtype, device=like.device))
        self.bias = nn.Parameter(torch.zeros(outputs, dtype=like.dtype, device=like.device))

    def loss(self, net: Net, rows: Rows) -> Tensor:
        """Return the term (0-d) on `input` [n, ...] with its `turn` [n] and `label` [n]."""
        answer = rows["label"] + self.classes * rows["turn"] if self.classes else rows["turn"]
        return F.cross_entropy(F.linear(net.features(rows["input"]), self.weight, self.bias), answer)


def turned(x: Tensor, label: Tensor) -> Rows:
    """Return square images x [n, c, h, h] with labels [n] in all four turns: `input`, `turn` and `label`.

    >>> turned(torch.zeros(2, 1, 3, 3), torch.tensor([5, 7]))["turn"].tolist()
    [0, 0, 1, 1, 2, 2, 3, 3]
    """
    every = torch.cat([x.rot90(turn, (2, 3)) for turn in range(TURNS)])
    turn = torch.arange(TURNS, device=x.device).repeat_interleave(len(x))
    return {"input": every, "turn": turn, "label": label.repeat(TURNS)}
