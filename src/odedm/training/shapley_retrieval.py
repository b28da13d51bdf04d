"""ASER's retrieval: stored rows that stand for their classes and stand in the way of the stream batch."""

from __future__ import annotations

from dataclasses import dataclass

import torch

from odedm.core.rows import Rows, take
from odedm.core.stored_names import stored
from odedm.core.validators import Int
from odedm.memory.shapley import class_balanced, knn_shapley, looked_at
from odedm.methods.base import Method
from odedm.training.retrieval import Retrieval, StoredRows


@stored("retrieval/aser")
@dataclass(frozen=True, kw_only=True)
class ShapleyRetrieval(Retrieval):
    """The rows with the largest mean Shapley value for other stored rows, minus that for the stream batch: ASER_μ.

    Values are those of a `k`-nearest-neighbour classifier in feature space. Candidates, and the stored rows by which
    they are judged, are two disjoint draws with as many rows of each class: `per_class`, or about 90 in all with 0.

    >>> ShapleyRetrieval(k=0)
    Traceback (most recent call last):
    odedm.UsageError: k of aser must be a whole number, 1 or more; 0 was given.
    """

    k: int = 3
    per_class: int = 0

    def __post_init__(self) -> None:
        Int(1).validate("k of aser", self.k)
        Int(0).validate("per_class of aser", self.per_class)

    def __call__(self, n: int, stored: StoredRows, batch: Rows, method: Method) -> Rows:
        """Return the n best candidates, in the views by which they were judged."""
        rows, most = stored.draw(len(stored)), looked_at(self.per_class, method.net.classes)
        candidates = min(len(stored), max(n, min(most, len(stored) // 2)))
        if candidates <= n:
            return stored.view(take(rows, torch.arange(min(n, len(stored)), device=rows["label"].device)))
        chosen = class_balanced(rows["label"], candidates, stored.rng)
        others = torch.ones_like(rows["label"]).index_fill_(0, chosen, 0).argsort(descending=True, stable=True)
        others = others[: len(stored) - candidates]
        judge = others[class_balanced(rows["label"][others], most, stored.rng)]
        candidate_rows, judges = (stored.view(take(rows, part)) for part in (chosen, judge))
        points = method.embed(torch.cat([candidate_rows["input"], judges["input"], batch["input"]])).flatten(1).double()
        of_candidates, of_judges, of_batch = points.split([len(chosen), len(judge), len(batch["label"])])
        helps = knn_shapley(of_judges, judges["label"], of_candidates, candidate_rows["label"], self.k).mean(0)
        hinders = knn_shapley(of_batch, batch["label"], of_candidates, candidate_rows["label"], self.k).mean(0)
        return take(candidate_rows, (helps - hinders).topk(n).indices)
