"""What a store keeps is what was offered, whatever its type and however many rows win."""

import pytest
import torch

from odedm.core.rows import ColumnSpec
from odedm.core.store import FEW, Store

TYPES = (torch.float32, torch.bfloat16, torch.float16, torch.uint8, torch.int64, torch.bool)


@pytest.mark.parametrize("dtype", TYPES, ids=str)
@pytest.mark.parametrize("shape", [(), (2, 3)], ids=["numbers", "arrays"])
@pytest.mark.parametrize("rows", [FEW - 1, FEW + 1])
def test_rows_that_win_are_stored_in_the_type_of_their_column(rows, shape, dtype):
    store = Store(rows, [ColumnSpec("label", dtype=torch.int64), ColumnSpec("value", shape, dtype)])
    rng = torch.Generator().manual_seed(0)
    offered = 100 * torch.rand(2, *reversed(shape), 2 * rows, generator=rng).requires_grad_()  # not contiguous below
    for number, values in enumerate(offered.flip(0)):
        label = torch.arange(2 * rows) + 2 * rows * number
        store.insert({"label": label, "value": values.movedim(-1, 0).mT if shape else values}, _priorities(rows, rng))
    every = torch.cat([values.movedim(-1, 0).mT if shape else values for values in offered.detach().flip(0)])
    assert store.columns["value"].equal(every[store.columns["label"]].to(dtype))
    assert len({*store.columns["label"].tolist()}) == rows


def _priorities(rows, rng):
    return torch.rand(2 * rows, dtype=torch.float64, generator=rng)
