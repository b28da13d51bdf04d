"""DER++refresh: DER++ after a small step of unlearning."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, vmap
from torch.nn import functional as F

from odedm.core.accel.device import launch_bound
from odedm.core.errors import UsageError, choose
from odedm.core.rows import Rows, Task, count, take
from odedm.core.stored_names import stored
from odedm.methods.base import Replay
from odedm.methods.derpp import DERpp
from odedm.methods.gradients import trained
from odedm.methods.per_sample_gradients import count_rows, rows_at_once, statistics_kept, weights_of
from odedm.methods.row_squares import RowSquares, knows_squares, rows_together
from odedm.nets.base import Net, as_function, copied_buffers, full_precision

Weights = dict[str, Tensor]
"""One tensor for every parameter of a network, by its name."""
Tensors = tuple[Tensor, ...]

MODES = {"train": "BatchNorm over the places of one image.", "eval": "BatchNorm by its running statistics."}


@stored("method/refresh")
class Refresh(DERpp):
    """Before every update by DER++, each weight tensor moves a relative length δ up the stream's cross-entropy.

    The move is damped where the diagonal Fisher information F of past tasks is large, and has noise σ of its own
    generator. The gradient for it comes from a pass that leaves the network's BatchNorm statistics and the optimizer
    untouched. F is estimated when a task ends, row by row: a second visit to the task's rows, which the strictly
    online setting does not allow. Nobody reads it after the last task, nor where δ, κ or `unlearn_steps` is 0: no pass.
    """

    requires: ClassVar[frozenset[str]] = frozenset({"borders"})

    weight_decay: float = 1e-4
    delta: float = 1e-5
    kappa: float = 1e-3
    sigma: float = 1e-3
    tau: float = 1e-5
    epsilon: float = 1e-20
    unlearn_steps: int = 1
    fisher_samples: int = 0
    fisher_mode: str = "train"
    fisher: Weights
    noise: torch.Generator
    choice: torch.Generator

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("Fisher mode", self.fisher_mode, MODES)
        self.check_least(0, "delta", "kappa", "sigma", "tau", "unlearn_steps", "fisher_samples")
        if self.epsilon <= 0:
            raise UsageError(
                f"refresh's epsilon must be above 0: it keeps a division defined; {self.epsilon} was given."
            )
        self.fisher = {name: torch.zeros_like(weight) for name, weight in trained(self.net).items()}
        self.noise, self.choice = self.rng("refresh noise"), self.rng("fisher rows")

    def begin_task(self, task: Task) -> None:
        """Refuse a network that cannot take single rows now, not when the task is over."""
        super().begin_task(task)
        if self.reads_fisher and self.fisher_mode == "train" and len(task):
            check_single_rows(self.net, task.rows["image"])

    def observe(self, batch: Rows, replay: Replay) -> Rows:
        """θ ← θ + δ (u + σ ξ) / (1 + κ F), then the update of DER++."""
        for _ in range(self.unlearn_steps):
            self.unlearn(batch)
        return super().observe(batch, replay)

    def unlearn(self, batch: Rows) -> None:
        """One move: u, as long as the weight itself, points up the stream's loss; ξ is standard normal noise."""
        weights: list[Tensor] = list(trained(self.net).values())
        gradient = stream_gradient(self.net, batch["input"], batch["label"])
        with torch.no_grad():  # all tensors at once: one by one a GPU would need nearly as long as for the gradient
            move = ascent(tuple(weights), gradient, self.epsilon)
            noise = [
                torch.randn(step.shape, generator=self.noise, device=step.device, dtype=step.dtype) for step in move
            ]
            torch._foreach_add_(move, noise, alpha=self.sigma)
            damping = torch._foreach_add(torch._foreach_mul(list(self.fisher.values()), self.kappa), 1.0)
            torch._foreach_div_(move, damping)
            torch._foreach_add_(weights, move, alpha=self.delta)

    def end_task(self, task: Task, replay: Replay) -> None:
        """F ← τ F + the Fisher information on the finished task, over all its rows or `fisher_samples` of them."""
        if task.last or not self.reads_fisher or not len(task):
            return
        rows = task.rows
        if 0 < self.fisher_samples < len(task):
            order = torch.randperm(len(task), generator=self.choice, device=self.choice.device)
            rows = take(rows, order[: self.fisher_samples])
        parts = zip(*(rows[name].split(rows_at_once(self.fisher)) for name in ("image", "label")), strict=True)
        views = ((replay.augment(image), label) for image, label in parts)
        new = fisher_information(self.net, views, total=count(rows), training=self.fisher_mode == "train")
        for name, fisher in self.fisher.items():
            fisher.mul_(self.tau).add_(new[name])  # in place: a captured step holds on to the tensor

    @property
    def reads_fisher(self) -> bool:
        """Return whether F has any effect on the moves."""
        return self.delta > 0 and self.kappa > 0 and self.unlearn_steps > 0


def stream_gradient(net: nn.Module, x: Tensor, label: Tensor) -> Tensors:
    """Return the gradient of the mean cross-entropy on inputs x [B, ...], by a pass that changes nothing in the net.

    BatchNorm's running statistics do not see it.
    """
    with as_function(net, x):
        logits = functional_call(net, copied_buffers(net), (x,))
    loss = F.cross_entropy(logits, label)
    return torch.autograd.grad(loss, list(trained(net).values()), allow_unused=True, materialize_grads=True)


def ascent(trained: Tensors, gradient: Tensors, epsilon: float) -> Tensors:
    """For every tensor a step in its gradient's direction, as long as the tensor itself: ‖θ‖ g / (‖g‖ + ε).

    >>> ascent((torch.tensor([3.0, 4.0]),), (torch.tensor([0.0, 1e-3]),), 1e-20)
    (tensor([0., 5.]),)
    """
    steepness = torch._foreach_add(torch._foreach_norm(gradient), epsilon)
    return torch._foreach_mul(gradient, torch._foreach_div(torch._foreach_norm(trained), steepness))


def fisher_information(
    net: nn.Module, parts: Iterable[tuple[Tensor, Tensor]], *, total: int, training: bool
) -> Weights:
    """Return the diagonal Fisher information: the mean over rows of p(y|x) · (∂ log p(y|x) / ∂θ)².

    `parts` are inputs [n, ...] and labels [n] of `total` rows in all. Every row is a batch of its own: with `training`,
    BatchNorm works over the places of one image. The network is the same after it as before.
    """
    device = next(net.parameters()).device
    if launch_bound(device) and isinstance(net, Net) and knows_squares(net):
        return _fisher_by_squares(net, parts, total=total, training=training)
    weights = weights_of(net)

    def likelihood(at: Weights, x: Tensor, label: Tensor) -> tuple[Tensor, Tensor]:
        log_p = -F.cross_entropy(functional_call(net, at, (x[None],)), label[None])
        return log_p, log_p

    per_row = vmap(grad(likelihood, has_aux=True), in_dims=(None, 0, 0), randomness="different")
    fisher = {name: torch.zeros_like(weight) for name, weight in weights.items()}
    with statistics_kept(net, training=training):
        for x, label in parts:
            gradient, log_p = per_row(weights, x, label)
            count_rows(net, len(label))
            for name, row_gradients in gradient.items():
                p = log_p.exp().view(-1, *[1] * (row_gradients.dim() - 1))
                fisher[name] += (p * row_gradients.square()).sum(0) / total
    return fisher


def _fisher_by_squares(net: Net, parts: Iterable[tuple[Tensor, Tensor]], *, total: int, training: bool) -> Weights:
    """The same by passes over many rows, as a GPU likes them; in the weights' own type as the way above, no coarser."""
    squares, waiting = RowSquares(net, training=training), list[tuple[Tensor, Tensor]]()

    def work() -> None:
        if waiting:
            with full_precision(net):
                squares.add(*(torch.cat(column) for column in zip(*waiting, strict=True)))
            waiting.clear()

    for x, label in parts:
        if waiting and sum(len(other) for _, other in waiting) + len(label) > rows_together(x):
            work()
        waiting.append((x, label))
    work()
    return {name: total_of_squares.div_(total) for name, total_of_squares in squares.total.items()}


def check_single_rows(net: nn.Module, image: Tensor) -> None:
    """Refuse a network whose BatchNorm cannot work on one of the images [n, ...] alone."""
    one = image[:1].to(next(net.parameters()).dtype)
    try:
        with statistics_kept(net, training=True), torch.no_grad():
            net(one)
    except ValueError as error:
        if "more than 1 value per channel" not in str(error):
            raise
        raise UsageError(
            f"refresh passes single rows of shape {tuple(image.shape[1:])} through the network in training mode, where "
            "BatchNorm needs more than one place for every channel, and here it has one. "
            "Use the option fisher_mode='eval' (--set fisher_mode=eval), a smaller network (--net), or larger images."
        ) from None
