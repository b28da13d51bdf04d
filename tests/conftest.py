"""Fixtures that every test may use: one thread, small nets without BatchNorm, a probe that answers simply."""

from __future__ import annotations

import os

import pytest
import torch

from odedm.core import plugins
from odedm.core.registry import REGISTRIES

try:
    from hypothesis import settings
except ImportError:  # a machine with a GPU may lack it; tests that need it are then not collected there
    pass
else:
    settings.register_profile("odedm", deadline=None, max_examples=40, derandomize=True)
    settings.load_profile("odedm")

os.environ.setdefault("COLUMNS", "120")


@pytest.fixture(autouse=True)
def _one_thread():
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(autouse=True)
def _names_of_its_own():
    """What a test registers is forgotten after it."""
    before = [(registry, dict(registry)) for registry in REGISTRIES.values()]
    yield
    plugins.plugins.clear()
    plugins._numbers.clear()
    for table, names in before:
        table.clear()
        table.update(names)


class FlatProbe:
    """Embeds an image as its own pixels and annotates rows with logits that tell which row they belong to."""

    def embed(self, image):
        return image.flatten(1).double()

    def annotate(self, rows):
        return {"logits": rows["index"].float()[:, None].expand(-1, 3).clone()}


@pytest.fixture
def probe():
    return FlatProbe()
