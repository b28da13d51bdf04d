"""VR-MCL: meta continual learning with a variance-reduced hypergradient."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar

import torch
from torch import Tensor

from odedm.core.accel.streams import SideStream
from odedm.core.errors import choose
from odedm.core.rows import Rows, Task, count
from odedm.core.stored_names import stored
from odedm.methods.base import Replay
from odedm.methods.meta_learning import (
    Hypergradient,
    MetaLearner,
    Objective,
    hypergradient,
    rescale,
    with_memory,
)

SPLITS = {
    "origin": "Rows of the stream batch compete as current ones, rows of the memory as past ones.",
    "position": "The first `draw` rows of the query compete as current ones, wherever they come from (the release).",
}


@stored("method/vrmcl")
class VRMCL(MetaLearner):
    """One step of meta-learning per batch, its gradient averaged over time at the price of a second evaluation.

    Inner steps adapt the weights to chunks of the batch at learned rates A, one per weight; the meta loss ℳ(θ, A) is
    the mean loss of batch and memory after each of them. v ← ∇ℳ(θ) + ρ (v - ∇ℳ(θ⁻)), the STORM estimator with the
    same rows at the last iterate θ⁻, gives the update θ ← θ - β v; `lr` is β and `storm` is ρ.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"borders", "class ranges", "second order"})
    unsupported: ClassVar[Mapping[str, str]] = {"stream_loss": "it chooses itself among which classes a row competes"}
    capturable: ClassVar[bool] = True

    lr: float = 0.35
    inner_rate: float = 0.1
    rate_lr: float = 0.25
    storm: float = 0.15
    clip: float = 1.0
    chunk: int = 8
    meta_updates: int = 1
    bn_refreshes: int = 1
    clamp_rates: bool = False
    split: str = "origin"

    previous: Tensor
    rates: Tensor
    velocity: Tensor | None = field(init=False, default=None)
    order: torch.Generator
    beside: SideStream
    queries: tuple[SideStream, SideStream]

    def __post_init__(self) -> None:
        super().__post_init__()
        self.check_least(1, "chunk", "meta_updates")
        self.check_least(0, "bn_refreshes", "storm", "clip")
        choose("split of vrmcl", self.split, SPLITS)
        self.previous = self.function.weights()
        self.rates = torch.full_like(self.previous, self.inner_rate)
        self.order = self.rng("order of inner chunks")
        device = self.previous.device
        self.beside, self.queries = SideStream(device), (SideStream(device), SideStream(device))

    def begin_task(self, task: Task) -> None:
        """The first step of a task finds no older iterate; v and A go on."""
        super().begin_task(task)
        self.previous.copy_(self.function.weights())

    def observe(self, batch: Rows, replay: Replay) -> Rows:
        """First v ← g + ρ (v - g⁻) and A ← A - η_A h, then θ ← θ - β v."""
        for _ in range(self.meta_updates):
            chunks, query = self.chunks(batch), self.query(with_memory(batch, replay, self.draw), count(batch))
            self.function.refresh(query.input, self.bn_refreshes)
            weights = self.function.weights()
            with self.beside():
                then = self.look_ahead(self.previous, chunks, query)
            now = self.look_ahead(weights, chunks, query)
            self.beside.join()
            gradient, old = rescale(now.by_weights, self.clip), rescale(then.by_weights, self.clip)
            by_rates = rescale(rescale(now.by_rates, self.clip) + then.by_rates, self.clip)
            velocity = old if self.velocity is None else self.velocity
            self.velocity = velocity.sub_(old).mul_(self.storm).add_(gradient)
            self.previous.copy_(weights)
            self.rates.sub_(self.rate_lr * by_rates)
            if self.clamp_rates:
                self.rates.clamp_(min=0.0)
            self.function.follow(self, self.velocity)
            self.last_loss.copy_(now.loss)
        return {}

    def look_ahead(self, weights: Tensor, chunks: list[Objective], query: Objective) -> Hypergradient:
        """ℳ and its gradients at weights [P]."""
        return hypergradient(
            self.function, weights, self.rates, chunks, query,
            clip=self.clip, second_order=self.second_order, query_precision=self.query_precision,
            side=self.queries[self.beside.active],
        )  # fmt: skip

    def chunks(self, batch: Rows) -> list[Objective]:
        """Return the batch in random order, `chunk` rows at a time, each among the classes of its own task only."""
        x, y = batch["input"], batch["label"]
        low, high = self.heads[-1]
        shuffled = torch.rand(len(y), generator=self.order, device=y.device).argsort()
        return [
            Objective(x[index], y[index], x.new_full((len(index),), 1 / len(index)), low, high)
            for index in shuffled.split(self.chunk)
        ]

    def query(self, rows: Rows, current: int) -> Objective:
        """Current rows against current and future classes, memory rows at half weight against all seen ones.

        So new classes take nothing from old ones directly; what tells them apart is the memory. Nor do classes that
        return: those between them and the future ones are left out.
        """
        every, seen = self.net.classes, max(high for _, high in self.heads)
        if self.split == "position":
            current = min(self.draw, count(rows))
            low = torch.zeros_like(rows["task"])
            for number, (first, _) in enumerate(self.heads):
                low.masked_fill_(rows["task"] == number, first)
            high = torch.full_like(low, every)
        else:
            first, end = self.heads[-1]
            low = torch.full_like(rows["task"], first)
            high = torch.full_like(low, every if end == seen else end)
        beyond = torch.full_like(low, seen)
        low[current:], high[current:], beyond[current:] = 0, seen, every
        weight = rows["share"] / rows["share"].sum()
        weight[current:] *= 0.5
        return Objective(rows["input"], rows["label"], weight, low[:, None], high[:, None], beyond[:, None])
