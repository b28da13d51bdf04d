"""PuriDivER: training from noisy labels on pure and diverse rows, with an optional fit to the memory between tasks."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import ClassVar, final

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odedm.core.errors import UsageError, choose
from odedm.core.rows import Rows, Task, count
from odedm.core.stored_names import stored
from odedm.methods.base import Method, Replay
from odedm.methods.cutmix import cutmix, mixed_cross_entropy
from odedm.methods.noisy_labels import (
    Split,
    combined_loss,
    companion_size,
    corrected_loss,
    endless,
    restarting_rate,
    shuffled,
    split,
)
from odedm.methods.plain_sgd import PlainSGD
from odedm.nets.base import Net, modes_kept
from odedm.nets.grouped_batch_norm import GroupedBatchNorm

CHUNK = 256
"""Rows judged at a time: keeps memory bounded."""


@stored("method/puridiver")
class PuriDivER(Method):
    """Cross-entropy under CutMix over the unaugmented stream batch and, from the second task on, a strong replay view.

    Which rows are kept is the memory's affair: the policy "purity". `fit=True` fits the network to the whole memory
    when a task ends, for `fit_epochs` epochs; after `warmup` of them rows are split into clean, ambiguous and
    incorrect ones with a loss each. `online_lr` is the rate on the stream, 0 for the same as `lr`.
    """

    policy: ClassVar[str] = "purity"
    requires: ClassVar[frozenset[str]] = frozenset({"borders"})
    unsupported: ClassVar[Mapping[str, str]] = {
        "stream_loss": "CutMix mixes stream and replayed rows into one loss",
        "views": "it is defined by its own: the stream as it is, strong views of replayed rows",
        "weight_average": "it may be fitted to the memory when a task ends (fit)",
    }
    capturable: ClassVar[bool] = True

    lr: float = 0.05
    momentum: float = 0.9
    weight_decay: float = 1e-4
    online_lr: float = 0.0
    cutmix: float = 0.5
    fit: bool = False
    fit_epochs: int = 255
    warmup: int = 10
    split_roles: str = "released"
    posterior: str = "clean"
    replaying: bool = field(init=False, default=False)
    boxes: torch.Generator
    order: torch.Generator

    def __post_init__(self) -> None:
        choose("split_roles of puridiver", self.split_roles, {"released": None, "swapped": None})
        choose("posterior of puridiver", self.posterior, {"clean": None, "released": None})
        self.check_least(0, "online_lr", "fit_epochs", "warmup")
        if not 0 <= self.cutmix <= 1:
            raise UsageError(f"puridiver's cutmix is a probability between 0 and 1; {self.cutmix} was given.")
        rebuild(self.net, self.rng("initialisation").initial_seed())
        self.boxes, self.order = self.rng("cutmix"), self.rng("fitting")
        super().__post_init__()

    def new_optimizer(self) -> torch.optim.Optimizer:
        """SGD with Nesterov momentum at the stream's rate."""
        return PlainSGD(
            self.net.parameters(),
            lr=self.online_lr or self.lr,
            momentum=self.momentum,
            weight_decay=self.weight_decay,
            nesterov=self.momentum > 0,
            fused=True,
        )

    def begin_task(self, task: Task) -> None:
        """Replay starts with the second task, each with a new optimizer."""
        super().begin_task(task)
        self.renew_optimizer()
        self.replaying = task.index > 0

    def observe(self, batch: Rows, replay: Replay) -> Rows:
        """Make an update, unless it were on one row alone, which has no batch statistics for the head."""
        alone = len(batch["label"]) == 1 and not (self.replaying and replay)
        return {} if alone else super().observe(batch, replay)

    def loss(self, batch: Rows, replay: Replay) -> tuple[Tensor, Rows]:
        """CE under CutMix over the stream as it is and a strong view of a replay draw."""
        x, y = replay.normalize(batch["image"]), batch["label"]
        if self.replaying and (past := replay()):
            x, y = torch.cat([x, replay.strong_augment(past["image"])]), torch.cat([y, past["label"]])
        return self.mixed_loss(x, y), {}

    def optimizer_step(self, loss: Tensor, replay: Replay | None = None) -> None:
        """The memory weighs by the method's own loss, without a further term."""
        super().optimizer_step(loss, replay)
        self.last_loss.copy_(loss.detach())

    def mixed_loss(self, x: Tensor, y: Tensor) -> Tensor:
        """Cross-entropy of inputs [n, ...] with labels [n] under CutMix."""
        x, other, share = cutmix(x, y, self.cutmix, self.boxes)
        (logits,) = self.logits({"input": x})
        return mixed_cross_entropy(logits, y, other, share)

    def end_task(self, task: Task, replay: Replay) -> None:
        if not self.fit or not replay:
            return
        rows = replay.rows()
        if count(rows) < 2:
            return
        with modes_kept(self.net):
            self.net.train()
            for epoch in range(self.fit_epochs):
                for group in self.optimizer.param_groups:
                    group["lr"] = restarting_rate(epoch, self.lr)
                kinds = self.split(rows, replay) if epoch >= self.warmup else None
                if kinds is None:
                    self.base_epoch(rows, replay)
                else:
                    self.semi_supervised_epoch(rows, kinds, replay)

    def base_epoch(self, rows: Rows, replay: Replay) -> None:
        """One pass over the memory under strong views and CutMix, every label believed."""
        for part in shuffled(torch.arange(count(rows), device=rows["label"].device), self.draw, self.order):
            if len(part) > 1:
                self.optimizer_step(self.mixed_loss(replay.strong_augment(rows["image"][part]), rows["label"][part]))

    def split(self, rows: Rows, replay: Replay) -> Split | None:
        """Which rows look clean, ambiguous and incorrect to the network as it is; None where a kind is too small."""
        logits = torch.cat([self.predict(replay.normalize(part)) for part in rows["image"].split(CHUNK)])
        loss = F.cross_entropy(logits, rows["label"], reduction="none")
        doubt = 1 - logits.softmax(1).amax(1)
        return split(loss, doubt, roles=self.split_roles, posterior=self.posterior, rng=self.order)

    def semi_supervised_epoch(self, rows: Rows, kinds: Split, replay: Replay) -> None:
        """One pass over the clean rows, each batch with its share of the two other kinds, in one forward."""
        clean_rows = len(kinds.clean)
        companions = [
            endless(kind, companion_size(self.draw, len(kind), clean_rows), self.order)
            for kind in (kinds.incorrect, kinds.ambiguous)
        ]
        for clean in shuffled(kinds.clean, self.draw, self.order):
            incorrect, ambiguous = (next(batches) for batches in companions)
            self.optimizer_step(self.three_losses(rows, clean, ambiguous, incorrect, kinds.trust, replay))

    def three_losses(
        self, rows: Rows, clean: Tensor, ambiguous: Tensor, incorrect: Tensor, trust: Tensor, replay: Replay
    ) -> Tensor:
        """(n_G·L_G + n_R·L_R + n_U·L_U) / n: labels, corrected labels, and views that must agree."""
        image, label = rows["image"], rows["label"]
        x, other, share = cutmix(replay.strong_augment(image[clean]), label[clean], self.cutmix, self.boxes)
        views = [
            view(image[kind]) for kind in (incorrect, ambiguous) for view in (replay.augment, replay.strong_augment)
        ]
        sizes = [len(part) for part in (*views, x)]
        weak_r, strong_r, weak_u, strong_u, logits = self.net(torch.cat([*views, x])).split(sizes)
        losses = [
            mixed_cross_entropy(logits, label[clean], other, share),
            corrected_loss(strong_r, weak_r, label[incorrect], trust[incorrect]),
            F.mse_loss(weak_u, strong_u),
        ]
        return combined_loss(losses, [len(clean), len(incorrect), len(ambiguous)])


@stored("net/head-norm")
@final
class HeadNorm(GroupedBatchNorm, nn.BatchNorm1d):
    """BatchNorm over logits [n, C]; the running statistics judge a single row, which has none of its own."""


def rebuild(net: Net, seed: int) -> None:
    """Give a net PuriDivER's head and start: a linear layer without bias before a BatchNorm, convolutions by Kaiming.

    Convolutions are drawn normal by their outputs (fan-out, ReLU) on the CPU, so the seed alone decides them; the
    linear weights stay as the net came with them.
    """
    host = torch.Generator().manual_seed(seed)
    for module in net.modules():
        if not all(weight.requires_grad for weight in module.parameters(recurse=False)):
            continue  # frozen weights stay as they are
        if isinstance(module, nn.Conv2d):
            fresh = torch.empty(module.weight.shape, dtype=module.weight.dtype)
            nn.init.kaiming_normal_(fresh, mode="fan_out", nonlinearity="relu", generator=host)
            module.weight.data.copy_(fresh)
        elif isinstance(module, nn.BatchNorm2d):
            module.eps = 1e-6
            module.reset_parameters()
    linear = next(module for module in net.head.modules() if isinstance(module, nn.Linear))
    linear.register_parameter("bias", None)
    weight = linear.weight
    net.head = nn.Sequential(linear, HeadNorm(net.classes, eps=1e-6, device=weight.device, dtype=weight.dtype))
