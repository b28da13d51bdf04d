"""A-GEM: averaged gradient episodic memory, a step that does not hurt stored rows on average."""

from __future__ import annotations

from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from odedm.core.rows import Rows
from odedm.core.stored_names import stored
from odedm.methods.base import Method, Replay
from odedm.methods.gradients import gradient_of, read_gradient, write_gradient


@stored("method/agem")
class AGEM(Method):
    """Descends on the stream batch; where that would raise the loss of a replay draw, only across it.

    Stored rows are no part of the loss: the draw's gradient says which direction is forbidden. With ODEDM the auxiliary
    long-term term belongs to the loss and is projected along with it. Its own memory, as many rows of every task, reads
    a task's rows again when it ends, where the paper's is filled online: a reservoir keeps the setting strictly online.
    """

    policy: ClassVar[str] = "task-quota"
    capturable: ClassVar[bool] = True

    lr: float = 0.03

    def loss(self, batch: Rows, replay: Replay) -> tuple[Tensor, Rows]:
        """CE(h(x), y)."""
        (logits,) = self.logits(batch)
        return self.stream_loss(logits, batch["label"]), {}

    def on_after_backward(self, replay: Replay | None) -> None:
        if not replay:
            return
        past = replay()
        (logits,) = self.logits(past)
        reference = gradient_of(F.cross_entropy(logits, past["label"]), self.net)
        write_gradient(self.net, project(read_gradient(self.net), reference))


def project(gradient: Tensor, reference: Tensor) -> Tensor:
    """Return the gradient [P] where it agrees with a reference [P], else its part at a right angle to it.

    >>> project(torch.tensor([1.0, -2.0]), torch.tensor([0.0, 4.0]))
    tensor([1., 0.])
    >>> project(torch.tensor([1.0, 2.0]), torch.tensor([0.0, 4.0]))
    tensor([1., 2.])
    """
    along = gradient @ reference
    # without a look at the value, so that a recorded step holds both cases; 0/0 is not chosen
    share = torch.where(along < 0, along / (reference @ reference), 0.0)
    return gradient - share * reference
