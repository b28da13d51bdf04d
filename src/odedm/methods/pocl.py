"""POCL: the hypergradients of past tasks in Pareto balance, beside that of the current one."""

from __future__ import annotations

from collections.abc import Hashable, Mapping
from dataclasses import field
from functools import partial
from typing import Any, ClassVar

import torch
from torch import Tensor
from torch.nn import functional as F

from odedm.core.accel.host_state import host_state
from odedm.core.accel.recording import GraphedFunction
from odedm.core.errors import choose
from odedm.core.rows import Rows, Task, count, take
from odedm.core.stored_names import stored
from odedm.methods.base import Replay, join
from odedm.methods.meta_learning import (
    MetaLearner,
    NetFunction,
    Objective,
    hypergradient,
    with_memory,
)
from odedm.nets.base import can_fill_up

SLICES = {
    "head": "The weights of the head.",
    "released": "The last 3210 weights of the net (the release: the head of another network).",
}
GROUPS = {
    "present": "Past tasks in the draw, and always the current one.",
    "released": "Tasks in the draw; the others keep the vector they had last (the release).",
}
RELEASED_SLICE = 3210
STEP = 16
"""Between sizes of groups on a GPU: smaller ones would need more recordings, larger ones more rows for nothing."""
STAY, GO = 0.85, 0.15
"""How much of the old weights stays where the nearest point to 0 is an end of the segment: never all, never nothing."""


@stored("method/pocl")
class POCL(MetaLearner):
    """One virtual step per task on its own rows, judged on one common query set; the verdicts are weighed.

    h_i = ∇_θ L_q(θ - η_in ∇L_i(θ)) for every task i in the draw. The past ones are mixed by weights on the simplex
    that move once per batch towards the mixture of least norm, the current one is added: θ ← θ - η (Σ w_i h_i + h_t).
    The first task is plain SGD; `warmup` batches of every later one bring its rows into the memory first.

    How many rows a task has in a draw is read back once per step, for each group is a pass of its own: one pass for all
    would have to take each row's part in every task's gradient apart. On a GPU the groups are filled up to a few sizes
    with rows that count for nothing, and the verdict on a group of each size is recorded as a graph. So the read-back
    is all that the device waits for.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"memory", "borders", "class ranges", "second order"})
    unsupported: ClassVar[Mapping[str, str]] = {"stream_loss": "it judges stream and memory by one common query"}
    capturable: ClassVar[bool] = True

    lr: float = 0.1
    inner_rate: float = 0.03
    inner_clamp: float = 2.0
    slot_clamp: float = 10.0
    pool: int = 300
    warmup: int = 6
    warmup_update: bool = True
    cumulative: bool = False
    slice: str = "head"
    groups: str = "present"
    pos_split: bool = False

    judged: Tensor
    slots: Tensor
    balance: Tensor
    batches: int = field(init=False, default=0)
    verdict: GraphedFunction

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_least(1, "pool")
        self.check_least(0, "warmup", "inner_clamp", "slot_clamp")
        choose("slice of pocl", self.slice, SLICES)
        choose("groups of pocl", self.groups, GROUPS)
        weights = self.function.weights()
        every = torch.arange(len(weights), device=weights.device)
        self.judged = self.function.head() if self.slice == "head" else every[-RELEASED_SLICE:]
        self.slots = torch.zeros_like(weights)[None]
        self.balance = weights[:0]
        self.verdict = GraphedFunction(
            partial(
                judge,
                self.function,
                rate=self.inner_rate,
                clip=self.inner_clamp,
                second_order=self.second_order,
                query_precision=self.query_precision,
            )
        )

    def graph_key(self) -> Hashable | None:
        """None after the first task: later steps count their batches and read sizes back."""
        return host_state(self) if len(self.heads) == 1 else None

    def end_task(self, task: Task, replay: Replay) -> None:
        """After the last task nothing is replayed."""
        super().end_task(task, replay)
        if task.last:
            self.verdict.clear()

    def begin_task(self, task: Task) -> None:
        """A slot for the new task, equal weights for those before it."""
        super().begin_task(task)
        self.batches = 0
        self.slots = torch.cat([self.slots[: task.index], torch.zeros_like(self.slots[:1])])
        self.balance = self.slots.new_full((task.index,), 1 / max(task.index, 1))

    def observe(self, batch: Rows, replay: Replay) -> Rows:
        """SGD in the first task, then a few batches of warm-up, then the balanced step."""
        if len(self.heads) == 1:
            (logits,) = self.logits(batch)
            self.optimizer_step(F.cross_entropy(logits, batch["label"]))
            return {}
        self.batches += 1
        if self.batches <= self.warmup:
            self.warm_up(batch, replay)
        else:
            self.balanced_step(batch, replay)
        return {}

    def warm_up(self, batch: Rows, replay: Replay) -> None:
        """A step of experience replay; without `warmup_update` only the running statistics move."""
        if not self.warmup_update:
            with torch.no_grad():
                (logits,) = self.logits(batch)
                self.last_loss.copy_(F.cross_entropy(logits, batch["label"]))
            return
        rows = join(batch, replay())
        (logits,) = self.logits(rows)
        self.optimizer_step(F.cross_entropy(logits, rows["label"]), replay)

    def balanced_step(self, batch: Rows, replay: Replay) -> None:
        """Fill the slots of the tasks in the draw and follow d = Σ_{i<t} w_i G_i + G_t."""
        self.verdict.allowed = self.captures
        rows = with_memory(batch, replay, self.pool)
        query, groups = self.query(rows), self.groups_of(rows, count(batch))
        if self.groups == "present" or 0 in groups:
            self.function.refresh(query.input)
        weights, total, losses = self.function.weights(), torch.zeros_like(self.slots[0]), []
        for task, index in groups.items():
            support, before = self.support(task, self.group(rows, index)), self.net.gradient_rows
            loss, gradient = self.verdict(weights, support, query)
            # said outright: a replayed verdict runs no code that would count its rows
            counted = self.net.gradient_rows - before
            self.net.count_gradient_rows(len(support.label) + len(query.label) - counted)
            total = total + gradient if self.cumulative else gradient
            self.slots[task] = total.clamp(-self.slot_clamp, self.slot_clamp)
            losses.append(loss.clone())
        now = len(self.heads) - 1
        past = list(range(now)) if self.groups == "released" else [task for task in groups if task < now]
        self.function.follow(self, self.mixture(past) + self.slots[now])
        if losses:
            self.last_loss.copy_(torch.stack(losses).mean())

    def groups_of(self, rows: Rows, current: int) -> dict[int, Tensor]:
        """Row numbers [n_i] of every task that is to be heard, oldest first; the first `current` rows are the batch.

        The sizes go to the host, once per step: each group is a forward of its own, for BatchNorm must see it alone.
        """
        tasks = torch.arange(len(self.heads), device=rows["task"].device)
        sizes = (rows["task"] == tasks[:, None]).sum(1).tolist()
        groups = dict(enumerate(rows["task"].argsort(stable=True).split(sizes)))
        if self.groups == "released" and sizes[-1] == current:
            del groups[len(self.heads) - 1]
        return {task: index for task, index in groups.items() if len(index)}

    def group(self, rows: Rows, index: Tensor) -> Rows:
        """One task's rows; on a GPU filled up to a multiple of `STEP`, always by one at least, with copies of the last.

        Copies have no share, and `starts` says where they begin and end.
        """
        real = len(index)
        if real < 2 or not can_fill_up(self.net, rows["input"]):
            return take(rows, index)
        size = (real // STEP + 1) * STEP
        filled = take(rows, torch.cat([index, index[-1:].expand(size - real)]))
        filled["share"][real:] = 0
        filled["starts"] = torch.tensor([0, real, size], dtype=torch.int32).to(index.device, non_blocking=True)
        return filled

    def support(self, task: int, rows: Rows) -> Objective:
        """Return the mean loss of one task's rows among its own classes."""
        low, high = (
            rows["label"].new_full((), bound) for bound in self.heads[task]
        )  # no numbers of the host: recorded
        weight = rows["share"] / rows["share"].sum()
        return Objective(rows["input"], rows["label"], weight, low, high, starts=rows.get("starts"))

    def query(self, rows: Rows) -> Objective:
        """Return the mean loss of batch and memory among all classes.

        With `pos_split` rows beyond the first `pool` weigh one half and compete among the classes seen so far.
        """
        weight, high = rows["share"] / rows["share"].sum(), torch.full_like(rows["label"], self.net.classes)
        if self.pos_split:
            high[self.pool :] = max(high for _, high in self.heads)
            weight[self.pool :] *= 0.5
        return Objective(rows["input"], rows["label"], weight, 0, high[:, None])

    def mixture(self, past: list[int]) -> Tensor:
        """Σ w_i G_i [P] over the given past tasks, after one move of their weights; the others keep theirs."""
        if not past:
            return torch.zeros_like(self.slots[0])
        slots = self.slots[past]
        mass = self.balance[past].sum()
        share = torch.where(mass > 0, self.balance[past] / mass, 1 / len(past))
        if len(past) > 1:
            share = towards_least_norm(slots[:, self.judged], share)
        self.balance[past] = mass * share
        return share @ slots


def judge(
    function: NetFunction, weights: Tensor, support: Objective, query: Objective, *, rate: float, **how: Any
) -> tuple[Tensor, Tensor]:
    """Return the query loss (0-d) after one step on the support, and its gradient h [P] through that step."""
    judged = hypergradient(function, weights, rate, [support], query, **how)
    return judged.loss, judged.by_weights


def towards_least_norm(vectors: Tensor, share: Tensor) -> Tensor:
    """One move of the weights [n] of vectors [n, d] towards the mixture of least norm.

    The mixture u and the vector v that agrees least with it span a segment; its point nearest to 0 is
    τ u + (1 - τ) v, and w ← τ w + (1 - τ) e_v. At an end of the segment τ is .85 or .15, so no weight is ever lost.

    >>> p = torch.tensor([3.0, 4.0])
    >>> towards_least_norm(torch.stack([p, -p]), torch.tensor([0.9, 0.1]))
    tensor([0.5000, 0.5000])
    """
    mixture = share @ vectors
    least = F.cosine_similarity(vectors, mixture[None]).argmin()
    chosen = (torch.arange(len(vectors), device=vectors.device) == least).to(vectors.dtype)
    vector = chosen @ vectors
    uu, uv, vv = mixture @ mixture, mixture @ vector, vector @ vector
    inside = (vv - uv) / (uu + vv - 2 * uv).clamp(min=torch.finfo(vectors.dtype).tiny)
    stay = torch.where(uv >= uu, STAY, torch.where(uv >= vv, GO, inside))
    stay = torch.where(stay.isfinite(), stay, 1.0).clamp(0.0, 1.0)  # vectors that overflow say nothing: no move
    moved = stay * share + (1 - stay) * chosen
    return moved / moved.sum()
