"""Estimates that follow from what is asked for, come near what is used, and refuse with numbers."""

import subprocess
import sys
from dataclasses import replace

import pytest
import torch
from sampling import EVERYTHING, KEEPING
from torch import nn

from odedm import ODEDM, Experiment, Native, Reservoir, UsageError, blobs, shapes
from odedm.core.registry import NETS
from odedm.data.builtin import fashion_mini
from odedm.execute import memory_estimate as limits
from odedm.execute.memory_estimate import available, check_room, estimate, footprint, host_room
from odedm.training.preparation import Prepared, prepare

DATA = fashion_mini()
CPU = torch.device("cpu")


def plan(memory=None, **options):
    return prepare(Experiment(memory or Reservoir(100), device="cpu", data="fashion-mini", **options), DATA)


def lane_bytes(run):
    return estimate(run).total


def test_the_store_is_reckoned_to_the_byte():
    """λ rows: image, five numbers of eight bytes, a key of eight, ten logits of four."""
    assert limits.memory_bytes(plan(Reservoir(1000))) == 1000 * (784 + 40 + 8 + 40)
    from odedm.core.rows import ColumnSpec
    from odedm.memory.reservoir import ReservoirMemory as Store

    raw = [
        ColumnSpec("image", (1, 28, 28), torch.uint8),
        *[ColumnSpec(name, dtype=torch.int64) for name in ("label", "task", "index")],
    ]
    store = Store(1000, [*raw, ColumnSpec("logits", (10,))]).store
    assert sum(each.nbytes for each in (*store.columns.values(), store.key)) == 1000 * (784 + 40 + 8 + 40)


@pytest.mark.parametrize(("net", "data"), [("mlp", blobs()), ("cnn", DATA), ("resnet18-slim", shapes())])
def test_activations_are_those_that_a_real_forward_keeps(net, data):
    """Measured on the device meta, equal to what autograd keeps in a real forward."""
    found = footprint(prepare(Experiment(Reservoir(1), data=data.name, net=net, device="cpu"), data))
    real: nn.Module = NETS[net].load()(data.shape, data.classes)
    own = {each.data_ptr() for each in (*real.parameters(), *real.buffers())}
    kept = {}

    def keep(tensor):
        if tensor.data_ptr() not in own:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        out = real(torch.rand(8, *data.shape))
    assert found.saved == pytest.approx((sum(kept.values()) + out.nbytes) / 8, rel=0.05)
    assert found.weights == 4 * sum(each.numel() for each in real.parameters())


@pytest.mark.parametrize("method", KEEPING)
def test_more_of_anything_needs_more(method):
    base = lane_bytes(plan(method=method))
    assert base > DATA.image.nbytes
    assert lane_bytes(plan(Reservoir(100_000), method=method)) > base + 80_000_000
    assert lane_bytes(plan(method=method, batch=640, net="resnet18")) > base
    wide = lane_bytes(plan(method=method, net_options={"width": 256}))
    assert wide > base
    assert lane_bytes(plan(ODEDM(100, k=1), method=method)) >= base
    assert lane_bytes(plan(Native(100), method=method)) == base


def test_a_gpu_computes_in_half_the_bits_unless_asked_otherwise():
    big = plan(batch=2048)
    gpu = prepare(replace(big.experiment, device="cuda", precision="auto"), DATA, elsewhere=True)
    assert gpu.experiment.precision == "bf16"
    auto, cpu = (estimate(each).parts["activations"] for each in (gpu, big))
    assert auto == cpu, "half the bits, twice the pools"
    exact = Prepared(replace(gpu.experiment, precision="fp32"), DATA)
    assert estimate(exact).parts["activations"] == 2 * auto


def test_what_does_not_fit_is_refused_with_numbers(monkeypatch):
    monkeypatch.setattr(limits, "available", lambda _: 1 << 30)
    check_room(plan())
    with pytest.raises(
        UsageError, match=r"8 runs side by side need about .* each\), and 1\.0 GiB are free .* --workers"
    ):
        check_room(plan(), lanes=8)
    with pytest.raises(UsageError, match=r"This run needs about .*\(memory .* Lower --capacity\."):
        check_room(plan(Reservoir(10_000_000)))
    with pytest.raises(
        UsageError, match=r"\(activations .* Lower --batch or --replay-batch, or take a smaller --net\."
    ):
        check_room(plan(batch=100_000))
    monkeypatch.setattr(limits, "available", lambda _: None)
    check_room(plan(Reservoir(10**12)))


def test_what_is_free_is_the_least_of_machine_and_container(tmp_path, monkeypatch):
    (tmp_path / "proc" / "self").mkdir(parents=True)
    (tmp_path / "group" / "own").mkdir(parents=True)
    proc, groups = tmp_path / "proc", tmp_path / "group"
    assert host_room(proc, groups) is None
    (proc / "meminfo").write_text("MemTotal: 9 kB\nMemAvailable:  1000 kB\n")
    assert host_room(proc, groups) == 1_024_000
    (proc / "self" / "cgroup").write_text("0::/own\n")
    for name, text in (("max", "500000"), ("current", "300000"), ("stat", "anon 5\ninactive_file 100000\n")):
        (groups / "own" / f"memory.{name}").write_text(text)
    assert host_room(proc, groups) == 300_000
    (groups / "own" / "memory.max").write_text("max\n")
    assert host_room(proc, groups) == 1_024_000
    (groups / "memory").mkdir()
    for name, text in (("limit_in_bytes", "700"), ("usage_in_bytes", "900"), ("stat", "total_inactive_file 0")):
        (groups / "memory" / f"memory.{name}").write_text(text)
    assert host_room(proc, groups) == 0
    (groups / "memory" / "memory.usage_in_bytes").write_text("nonsense")
    assert host_room(proc, groups) == 1_024_000
    monkeypatch.setattr("odedm.execute.memory_estimate.host_room", lambda: 123)
    assert available(CPU) == 123


PEAK = """
import resource, sys
import odedm
from odedm.data.builtin import fashion_mini
from odedm.execute.memory_estimate import estimate
from odedm.training.preparation import prepare
plan = odedm.Experiment(odedm.Reservoir(1000), method="er", batch=600, device="cpu", net_options={"width": 32})
data = fashion_mini()
run = prepare(plan, data)
odedm.Run(run).finish()
print(estimate(run).total, resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024)
"""


@pytest.mark.slow
@pytest.mark.skipif(not EVERYTHING, reason="a quarter of a minute: `make matrix-full` runs it")
def test_the_estimate_comes_near_what_a_run_takes():
    said = subprocess.run([sys.executable, "-c", PEAK], capture_output=True, text=True, check=True).stdout
    expected, taken = map(int, said.split())
    assert 0.6 < expected / taken < 1.8, said
