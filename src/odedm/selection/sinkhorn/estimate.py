"""Estimates transport costs of all pairs of histograms at once, without solving any."""

from __future__ import annotations

import torch
from torch import Tensor

from odedm.selection.sinkhorn.kernels import Kernel
from odedm.selection.sinkhorn.relaxation import least
from odedm.selection.sinkhorn.solver import chunks, rough, share

OWN = 4
"""Iterations of histograms to themselves: so symmetric a problem converges at once."""

SAMPLE, SAMPLE_ITERATIONS = 1024, 6
"""About how many pairs tell what being apart costs, and the iterations spent on each."""

BEYOND = 2.0
"""How much more than in the sample being apart counts: far rows lose anyway, and near ones stand out from errors."""


def foresee(source: Tensor, target: Tensor, kernel: Kernel) -> Tensor:
    """Estimates [n, k] of the costs between `source` [n, d] and `target` [k, d], for a symmetric kernel.

    A plan pays for the blur of ε, as it does from a histogram to itself, and for getting to the other one. The first is
    the mean of the two own costs. The second grows with ⟨a − b, f_b − f_a⟩, where f are the potentials of histograms to
    themselves: the Hausdorff divergence of Feydy et al. 2019, which for near ones is as good as Sinkhorn's. All pairs
    take two products together, where every iteration takes two for each. How fast it grows is seen from the rows
    nearest to each target; in cubes, since it grows less and less, and a far row that is not so dear would be missed.

    >>> from odedm.selection.sinkhorn.kernels import DenseKernel
    >>> kernel = DenseKernel.relative(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 0.05)
    >>> foresee(torch.eye(2), torch.eye(2), kernel).double().round(decimals=1).tolist()
    [[0.0, 1.3], [1.3, 0.0]]
    """
    (f_a, cost_a), (f_b, cost_b) = own(source, kernel), own(target, kernel)
    apart = source @ f_b.T + f_a @ target.T - (source * f_a).sum(1)[:, None] - (target * f_b).sum(1)
    apart.clamp_(min=0)  # it is below by rounding alone
    blur = (cost_a[:, None] + cost_b) / 2
    n, k = apart.shape
    row = apart.topk(min(n, -(-SAMPLE // k)), dim=0, largest=False).indices
    column = torch.arange(k, device=row.device).expand(len(row), -1)
    seen = rough(source, target, row.flatten(), column.flatten(), kernel, iterations=SAMPLE_ITERATIONS).view_as(row)
    seen = torch.where(seen.isfinite(), seen, blur.gather(0, row))
    floor = float(seen.mean().clamp(min=least(seen.dtype)) * 1e-3)  # where nothing is blurred
    blur, seen = blur.clamp_(min=floor), seen.clamp_(min=floor)
    apart /= blur
    # least squares of the relative errors of cubes
    small = (blur.gather(0, row) / seen) ** 3
    grown = small * apart.gather(0, row)
    pace = ((1 - small) * grown).sum() / grown.square().sum().clamp(min=torch.finfo(grown.dtype).tiny)
    return blur * (1 + BEYOND * pace.clamp(min=0) * apart) ** (1 / 3)


def own(mass: Tensor, kernel: Kernel) -> tuple[Tensor, Tensor]:
    """Histograms [n, d] transported to themselves: the potentials of all bins [n, d], in units of ε, and the costs [n].

    Both scalings are the same then, so each update meets the last one half way, and few are enough.

    >>> from odedm.selection.sinkhorn.kernels import DenseKernel
    >>> own(torch.eye(2)[:1], DenseKernel(torch.tensor([[0.0, 1.0], [1.0, 0.0]]), 0.5))[0].abs().tolist()
    [[0.0, 2.0]]
    """
    tiny = least(mass.dtype)
    potential, cost = torch.empty_like(mass), mass.new_empty(len(mass))

    def work(part: Tensor) -> None:
        a = mass[part]
        v = a.sqrt()
        for _ in range(OWN):
            v = (v * a / kernel.apply(v).clamp_(min=tiny)).sqrt_()
        sent = kernel.apply(v).clamp_(min=tiny)
        potential[part], cost[part] = -sent.log(), (a * kernel.apply_cost(v) / sent).sum(1)

    share(work, chunks(len(mass), mass))
    return potential, cost
