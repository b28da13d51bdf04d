"""What must hold on a GPU; skipped where there is none."""

import pytest
import torch

from odedm import ODEDM, Experiment, Native, Reservoir, Run, blobs, select, shapes
from odedm.catalogue import DISTANCES, METHODS

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("default"),  # other versions of torch warn of other things
]

MEMORIES = {
    "reservoir": Reservoir(40),
    "native": Native(40),
    "odedm": ODEDM(40, k=2),
    "bounded": ODEDM(40, k=2, candidates=6),
}


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("method", METHODS)
def test_every_method_with_every_memory(method, memory):
    data = shapes()
    plan = Experiment(MEMORIES[memory], method=method, data="shapes", device="cuda", batch=16)
    outcome = Run(plan, data).finish()
    rows = outcome.memory.rows()
    assert rows["image"].is_cuda
    assert outcome.memory.size() <= 40
    assert data.image[rows["index"].cpu()].equal(rows["image"].cpu())
    assert all(value.isfinite().all() for value in outcome.method.net.parameters())


@pytest.mark.parametrize("make", [blobs, shapes])
@pytest.mark.parametrize("method", METHODS)
def test_a_run_repeats_bit_for_bit(method, make):
    data = make()
    plan = Experiment(ODEDM(40, k=2), method=method, data=data.name, device="cuda", batch=16)
    first, second = (Run(plan, data).finish() for _ in range(2))
    assert first.result.class_il == second.result.class_il
    for a, b in zip(first.method.net.parameters(), second.method.net.parameters(), strict=True):
        assert a.equal(b)


@pytest.mark.parametrize("dac", [None, (3, 2)])
@pytest.mark.parametrize("distance", DISTANCES)
def test_selection_agrees_with_the_cpu(distance, dac):
    x = torch.rand(400, 32, generator=torch.Generator().manual_seed(0)).relu()
    here = select(x, k=8, distance=distance, dac=dac)
    there = select(x.cuda(), k=8, distance=distance, dac=dac)
    assert there.is_cuda
    common = set(here.tolist()) & set(there.cpu().tolist())
    assert len(common) >= 7, "the same choice but for rows that are equally near"
