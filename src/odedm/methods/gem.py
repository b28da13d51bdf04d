"""GEM: gradient episodic memory, a step that hurts the stored rows of no past task."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from odedm.core.errors import UsageError
from odedm.core.rows import Rows, Task, take
from odedm.core.stored_names import stored
from odedm.methods.base import Load, Method, Replay
from odedm.methods.gradients import gradient_of, read_gradient, write_gradient

SWEEPS = 10_000
"""The most rounds of the solver; a few dozen are the rule."""
CLOSE = 1e-10
"""A change of the multipliers below which they are found."""


@stored("method/gem")
@dataclass(kw_only=True, eq=False)
class GEM(Method):
    """Descends on the stream batch; where that would hurt a past task's rows, by the nearest step that does not.

    Each past task has one gradient, over all its stored rows. `margin` is the least multiplier of each of them in a
    step that is bent, `ridge` is added to the diagonal of their products, and `most` bounds how many rows of a task are
    taken, 0 for all. How many rows a task has is known to the device alone, so a step reads values back.
    """

    reading: ClassVar[str] = "union"
    no_stream_loss: ClassVar[str] = ""
    native: ClassVar[str] = "class-quota"
    needs_borders: ClassVar[bool] = True
    draws_at_once: ClassVar[int] = 0

    lr: float = 0.03
    margin: float = 0.5
    ridge: float = 1e-3
    most: int = 0
    now: int = field(init=False, repr=False, default=0)
    """The running task, whose rows are no past."""

    def __post_init__(self) -> None:
        super().__post_init__()
        for name in ("margin", "ridge", "most"):
            if getattr(self, name) < 0:
                raise UsageError(f"gem's {name} must be 0 or more; {getattr(self, name)} was given.")

    @classmethod
    def rows_at_once(cls, load: Load) -> int:
        """A task's stored rows may be all there are."""
        return load.batch + load.capacity

    @classmethod
    def networks_at_once(cls, load: Load) -> float:
        """A gradient of every task, in single and in double precision, and the products' room."""
        return 3 * load.tasks + 3

    def begin_task(self, task: Task) -> None:
        """The tasks before this one are past."""
        super().begin_task(task)
        self.now = task.index

    def step(self, batch: Rows, replay: Replay) -> Rows:
        """CE(h(x), y); the gradient is bent before the step."""
        (logits,) = self.forwards(batch["input"], replay=replay)
        self.descend(self.stream_loss(logits, batch["label"]), replay)
        return {}

    def bend(self, replay: Replay | None) -> None:
        """Bend the gradient where it points against that of a past task."""
        past = self.past_gradients(replay) if replay else []
        if past:
            bent = bent_gradient(read_gradient(self.net), torch.stack(past), self.margin, self.ridge)
            if bent is not None:
                write_gradient(self.net, bent)

    def past_gradients(self, replay: Replay) -> list[Tensor]:
        """The gradient [P] of the stored rows of each past task, in training views."""
        rows = replay.rows()
        found = []
        for task in rows["task"][rows["task"] < self.now].unique().tolist():
            own = (rows["task"] == task).nonzero().flatten()
            own = own[-self.most :] if self.most else own
            part = take(rows, own)
            (logits,) = self.forwards(replay.weak(part["image"]))
            found.append(gradient_of(F.cross_entropy(logits, part["label"]), self.net))
        return found


def bent_gradient(gradient: Tensor, past: Tensor, margin: float, ridge: float) -> Tensor | None:
    """G + Gᵀv for a gradient g [P] and those of past tasks G [n, P]; None where g points against none of them.

    >>> bent_gradient(torch.tensor([1.0, -2.0]), torch.tensor([[0.0, 4.0]]), margin=0.0, ridge=0.0)
    tensor([1., 0.])
    """
    wide = past.double()
    along = wide @ gradient.double()
    products, along = (wide @ wide.T).cpu(), along.cpu()  # n² + n numbers: the solver is quicker at home
    if bool((along >= 0).all()):
        return None
    share = multipliers(products.tolist(), along.tolist(), margin, ridge)
    return gradient + (torch.tensor(share, dtype=torch.float64, device=past.device) @ wide).to(gradient.dtype)


def multipliers(
    products: Sequence[Sequence[float]], along: Sequence[float], margin: float, ridge: float
) -> list[float]:
    """The v ≥ margin [n] that make ½ vᵀ(GGᵀ + ridge·I)v + (Gg)ᵀv least, for GGᵀ [n, n] and Gg [n].

    Coordinate by coordinate, in turn, until none moves: the matrix is positive definite, so that ends at the one least
    value.

    >>> multipliers([[1.0, 0.0], [0.0, 1.0]], [-2.0, 3.0], margin=0.0, ridge=0.0)
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
