"""Entropic optimal transport: point clouds against clouds, and many histograms against many."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import torch
from torch import Tensor

from odedm.consolidate.kernels import Kernel

RELAXATION = 1.3
"""Each update goes 1.3 times as far in the log domain: about 9 iterations where plain ones take 16 to 18."""

SLOW, SLOW_RELAXATION = 25, 1.6
"""Pairs still there after 25 iterations converge slowly, and slow ones gain from going farther."""

COARSE = 5
"""Iterations in half precision: what they get wrong is below what the remaining ones still correct."""

GROUP = 64
"""Targets from which on a source's pairs are solved together on its own non-zero bins."""

CHUNK_BYTES = {"cpu": 1 << 20, "cuda": 1 << 28}
"""Size of one [pairs, bins] array: cache on a processor, launch overhead on a GPU."""


class Transport(NamedTuple):
    """The costs ⟨P, M⟩, how far the plans' marginals are off (L1), and the largest number of iterations."""

    cost: Tensor
    marginal_error: Tensor
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
    float32 is enough even for small ε, where the textbook kernel underflows and gives a distance of zero.

    >>> c = torch.tensor([[[0.0, 1.0], [1.0, 0.0]]])
    >>> weight = torch.full((1, 2), 0.5)
    >>> clouds(c, weight, weight, epsilon=0.1).cost.round(decimals=4).tolist()
    [0.0]
    """
    mean = (a[:, None] @ cost @ b[:, :, None]).flatten()
    scale = torch.where(mean > 0, epsilon * mean, 1.0)[:, None, None]
    tiny, big = torch.finfo(cost.dtype).tiny, torch.finfo(cost.dtype).max / 4
    f = cost.masked_fill((b == 0)[:, None], big).amin(2)
    g = (cost - f[:, :, None]).masked_fill((a == 0)[:, :, None], big).amin(1)
    u, v = (a > 0).to(cost.dtype), (b > 0).to(cost.dtype)

    def kernel() -> Tensor:
        # at padding the exponent may be positive: nothing multiplies it but a zero, which must not meet an infinity
        return ((f[:, :, None] + g[:, None] - cost) / scale).clamp_(max=50).exp_()

    k = kernel()
    error = torch.full_like(mean, torch.inf)
    done = 0
    while done < iterations:
        for _ in range(min(10, iterations - done)):
            u = a / torch.bmm(k, v[:, :, None])[..., 0].clamp_min_(tiny)
            v = b / torch.bmm(u[:, None], k)[:, 0].clamp_min_(tiny)
            done += 1
        error = (u * torch.bmm(k, v[:, :, None])[..., 0] - a).abs().sum(1)
        if bool((error < tolerance).all()):
            break
        log_u = torch.where(a > 0, u.clamp_min(tiny).log(), 0.0)
        log_v = torch.where(b > 0, v.clamp_min(tiny).log(), 0.0)
        if float(torch.maximum(log_u.abs().max(), log_v.abs().max())) > 30:
            f, g = f + scale[:, 0] * log_u, g + scale[:, 0] * log_v
            k, u, v = kernel(), (a > 0).to(cost.dtype), (b > 0).to(cost.dtype)
    total = (u * torch.bmm(k.mul_(cost), v[:, :, None])[..., 0]).sum(1)
    return Transport(total, error, done)


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

    >>> from odedm.consolidate.kernels import DenseKernel
    >>> kernel = DenseKernel.relative(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 0.05)
    >>> rows = torch.eye(2)
    >>> histograms(rows, rows, kernel).cost.round(decimals=3).tolist()
    [[0.0, 1.0], [1.0, 0.0]]
    """
    n, k = len(source), len(target)
    cost, error = source.new_empty(n * k), source.new_empty(n * k)
    pairs = torch.arange(n * k, device=source.device)
    most: list[int] = []

    def together(pair: Tensor) -> None:
        keep(pair, _solve(source[pair // k], target[pair % k], kernel, tolerance, iterations))

    def by_source(pair: Tensor) -> None:
        # a source's zero bins send nothing, whatever the target: half the work for ReLU features, exactly
        row = source[pair[0] // k]
        support = row.nonzero().flatten()
        keep(pair, _solve(row[support][None], target, kernel.restrict(support) or kernel, tolerance, iterations))

    def keep(pair: Tensor, solved: Transport) -> None:
        cost[pair], error[pair] = solved.cost, solved.marginal_error
        most.append(solved.iterations)

    if k >= GROUP and source.device.type == "cpu" and kernel.restrict(pairs[:1]) is not None:
        _share(by_source, pairs.split(k))
    else:
        chunk = CHUNK_BYTES.get(source.device.type, 1 << 24) // (target.shape[1] * target.element_size()) + 1
        _share(together, pairs.split(chunk))
    solved = Transport(cost.view(n, k), error.view(n, k), max(most))
    return _repair(source, target, kernel, solved, tolerance, iterations)


def _share(work: Callable[[Tensor], None], parts: Sequence[Tensor]) -> None:
    """Do the parts on all of torch's threads, one part per thread instead of all threads on one part.

    The products are too small to be shared: threads would mostly wait for each other, on a busy machine for long.
    """
    threads = torch.get_num_threads()
    if parts[0].device.type != "cpu" or threads == 1 or len(parts) == 1:
        for part in parts:
            work(part)
        return

    def alone(part: Tensor) -> None:
        torch.set_num_threads(1)  # holds for the calling thread
        work(part)

    try:
        with ThreadPoolExecutor(threads) as pool:
            list(pool.map(alone, parts))
    finally:
        torch.set_num_threads(threads)  # also what threads started later begin with


def _solve(a: Tensor, b: Tensor, kernel: Kernel, tolerance: float, iterations: int) -> Transport:
    """Pairs a [p, s] (or [1, s], shared by all) and b [p, d]: costs and errors [p]."""
    tiny = _tiny(b.dtype)
    cost, error = b.new_empty(len(b)), b.new_full((len(b),), torch.inf)
    pair = torch.arange(len(b), device=b.device)
    coarse = min(COARSE, iterations - 1)
    v = torch.ones_like(b)
    u = torch.ones_like(a)
    done = 0
    while True:
        kv = kernel.apply(v, coarse=done < coarse)
        if done > coarse or done == iterations:
            now = (u * kv).sub_(a).abs_().sum(1)
            ready = now < tolerance
            if done == iterations:
                ready.fill_(True)
            amount = int(ready.sum())
            if amount * 8 >= len(ready):  # moving the others up costs a pass, so a few are carried along
                leave = ready.nonzero().flatten()
                cost[pair[leave]] = (u[leave] * kernel.apply_cost(v[leave])).sum(1)
                error[pair[leave]] = now[leave]
                if amount == len(ready):
                    return Transport(cost, error, done)
                stay = (~ready).nonzero().flatten()
                pair, b, u, v, kv = pair[stay], b[stay], u[stay], v[stay], kv[stay]
                a = a[stay] if len(a) > 1 else a
        # over-relaxation is safe near the solution only; plain updates converge from anywhere, so they come last
        far = 1.0 if done == 0 or done >= iterations // 2 else SLOW_RELAXATION if done >= SLOW else RELAXATION
        u = _relax(a / kv.clamp_(min=tiny), u, far - 1)
        v = _relax(b / kernel.back(u, coarse=done < coarse).clamp_(min=tiny), v, far - 1)
        done += 1


def _relax(new: Tensor, old: Tensor, power: float) -> Tensor:
    """`new` [p, d] moved on by (new/old)^power, in the place of `old`; entries that are zero stay zero."""
    if power == 0.0:
        return new
    return torch.div(new, old.clamp_(min=_tiny(old.dtype)), out=old).pow_(power).mul_(new)


def _tiny(dtype: torch.dtype) -> float:
    """The least divisor: its reciprocal leaves room below the largest number of `dtype` for products."""
    return 1e-30 if dtype == torch.float32 else 1e-250


def _repair(
    source: Tensor, target: Tensor, kernel: Kernel, solved: Transport, tolerance: float, iterations: int
) -> Transport:
    """Solve again in float64 the pairs that float32 could not hold: far histograms under a narrow kernel."""
    lost = (~(solved.marginal_error <= 100 * tolerance)).nonzero()
    if source.dtype == torch.float64 or len(lost) == 0 or iterations <= COARSE:
        return solved
    wide = kernel.double()
    for part in lost.split(4096):
        row, column = part.unbind(1)
        again = _solve(source[row].double(), target[column].double(), wide, tolerance, iterations)
        solved.cost[row, column] = again.cost.to(source.dtype)
        solved.marginal_error[row, column] = again.marginal_error.to(source.dtype)
    return solved
