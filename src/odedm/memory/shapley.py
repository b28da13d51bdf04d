"""Shapley values of stored rows for a nearest-neighbour classifier, and the memory that keeps the worthiest (ASER)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

import torch
from torch import Tensor

from odedm.core.rows import ColumnSpec, MemoryPart, ModelView, Rows, count, rank_within
from odedm.core.stored_names import stored
from odedm.core.validators import Int
from odedm.memory.buffer import Buffer

LOOKED_AT = 90
"""Rows that are judged, and judged by, in all, where nobody says how many of each class."""


def class_balanced(label: Tensor, n: int, rng: torch.Generator) -> Tensor:
    """Return positions [min(n, m)] of a draw from labels [m] that takes a row of each class after the other.

    >>> label = torch.tensor([0, 0, 0, 0, 0, 0, 7, 7, 9])
    >>> label[class_balanced(label, 5, torch.Generator().manual_seed(0))].bincount()[[0, 7, 9]].tolist()
    [2, 2, 1]
    """
    noise = torch.rand(2, len(label), dtype=torch.float64, generator=rng, device=label.device)
    order = noise[0].argsort()
    turn = torch.empty_like(label)
    turn[order] = rank_within(label[order])
    # in [0, 1), so noise decides within a turn: which classes have the rows of the last, incomplete one
    return (turn + noise[1]).topk(min(n, len(label)), largest=False).indices


def looked_at(per_class: int, classes: int) -> int:
    """Return how many rows are judged: so many of each class, or about 90 in all, but 2 of each class at least.

    >>> looked_at(0, 10), looked_at(0, 100), looked_at(5, 10)
    (90, 200, 50)
    """
    return classes * (per_class or max(2, LOOKED_AT // max(1, classes)))


def knn_shapley(
    point: Tensor, label: Tensor, candidate: Tensor, known: Tensor, k: int, counts: Tensor | None = None
) -> Tensor:
    """Return the worth [e, n] of candidates to the k-nearest-neighbour answer for points [e, d] with labels [e].

    `candidate` is [n, d], `known` [n] has their labels, and `counts` [n] which of them count, all unless given. With
    candidates in the order of their distance and m_j = 1 where the j-th has the point's label, the values are
    s_j = s_{j+1} + (m_j - m_{j+1}) / k · min(k, j) / j, from behind the last one, where both are 0. They sum to the
    share of right ones among the k nearest, also where there are fewer than k (the release has m / n for the last one).

    >>> knn_shapley(torch.zeros(1, 1), torch.tensor([1]), torch.tensor([[2.0], [1.0]]), torch.tensor([0, 1]), k=1)
    tensor([[0., 1.]], dtype=torch.float64)
    """
    # differences themselves: the expanded square loses digits, and with them the order
    distance = torch.cdist(point, candidate, compute_mode="donot_use_mm_for_euclid_dist")
    match = (label[:, None] == known).to(torch.float64)
    if counts is not None:  # behind all others, and right for nobody: as if they were absent
        distance, match = distance.masked_fill(~counts, torch.inf), match * counts
    order = distance.argsort(dim=1, stable=True)
    match = match.gather(1, order)
    after = torch.nn.functional.pad(match[:, 1:], (0, 1))
    rank = torch.arange(1, match.shape[1] + 1, dtype=torch.float64, device=match.device)
    part = (match - after) * rank.clamp(max=k) / (rank * k)
    return torch.zeros_like(part).scatter_(1, order, part.flip(1).cumsum(1).flip(1))


@stored("memory/aser")
@final
class ASERBuffer(Buffer):
    """Keeps all rows while there is room; then rows of a batch take the places of stored ones that are worth less.

    Worth is the sum of `knn_shapley` over stored rows, as many of each class, and over those rows of the batch whose
    class is rare in the memory (a share below a number drawn from 0 to 1 / classes). Judged are the batch and as many
    stored rows, drawn at random; the least worthy of them go, as many as the batch has.

    `k` is the number of neighbours, `per_class` how many rows of each class are drawn, 0 for about 90 in all.
    `classes` is how many the stream has; where nobody knows, those of the labels that were seen. Pinned rows judge and
    are not judged, and pins displace short-term rows at random.
    """

    looks_at_all_rows = True
    needs_method = True

    def __init__(
        self,
        capacity: int,
        fields: Sequence[ColumnSpec],
        device: torch.device | str = "cpu",
        *,
        classes: int | None = None,
        k: int = 3,
        per_class: int = 0,
    ) -> None:
        Int(1).validate("k of aser", k)
        Int(0).validate("per_class of aser", per_class)
        super().__init__(capacity, fields, device)
        self.classes, self.k, self.per_class = classes, k, per_class

    def add(self, rows: Rows, view: ModelView, *, rng: torch.Generator) -> None:
        """Take what fits, and let the others compete."""
        amount, room = count(rows), max(0, self.short_capacity - self._short)
        if self.short_capacity == 0:
            return
        priority = torch.rand(amount, dtype=torch.float64, generator=rng, device=self.store.priority.device)
        fits = min(amount, room)
        if fits:
            self.insert({name: column[:fits] for name, column in rows.items()}, priority[:fits])
        if fits < amount:
            self._compete({name: column[fits:] for name, column in rows.items()}, priority[fits:], view, rng)

    def _compete(self, rows: Rows, priority: Tensor, view: ModelView, rng: torch.Generator) -> None:
        """Let rows [m] with priorities [m] take the places of stored ones; without a look at a value."""
        amount, slots = count(rows), self.ordered_slots()
        stored = self.store.columns["label"]
        classes = self.classes or 1 + int(torch.cat([stored[slots], rows["label"]]).max())
        most = looked_at(self.per_class, classes)
        judge = slots[class_balanced(stored[slots], min(most, len(slots) // 2), rng)]
        noise = torch.rand(self.capacity + 1, dtype=torch.float64, generator=rng, device=priority.device)
        share = (stored[slots][:, None] == rows["label"]).sum(0) / len(slots)
        rare = share < noise[-1] / classes
        free = self._belongs(MemoryPart.SHORT).index_fill(0, judge, False)
        chance, slot = noise[:-1].where(free, -1.0).topk(min(most, self.capacity))
        image, label = self.store.columns["image"], torch.cat([stored[judge], rows["label"]])
        feature = view.embed(torch.cat([image[judge], image[slot], rows["image"]])).flatten(1).double()
        judges, judged, new = feature.split([len(judge), len(slot), amount])
        counts = torch.cat([chance >= 0, torch.ones_like(rare)])
        known = torch.cat([stored[slot], rows["label"]])
        value = knn_shapley(torch.cat([judges, new]), label, torch.cat([judged, new]), known, self.k, counts)
        speaks = torch.cat([torch.ones_like(judge, dtype=torch.bool), rare])
        self._swap(rows, priority, slot, value.where(speaks[:, None], 0.0).sum(0).where(counts, torch.inf))

    def _swap(self, rows: Rows, priority: Tensor, slot: Tensor, worth: Tensor) -> None:
        """Let the m of least worth [n + m] go of stored rows at `slot` [n] and new ones [m]: some change places."""
        amount = count(rows)
        goes = torch.zeros_like(worth, dtype=torch.bool)
        goes.index_fill_(0, worth.argsort(stable=True)[:amount], True)
        out, stay = goes[:-amount], ~goes[-amount:]
        pairs = min(amount, len(slot))
        leaving = slot[out.int().argsort(descending=True, stable=True)[:pairs]]
        entering = stay.int().argsort(descending=True, stable=True)[:pairs]
        wins = torch.arange(pairs, device=priority.device) < out.sum()
        order = self.num_seen + entering
        chosen = {name: column[entering] for name, column in rows.items()}
        self.store.write(leaving, {**chosen, "prototype": torch.full_like(order, -1), "order": order}, wins)
        self.store.priority.index_copy_(0, leaving, torch.where(wins, priority[entering], self.store.priority[leaving]))
        self.num_seen += amount
