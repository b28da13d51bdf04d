"""What must hold on a GPU; skipped where there is none."""

import copy

import pytest
import torch
from driver import EachStep
from jobs import Notes, job_of, run_all
from sampling import KEEPING, QUICK

from odedm import (
    ODEDM,
    Experiment,
    Native,
    NoMemory,
    Observation,
    Reservoir,
    Run,
    UsageError,
    blobs,
    from_arrays,
    select,
    shapes,
)
from odedm.checkpoint.schedule import Schedule
from odedm.checkpoint.stop import Stopped
from odedm.core.accel.triton_support import has_kernels
from odedm.core.registry import DISTANCES, METHODS, RETRIEVALS, WITHOUT_CLUSTERS
from odedm.execute.backend import ExecutionConfig
from odedm.execute.job import Message, ProgressReport
from odedm.execute.run_callbacks import RunCallback
from odedm.execute.run_job import run_job
from odedm.execute.scheduler import run_jobs
from odedm.memory import purity
from odedm.memory.purity import survivors
from odedm.methods.refresh import fisher_information
from odedm.nets import base
from odedm.nets.grouped_batch_norm import Norm2d, grouped
from odedm.nets.resnet import ResNet18
from odedm.nets.small import SmallCNN
from odedm.selection.distance import Sinkhorn
from odedm.selection.kmeans import batched_kmeans, kmeans
from odedm.selection.sinkhorn import solver as sinkhorn
from odedm.selection.sinkhorn.kernels import DenseKernel
from odedm.training.numerics import deterministic_numerics, set_precision

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU"),
    pytest.mark.filterwarnings("default"),  # other versions of torch warn of other things
]


MEMORIES = {
    "reservoir": Reservoir(40),
    "native": Native(40),
    "odedm": ODEDM(40, k=2, replay="auxiliary"),
    "bounded": ODEDM(40, k=2, candidates=6),
}
LATER = {"none": NoMemory(), "balanced": ODEDM(40, k=2, short_policy="balanced-reservoir")}
"""Memories that came later: with some methods, not with all."""


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("method", KEEPING)
def test_every_method_with_every_memory(method, memory):
    data, options = shapes(), QUICK.get(method, {})
    plan = Experiment(MEMORIES[memory], method=method, options=options, data="shapes", device="cuda", batch=16)
    outcome = Run(plan, data).finish()
    rows = outcome.memory.rows()
    assert rows["image"].is_cuda
    assert outcome.memory.size() <= 40
    assert data.image[rows["index"].cpu()].equal(rows["image"].cpu())
    assert all(value.isfinite().all() for value in outcome.method.net.parameters())


@pytest.mark.parametrize("make", [blobs, shapes])
@pytest.mark.parametrize("method", KEEPING)
def test_a_run_repeats_bit_for_bit(method, make):
    data, options = make(), QUICK.get(method, {})
    plan = Experiment(
        ODEDM(40, k=2, replay="auxiliary"), method=method, options=options, data=data.name, device="cuda", batch=16
    )
    first, second = (Run(plan, data).finish() for _ in range(2))
    assert first.result.class_il == second.result.class_il
    for a, b in zip(first.method.net.parameters(), second.method.net.parameters(), strict=True):
        assert a.equal(b)


@pytest.mark.parametrize("dac", [None, (3, 2)])
@pytest.mark.parametrize("distance", DISTANCES)
def test_selection_agrees_with_the_cpu(distance, dac):
    dac = None if distance in WITHOUT_CLUSTERS else dac
    x = torch.rand(400, 32, generator=torch.Generator().manual_seed(0)).relu()
    here = select(x, k=8, distance=distance, dac=dac)
    there = select(x.cuda(), k=8, distance=distance, dac=dac)
    assert there.is_cuda
    common = set(here.tolist()) & set(there.cpu().tolist())
    assert len(common) >= 7, "the same choice but for rows that are equally near"


@pytest.mark.parametrize(("k", "d"), [(3, 512), (12, 8), (40, 33), (160, 600)])
def test_clusters_are_those_of_the_cpu_and_repeat(k, d):
    rng = torch.Generator().manual_seed(0)
    sets = [torch.randn(n, d, generator=rng) for n in (1500, 321)]

    def found(where):
        # from given rows: seeding chooses between near equals, which rounding may turn
        moved, rngs = [x.to(where) for x in sets], [torch.Generator(), torch.Generator()]
        return batched_kmeans(moved, k, rngs=rngs, inits=[x[:k].clone() for x in moved])

    here, there, again = found("cpu"), found("cuda"), found("cuda")
    assert there[1] == again[1] == here[1]
    for one, own, same in zip(there[0], here[0], again[0], strict=True):
        assert one.labels.cpu().equal(own.labels)
        torch.testing.assert_close(one.centers.cpu(), own.centers, rtol=1e-4, atol=1e-4)
        assert one.inertia == pytest.approx(own.inertia, rel=1e-4)
        assert one.centers.equal(same.centers)


@pytest.mark.parametrize("bins", [12, 160, 512])
def test_transport_by_one_kernel_equals_torch_operations_and_float64(bins):
    fused = pytest.importorskip("odedm.selection.sinkhorn.solver_triton")
    rng = torch.Generator().manual_seed(0)
    source, target = (torch.rand(n, bins, generator=rng).sub_(0.3).clamp_(min=0).cuda() for n in (70, 33))
    source, target = (x / x.sum(1, keepdim=True) for x in (source, target))
    place = torch.rand(bins, 4, generator=rng).cuda()
    kernel = DenseKernel.relative(torch.cdist(place, place).square(), 0.1)
    row, column = torch.arange(70 * 33, device="cuda") // 33, torch.arange(70 * 33, device="cuda") % 33
    one = fused.solve(source, target, row, column, kernel, 1e-4, 4000)
    other = sinkhorn._solve(source[row], target[column], kernel, 1e-4, 4000)
    exact = sinkhorn._solve(source[row].double(), target[column].double(), kernel.double(), 1e-6, 20_000)
    assert one.marginal_error.max() < 1e-4
    torch.testing.assert_close(one.cost.double(), exact.cost, rtol=5e-3, atol=1e-5)
    torch.testing.assert_close(one.cost, other.cost, rtol=5e-3, atol=1e-5)
    again = fused.solve(source, target, row, column, kernel, 1e-4, 4000)
    assert one.cost.equal(again.cost)
    assert fused.solve(source, target, row[:5], column[:5], kernel, 1e-9, 7).iterations == 7


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("method", [name for name in KEEPING if METHODS[name].load().capturable])
def test_a_captured_run_has_the_numbers_of_an_eager_one(method, memory):
    data = shapes()
    words = {"method": method, "data": "shapes", "device": "cuda", "batch": 4}
    runs = [Run(Experiment(MEMORIES[memory], cuda_graph=capture, **words), data) for capture in (True, False)]
    captured, eager = [run.finish() for run in runs]
    assert runs[0].stepper.captured > 10, "steps that repeat are replayed"
    assert runs[1].stepper.captured == 0
    assert captured.result.class_il == eager.result.class_il
    for a, b in zip(captured.method.net.state_dict().values(), eager.method.net.state_dict().values(), strict=True):
        assert a.equal(b)
    for name, column in captured.memory.rows().items():
        assert column.equal(eager.memory.rows()[name]), name


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("retrieval", RETRIEVALS)
@pytest.mark.parametrize(
    ("method", "memory"), [("er", "balanced"), ("er-ace", "balanced"), ("derpp", "reservoir"), ("er-ace", "none")]
)
def test_a_captured_run_with_a_retrieval_has_the_numbers_of_an_eager_one(method, memory, retrieval, precision):
    if memory == "none" and retrieval != "uniform":
        return
    data, words = shapes(), {"method": method, "data": "shapes", "device": "cuda", "batch": 4, "precision": precision}
    plan = {**MEMORIES, **LATER}[memory]
    runs = [Run(Experiment(plan, cuda_graph=capture, retrieval=retrieval, **words), data) for capture in (True, False)]
    captured, eager = [run.finish() for run in runs]
    assert runs[0].stepper.captured > 10
    for a, b in zip(captured.method.net.state_dict().values(), eager.method.net.state_dict().values(), strict=True):
        assert a.equal(b)
    for name, column in captured.memory.rows().items():
        assert column.equal(eager.memory.rows()[name]), name


INGREDIENTS = {
    "asymmetric": {"updates": 2, "stream_loss": "asymmetric", "predict": "nearest-mean"},
    "adjusted, strong": {"updates": 3, "stream_loss": "adjusted", "views": "strong"},
    "rotations": {"views": "rotations", "predict": "nearest-mean"},
    "turned classes": {"views": "turned-classes", "predict": "nearest-mean"},
    "strong, turned classes": {"views": "strong-turned", "updates": 2},
    "average": {"weight_average": 0.9},
}


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
@pytest.mark.parametrize("rule", ["fixed", "share"])
@pytest.mark.parametrize("case", INGREDIENTS)
def test_a_captured_run_with_ingredients_has_the_numbers_of_an_eager_one(case, rule, precision):
    data, words = shapes(), {"data": "shapes", "device": "cuda", "batch": 4, "precision": precision}
    plan = ODEDM(40, k=2, gamma_rule=rule)
    runs = [
        Run(Experiment(plan, "derpp", cuda_graph=each, **INGREDIENTS[case], **words), data) for each in (True, False)
    ]
    captured, eager = [run.finish() for run in runs]
    assert runs[0].stepper.captured > 10
    assert captured.result.class_il == eager.result.class_il
    assert captured.result.sample_gradients == eager.result.sample_gradients
    for a, b in zip(captured.method.net.state_dict().values(), eager.method.net.state_dict().values(), strict=True):
        assert a.equal(b)


@pytest.mark.parametrize("precision", ["fp32", "bf16"])
def test_a_transformer_on_large_pictures_learns_as_on_a_cpu(precision):
    rng = torch.Generator().manual_seed(0)
    image, label = torch.randint(0, 256, (32, 3, 96, 96), generator=rng, dtype=torch.uint8), torch.arange(2).repeat(16)
    # no views: those of a GPU are drawn there, and are others than a CPU's
    data = from_arrays(image.numpy(), label.numpy(), tasks=1, test=(image.numpy(), label.numpy()))
    own = {"net": "vit", "net_options": {"depth": 3}, "batch": 8, "options": {"lr": 0.01}, "precision": precision}
    losses: dict[str, list[float]] = {}
    for where, capture in (("cpu", False), ("cuda", False), ("cuda", True)):
        plan = Experiment(Reservoir(20), "derpp", data="random", device=where, cuda_graph=capture, **own)
        run, seen = Run(plan, data), losses.setdefault(f"{where} {capture}", [])
        run.finish(EachStep(lambda run, seen=seen: seen.append(float(run.method.last_loss))))
    assert losses["cuda True"] == losses["cuda False"]
    assert losses["cuda True"][0] == pytest.approx(losses["cpu False"][0], rel=0.02)
    assert all(loss < 20 for loss in losses["cuda True"])


@pytest.mark.parametrize("memory", MEMORIES)
@pytest.mark.parametrize("method", ["derpp", "icarl", "puridiver", "vrmcl"])  # all of them capturable
def test_a_captured_run_that_looks_has_the_numbers_of_one_that_does_not(method, memory):
    """Tests between replayed steps leave no trace in the recordings, and see what an eager run's do."""
    data, looks = shapes(), Observation(evidence=True, anytime=5)
    words = {"method": method, "data": "shapes", "device": "cuda", "batch": 4}
    plan, eager = (Experiment(MEMORIES[memory], cuda_graph=capture, **words) for capture in (True, False))
    runs = [Run(plan, data, looks), Run(plan, data), Run(eager, data, looks)]
    looked, blind, slow = [run.finish() for run in runs]
    assert runs[0].stepper.captured == runs[1].stepper.captured > 10, "no recording was thrown away for it"
    assert looked.result.class_il == blind.result.class_il
    assert looked.result.class_counts == blind.result.class_counts
    for a, b in zip(looked.method.net.state_dict().values(), blind.method.net.state_dict().values(), strict=True):
        assert a.equal(b)
    for name, column in looked.memory.rows().items():
        assert column.equal(blind.memory.rows()[name]), name
    assert looked.result.anytime == slow.result.anytime
    assert len(looked.result.anytime) == 15
    assert looked.evidence.keys() == slow.evidence.keys()
    assert all(column.equal(slow.evidence[name]) for name, column in looked.evidence.items())


def test_lanes_on_streams_have_the_numbers_runs_have_alone(tmp_path):
    plans = [
        Experiment(memory, method=method, data="shapes", device="cuda", batch=4, seed=seed)
        for method, memory in (("derpp", ODEDM(40, k=2)), ("er", Reservoir(40)), ("puridiver", Native(40)))
        for seed in range(3)
    ]
    beside = run_all([job_of(plan, tmp_path / str(number)) for number, plan in enumerate(plans)], workers=6)
    for number, plan in enumerate(plans):
        (alone,) = run_all([job_of(plan, tmp_path / "alone" / str(number))])
        assert alone.class_il == beside[number].class_il
        one, other = (tmp_path / part / str(number) / "memory.safetensors" for part in ("", "alone"))
        assert one.read_bytes() == other.read_bytes()


def test_a_lane_that_fails_does_not_end_the_others(tmp_path):
    plans = [
        Experiment(Reservoir(40), data="shapes", device="cuda", batch=4, options={"lr": lr}) for lr in (0.1, 1e30, 0.2)
    ]
    jobs = [job_of(plan, tmp_path / str(number)) for number, plan in enumerate(plans)]
    summary = run_jobs(jobs, {"shapes": shapes()}, ExecutionConfig(workers=3))
    assert set(summary.failed) == {jobs[1].key}
    assert set(summary.results) == {jobs[0].key, jobs[2].key}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("sizes", "channels", "side"), [((32, 32, 32), 64, 32), ((32, 12), 512, 4), ((7,), 20, 9)])
@pytest.mark.parametrize(("relu", "has_residual"), [(False, False), (True, False), (True, True)])
def test_grouped_batchnorm_equals_one_batch_after_the_other(dtype, sizes, channels, side, relu, has_residual):
    torch.manual_seed(0)
    norm = Norm2d(channels).cuda()
    norm.running_var.uniform_(0.5, 2)
    torch.nn.init.normal_(norm.weight)
    exact = copy.deepcopy(norm).double()
    x = (2 * torch.randn(sum(sizes), channels, side, side, device="cuda") + 3).to(dtype)
    x = x.to(memory_format=torch.channels_last).requires_grad_()
    residual = torch.randn_like(x).detach().requires_grad_() if has_residual else None
    with grouped(norm, sizes):
        y = norm(x, residual, relu=relu)
    given = [x, *([residual] if has_residual else [])]
    wide = [each.detach().double().requires_grad_() for each in given]
    want = torch.cat([exact(part) for part in wide[0].split(sizes)])
    want = want + wide[1] if has_residual else want
    want = want.relu() if relu else want
    slope = torch.randn_like(y)
    found = torch.autograd.grad(y, [*given, norm.weight, norm.bias], slope)
    right = torch.autograd.grad(want, [*wide, exact.weight, exact.bias], slope.double())
    rough = 1e-2 if dtype == torch.bfloat16 else 1e-5
    for a, b in zip((y, *found), (want, *right), strict=True):
        assert (a - b).abs().max() <= rough * b.abs().max()
    for a, b in zip(norm.buffers(), exact.buffers(), strict=True):
        torch.testing.assert_close(a.double(), b.double(), rtol=1e-5, atol=1e-6)
    for counters in norm.counters.values():
        assert not counters.any(), "ready for the next call"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize(("rows", "channels", "side"), [(40, 64, 32), (1, 20, 9), (0, 16, 4)])
@pytest.mark.parametrize(("relu", "has_residual"), [(False, False), (True, False), (True, True)])
def test_batchnorm_in_evaluation_is_that_of_torch_in_one_pass(dtype, rows, channels, side, relu, has_residual):
    torch.manual_seed(0)
    assert has_kernels("odedm.nets.grouped_batch_norm_triton", torch.device("cuda"))
    norm = Norm2d(channels).cuda().eval()
    norm.running_var.uniform_(0.5, 2)
    norm.running_mean.normal_()
    torch.nn.init.normal_(norm.weight)
    torch.nn.init.normal_(norm.bias)
    x, residual = (torch.randn(rows, channels, side, side, device="cuda").to(dtype) for _ in range(2))
    with torch.no_grad():
        y = norm(x, residual if has_residual else None, relu=relu)
    exact = copy.deepcopy(norm).double()(x.double(), residual.double() if has_residual else None, relu=relu)
    assert y.dtype == dtype
    small = 5e-3 if dtype == torch.bfloat16 else 1e-5
    torch.testing.assert_close(y.double(), exact, rtol=small, atol=small)
    again = norm(x.requires_grad_(), residual if has_residual else None, relu=relu)
    assert again.requires_grad, "with gradients it is torch's own"
    torch.testing.assert_close(y, again, rtol=2e-2, atol=2e-2)


def test_one_pass_equals_separate_forwards_on_the_device(monkeypatch):
    torch.manual_seed(0)
    net = ResNet18((3, 32, 32), 10, width=16).cuda().to(memory_format=torch.channels_last)
    other = copy.deepcopy(net)
    inputs = [torch.randn(size, 3, 32, 32, device="cuda") for size in (32, 32, 12)]
    together = net.forward_batches(*inputs)
    monkeypatch.setattr(base, "joins", lambda _: False)
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
        separate = other.forward_batches(*inputs)
    for a, b in zip(together, separate, strict=True):
        torch.testing.assert_close(a, b, rtol=2e-2, atol=2e-2)  # TF32 in the one, not in the other
    for a, b in zip(net.buffers(), other.buffers(), strict=True):
        torch.testing.assert_close(a, b, rtol=2e-2, atol=1e-2)


def test_training_reads_nothing_back_between_the_first_steps_and_the_end_of_a_task():
    data = shapes()
    run = Run(Experiment(Reservoir(40), data="shapes", device="cuda", batch=4), data)

    def watch(run):
        if run.stepper.captured == 1:
            torch.cuda.set_sync_debug_mode("error")
        if run.progress.rows == run.total_rows // 3:
            torch.cuda.set_sync_debug_mode("default")

    try:
        run.finish(EachStep(watch))
    finally:
        torch.cuda.set_sync_debug_mode("default")
    assert run.stepper.captured > 10


class _Killed(Exception):
    pass


RESUMED = {
    "derpp": ODEDM(40, k=2, replay="both"),
    "icarl": Native(40),
    "puridiver": Native(40),
    "vrmcl": Reservoir(40),
}


@pytest.mark.parametrize("capture", [True, False])
@pytest.mark.parametrize("method", RESUMED)
def test_a_killed_run_that_goes_on_from_its_checkpoints_equals_the_unkilled_one(method, capture, tmp_path, monkeypatch):
    """Killed three times, at steps that no checkpoint was made at, and once asked to stop; bit for bit."""
    data = shapes()
    words = {"method": method, "data": "shapes", "device": "cuda", "batch": 4, "cuda_graph": capture}
    plan = Experiment(RESUMED[method], options={"momentum": 0.9}, **words)
    monkeypatch.setattr("odedm.execute.run_job.TICK", 0.0)
    straight = run_job(job_of(plan, tmp_path / "straight"), data=data)
    job = job_of(plan, tmp_path / "killed", schedule=Schedule.parse("7 steps"))
    total = sum(straight.result.provenance["steps"].values())
    for share in (0.3, 0.5, 0.8):

        def kill(event, share=share):
            if isinstance(event, ProgressReport) and event.done >= share * event.total:
                raise _Killed

        with pytest.raises(_Killed):
            run_job(job, kill, data=data)
    with pytest.raises(Stopped):
        run_job(job, data=data, stop=lambda: True)
    told = []
    again = run_job(job, told.append, data=data)
    assert any("Going on after step" in event.line for event in told if isinstance(event, Message))
    steps = again.result.provenance["steps"]
    assert sum(steps.values()) == total
    assert (steps["captured"] > 5) == (capture and METHODS[method].load().capturable)
    assert again.result.class_il == straight.result.class_il
    assert again.result.class_counts == straight.result.class_counts
    for one, other in zip(straight.method.net.parameters(), again.method.net.parameters(), strict=True):
        assert one.equal(other)
        assert one.stride() == other.stride(), "the layout in memory comes back, too"
    rows = again.memory.rows()
    for name, column in straight.memory.rows().items():
        assert column.equal(rows[name]), name
    if "second order" not in METHODS[method].load().requires:
        convolutions = [each for each in again.method.net.parameters() if each.dim() == 4 and min(each.shape) > 1]
        assert all(each.is_contiguous(memory_format=torch.channels_last) for each in convolutions)


def test_lanes_on_streams_go_on_after_a_stop(tmp_path):
    plans = [Experiment(ODEDM(40, k=2), data="shapes", device="cuda", batch=4, seed=seed) for seed in range(3)]
    jobs = [job_of(plan, tmp_path / "runs" / str(number)) for number, plan in enumerate(plans)]

    class Impatient(RunCallback):
        def on_progress(self, job, report):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        run_all(jobs, Impatient(), workers=3)
    notes = Notes()
    beside = run_all(jobs, notes, workers=3)
    assert any("Going on after step" in line for line in notes.said_lines())
    for number, plan in enumerate(plans):
        (alone,) = run_all([job_of(plan, tmp_path / "alone" / str(number))])
        assert alone.class_il == beside[number].class_il
        one, other = (tmp_path / part / str(number) / "memory.safetensors" for part in ("runs", "alone"))
        assert one.read_bytes() == other.read_bytes()


def test_a_loss_that_is_no_number_is_found_without_asking_the_device(tmp_path):
    """Where the host waits anyway: a few steps later, or at the end of the task."""
    plan = Experiment(Reservoir(40), data="shapes", device="cuda", batch=2, options={"lr": 1e30})
    job = job_of(plan, tmp_path / "run")
    with pytest.raises(
        UsageError, match=r"At one of the steps 1 to 2, in task 1 of 3, the loss is not a finite number"
    ):
        run_job(job, data=shapes())
    assert not list(tmp_path.iterdir()), "no state of it was stored"


def test_lanes_that_forget_recordings_do_not_disturb_lanes_that_record(tmp_path):
    """Methods whose host state changes at borders drop their recordings there, while other lanes record theirs."""
    methods = [("icarl", Native(40)), ("fdr", ODEDM(40, k=2)), ("puridiver", Native(40)), ("refresh", Reservoir(40))]
    plans = [
        Experiment(memory, method=method, data="shapes", device="cuda", batch=4, seed=seed)
        for seed in range(4)
        for method, memory in methods
    ]
    jobs, notes = [job_of(plan, tmp_path / str(number)) for number, plan in enumerate(plans)], Notes()
    assert len(run_all(jobs, notes, workers=8)) == len(plans)
    assert notes.keys("lost") == []


@pytest.mark.parametrize(("precision", "off"), [("fp32", 1e-3), ("tf32", 0.15), ("bf16", 0.5)])
@pytest.mark.parametrize(("kind", "side", "width"), [(ResNet18, 32, 64), (ResNet18, 20, 10), (SmallCNN, 9, 3)])
def test_squares_of_single_rows_are_those_of_their_own_backward_passes(kind, side, width, precision, off):
    assert has_kernels("odedm.methods.row_squares_triton", torch.device("cuda"))
    torch.manual_seed(0)
    net = kind((3, side, side), 5, width=width)
    x, y = torch.randn(11, 3, side, side), torch.arange(11) % 5
    expected = fisher_information(net.double(), [(x.double(), y)], total=11, training=True)
    net = set_precision(net.float().cuda(), precision, second_order=False)
    with deterministic_numerics(1, precision):
        found, again = (fisher_information(net, [(x.cuda(), y.cuda())], total=11, training=True) for _ in range(2))
    for name, value in found.items():
        assert value.equal(again[name])
        wanted = expected[name]
        assert (value.double().cpu() - wanted).norm() <= off * wanted.norm(), name
    assert not any("forward" in vars(module) for module in net.modules())


@pytest.mark.parametrize(("rows", "classes", "excess"), [(232, 10, 32), (57, 1, 20), (1999, 300, 64), (3000, 7, 5)])
def test_one_kernel_lets_the_same_rows_go_as_many_do(rows, classes, excess):
    assert has_kernels("odedm.memory.purity_triton", torch.device("cuda"))
    rng = torch.Generator().manual_seed(0)
    label, loss = torch.randint(classes, (rows,), generator=rng), torch.rand(rows, generator=rng)
    direction = torch.nn.functional.normalize(torch.randn(rows, 24, generator=rng, dtype=torch.float64))
    alpha = torch.tensor(0.4, dtype=torch.float64)

    def stay(where):
        draws = torch.Generator(where).manual_seed(1)
        words = {"alpha": alpha.to(where), "classes": classes, "excess": excess, "rng": draws}
        return survivors(label.to(where), loss.to(where), direction.to(where), **words)

    assert stay("cuda").sum() == rows - excess
    with pytest.MonkeyPatch.context() as patch:
        there = stay("cuda")
        patch.setattr(purity, "has_kernels", lambda *_: False)
        assert there.equal(stay("cuda"))


@pytest.mark.parametrize("memory", [Native(40), ODEDM(40, k=2, replay="auxiliary")], ids=["native", "odedm"])
def test_icarls_recordings_stay_good_from_task_to_task_and_whatever_rows_are_mixed_in(memory):
    words = {"method": "icarl", "data": "shapes", "device": "cuda", "batch": 4}
    recorded, eager = (Run(Experiment(memory, cuda_graph=c, **words), shapes()).finish() for c in (True, False))
    steps = recorded.result.provenance["steps"]
    # the kinds: without a teacher and with one, with and without long-term rows, and each task's ragged last batch
    assert steps["eager"] <= 2 * 4 + 5
    assert recorded.result.class_il == eager.result.class_il
    for one, other in zip(recorded.method.net.parameters(), eager.method.net.parameters(), strict=True):
        assert one.equal(other)


def test_many_prototypes_are_chosen_by_few_solved_pairs_as_by_all():
    rng = torch.Generator().manual_seed(0)
    mix, mode = torch.randn(48, 512, generator=rng) / 7, 1.5 * torch.randn(12, 48, generator=rng)
    latent = mode[torch.randint(12, (1500,), generator=rng)] + torch.randn(1500, 48, generator=rng)
    x = (latent @ mix + 0.3 * torch.randn(1500, 512, generator=rng) + 0.5).relu().cuda()
    centre = kmeans(x, 160, rng=torch.Generator().manual_seed(0)).centers
    few, every = (Sinkhorn(margin=margin).fit(x, None).nearest(x, centre) for margin in (0.1, float("inf")))
    assert few.row.equal(every.row)
