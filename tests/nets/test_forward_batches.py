"""Several forwards as one: the same outputs, gradients and running statistics, whatever the net and the sizes."""

import copy
import sys
import types

import pytest
import torch
from torch import nn

from odedm.core.accel import triton_support as compiled
from odedm.methods.puridiver import rebuild
from odedm.nets import base, grouped_batch_norm
from odedm.nets.base import Net
from odedm.nets.resnet import slim_resnet18
from odedm.nets.small import MLP, SmallCNN
from odedm.nets.vit import ViT


def resnet():
    return slim_resnet18((3, 16, 16), 5, width=4)


def puridiver_net():
    net = SmallCNN((3, 16, 16), 5, width=4)
    rebuild(net, 0)
    return net


NETS = {
    "resnet": resnet,
    "cnn": lambda: SmallCNN((3, 16, 16), 5, width=4),
    "mlp": lambda: MLP((3, 16, 16), 5),
    "vit": lambda: ViT((3, 16, 16), 5, patch=8, depth=1, width=16, heads=2),
    "puridiver's head": puridiver_net,
}
SIZES = {"equal": (4, 4, 4), "unequal": (6, 3, 2), "one": (5,)}


def twins(make):
    torch.manual_seed(0)
    net = make().double().train()
    return net, copy.deepcopy(net)


def losses(logits):
    return sum((weight * each.square()).sum() for weight, each in enumerate(logits, 1))


@pytest.fixture
def fused(monkeypatch):
    monkeypatch.setattr(base, "joins", lambda _: True)


@pytest.mark.parametrize("sizes", SIZES.values(), ids=SIZES)
@pytest.mark.parametrize("make", NETS.values(), ids=NETS)
def test_one_pass_equals_separate_forwards(fused, make, sizes):
    one, apart = twins(make)
    inputs = [torch.randn(size, 3, 16, 16, dtype=torch.float64) for size in sizes]
    passes = []
    one.register_forward_hook(lambda *_: passes.append(1))
    forward_batches, separate = one.forward_batches(*inputs), [apart(x) for x in inputs]
    assert len(passes) == 1
    losses(forward_batches).backward()
    losses(separate).backward()
    for a, b in zip(forward_batches, separate, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-11)
    for (name, a), b in zip(one.named_parameters(), apart.parameters(), strict=True):
        torch.testing.assert_close(a.grad, b.grad, rtol=1e-9, atol=1e-10, msg=name)
    for (name, a), b in zip(one.named_buffers(), apart.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-11, atol=1e-12, msg=name)


def test_running_statistics_depend_on_the_order_of_the_batches(fused):
    one, other = twins(resnet)
    a, b = torch.randn(2, 4, 3, 16, 16, dtype=torch.float64)
    one.forward_batches(a, b)
    other.forward_batches(b, a)
    assert not torch.equal(one.norm.running_mean, other.norm.running_mean)


class Foreign(Net):
    """A net with a BatchNorm that knows nothing of groups."""

    def __init__(self, dropout):
        super().__init__()
        self.classes, self.norm, self.head = 3, nn.BatchNorm1d(4), nn.Linear(4, 3)
        self.drop = nn.Dropout(dropout)
        if dropout:
            self.norm = nn.Identity()

    def backbone(self, x):
        return self.drop(self.norm(x))


@pytest.mark.parametrize("dropout", [0.0, 0.5])
def test_a_net_that_would_mix_batches_gets_separate_forwards(fused, dropout):
    net = Foreign(dropout)
    passes = []
    net.register_forward_hook(lambda *_: passes.append(1))
    net.forward_batches(torch.randn(4, 4), torch.randn(4, 4))
    assert len(passes) == 2


def test_evaluation_single_rows_and_processors_get_separate_forwards(monkeypatch):
    net, passes = resnet(), []
    net.register_forward_hook(lambda *_: passes.append(1))
    batch, row = torch.randn(4, 3, 16, 16), torch.randn(1, 3, 16, 16)
    net.forward_batches(batch, batch)
    assert len(passes) == 2, "on a processor"
    monkeypatch.setattr(base, "joins", lambda _: True)
    net.forward_batches(batch, row)
    assert len(passes) == 4, "one row has no statistics of its own"
    net.eval().forward_batches(batch, batch)
    assert len(passes) == 6, "evaluation has no batches to keep apart"


def test_groups_are_gone_after_the_pass_and_after_an_error(fused):
    net = resnet()
    with pytest.raises(RuntimeError):
        net.forward_batches(torch.randn(4, 2, 16, 16), torch.randn(4, 2, 16, 16))
    norms = [module for module in net.modules() if isinstance(module, grouped_batch_norm.GroupedBatchNorm)]
    assert all(norm.groups == () for norm in norms)
    assert not any("groups" in vars(norm) for norm in norms), "a replayed step, which runs no such code, has none"


def test_half_precision_leaves_weights_statistics_and_logits_in_full():
    net = resnet().train()
    net.compute = torch.bfloat16
    seen = []
    net.blocks.register_forward_hook(lambda _module, _given, y: seen.append(y.dtype))
    logits = net(torch.randn(4, 3, 16, 16))
    logits.sum().backward()
    assert seen == [torch.bfloat16]
    assert logits.dtype == net.features(torch.randn(2, 3, 16, 16)).dtype == torch.float32
    assert {each.dtype for each in net.parameters()} == {torch.float32}
    assert {each.grad.dtype for each in net.parameters()} == {torch.float32}
    assert net.norm.running_mean.dtype == torch.float32


def test_without_a_compiler_a_sentence_and_plain_operations(monkeypatch, caplog):
    kernels = types.ModuleType("odedm.nets.grouped_batch_norm_triton")

    def trial(device):
        raise RuntimeError("no C compiler")

    kernels.trial = trial
    monkeypatch.setitem(sys.modules, "odedm.nets.grouped_batch_norm_triton", kernels)
    monkeypatch.setattr(compiled, "find_spec", lambda _: object())
    compiled.has_kernels.cache_clear()
    try:
        assert not compiled.has_kernels(kernels.__name__, torch.device("cuda"))
    finally:
        compiled.has_kernels.cache_clear()
    assert "no C compiler" in caplog.text
    assert not compiled.has_kernels(kernels.__name__, torch.device("cpu"))


@pytest.mark.parametrize("unusual", ["momentum", "frozen", "affine", "track"])
def test_unusual_norms_get_separate_forwards(fused, unusual):
    net, other = twins(resnet)
    for each in (net, other):
        if unusual == "momentum":
            each.norm.momentum = None
        elif unusual == "frozen":
            each.norm.eval()
        else:
            words = {"affine": unusual != "affine", "track_running_stats": unusual != "track"}
            each.norm = grouped_batch_norm.Norm2d(4, **words).double()
    inputs = torch.randn(2, 4, 3, 16, 16, dtype=torch.float64)
    for a, b in zip(net.forward_batches(*inputs), [other(x) for x in inputs], strict=True):
        assert a.equal(b)
    for a, b in zip(net.buffers(), other.buffers(), strict=True):
        assert a.equal(b)
