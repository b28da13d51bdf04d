"""Entropic optimal transport: point clouds against clouds, and many histograms against many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

import torch
from torch import Tensor

from odedm.consolidate.sinkhorn.kernels import DenseKernel, Kernel
from odedm.consolidate.sinkhorn.relaxation import COARSE, LOOK_EVERY, ROUGH_RELAXATION, Pace, Transport, least
from odedm.core.accel import device, threads
from odedm.core.accel.triton_support import has_kernels

GROUP = 64
"""Targets from which on a source's pairs are solved together on its own non-zero bins."""

LEAST_TOLERANCE = 1e-5
"""The L1 error that scalings of 16 bits, as tensor cores multiply them, reach for certain."""

LARGE = 1e13
"""Scalings of clouds beyond this are taken into the potentials."""

CHUNK_BYTES = {"cpu": 1 << 20, "cuda": 1 << 28}
"""Size of one [pairs, bins] array: cache on a processor, launch overhead on a GPU."""


class Limits(TypedDict):
    """When a solver stops: the L1 marginal error it is content with, and the most iterations."""

    tolerance: float
    iterations: int


def clouds(
    cost: Tensor,
    a: Tensor,
    b: Tensor,
    *,
    epsilon: float,
    tolerance: float = 1e-4,
    iterations: int = 500,
) -> Transport:
    """Transport between weighted clouds for a batch of cost matrices: [B, n, m], [B, n], [B, m] -> [B].

    ε is `epsilon` times the mean cost of each problem. Weights of zero are padding: their costs must be finite
    and have no influence. Kernel scaling around potentials: they start at the c-transform of the cost, so that
    every row and column of the kernel has an entry near 1, and take the scalings in before these overflow. So
    float32 is enough even for small ε, where the textbook kernel underflows and gives a distance of zero. Updates go
    beyond the plain ones as far as each problem's own convergence allows, see `Pace`.

    >>> c = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    >>> weight = torch.full((1, 2), 0.5)
    >>> clouds(c, weight, weight, epsilon=0.1).cost.round(decimals=4).tolist()
    [0.0]
    """
    mean = (a[:, None] @ cost @ b[:, :, None]).flatten()
    scale = torch.where(mean > 0, epsilon * mean, 1.0)[:, None, None]
    tiny, big = torch.finfo(cost.dtype).tiny, torch.finfo(cost.dtype).max / 4
    if cost.is_cpu and bool(a.all() & b.all()):  # nothing is padded, and masking copies all costs
        f = cost.amin(2)
        room = cost - f[:, :, None]
        g = room.amin(1)
    else:
        room = torch.empty_like(cost)
        f = cost.masked_fill((b == 0)[:, None], big).amin(2)
        g = (cost - f[:, :, None]).masked_fill((a == 0)[:, :, None], big).amin(1)
    u, v = (a > 0).to(cost.dtype), (b > 0).to(cost.dtype)

    def kernel() -> Tensor:
        # at padding the exponent may be positive: nothing multiplies it but a zero, which must not meet an infinity;
        # always in the same place, since fresh memory costs more than the arithmetic
        torch.add(f[:, :, None], g[:, None], out=room)
        return room.sub_(cost).div_(scale).clamp_(max=50).exp_()

    k, done, cap = kernel(), 0, torch.finfo(cost.dtype).max ** 0.75  # between two looks updates may go far beyond
    # what follows from the errors is decided on the host, which needs them anyway: one transfer each way
    error, active = torch.full((len(cost),), torch.inf, dtype=cost.dtype), torch.ones(len(cost), dtype=torch.bool)
    pace = Pace.first(error)
    last_u, last_v = u, v
    while bool(active.any()) and done < iterations:
        there = (pace.far - 1)[:, None].to(cost.device, non_blocking=True)
        until = min(done + LOOK_EVERY, iterations)
        far = [there if _goes_beyond(at, iterations) else None for at in range(done, until)]
        done += len(far)
        # one side's scalings vanish only as the other's grow: K has an entry near 1 in every row and column
        for beyond in far:
            u = _relax(a / torch.bmm(k, v[:, :, None])[..., 0].clamp_min_(tiny), u, beyond).clamp_max_(cap)
            v = _relax(b / torch.bmm(u[:, None], k)[:, 0].clamp_min_(tiny), v, beyond).clamp_max_(cap)
        off = (u * torch.bmm(k, v[:, :, None])[..., 0]).sub_(a).abs_().sum(1)
        now, most = torch.stack([off, torch.maximum(u.amax(1), v.amax(1))]).cpu()
        pace, error = pace.look(now), torch.where(active, now, error)
        # a problem keeps the scalings with which it has converged, so its company does not matter
        ends = active & ((now < tolerance) | (done == iterations))
        if bool(ends.any()):
            each = ends[:, None].to(cost.device, non_blocking=True)
            last_u, last_v = torch.where(each, u, last_u), torch.where(each, v, last_v)
            active = active & ~ends
        large = active & (most > LARGE)
        if bool(large.any()):
            each = large[:, None].to(cost.device, non_blocking=True)
            f, g = (torch.where(each, h + scale[:, 0] * _log(x, w), h) for h, x, w in ((f, u, a), (g, v, b)))
            k = kernel()
            u, v = (torch.where(each, (w > 0).to(cost.dtype), x) for x, w in ((u, a), (v, b)))
    total = (last_u * torch.bmm(k.mul_(cost), last_v[:, :, None])[..., 0]).sum(1)
    return Transport(total, error.to(cost.device, non_blocking=True), done)


def _log(scaling: Tensor, weight: Tensor) -> Tensor:
    """Logarithms [B, n] of scalings, zero at padding, which has no weight."""
    return torch.where(weight > 0, scaling, 1.0).clamp_min_(torch.finfo(scaling.dtype).tiny).log_()


def histograms(
    source: Tensor,
    target: Tensor,
    kernel: Kernel,
    *,
    tolerance: float = 1e-4,
    iterations: int = 300,
) -> Transport:
    """Every row of `source` [n, s] against every row of `target` [k, d] under one kernel: costs [n, k].

    Rows are non-negative and sum to 1. Pairs are rows of matrix products with the shared kernel and leave as
    soon as their own marginal error is below `tolerance`, measured at full precision.

    >>> from odedm.consolidate.sinkhorn.kernels import DenseKernel
    >>> kernel = DenseKernel.relative(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 0.05)
    >>> rows = torch.eye(2)
    >>> histograms(rows, rows, kernel).cost.round(decimals=3).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    n, k = len(source), len(target)
    if k < GROUP or device.launch_bound(source.device) or kernel.restrict(torch.arange(0)) is None:
        pair = torch.arange(n * k, device=source.device)
        solved = matched(source, target, pair // k, pair % k, kernel, tolerance=tolerance, iterations=iterations)
        return Transport(solved.cost.view(n, k), solved.marginal_error.view(n, k), solved.iterations)
    cost, error = source.new_empty(n, k), source.new_empty(n, k)
    most: list[int] = []

    def by_source(part: Tensor) -> None:
        # a source's zero bins send nothing, whatever the target: half the work for ReLU features, exactly
        i = int(part)
        support = source[i].nonzero().flatten()
        own = kernel.restrict(support) or kernel
        cost[i], error[i], steps = _solve(source[i, support][None], target, own, tolerance, iterations)
        most.append(steps)

    share(by_source, torch.arange(n).split(1))
    pair = torch.arange(n * k)
    flat = Transport(cost.flatten(), error.flatten(), max(most))
    _repair(source, target, pair // k, pair % k, kernel, flat, tolerance, iterations)
    return Transport(flat.cost.view(n, k), flat.marginal_error.view(n, k), flat.iterations)


def matched(
    source: Tensor,
    target: Tensor,
    row: Tensor,
    column: Tensor,
    kernel: Kernel,
    *,
    tolerance: float = 1e-4,
    iterations: int = 300,
) -> Transport:
    """Chosen pairs alone: `source`[`row`] against `target`[`column`], both [p] indices: costs [p].

    >>> from odedm.consolidate.sinkhorn.kernels import DenseKernel
    >>> kernel, rows = DenseKernel.relative(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 0.05), torch.eye(2)
    >>> matched(rows, rows, torch.tensor([0]), torch.tensor([1]), kernel).cost.round(decimals=3).tolist()
    [1.0]
    """
    cost, error = source.new_empty(len(row)), source.new_empty(len(row))
    most: list[int] = [0]

    own = tolerance >= LEAST_TOLERANCE and _has_kernel(source)

    def together(part: Tensor) -> None:
        i, j = row[part], column[part]
        if own and isinstance(kernel, DenseKernel):
            from odedm.consolidate.sinkhorn import solver_triton as fused  # Triton comes with torch for GPUs alone

            cost[part], error[part], steps = fused.solve(source, target, i, j, kernel, tolerance, iterations)
        else:
            cost[part], error[part], steps = _solve(source[i], target[j], kernel, tolerance, iterations)
        most.append(steps)

    share(together, chunks(len(row), target))
    solved = Transport(cost, error, max(most))
    _repair(source, target, row, column, kernel, solved, tolerance, iterations)
    return solved


def rough(source: Tensor, target: Tensor, row: Tensor, column: Tensor, kernel: Kernel, *, iterations: int) -> Tensor:
    """Estimates [p] of `matched` costs after a few iterations, in half precision where that is faster.

    The first is shared: it begins with the sums of the kernel, so its scaling of a source knows no target.

    >>> from odedm.consolidate.sinkhorn.kernels import DenseKernel
    >>> kernel = DenseKernel.relative(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 0.05)
    >>> rough(torch.eye(2), torch.eye(2), torch.tensor([0]), torch.tensor([1]), kernel, iterations=3).tolist()
    [1.0]
    """
    tiny = least(source.dtype)
    cost = source.new_empty(len(row))
    if _has_kernel(source) and isinstance(kernel, DenseKernel):
        from odedm.consolidate.sinkhorn import solver_triton as fused  # Triton comes with torch for GPUs alone

        for part in chunks(len(row), target):
            cost[part] = fused.rough(source, target, row[part], column[part], kernel, iterations)
        return cost
    first = source / kernel.apply(torch.ones_like(target[:1]))
    sums = kernel.back(first).clamp_(min=tiny)

    def work(part: Tensor) -> None:
        i, j = row[part], column[part]
        a, b, u = source[i], target[j], first[i]
        v = b / sums[i]
        for _ in range(iterations - 1):
            u = _relax(a / kernel.apply(v, coarse=True).clamp_(min=tiny), u, ROUGH_RELAXATION - 1)
            v = _relax(b / kernel.back(u, coarse=True).clamp_(min=tiny), v, ROUGH_RELAXATION - 1)
        cost[part] = (u * kernel.apply_cost(v, coarse=True)).sum(1)

    share(work, chunks(len(row), target))
    return cost


def _has_kernel(source: Tensor) -> bool:
    return source.dtype == torch.float32 and has_kernels("odedm.consolidate.sinkhorn.solver_triton", source.device)


def chunks(pairs: int, target: Tensor) -> tuple[Tensor, ...]:
    """The numbers of all pairs, a chunk at a time."""
    chunk = CHUNK_BYTES.get(target.device.type, 1 << 24) // (target.shape[1] * target.element_size()) + 1
    return tuple(torch.arange(pairs, device=target.device).split(chunk))


def share(work: Callable[[Tensor], None], parts: Sequence[Tensor]) -> None:
    """Do the parts, on a processor one per thread: their products are too small to be shared by all."""
    if parts and parts[0].is_cpu:
        threads.thread_map(work, parts)
        return
    for part in parts:
        work(part)


def _solve(a: Tensor, b: Tensor, kernel: Kernel, tolerance: float, iterations: int) -> Transport:
    """Pairs a [p, s] (or [1, s], shared by all) and b [p, d]: costs and errors [p]."""
    tiny = least(b.dtype)
    cost, error = b.new_empty(len(b)), b.new_full((len(b),), torch.inf)
    pair = torch.arange(len(b), device=b.device)
    coarse = min(COARSE, iterations - 1)
    every = LOOK_EVERY if device.launch_bound(b.device) else 1
    v, u = torch.ones_like(b), torch.ones_like(a)
    pace = Pace.first(error)
    done = 0
    while True:
        kv = kernel.apply(v, coarse=done < coarse)
        if done == iterations or (done > coarse and (done - coarse - 1) % every == 0):
            now = (u * kv).sub_(a).abs_().sum(1)
            if (done - coarse - 1) % LOOK_EVERY == 0:
                pace = pace.look(now)
            ready = now < tolerance if done < iterations else torch.ones_like(now, dtype=torch.bool)
            amount = int(ready.sum())
            if amount * 8 >= len(ready):  # moving the others up costs a pass, so a few are carried along
                # a sort, since the amounts are known: a search for the places would ask the device for them again
                stay, leave = ready.byte().argsort(stable=True).split([len(ready) - amount, amount])
                cost[pair[leave]] = (u[leave] * kernel.apply_cost(v[leave])).sum(1)
                error[pair[leave]] = now[leave]
                if amount == len(ready):
                    return Transport(cost, error, done)
                pair, b, u, v, kv = pair[stay], b[stay], u[stay], v[stay], kv[stay]
                pace = pace.of(stay)
                a = a[stay] if len(a) > 1 else a
        beyond = _beyond(pace, done, iterations)
        u = _relax(a / kv.clamp_(min=tiny), u, beyond)
        v = _relax(b / kernel.back(u, coarse=done < coarse).clamp_(min=tiny), v, beyond)
        done += 1


def _beyond(pace: Pace, done: int, iterations: int) -> Tensor | None:
    """How far beyond the plain updates [p, 1] those of an iteration go; None: not at all."""
    return (pace.far - 1)[:, None] if _goes_beyond(done, iterations) else None


def _goes_beyond(done: int, iterations: int) -> bool:
    """Whether the updates of an iteration go beyond the plain ones.

    That is safe near the solution only; plain updates converge from anywhere, so they come last.
    """
    return 0 < done < iterations // 2


def _relax(new: Tensor, old: Tensor, power: float | Tensor | None) -> Tensor:
    """`new` [p, d] moved on by (new/old)^power, in the place of `old`; entries that are zero stay zero."""
    if power is None:
        return new
    return torch.div(new, old.clamp_(min=least(old.dtype)), out=old).pow_(power).mul_(new)


def _repair(
    source: Tensor,
    target: Tensor,
    row: Tensor,
    column: Tensor,
    kernel: Kernel,
    solved: Transport,
    tolerance: float,
    iterations: int,
) -> None:
    """Solve again in float64 the pairs that float32 could not hold: far histograms under a narrow kernel."""
    lost = ~(solved.marginal_error <= 100 * tolerance)
    if source.dtype == torch.float64 or iterations <= COARSE or not bool(lost.any()):
        return
    wide = kernel.double()
    for part in lost.nonzero().flatten().split(4096):
        i, j = row[part], column[part]
        again = _solve(source[i].double(), target[j].double(), wide, tolerance, iterations)
        solved.cost[part] = again.cost.to(source.dtype)
        solved.marginal_error[part] = again.marginal_error.to(source.dtype)
