"""Retrievals: which stored rows a replay draw takes. Any, or a choice that looks at the batch and at the learner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from inspect import Parameter
from typing import Any, Protocol

import torch
from torch import Tensor
from torch.nn import functional as F

from odedm.core.errors import UsageError
from odedm.core.options import options_of, read_options
from odedm.core.registry import RETRIEVALS
from odedm.core.rows import Rows, take
from odedm.core.stored_names import stored
from odedm.core.validators import Int
from odedm.memory.shapley import class_balanced, knn_shapley, looked_at
from odedm.methods.base import Method
from odedm.methods.meta_learning import NetFunction
from odedm.nets.base import full_precision


class StoredRows(Protocol):
    """The part of the memory that a method's draws come from, as a retrieval sees it."""

    @property
    def rng(self) -> torch.Generator:
        """The draw's own generator, on the rows' device: for whatever a retrieval leaves to chance."""
        ...

    def __len__(self) -> int:
        """Return how many rows there are: a host number."""
        ...

    def draw(self, n: int) -> Rows:
        """min(n, len) distinct rows, uniformly at random, with raw `image`."""
        ...

    def view(self, rows: Rows) -> Rows:
        """Return the rows with a fresh training view as `input`."""
        ...


class Retrieval(ABC):
    """Chooses the rows of a replay draw; the keywords of its constructor are its options.

    To be recorded on a GPU it reads nothing back from the device, and its shapes depend on sizes alone.

    >>> class Newest(Retrieval):
    ...     def __call__(self, n, stored, batch, method):
    ...         rows = stored.draw(len(stored))
    ...         return stored.view(take(rows, rows["index"].topk(min(n, len(stored))).indices))
    """

    @abstractmethod
    def __call__(self, n: int, stored: StoredRows, batch: Rows, method: Method) -> Rows:
        """Return the rows of one draw.

        Args:
            n: how many are wanted; fewer where fewer are stored.
            stored: where they come from.
            batch: the stream batch of the step, with its training view as `input`.
            method: the learner; it must be left as it is.

        Returns:
            Stored rows with `input`.
        """


@stored("retrieval/uniform")
@dataclass(frozen=True)
class Uniform(Retrieval):
    """Any rows, each equally likely."""

    def __call__(self, n: int, stored: StoredRows, batch: Rows, method: Method) -> Rows:  # noqa: ARG002
        """Return a uniform draw."""
        return stored.view(stored.draw(n))


@stored("retrieval/balanced")
@dataclass(frozen=True)
class Balanced(Retrieval):
    """As many rows of each class as of any other, while it has so many; which of a class, chance decides."""

    def __call__(self, n: int, stored: StoredRows, batch: Rows, method: Method) -> Rows:  # noqa: ARG002
        """Return a draw of n rows in which two classes differ by one row, or one of them is used up."""
        rows = stored.draw(len(stored))
        return stored.view(take(rows, class_balanced(rows["label"], n, stored.rng)))


@stored("retrieval/mir")
@dataclass(frozen=True, kw_only=True)
class MIR(Retrieval):
    """Maximally interfered retrieval: the rows whose loss a step on the stream batch alone would raise most.

    Of `candidates` rows drawn at random, those with the largest ℓ(θᵛ) - ℓ(θ), where θᵛ = θ - η ∇ℓ(batch) is a virtual
    step of plain SGD at the method's current rate η, and ℓ the cross-entropy. Where a method draws as many rows as
    there are candidates, nothing is left to choose. The network and its BatchNorm statistics stay as they are.

    >>> MIR(candidates=0)
    Traceback (most recent call last):
    odedm.UsageError: candidates of mir must be a whole number, 1 or more; 0 was given.
    """

    candidates: int = 50

    def __post_init__(self) -> None:
        Int(1).validate("candidates of mir", self.candidates)

    def __call__(self, n: int, stored: StoredRows, batch: Rows, method: Method) -> Rows:
        """Return the n most interfered of the candidates, in the views by which they were judged."""
        rows = stored.view(stored.draw(max(n, self.candidates)))
        if len(rows["label"]) <= n:
            return rows
        return take(rows, interference(method, batch, rows).topk(n).indices)


def interference(method: Method, batch: Rows, rows: Rows) -> Tensor:
    """Return how much a virtual step on the batch would raise the cross-entropy [m] of other rows.

    Both have `input` and `label`. It is computed in the weights' own precision: differences of losses are small.
    """
    rate = method.optimizer.param_groups[0]["lr"]
    with full_precision(method.net):
        function = NetFunction(method.net)
        start = function.weights().requires_grad_()
        loss = F.cross_entropy(function(start, batch["input"]), batch["label"])
        (slope,) = torch.autograd.grad(loss, start)
        with torch.no_grad():
            before, after = (
                F.cross_entropy(function(weights, rows["input"]), rows["label"], reduction="none")
                for weights in (start, start - rate * slope)
            )
    return after - before


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


def build_retrieval(name: str, options: Mapping[str, Any]) -> Retrieval:
    """Return a retrieval by its name with its options, which may be text; a sentence where it has none such.

    >>> build_retrieval("mir", {"candidates": "20"})
    MIR(candidates=20)
    >>> build_retrieval("uniform", {"candidates": "20"})
    Traceback (most recent call last):
    odedm.UsageError: The retrieval 'uniform' has no option 'candidates'; it has none.
    """
    retrieval: Retrieval = RETRIEVALS[name].load()(**read_retrieval_options(name, options))
    return retrieval


def read_retrieval_options(name: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of a retrieval, the given ones in their own types.

    >>> read_retrieval_options("mir", {})
    {'candidates': 50}
    """
    what, values = f"The retrieval '{name}'", options_of(RETRIEVALS[name].load())
    values |= read_options(what, values, options)
    missing = [option for option, value in values.items() if value is Parameter.empty]
    if missing:
        raise UsageError(
            f"{what} needs its option '{missing[0]}'. Give it among the retrieval's options (--set retrieval."
            f"{missing[0]}=VALUE)."
        )
    return values
