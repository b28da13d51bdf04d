"""iCaRL: distillation while a class is old, and the nearest mean of exemplars in place of the linear head."""

from __future__ import annotations

import copy
from collections.abc import Hashable, Mapping
from dataclasses import field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from odedm.core.accel.device import launch_bound
from odedm.core.accel.host_state import host_state
from odedm.core.errors import choose
from odedm.core.rows import Rows, Task
from odedm.core.stored_names import stored
from odedm.methods.base import Method, Replay
from odedm.methods.gradients import trained
from odedm.nets.base import Net


@stored("method/icarl")
class ICarl(Method):
    """Binary cross-entropy per class: towards the label for new classes, towards last task's network for old ones.

    Stored rows are mixed into the task's own, so a step makes no draws. `l2` is λ in λ Σ ‖θ‖², a gradient of 2λθ. The
    mean over columns divides by their number K: `bce_columns="all"` counts the classes still to come as negatives,
    `"seen"` leaves them out, for which the learning rate wants the factor K / C. Prediction is by the nearest mean of
    stored features, `"normalised"` to length one or `"raw"`; with `flip` an image counts together with its mirror
    image. While nothing is stored the linear head predicts. A class that returns is taught by its labels again: the
    last network speaks for the seen classes that the task does not have.
    """

    policy: ClassVar[str] = "herded"
    requires: ClassVar[frozenset[str]] = frozenset({"memory", "borders", "mixing", "nearest mean"})
    unsupported: ClassVar[Mapping[str, str]] = {
        "stream_loss": "its loss is a binary cross-entropy for each class by itself",
        "weight_average": "it predicts in a way of its own",
    }
    capturable: ClassVar[bool] = True

    lr: float = 0.1
    l2: float = 1e-5
    bce_columns: str = "all"
    features: str = "normalised"
    flip: bool = True
    old: int = field(init=False, default=0)
    """How many classes were seen before this task: the first columns, for labels are numbered by arrival."""
    seen: int = field(init=False, default=0)
    known: int = field(init=False, default=0)
    recalled: Tensor
    """Which columns [C] are the teacher's: old ones that the task does not have; changed in place."""
    teacher: Net | None = field(init=False, default=None)
    """The network as the last task left it: frozen, in evaluation mode, and no module of the network."""

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("bce_columns", self.bce_columns, {"all": None, "seen": None})
        choose("features", self.features, {"normalised": None, "raw": None})
        self.check_least(0, "l2")
        self.seen = self.net.classes
        self.recalled = torch.ones(self.net.classes, dtype=torch.bool, device=self.last_loss.device)

    def graph_key(self) -> Hashable:
        """Return all but numbers that decide about columns when a task begins; no step reads them after that."""
        unread = ("old", "known") if self.bce_columns == "seen" else ("old", "known", "seen")
        return host_state(self, without=unread)

    def begin_task(self, task: Task) -> None:
        """Which columns are old and which are seen: labels are numbered by arrival."""
        super().begin_task(task)
        self.renew_optimizer()
        self.old = max(self.known, min(task.classes))
        self.known = self.seen = max(self.old, max(task.classes) + 1)
        self.recalled.fill_(False)[: self.old] = True
        self.recalled[list(task.classes)] = False

    def loss(self, batch: Rows, replay: Replay) -> tuple[Tensor, Rows]:
        """Mean BCE(h(x), Q) over rows and K columns + λ Σ ‖θ‖²; Q is the teacher's in old columns, else one-hot."""
        past, penalty = self._recall(batch["input"]), self.l2 * self._sum_of_squares()
        (logits,) = self.logits(batch)
        columns = logits.shape[1] if self.bce_columns == "all" else self.seen
        past = past[:, :columns]
        target = targets(batch["label"], past, self.recalled[: past.shape[1]], columns)
        return F.binary_cross_entropy_with_logits(logits[:, :columns], target) + penalty, {}

    def _sum_of_squares(self) -> Tensor:
        """Σ ‖θ‖² (0-d); on a GPU without its gradient, for which a fifth of a step would go into copies."""
        weights: list[Tensor] = list(self.net.parameters())
        if not launch_bound(weights[0].device):
            return torch.cat([weight.flatten() for weight in weights]).square().sum()
        with torch.no_grad():
            return torch.stack(torch._foreach_norm(weights)).square().sum()

    def on_after_backward(self, replay: Replay | None) -> None:
        """Add the gradient 2λθ of λ Σ ‖θ‖² where the loss has come without it."""
        weights: list[Tensor] = list(trained(self.net).values())
        if launch_bound(weights[0].device):
            with torch.no_grad():
                for weight in weights:
                    weight.grad = torch.zeros_like(weight) if weight.grad is None else weight.grad
                gradients = [weight.grad for weight in weights if weight.grad is not None]
                torch._foreach_add_(gradients, weights, alpha=2 * self.l2)

    def end_task(self, task: Task, replay: Replay) -> None:
        """The network becomes the next task's teacher."""
        if self.teacher is None:
            self.teacher = copy.deepcopy(self.net).requires_grad_(False).eval()
        else:  # in place: a recorded step holds on to it
            before, now = (list(net.state_dict().values()) for net in (self.teacher, self.net))
            torch._foreach_copy_(before, now)

    @property
    def class_mean_options(self) -> Mapping[str, bool]:
        return {"normalised": self.features == "normalised", "flip": self.flip}

    def _recall(self, x: Tensor) -> Tensor:
        """Return the teacher's probabilities [n, C], on the same training view."""
        if self.teacher is None:
            return self.last_loss.new_zeros(len(x), 0)
        with torch.no_grad():
            past: Tensor = self.teacher(x)
            return past.sigmoid()  # all columns: a recorded step stays good when more of them are old


def targets(label: Tensor, past: Tensor, recalled: Tensor, columns: int) -> Tensor:
    """What each output should be [n, columns]: `past` [n, old] where `recalled` [old], else label [n] as one-hot.

    An old row's own column is the teacher's probability and not 1, unless its class has returned.

    >>> targets(torch.tensor([0, 2]), torch.tensor([[0.75], [0.25]]), torch.tensor([True]), 3)
    tensor([[0.7500, 0.0000, 0.0000],
            [0.2500, 0.0000, 1.0000]])
    """
    one_hot = (label[:, None] == torch.arange(columns, device=label.device)).to(past.dtype)
    taught = past.shape[1]
    return torch.cat([torch.where(recalled, past, one_hot[:, :taught]), one_hot[:, taught:]], 1)
