"""Forged copies of the paper's data, and networks of a size that goes with them."""

from __future__ import annotations

import pytest
import torch

from odedm.core.errors import UsageError
from odedm.data import opening
from odedm.execute import scheduler
from odedm.execute.backend import InProcessBackend
from odedm.paper import items as paper_items
from odedm.paper import protocol as paper_protocol
from odedm.stream.dataset import Dataset, standardise


def forged(name: str, per_class: int, side: int = 32) -> Dataset:
    """Tiny pictures under the name of a data set of the paper's, a colour for each class."""
    classes = paper_protocol.DATA[name]["classes"]
    label = torch.arange(classes).repeat_interleave(per_class)
    rng = torch.Generator().manual_seed(0)
    image = torch.randint(0, 60, (len(label), 3, side, side), generator=rng) + label[:, None, None, None] % 190
    image = image.to(torch.uint8)
    tests = image[::per_class], label[::per_class]
    return Dataset(name, image, label, *tests, tuple(map(str, range(classes))), standardise(image), 10)


@pytest.fixture
def small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """CIFAR-10 and ImageNet-R as tiny forged copies, and networks of a size that goes with them."""
    copies = {"cifar10": forged("cifar10", 8), "imagenet-r": forged("imagenet-r", 2)}

    def open_copy(name: str) -> Dataset:
        if name not in copies:
            raise UsageError(f"'{name}' is not here.")
        return copies[name]

    monkeypatch.setattr(opening, "load_dataset", open_copy)
    monkeypatch.setattr(scheduler, "open_backend", lambda *_: InProcessBackend())  # which has the copies
    monkeypatch.setitem(paper_protocol.DATA["cifar10"], "net_options", {"width": 2})
    vit = {"patch": 16, "depth": 1, "width": 12, "heads": 3, "weights": ""}
    monkeypatch.setitem(paper_protocol.DATA["imagenet-r"], "net_options", vit)
    monkeypatch.setattr(paper_items, "_plans_of", paper_items._plans_of.__wrapped__)  # noqa: SLF001 - others keep theirs
