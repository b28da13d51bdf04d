"""The two moves of meta-learning, there and back, by their formulas."""

import torch

from odedm.methods.meta_learning import adjoint_step, inner_step

CLIP = 1.0


def test_there_and_back_by_the_formulas():
    rng = torch.Generator().manual_seed(0)
    start, slope, adjoint, by_rates, rates = torch.randn(5, 5000, generator=rng)
    slope[:3] = torch.tensor([CLIP, -CLIP, float("nan")])  # at the border nothing is cut
    cut, free = slope.clamp(-CLIP, CLIP), slope.abs() <= CLIP
    torch.testing.assert_close(inner_step(start, slope, rates, CLIP), start - rates * cut, equal_nan=True)
    found, direction = adjoint_step(adjoint, by_rates, slope, rates, CLIP)
    torch.testing.assert_close(found, by_rates - adjoint * cut, equal_nan=True)
    assert free[:2].all()
    assert direction.equal(torch.where(free, rates * adjoint, 0.0))
    assert adjoint_step(adjoint, by_rates, slope, 0.3, CLIP)[1].equal(torch.where(free, 0.3 * adjoint, 0.0))
