"""GEM: gradient episodic memory, a step that hurts the stored rows of no past task."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from odedm.core.rows import Rows, Task, take
from odedm.core.stored_names import stored
from odedm.methods.base import Method, Replay
from odedm.methods.gradients import gradient_of, read_gradient, write_gradient

SWEEPS = 10_000
"""The most rounds of the solver; a few dozen are the rule."""
CLOSE = 1e-10
"""A change of the multipliers below which they are found."""


@stored("method/gem")
class GEM(Method):
    """Descends on the stream batch; where that would hurt a past task's rows, by the nearest step that does not.

    Each past task has one gradient, over all its stored rows. `margin` is the least multiplier of each of them in a
    step that is projected, `ridge` is added to the diagonal of their products, and `most` bounds how many rows of a
    task are taken, 0 for all. How many rows a task has is known to the device alone, so a step reads values back.
    """

    policy: ClassVar[str] = "class-quota"
    requires: ClassVar[frozenset[str]] = frozenset({"borders"})
    unsupported: ClassVar[Mapping[str, str]] = {"retrieval": "it takes all stored rows, and draws none"}

    lr: float = 0.03
    margin: float = 0.5
    ridge: float = 1e-3
    most: int = 0
    now: int = field(init=False, default=0)
    """The running task, whose rows are no past."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_least(0, "margin", "ridge", "most")

    def begin_task(self, task: Task) -> None:
        """The tasks before this one are past."""
        super().begin_task(task)
        self.now = task.index

    def loss(self, batch: Rows, replay: Replay) -> tuple[Tensor, Rows]:
        """CE(h(x), y)."""
        (logits,) = self.logits(batch)
        return self.stream_loss(logits, batch["label"]), {}

    def on_after_backward(self, replay: Replay | None) -> None:
        past = self.past_gradients(replay) if replay else []
        if past:
            projected = project_to_cone(read_gradient(self.net), torch.stack(past), self.margin, self.ridge)
            if projected is not None:
                write_gradient(self.net, projected)

    def past_gradients(self, replay: Replay) -> list[Tensor]:
        """Return the gradient [P] of the stored rows of each past task, in training views."""
        rows = replay.rows()
        gradients = []
        for task in rows["task"][rows["task"] < self.now].unique().tolist():
            indices = (rows["task"] == task).nonzero().flatten()
            if self.most:
                indices = indices[-self.most :]
            task_rows = take(rows, indices)
            (logits,) = self.logits({"input": replay.augment(task_rows["image"])})
            gradients.append(gradient_of(F.cross_entropy(logits, task_rows["label"]), self.net))
        return gradients


def project_to_cone(gradient: Tensor, past: Tensor, margin: float, ridge: float) -> Tensor | None:
    """Return g + Gᵀv for a gradient g [P] and those of past tasks G [n, P]; None where g points against none of them.

    >>> project_to_cone(torch.tensor([1.0, -2.0]), torch.tensor([[0.0, 4.0]]), margin=0.0, ridge=0.0)
    tensor([1., 0.])
    """
    wide = past.double()
    along = wide @ gradient.double()
    products, along = (wide @ wide.T).cpu(), along.cpu()  # n² + n numbers: the solver is quicker at home
    if bool((along >= 0).all()):
        return None
    share = solve_qp(products.tolist(), along.tolist(), margin, ridge)
    return gradient + (torch.tensor(share, dtype=torch.float64, device=past.device) @ wide).to(gradient.dtype)


def solve_qp(products: Sequence[Sequence[float]], along: Sequence[float], margin: float, ridge: float) -> list[float]:
    """Return the v ≥ margin [n] that make ½ vᵀ(GGᵀ + ridge·I)v + (Gg)ᵀv least, for GGᵀ [n, n] and Gg [n].

    Coordinate by coordinate, in turn, until none moves: the matrix is positive definite, so that ends at the one least
    value.

    >>> solve_qp([[1.0, 0.0], [0.0, 1.0]], [-2.0, 3.0], margin=0.0, ridge=0.0)
    [2.0, 0.0]
    """
    share = [margin] * len(along)
    for _ in range(SWEEPS):
        moved = 0.0
        for i, row in enumerate(products):
            slope = sum(a * b for a, b in zip(row, share, strict=True)) + ridge * share[i] + along[i]
            curve = row[i] + ridge
            best = max(margin, share[i] - slope / curve) if curve > 0 else margin
            moved, share[i] = max(moved, abs(best - share[i])), best
        if moved < CLOSE:
            break
    return share
