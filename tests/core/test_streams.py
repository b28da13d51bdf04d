"""The order in which streams wait for each other, told by streams that write down what they are asked."""

from contextlib import contextmanager

import pytest
import torch

from odedm.core.accel import streams

GPU = torch.device("cuda")


class Told:
    def __init__(self, name, asked):
        self.cuda_stream, self.name, self.asked = id(self), name, asked

    def wait_stream(self, other):
        self.asked.append(f"{self.name} waits for {other.name}")


@pytest.fixture
def asked(monkeypatch):
    calls = []
    outer, inner = (Told(name, calls) for name in ("outer", "inner"))

    @contextmanager
    def on(stream):
        calls.append(f"on {stream.name}")
        yield
        calls.append("on outer")

    monkeypatch.setattr(torch.cuda, "current_stream", lambda _: outer)
    monkeypatch.setattr(torch.cuda, "stream", on)
    monkeypatch.setattr(streams, "_take_stream", lambda _: inner)
    monkeypatch.setattr(streams, "_sides", {})
    return calls


def test_work_aside_waits_for_what_was_asked_and_is_waited_for_when_it_is_joined(asked):
    with streams.aside(GPU) as join:
        asked.append("aside")
    asked.append("beside it")
    join()
    assert asked == [
        *("inner waits for outer", "on inner", "aside", "on outer"),
        *("beside it", "outer waits for inner"),
    ]


def test_work_aside_that_fails_is_joined(asked):
    with pytest.raises(ValueError, match="failed"), streams.aside(GPU):
        raise ValueError("failed")
    assert asked[-1] == "outer waits for inner"


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
