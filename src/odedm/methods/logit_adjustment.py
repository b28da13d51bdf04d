"""Stream losses: which classes the stream's cross-entropy sets against its own, and by how much.

A stream brings its classes in turns. Its plain cross-entropy pushes every class that is not here down, with each batch,
and replay has to lift it again. Both losses below shift the stream's logits by class, before the cross-entropy, so
that this push is weaker; neither needs to know where tasks begin and end.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

import torch
from torch import Tensor

from odedm.core.stored_names import stored

RECENT = 3
"""A class is recent if one of so many last batches had a row of it."""
TAU = 1.0
"""How strongly logits are adjusted: 1 is the exponent for which the loss is consistent (Menon et al. 2021)."""
MEMORY = 0.99
"""How much of the running frequencies is left after a batch: about a hundred batches count."""
RAREST = 1e-6
"""The frequency of a class that was never here, so that it has a logarithm."""


class LogitAdjustment(ABC):
    """A shift of the stream's logits that follows which classes arrive; what it keeps are tensors that change in place.

    >>> shift = Asymmetric(3, torch.device("cpu"))
    >>> for label in (0, 1, 1, 1):
    ...     shift.update(torch.tensor([label]))
    >>> shift(torch.zeros(1, 3))
    tensor([[-inf, 0., 0.]])
    """

    was_used: bool = False
    """Whether a loss has used it."""

    @abstractmethod
    def __init__(self, classes: int, device: torch.device) -> None:
        """None of the classes was here."""

    @abstractmethod
    def update(self, label: Tensor) -> None:
        """A stream batch with these labels [n] has arrived; told once, however many updates are made on it."""

    @abstractmethod
    def __call__(self, logits: Tensor) -> Tensor:
        """Return logits [n, C] of stream rows as their cross-entropy sees them."""

    @abstractmethod
    def grow(self, classes: int) -> None:
        """There are so many classes now; those that join were never here."""

    def forget_recency(self) -> None:
        """All classes were here, long ago: what a shift that begins late must know of the stream before it."""


@stored("class-shift/asymmetric")
class Asymmetric(LogitAdjustment):
    """Leaves out, by -inf, the classes that were here before and are in none of the last `RECENT` batches.

    Those are the classes that the memory stands for: replay alone moves them. Classes that are still to come stay in.
    """

    def __init__(self, classes: int, device: torch.device) -> None:
        self.age = torch.full((classes,), -1, dtype=torch.int64, device=device)
        """Batches since a class was here last [C]; -1 for one that never was."""

    def update(self, label: Tensor) -> None:
        self.age += self.age >= 0
        self.age.index_fill_(0, label, 0)

    def __call__(self, logits: Tensor) -> Tensor:
        return logits.masked_fill(self.age >= RECENT, -torch.inf)

    def grow(self, classes: int) -> None:
        self.age = torch.cat([self.age, self.age.new_full((classes - len(self.age),), -1)])

    def forget_recency(self) -> None:
        self.age.fill_(RECENT)


@stored("class-shift/adjusted")
class Adjusted(LogitAdjustment):
    """Adds τ log π_c to the logit of class c, where π is the running frequency of classes in the stream.

    A class that is frequent now wins the softmax by its frequency already, so the network need not learn that.
    """

    def __init__(self, classes: int, device: torch.device) -> None:
        self.weight = torch.zeros(classes, device=device)
        """Rows of each class [C], weighed down by `MEMORY` with every batch since."""

    def update(self, label: Tensor) -> None:
        member = label[:, None] == torch.arange(len(self.weight), device=label.device)
        self.weight.mul_(MEMORY).add_(member.to(self.weight.dtype).mean(0))

    def __call__(self, logits: Tensor) -> Tensor:
        frequency = self.weight / self.weight.sum().clamp(min=RAREST)
        return logits + TAU * frequency.clamp(min=RAREST).log()

    def grow(self, classes: int) -> None:
        self.weight = torch.cat([self.weight, self.weight.new_zeros(classes - len(self.weight))])


SHIFTS: dict[str, type[LogitAdjustment]] = {"asymmetric": Asymmetric, "adjusted": Adjusted}
"""Stream losses by name; the plain one shifts nothing."""
