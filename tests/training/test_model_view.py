"""The learner as a memory sees it: scores and the gradients of single rows, whatever is derived at once."""

import pytest
import torch
from torch.nn import functional as F
from workbench import Bench, batch_of, cnn, mlp

from odedm.methods import per_sample_gradients
from odedm.methods.er import ER


def one_by_one(net, rows, of):
    """Each row's gradient by a backward of its own, in evaluation mode."""
    net.eval()
    own = [each for name, each in net.named_parameters() if of == "all" or name.startswith("head.")]
    found = []
    for x, y in zip(rows["image"], rows["label"], strict=True):
        slopes = torch.autograd.grad(F.cross_entropy(net(x[None]), y[None]), own)
        found.append(torch.cat([each.flatten() for each in slopes]))
    net.train()
    return torch.stack(found)


@pytest.mark.parametrize("of", ["head", "all"])
@pytest.mark.parametrize("net", [mlp, cnn])
def test_gradients_are_those_of_each_row_alone(net, of, monkeypatch):
    bench = Bench(ER, net=net())
    bench.step(batch_of(0))
    rows, before = batch_of(1, n=9), bench.state()
    wanted = one_by_one(bench.net, rows, of)
    torch.testing.assert_close(bench.probe.gradients(rows, of=of), wanted)
    monkeypatch.setattr(per_sample_gradients, "CHUNK", 2)
    torch.testing.assert_close(bench.probe.gradients(rows, of=of), wanted)
    lengths = bench.probe.gradients(rows, of=of, then=lambda part: part.norm(dim=1))
    torch.testing.assert_close(lengths, wanted.norm(dim=1))
    assert bench.net.training
    assert all(before[name].equal(value) for name, value in bench.state().items())


def test_scores_are_the_methods():
    bench = Bench(ER)
    rows = batch_of(1, n=9)
    assert bench.probe.predict(rows["image"]).equal(bench.method.predict(rows["image"]))
