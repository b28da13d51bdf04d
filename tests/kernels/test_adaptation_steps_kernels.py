"""`adaptation_steps_triton` does what the operations of `adaptation_steps` do."""

import pytest
import torch
from kernel_inputs import LAYOUTS, normal

from odedm.methods import adaptation_steps
from odedm.methods.adaptation_steps import advance, retreat

CLIP = 1.0


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("each", [True, False], ids=["a rate each", "one rate"])
@pytest.mark.parametrize("size", [0, 1, 7, 1024, 1025, 3000])
def test_there_and_back(size, each, layout, monkeypatch):
    start, slope, pull, bend, rates = normal(5, size)
    # at the border nothing is cut, and what is no number stays none
    slope[:4] = torch.tensor([CLIP, -CLIP, float("nan"), float("inf")])[:size]
    start, slope, pull, bend, rates = (LAYOUTS[layout](vector) for vector in (start, slope, pull, bend, rates))
    rates = rates if each else 0.3

    def found():
        first = retreat(None, None, pull, slope, rates, CLIP)
        # the second: as a caller may keep them
        kept = first._replace(adjoint=LAYOUTS[layout](first.adjoint), by_rates=LAYOUTS[layout](first.by_rates))
        further = [*retreat(kept, bend, pull, slope, rates, CLIP), *retreat(kept, None, pull, slope, rates, CLIP)]
        return [advance(start, slope, rates, CLIP), *first, *further]

    by_torch = found()
    monkeypatch.setattr(adaptation_steps, "has_kernels", lambda *_: True)
    for mine, theirs in zip(found(), by_torch, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-6, atol=1e-6, equal_nan=True)


def test_double_precision_is_left_to_torch(monkeypatch):
    def fail(*_):
        raise AssertionError

    monkeypatch.setattr(adaptation_steps, "has_kernels", fail)
    one = torch.ones(3, dtype=torch.float64)
    assert advance(one, one, 0.5, 1.0).tolist() == [0.5, 0.5, 0.5]


def test_the_trial_runs():
    from odedm.methods.adaptation_steps_triton import trial

    trial(torch.device("cpu"))
