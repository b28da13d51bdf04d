"""Gradient-based sample selection (GSS, greedy): rows whose gradients point elsewhere than those of stored rows."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor
from torch.nn import functional as F

from odedm.core.errors import choose
from odedm.core.rows import ColumnSpec, MemoryPart, ModelView, Rows, count
from odedm.core.stored_names import stored
from odedm.core.validators import Int
from odedm.memory.buffer import Buffer

SCORE = ColumnSpec("score")
FIRST = 0.1
"""The score of the very first rows, which there is nothing to compare with."""
SLACK = 0.01
"""Keeps the shares of victims finite where all scores are the same."""
LEAST = 1e-8
"""The share of a row with the least score: whoever must go can be anyone."""


@stored("memory/gss")
@final
class GSSBuffer(Buffer):
    """A row's score is the largest cosine of its gradient to those of a few stored batches, when it arrives.

    All rows are kept while there is room. Then a batch whose mean gradient points against all of them may enter: each
    of its rows meets a stored one, drawn the likelier the higher that one's score, and takes its place with probability
    (s + 1) / (s + s' + 2), where s is the stored score and s' its own. A batch that points along any of them changes
    nothing. Pinned rows have no score, are compared with, and never give way; pins displace short-term rows at random.

    `references` batches of `size` stored rows each are compared with, by gradients `of` "all" weights or of the "head".
    """

    looks_at_all_rows = True
    needs_method = True

    def __init__(
        self,
        capacity: int,
        fields: Sequence[ColumnSpec],
        device: torch.device | str = "cpu",
        *,
        references: int = 10,
        size: int = 10,
        of: str = "all",
    ) -> None:
        Int(1).validate("references of gss", references)
        Int(1).validate("size of gss", size)
        choose("gradients (of) of gss", of, {"all": None, "head": None})
        super().__init__(capacity, [*fields, SCORE], device)
        self.references, self.size_of_one, self.of = references, size, of

    def add(self, rows: Rows, view: ModelView, *, rng: torch.Generator) -> None:
        """Take what fits while there is room; else let rows compete, where their batch points elsewhere."""
        room, amount = self.short_capacity - self._short, count(rows)
        if self.short_capacity == 0:
            return
        fits = min(room, amount) if room > 0 else 0
        offered = {name: column[: fits or amount] for name, column in rows.items()}
        if self.size() == 0:
            score, whole = torch.full((fits,), FIRST, device=self.store.priority.device), None
        else:
            score, whole = similarities(offered, *self._compared(rng), view, self.of)
        priority = torch.rand(len(score), dtype=torch.float64, generator=rng, device=self.store.priority.device)
        if whole is None or fits:
            self.insert({**offered, "score": score}, priority)
            self.num_seen += amount - fits  # those for which there was no room left
        else:
            self._compete({**offered, "score": score}, priority, whole, rng)

    def pin(self, rows: Rows) -> None:
        """Pin rows; they have no score."""
        super().pin({**rows, "score": torch.zeros(count(rows), device=self.store.priority.device)})

    def _compared(self, rng: torch.Generator) -> tuple[Rows, int]:
        """Return stored rows for disjoint batches of equal size, one batch behind the other, and that size."""
        size = min(self.size_of_one, self.size())
        return self.sample(min(self.references, self.size() // size) * size, rng=rng), size

    def _compete(self, rows: Rows, priority: Tensor, whole: Tensor, rng: torch.Generator) -> None:
        """Set each row against a stored one; nobody, where the batch's similarity `whole` (0-d) is not below 0.

        Decided without a look at a value, so that a recorded step holds every case.
        """
        meetings = min(count(rows), self._short)
        rows = {name: column[:meetings] for name, column in rows.items()}
        stored, short = self.store.columns["score"], self._belongs(MemoryPart.SHORT)
        share = victim_shares(stored, short)
        # the largest of u^(1/w) are a draw without replacement by weights w
        chance = torch.rand(2, self.capacity, dtype=torch.float64, generator=rng, device=priority.device)
        slot = (chance[0].clamp(min=1e-300).log() / share).where(short, -torch.inf).topk(meetings).indices
        high, low = stored[slot] + 1, rows["score"] + 1
        wins = (whole < 0) & (chance[1, :meetings] * (high + low) < high)
        order = self.num_seen + torch.arange(meetings, device=priority.device)
        self.store.write(slot, {**rows, "prototype": torch.full_like(order, -1), "order": order}, wins)
        self.store.priority.index_copy_(0, slot, torch.where(wins, priority[:meetings], self.store.priority[slot]))
        self.num_seen += len(priority)


def victim_shares(score: Tensor, stored: Tensor) -> Tensor:
    """Return how likely each of the `stored` rows [n] is to be the one that may go, by its score [n]; not summed to 1.

    >>> victim_shares(torch.tensor([-1.0, 1.0, 9.0]), torch.tensor([True, True, False]))[:2]
    tensor([1.0000e-08, 9.9502e-01], dtype=torch.float64)
    """
    score = score.double()
    low, high = score.where(stored, torch.inf).amin(), score.where(stored, -torch.inf).amax()
    return ((score - low) / (high - low + SLACK)).clamp(min=LEAST)


def similarities(rows: Rows, compared: Rows, size: int, view: ModelView, of: str) -> tuple[Tensor, Tensor]:
    """Return the largest cosine of each row's gradient [n], and of their mean one (0-d), to those of stored batches.

    `compared` holds batches of `size` rows, one behind the other. The gradient of a mean loss is the mean of single
    rows' gradients, so that these are all that is asked for.
    """
    reference = F.normalize(batch_gradients(compared, size, view, of))
    total = torch.zeros_like(reference[0])

    def cosines(gradient: Tensor) -> Tensor:
        total.add_(gradient.sum(0))
        return (F.normalize(gradient) @ reference.T).amax(1)

    single = view.gradients(rows, of=of, then=cosines)
    return single, (reference @ F.normalize(total, dim=0)).amax()


def batch_gradients(rows: Rows, size: int, view: ModelView, of: str) -> Tensor:
    """Return the gradients [n / size, P] of the mean cross-entropy of batches of `size` rows, one behind the other."""
    amount, place = count(rows) // size, 0
    sums: list[Tensor] = []

    def gather(gradient: Tensor) -> Tensor:
        nonlocal place
        of_batch = torch.arange(place, place + len(gradient), device=gradient.device) // size
        place += len(gradient)
        # a product, not an indexed addition: that one adds in any order on a GPU
        member = (of_batch == torch.arange(amount, device=gradient.device)[:, None]).to(gradient.dtype)
        sums[:] = [member @ gradient if not sums else sums[0].addmm_(member, gradient)]
        return gradient[:, 0]

    view.gradients(rows, of=of, then=gather)
    return sums[0] / size
