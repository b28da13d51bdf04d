"""Work at the side of a stream."""

import pytest
import torch

from odedm.core.accel import streams


def test_a_side_stream_is_active_inside_its_block_only():
    side = streams.SideStream(torch.device("cpu"))
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
    side, x = streams.SideStream(device), torch.ones(2000, 2000, device=device)
    for _ in range(5):
        y = x @ x
        with side():
            assert torch.cuda.current_stream() == side.stream
            z = y @ x + y
        side.join()
        assert (z - (y @ x + y)).abs().max() == 0
