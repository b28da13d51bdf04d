"""`kmeans_triton` finds the clusters and draws the seeds that torch's operations do."""

import pytest
import torch
from kernel_inputs import normal

from odedm.consolidate import kmeans as kmeans_module
from odedm.consolidate.kmeans import kmeans_all
from odedm.consolidate.kmeans_triton import trial


@pytest.mark.parametrize("seeded", [False, True], ids=["from given rows", "from drawn rows"])
@pytest.mark.parametrize(("sizes", "k", "d"), [((1,), 1, 1), ((20, 9), 3, 5)])
def test_clusters(sizes, k, d, seeded, monkeypatch):
    sets = [normal(n, d, seed=n) for n in sizes]
    monkeypatch.setattr(kmeans_module.device, "launch_bound", lambda _: True)

    def found():
        start = None if seeded else (lambda x, k, _: x[:k].clone())
        return kmeans_all(sets, k, rngs=[torch.Generator().manual_seed(n) for n in sizes], start=start, iterations=8)

    by_torch, sizes_by_torch = found()
    monkeypatch.setattr(kmeans_module, "has_kernels", lambda *_: True)
    by_kernels, sizes_by_kernels = found()
    assert sizes_by_kernels == sizes_by_torch
    for mine, theirs in zip(by_kernels, by_torch, strict=True):
        assert mine.label.equal(theirs.label)
        torch.testing.assert_close(mine.centroid, theirs.centroid, rtol=1e-5, atol=1e-5)


def test_the_trial_runs():
    trial(torch.device("cpu"))
