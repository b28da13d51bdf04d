"""Networks as functions of one vector of weights, and the gradient through steps of adaptation: for meta-learning."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor
from torch.func import functional_call
from torch.nn import functional as F

from odedm.core.accel.streams import SideStream
from odedm.core.errors import UsageError, choose
from odedm.core.rows import Rows, Task, count
from odedm.core.stored_names import stored
from odedm.methods.base import Method, Replay
from odedm.methods.gradients import trained
from odedm.nets.base import Net, as_function, computed_in, copied_buffers

QUERY_PRECISIONS = {
    "same": "Queries are computed as everything else.",
    "bf16": "The backbone multiplies in bfloat16 for queries, of which no second derivative is taken.",
}


@stored("net-function")
class NetFunction:
    """The logits of a net as a function of all its trainable weights in one vector [P].

    Calls normalise with the batch's statistics while the net trains, but leave the running ones alone: the net stays
    as it is, in weights and buffers.

    >>> from odedm.nets.small import MLP
    >>> net = MLP((4,), 3)
    >>> x, function = torch.ones(2, 4), NetFunction(net)
    >>> bool(function(function.weights(), x).equal(net(x)))
    True
    """

    def __init__(self, net: Net) -> None:
        self.net = net
        self.parameters = trained(net)
        self.sizes = [value.numel() for value in self.parameters.values()]

    def __call__(
        self, weights: Tensor, x: Tensor, *, double_backward: bool = False, starts: Tensor | None = None
    ) -> Tensor:
        """Logits [n, C] of inputs [n, ...] under weights [P]; `double_backward` where gradients are derived again.

        `starts` as in `Objective`.
        """
        borrowed = {**self._named(weights), **copied_buffers(self.net)}
        if x.is_cuda:  # maps as rows of channels, as convolutions and kernels there like them best
            borrowed = {name: _channels_last(value) for name, value in borrowed.items()}
            x = _channels_last(x)
        with as_function(self.net, x, double_backward=double_backward, starts=starts):
            # tie_weights: a layer that is registered under two names would keep the borrowed weights for good
            logits: Tensor = functional_call(self.net, borrowed, (x,), tie_weights=False)
        return logits

    def weights(self) -> Tensor:
        """Return a copy of the net's own weights [P]."""
        return torch.cat([value.detach().flatten() for value in self.parameters.values()])

    def head(self) -> Tensor:
        """Return which of the P weights belong to the head, by number."""
        numbers = torch.arange(sum(self.sizes), device=next(iter(self.parameters.values())).device).split(self.sizes)
        of_head = [part for part, name in zip(numbers, self.parameters, strict=True) if name.startswith("head.")]
        return torch.cat(of_head)

    def follow(self, method: Method, direction: Tensor) -> None:
        """Make a method's step with `direction` [P] in the place of a gradient."""
        for value, part in zip(self.parameters.values(), self._named(direction).values(), strict=True):
            value.grad = part
        method.follow_gradient()
        method.optimizer.zero_grad()  # the gradients are views of a vector that the method may keep

    def refresh(self, x: Tensor, times: int = 1) -> None:
        """Move the running statistics by plain forwards of inputs [n, ...] in the net's own mode."""
        if next(self.net.buffers(), None) is None:
            return
        with torch.no_grad():
            for _ in range(times):
                self.net.forward_batches(x)

    def _named(self, weights: Tensor) -> dict[str, Tensor]:
        parts = zip(self.parameters.items(), weights.split(self.sizes), strict=True)
        return {name: part.view(value.shape) for (name, value), part in parts}


def _channels_last(tensor: Tensor) -> Tensor:
    return tensor.contiguous(memory_format=torch.channels_last) if tensor.dim() == 4 else tensor


@dataclass(frozen=True)
class Objective:
    """A weighted sum of cross-entropies, each among a range of classes of its own.

    Row i competes among the classes `low` to `high` - 1, and all from `beyond` on: numbers for all rows alike, or
    columns [n, 1]. Its label is always one of them, also where a stream with blurry borders brings a row of another
    task. `weight` is [n]. With `starts` (int32 [0, m, n], on the device) only the first m rows count, and the others,
    of weight 0, fill up.

    >>> two = torch.tensor([[1.0, 1.0, 5.0]])
    >>> goal = Objective(two, torch.tensor([0]), weight=torch.ones(1), low=0, high=2)
    >>> round(goal.loss(two).item(), 4)
    0.6931
    """

    input: Tensor
    label: Tensor
    weight: Tensor
    low: Tensor | int
    high: Tensor | int
    beyond: Tensor | int = 2**62
    starts: Tensor | None = None

    def loss(self, logits: Tensor) -> Tensor:
        """Return the sum for the logits [n, C] of the rows, 0-d."""
        column = torch.arange(logits.shape[1], device=logits.device)
        outside = ((column < self.low) | (column >= self.high)) & (column < self.beyond)
        outside = outside & (column != self.label[:, None])
        losses = F.cross_entropy(logits.masked_fill(outside, -torch.inf), self.label, reduction="none")
        return self.weight @ losses


class Hypergradient(NamedTuple):
    """The loss after adaptation (0-d), its gradient by the first weights [P] and by the rates [P]."""

    loss: Tensor
    by_weights: Tensor
    by_rates: Tensor


def hypergradient(
    function: NetFunction,
    weights: Tensor,
    rates: Tensor | float,
    inner: Sequence[Objective],
    query: Objective,
    *,
    clip: float,
    second_order: bool = True,
    query_precision: str = "same",
    side: SideStream | None = None,
) -> Hypergradient:
    """The gradient of the mean query loss along a path of gradient steps, by the path's start and by its step sizes.

    The path is φ_0 = `weights`, φ_j = φ_{j-1} - A · clamp(∇ inner_j(φ_{j-1}), ±clip) with A = `rates` ([P] or one for
    all); the loss is the mean of query(φ_j) over its S steps. The chain rule is walked backwards by hand:
    λ ← λ + ∇query(φ_j) / S, then ∇_A ← ∇_A - λ · ĝ_j and λ ← λ - H_j(m_j · A · λ), with H_j the Hessian of inner_j at
    φ_{j-1} and m_j = 1 where nothing was clamped. So no graph reaches over more than one inner step, and none is held
    for the query. `second_order=False` leaves H_j out, as if the inner gradients were constants.
    `query_precision` is one of `QUERY_PRECISIONS`. Queries go to the `side`: no inner step waits for one.
    """
    side = side or SideStream(torch.device("cpu"))
    compute = torch.bfloat16 if query_precision == "bf16" else getattr(function.net, "compute", None)
    path, total = [], torch.zeros((), dtype=weights.dtype, device=weights.device)
    for step in inner:
        start = weights.detach().requires_grad_()
        loss = step.loss(function(start, step.input, double_backward=second_order, starts=step.starts))
        (slope,) = torch.autograd.grad(loss, start, create_graph=second_order)
        weights = start.detach() - rates * slope.detach().clamp(-clip, clip)
        with side(), computed_in(function.net, compute):
            end = weights.detach().requires_grad_()
            loss = query.loss(function(end, query.input)) / len(inner)
            (pull,) = torch.autograd.grad(loss, end)
        path.append((start, slope, pull, loss.detach()))
    side.join()
    for *_, loss in path:
        total = total + loss
    adjoint, by_rates = torch.zeros_like(weights), torch.zeros_like(weights)
    for start, slope, pull, _ in reversed(path):
        adjoint = adjoint + pull
        by_rates = by_rates - adjoint * slope.detach().clamp(-clip, clip)
        if second_order:
            direction = torch.where(slope.detach().abs() <= clip, rates * adjoint, 0.0)
            (product,) = torch.autograd.grad(slope, start, grad_outputs=direction)
            adjoint = adjoint - product
    return Hypergradient(total, adjoint.detach(), by_rates.detach())


def rescale(vector: Tensor, norm: float) -> Tensor:
    """Return the vector [P], shortened to a norm where it is longer.

    >>> rescale(torch.tensor([3.0, 4.0]), 1.0), rescale(torch.tensor([0.0, 0.5]), 1.0)
    (tensor([0.6000, 0.8000]), tensor([0.0000, 0.5000]))
    """
    length = vector.norm()
    return vector * torch.where(length > norm, norm / length, 1.0)


class MetaLearner(Method):
    """What methods share that derive through steps of adaptation: the net as a function, and each task's classes."""

    second_order: bool = True
    query_precision: str = "same"
    function: NetFunction
    heads: list[tuple[int, int]]
    """The classes of each task so far, as [first, last + 1)."""

    def __post_init__(self) -> None:
        super().__post_init__()
        choose("query_precision of " + type(self).__name__.lower(), self.query_precision, QUERY_PRECISIONS)
        self.function, self.heads = NetFunction(self.net), [(0, self.net.classes)]

    def begin_task(self, task: Task) -> None:
        """Note the task's classes."""
        super().begin_task(task)
        self.heads = [*self.heads[: task.index], class_range(task)]


def with_memory(batch: Rows, replay: Replay, n: int) -> Rows:
    """Return the stream batch, then a replay draw of up to n rows, then the long-term draw where there is one.

    Columns `input`, `label`, `task` and `share`: for how many rows each one counts, gamma in the long-term draw.
    """
    parts = [(batch, 1.0)]
    if replay:
        parts.append((replay(n), 1.0))
        past = replay.long_term()
        if past is not None and replay.gamma > 0:
            parts.append((past, replay.gamma))
    rows = {name: torch.cat([part[name] for part, _ in parts]) for name in ("input", "label", "task")}
    rows["share"] = torch.cat([rows["input"].new_full((count(part),), share) for part, share in parts])
    return rows


def class_range(task: Task) -> tuple[int, int]:
    """Return a task's classes as [first, last + 1): streams number classes as they arrive, and they return together.

    >>> class_range(Task(1, 2, (2, 3), {}))
    (2, 4)
    """
    low, high = min(task.classes), max(task.classes) + 1
    if high - low != len(task.classes):
        raise UsageError(
            f"This method needs the classes of a task to be consecutive numbers; {task.classes} were given. "
            "Number the classes by arrival."
        )
    return low, high
