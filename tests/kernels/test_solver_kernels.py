"""`solver_triton` finds the costs that torch's operations and float64 find."""

import pytest
import torch
from kernel_inputs import LAYOUTS, normal

from odedm.selection.sinkhorn import solver, solver_triton
from odedm.selection.sinkhorn.kernels import DenseKernel


def problem(rows, columns, bins, *, seed=0):
    """Histograms of `rows` and `columns`, with many bins that are 0, and the kernel between their bins."""
    source, target = (
        normal(count, side, seed=seed + count).sub(0.3).relu() for count, side in ((rows, bins[0]), (columns, bins[1]))
    )
    source[:, :1] += 0.1  # none is empty
    target[:, -1:] += 0.1
    place, other = normal(bins[0], 3, seed=7), normal(bins[1], 3, seed=8)
    kernel = DenseKernel.relative(torch.cdist(place, other).square(), 0.3)
    return source / source.sum(1, keepdim=True), target / target.sum(1, keepdim=True), kernel


def every_pair(source, target):
    pair = torch.arange(len(source) * len(target))
    return pair // len(target), pair % len(target)


SHAPES = [(1, 1, (1, 1)), (1, 3, (5, 5)), (9, 8, (12, 12)), (3, 2, (130, 64))]


@pytest.mark.parametrize(
    ("rows", "columns", "bins", "layout", "few"),
    [
        *((*shape, "dense", 1 << 14) for shape in SHAPES),
        (9, 8, (12, 12), "strided", 1 << 14),
        (9, 8, (12, 12), "dense", 1),  # pairs that have converged leave before the others
    ],
)
def test_costs_of_pairs(rows, columns, bins, layout, few, monkeypatch):
    monkeypatch.setattr(solver_triton, "FEW", few)
    source, target, kernel = problem(rows, columns, bins)
    row, column = every_pair(source, target)
    given = (LAYOUTS[layout](x) for x in (source, target))
    found = solver_triton.solve(*given, row, column, kernel, 1e-4, 1000)
    exact = solver._solve(source[row].double(), target[column].double(), kernel.double(), 1e-7, 20_000)
    assert found.marginal_error.max() < 1e-4
    torch.testing.assert_close(found.cost.double(), exact.cost, rtol=5e-3, atol=1e-5)


def test_the_iterations_end_where_they_are_told_to():
    source, target, kernel = problem(4, 3, (12, 12))
    row, column = every_pair(source, target)
    for most in (1, 2, 7):
        found = solver_triton.solve(source, target, row, column, kernel, 1e-9, most)
        right = solver._solve(source[row].double(), target[column].double(), kernel.double(), 1e-12, most)
        assert found.iterations == right.iterations == most
        assert found.cost.isfinite().all()


def test_no_pairs_have_no_costs():
    source, target, kernel = problem(4, 3, (12, 12))
    none = torch.zeros(0, dtype=torch.int64)
    assert solver_triton.solve(source, target, none, none, kernel, 1e-4, 100).cost.shape == (0,)


@pytest.mark.parametrize("relaxed", [False, True])
@pytest.mark.parametrize("coarse", [False, True])
@pytest.mark.parametrize(("pairs", "outer", "inner"), [(1, 1, 1), (65, 64, 33), (3, 130, 31)])
def test_one_scaling(pairs, outer, inner, coarse, relaxed):
    other, kernel, old = (
        normal(*shape, seed=i).abs() + 0.1 for i, shape in enumerate([(pairs, inner), (outer, inner), (pairs, outer)])
    )
    mass, index = normal(4, outer, seed=4).relu(), torch.arange(pairs) % 4
    parts = (solver_triton.halves(x) for x in (other, kernel, old))
    other_half, kernel_half, old_half = parts
    new, error = solver_triton.scale(other_half, kernel_half, mass, index, old_half, relaxed=relaxed, coarse=coarse)
    sums = other.double() @ kernel.double().T
    fresh = mass[index].double() / sums
    right = torch.where(fresh > 0, fresh * (fresh / old.double()) ** (solver.RELAXATION - 1 if relaxed else 0), 0.0)
    rough = 3e-2 if coarse else 1e-4
    torch.testing.assert_close(solver_triton.whole(new).double(), right, rtol=rough, atol=rough)
    off = (old.double() * sums - mass[index].double()).abs().sum(1)
    torch.testing.assert_close(error.sum(1).double(), off, rtol=rough, atol=rough)


def test_the_trial_runs():
    solver_triton.trial(torch.device("cpu"))
