"""Fixtures of the tests of training."""

import pytest
from emulated_graph import emulate_device


@pytest.fixture
def emulated_gpu(monkeypatch):
    """Runs on the processor do what they do on a GPU, and record their steps."""
    emulate_device(monkeypatch)
