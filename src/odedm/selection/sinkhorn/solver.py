"""Sinkhorn's iterations: pairs of histograms under a shared kernel, and point clouds with a cost matrix each."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypedDict

import torch
from torch import Tensor

from odedm.core.accel import threads
from odedm.core.accel.triton_support import has_kernels
from odedm.selection.sinkhorn.kernels import DenseKernel, Kernel
from odedm.selection.sinkhorn.relaxation import LOOK_EVERY, RELAXATION, Transport, is_relaxed, least

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
    """Transport `source`[`row`] to `target`[`column`], histograms [n, s] and [k, d], indices [p]: costs [p].

    Pairs are rows of matrix products with the shared kernel and leave as soon as their own marginal error is below
    `tolerance`. Those that float32 could not hold, far histograms under a narrow kernel, are solved again in float64.

    >>> kernel, rows = DenseKernel.relative(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 0.05), torch.eye(2)
    >>> matched(rows, rows, torch.tensor([0]), torch.tensor([1]), kernel).cost.round(decimals=3).tolist()
    [1.0]
    """
    cost, error = source.new_empty(len(row)), source.new_empty(len(row))
    most: list[int] = [0]
    on_kernels = (
        tolerance >= LEAST_TOLERANCE
        and source.dtype == torch.float32
        and has_kernels("odedm.selection.sinkhorn.solver_triton", source.device)
    )

    def solve(part: Tensor) -> None:
        i, j = row[part], column[part]
        if on_kernels and isinstance(kernel, DenseKernel):
            from odedm.selection.sinkhorn import solver_triton  # Triton comes with torch for GPUs alone

            solved = solver_triton.solve(source, target, i, j, kernel, tolerance, iterations)
        else:
            solved = _solve(source[i], target[j], kernel, tolerance, iterations)
        cost[part], error[part] = solved.cost, solved.marginal_error
        most.append(solved.iterations)

    in_chunks(solve, len(row), target)
    lost = (~(error <= 100 * tolerance)).nonzero().flatten() if source.dtype == torch.float32 else row[:0]
    for part in lost.split(4096):
        i, j = row[part], column[part]
        again = _solve(source[i].double(), target[j].double(), kernel.double(), tolerance, iterations)
        cost[part], error[part] = again.cost.to(cost.dtype), again.marginal_error.to(cost.dtype)
    return Transport(cost, error, max(most))


def histograms(
    source: Tensor, target: Tensor, kernel: Kernel, *, tolerance: float = 1e-4, iterations: int = 300
) -> Transport:
    """Transport every row of `source` [n, s] to every row of `target` [k, d]: `matched` costs [n, k].

    >>> kernel = DenseKernel.relative(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 0.05)
    >>> histograms(torch.eye(2), torch.eye(2), kernel).cost.round(decimals=3).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    n, k = len(source), len(target)
    pair = torch.arange(n * k, device=source.device)
    solved = matched(source, target, pair // k, pair % k, kernel, tolerance=tolerance, iterations=iterations)
    return Transport(solved.cost.view(n, k), solved.marginal_error.view(n, k), solved.iterations)


def in_chunks(work: Callable[[Tensor], None], pairs: int, target: Tensor) -> None:
    """Do the work for the numbers of all pairs, a chunk at a time; on a processor each chunk has one thread."""
    chunk = CHUNK_BYTES.get(target.device.type, 1 << 24) // (target.shape[1] * target.element_size()) + 1
    parts: Sequence[Tensor] = torch.arange(pairs, device=target.device).split(chunk)
    if target.is_cpu:
        threads.thread_map(work, parts)
        return
    for part in parts:
        work(part)


def _solve(a: Tensor, b: Tensor, kernel: Kernel, tolerance: float, iterations: int) -> Transport:
    """Transport histograms a [p, s] to b [p, d]: costs and errors [p]."""
    tiny = least(b.dtype)
    cost, error = b.new_empty(len(b)), b.new_full((len(b),), torch.inf)
    pair = torch.arange(len(b), device=b.device)
    u, v = torch.ones_like(a), torch.ones_like(b)
    for done in range(iterations + 1):
        kv = kernel.apply(v)
        if done == iterations or (done and done % LOOK_EVERY == 0):
            error_now = (u * kv).sub_(a).abs_().sum(1)
            ready = error_now < tolerance if done < iterations else torch.ones_like(error_now, dtype=torch.bool)
            amount = int(ready.sum())
            if amount * 8 >= len(ready):  # moving the others up costs a pass, so a few are carried along
                # a sort, since the amounts are known: a search for the places would ask the device for them again
                stay, leave = ready.byte().argsort(stable=True).split([len(ready) - amount, amount])
                cost[pair[leave]] = (u[leave] * kernel.apply_cost(v[leave])).sum(1)
                error[pair[leave]] = error_now[leave]
                if amount == len(ready):
                    break
                pair, a, b, u, v, kv = pair[stay], a[stay], b[stay], u[stay], v[stay], kv[stay]
        relaxed = is_relaxed(done, iterations)
        u = _update(a / kv.clamp_(min=tiny), u, relaxed)
        v = _update(b / kernel.back(u).clamp_(min=tiny), v, relaxed)
    return Transport(cost, error, done)


def clouds(
    cost: Tensor, a: Tensor, b: Tensor, *, epsilon: float, tolerance: float = 1e-4, iterations: int = 500
) -> Transport:
    """Transport between weighted clouds for a batch of cost matrices: [B, n, m], [B, n], [B, m] -> [B].

    ε is `epsilon` times the mean cost of each problem. Weights of zero are padding: their costs must be finite
    and have no influence. Kernel scaling around potentials: they start at the c-transform of the cost, so that
    every row and column of the kernel has an entry near 1, and take the scalings in before these overflow. So
    float32 is enough even for small ε, where the textbook kernel underflows and gives a distance of zero.

    >>> c = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    >>> weight = torch.full((1, 2), 0.5)
    >>> clouds(c, weight, weight, epsilon=0.1).cost.round(decimals=4).tolist()
    [0.0]
    """
    mean = (a[:, None] @ cost @ b[:, :, None]).flatten()
    scale = torch.where(mean > 0, epsilon * mean, 1.0)[:, None]
    tiny, big = torch.finfo(cost.dtype).tiny, torch.finfo(cost.dtype).max / 4
    cap = torch.finfo(cost.dtype).max ** 0.75  # between two looks relaxed updates may go far
    f = cost.masked_fill((b == 0)[:, None], big).amin(2)
    g = (cost - f[:, :, None]).masked_fill_((a == 0)[:, :, None], big).amin(1)
    u, v = (a > 0).to(cost.dtype), (b > 0).to(cost.dtype)
    k = _cloud_kernel(f, g, cost, scale)
    problem = torch.arange(len(cost), device=cost.device)
    total, error = cost.new_empty(len(cost)), cost.new_empty(len(cost))
    for done in range(1, iterations + 1):
        relaxed = is_relaxed(done - 1, iterations)
        # one side's scalings vanish only as the other's grow: K has an entry near 1 in every row and column
        u = _update(a / torch.bmm(k, v[:, :, None])[..., 0].clamp_min_(tiny), u, relaxed).clamp_max_(cap)
        v = _update(b / torch.bmm(u[:, None], k)[:, 0].clamp_min_(tiny), v, relaxed).clamp_max_(cap)
        if done % LOOK_EVERY and done < iterations:
            continue
        error_now = (u * torch.bmm(k, v[:, :, None])[..., 0]).sub_(a).abs_().sum(1)
        ready = (error_now < tolerance) | (done == iterations)
        leave, largest = torch.stack([ready.any().to(cost.dtype), torch.maximum(u.amax(), v.amax())]).tolist()
        if leave:  # at its own convergence, so that a problem's company does not matter
            spent = torch.bmm(k[ready] * cost[ready], v[ready, :, None])[..., 0]
            total[problem[ready]], error[problem[ready]] = (u[ready] * spent).sum(1), error_now[ready]
            stay = ~ready
            problem, cost, a, b, f, g, k, u, v, scale = (x[stay] for x in (problem, cost, a, b, f, g, k, u, v, scale))
            if not len(problem):
                break
        if largest > LARGE:
            f, g = f + scale * _log(u, a), g + scale * _log(v, b)
            u, v = (a > 0).to(cost.dtype), (b > 0).to(cost.dtype)
            k = _cloud_kernel(f, g, cost, scale)
    return Transport(total, error, done)


def _cloud_kernel(f: Tensor, g: Tensor, cost: Tensor, scale: Tensor) -> Tensor:
    """Return exp((f + g − M)/ε) [B, n, m]; at padding the exponent may be positive, and must not become infinite."""
    return (f[:, :, None] + g[:, None]).sub_(cost).div_(scale[:, :, None]).clamp_(max=50).exp_()


def _log(scaling: Tensor, weight: Tensor) -> Tensor:
    """Return logarithms [B, n] of scalings, zero at padding, which has no weight."""
    return torch.where(weight > 0, scaling, 1.0).clamp_min_(torch.finfo(scaling.dtype).tiny).log_()


def _update(new: Tensor, old: Tensor, relaxed: bool) -> Tensor:
    """Return new · (new/old)^(ω − 1) [p, d], in the place of `old`; entries that are zero stay zero."""
    if not relaxed:
        return new
    return torch.div(new, old.clamp_(min=least(old.dtype)), out=old).pow_(RELAXATION - 1).mul_(new)
