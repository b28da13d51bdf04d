"""The moves of meta-learning there and back, by operations and by kernels."""

import pytest
import torch

from odedm.core.accel.streams import SideStream
from odedm.core.accel.triton_support import has_kernels
from odedm.methods import adaptation_steps
from odedm.methods.adaptation_steps import advance, retreat

CLIP = 1.0


def vectors(device="cpu"):
    rng = torch.Generator().manual_seed(0)
    start, slope, pull, bend, rates = torch.randn(5, 5000, generator=rng).to(device)
    slope[:3] = torch.tensor([CLIP, -CLIP, float("nan")])  # at the border nothing is cut
    return start, slope, pull, bend, rates


def test_there_and_back_by_the_formulas():
    start, slope, pull, bend, rates = vectors()
    cut = slope.clamp(-CLIP, CLIP)
    torch.testing.assert_close(advance(start, slope, rates, CLIP), start - rates * cut, equal_nan=True)
    first = retreat(None, None, pull, slope, rates, CLIP)
    assert first.adjoint.equal(pull)
    torch.testing.assert_close(first.by_rates, -pull * cut, equal_nan=True)
    free = slope.abs() <= CLIP
    assert free[:2].all()
    assert first.direction.equal(torch.where(free, rates * pull, 0.0))
    second = retreat(first, bend, pull, slope, 0.3, CLIP)
    assert second.adjoint.equal(pull - bend + pull)
    torch.testing.assert_close(second.by_rates, first.by_rates - second.adjoint * cut, equal_nan=True)
    assert retreat(first, None, pull, slope, 0.3, CLIP).adjoint.equal(2 * pull)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("each", [True, False])
def test_kernels_do_what_the_operations_do(each, monkeypatch):
    assert has_kernels("odedm.methods.adaptation_steps_triton", torch.device("cuda"))
    start, slope, pull, bend, rates = vectors("cuda")
    rates = rates if each else 0.3

    def both():
        first = retreat(None, None, pull, slope, rates, CLIP)
        return [advance(start, slope, rates, CLIP), *first, *retreat(first, bend, pull, slope, rates, CLIP)]

    fused = both()
    monkeypatch.setattr(adaptation_steps, "has_kernels", lambda *_: False)
    for a, b in zip(fused, both(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6, equal_nan=True)


def test_a_side_stream_is_active_inside_its_block_only():
    side = SideStream(torch.device("cpu"))
    with side():
        assert side.active
    assert not side.active
    with pytest.raises(ZeroDivisionError), side():
        _ = 1 / 0
    assert not side.active
    side.join()


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_what_is_done_at_the_side_is_there_after_the_join():
    device = torch.device("cuda")
    side, x = SideStream(device), torch.ones(2000, 2000, device=device)
    for _ in range(5):
        y = x @ x
        with side():
            assert torch.cuda.current_stream() == side.stream
            z = y @ x + y
        side.join()
        assert (z - (y @ x + y)).abs().max() == 0
