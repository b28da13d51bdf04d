"""`purity_triton` lets the same rows go as the operations of `purity` do."""

import pytest
import torch
from kernel_inputs import LAYOUTS, normal
from torch.nn import functional as F

from odedm.memory import purity
from odedm.memory.purity import survivors


def both(monkeypatch, label, loss, direction, *, classes, excess, alpha=0.4):
    """Who stays by torch's operations and by the kernel."""
    words = {"alpha": torch.tensor(alpha, dtype=torch.float64), "classes": classes, "excess": excess}
    by_torch = survivors(label, loss, direction, rng=torch.Generator().manual_seed(1), **words)
    monkeypatch.setattr(purity, "has_kernels", lambda *_: True)
    return by_torch, survivors(label, loss, direction, rng=torch.Generator().manual_seed(1), **words)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("rows", "classes", "excess"),
    [(1, 1, 1), (2, 1, 1), (3, 100, 2), (33, 10, 0), (57, 1, 20), (64, 4, 64), (232, 10, 32), (301, 33, 9)],
)
def test_the_same_rows_stay(rows, classes, excess, dtype, layout, monkeypatch):
    label = torch.randint(classes, (rows,), generator=torch.Generator().manual_seed(0))
    direction = F.normalize(normal(rows, 24, seed=2).double())
    loss = normal(rows, seed=3).abs().to(dtype)
    given = [LAYOUTS[layout](x) for x in (label, loss, direction)]
    by_torch, by_kernel = both(monkeypatch, *given, classes=classes, excess=excess)
    assert by_kernel.equal(by_torch)
    assert by_kernel.sum() == rows - excess


@pytest.mark.parametrize("odd", [0.0, float("inf"), float("nan")])
@pytest.mark.parametrize("alpha", [0.0, 0.5, 1.0, float("nan")])
def test_equal_scores_and_what_is_no_number(odd, alpha, monkeypatch):
    label, loss = torch.arange(40) % 3, torch.full((40,), 2.0)
    loss[4::9] = odd
    direction = torch.zeros(40, 8, dtype=torch.float64)
    direction[:, 0] = 1.0  # all alike
    by_torch, by_kernel = both(monkeypatch, label, loss, direction, classes=3, excess=11, alpha=alpha)
    assert by_kernel.equal(by_torch)


def test_the_trial_runs():
    from odedm.memory.purity_triton import trial

    trial(torch.device("cpu"))
