"""The benchmark of shares of a GPU refuses what it cannot measure before it starts a process."""

import sys

import pytest
import torch
from beside import imported

shares = imported("benchmarks", "shares")


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--lanes", "x"], "--lanes must be a whole number, 1 or more, up to 64; 'x' was given"),
        (["--shares", "100,0"], "--shares must be a whole number, 1 or more, up to 100; 0 was given"),
        (["--steps", "5"], "--steps must be a whole number, 6 or more"),
        (["--methods", "derpp,nope"], "Unknown method 'nope'"),
        ([], "torch sees none here"),
    ],
)
def test_what_cannot_be_measured_is_a_sentence(words, said, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(shares, "measure", lambda *_: pytest.fail("a lane was started"))
    monkeypatch.setattr(sys, "argv", ["shares.py", *words])
    with pytest.raises(SystemExit, match=said):
        shares.main()
