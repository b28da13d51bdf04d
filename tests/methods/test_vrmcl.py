"""VR-MCL against its definition: the hypergradient by unrolled differentiation, the step by its formulas."""

from functools import partial

import pytest
import torch
from beside import imported
from counted import RowForwards
from fixed_replay import CLASSES, NETS, FixedReplay, adapted, cnn, flat, forward, leaves, mlp, rows, task
from torch.nn import functional as F

from odedm import ODEDM, Experiment, Native, Reservoir, Run, blobs, shapes
from odedm.core.rng import generator
from odedm.methods.meta_learning import NetFunction, Objective, hypergradient, rescale
from odedm.methods.vrmcl import VRMCL
from odedm.nets import base

arithmetic = imported("benchmarks", "arithmetic")

CURRENT = 1


def build(net, **options):
    method = VRMCL(net=net, draw=options.pop("draw", 6), **options)
    method.begin_task(task(0))
    method.begin_task(task(CURRENT))
    return method


def batch(seed=1, n=6, shape=(5,)):
    return rows(seed, [CURRENT] * n, shape)


def past(seed=2, shape=(5,)):
    return rows(seed, [0, 1, 0, 0, 1, 0], shape)


def sliced_query(logits, label, current):
    """The query loss as written in the paper's words: slices of the head, sums, one divisor."""
    low, high = 2 * CURRENT, 2 * CURRENT + 2
    mine = F.cross_entropy(logits[:current, low:], label[:current] - low, reduction="sum")
    theirs = F.cross_entropy(logits[current:, :high], label[current:], reduction="sum")
    return (mine + 0.5 * theirs) / len(label)


def unrolled(net, weights, rates, chunks, query, *, clip, second_order=True, current=6):
    """M(θ, A) by plain autograd through all inner steps, and its gradients, flattened."""
    low, high = 2 * CURRENT, 2 * CURRENT + 2
    fast, losses = weights, []
    for x, y in chunks:
        fast = adapted(net, fast, rates, x, y, low, high, clip, second_order)
        losses.append(sliced_query(forward(net, fast, query["input"]), query["label"], current))
    loss = torch.stack(losses).mean()
    both = torch.autograd.grad(loss, [*weights.values(), *rates.values()])
    return loss.detach(), flat(both[: len(weights)]), flat(both[len(weights) :])


def chunk_pairs(method, data):
    """The chunks that the method's next step will take, without moving its generator."""
    state = method.order.get_state()
    chunks = [(chunk.input, chunk.label) for chunk in method.chunks(data)]
    method.order.set_state(state)
    return chunks


def rate_leaves(method):
    shapes = [p.shape for p in method.net.parameters()]
    parts = method.rates.split([shape.numel() for shape in shapes])
    names = [name for name, _ in method.net.named_parameters()]
    return {
        name: part.clone().view(shape).requires_grad_() for name, part, shape in zip(names, parts, shapes, strict=True)
    }


def joined(*parts):
    return {name: torch.cat([part[name] for part in parts]) for name in ("input", "label", "task")}


@pytest.mark.parametrize("second_order", [True, False])
@pytest.mark.parametrize("clip", [0.02, 1.0])
@pytest.mark.parametrize("kind", NETS)
def test_the_adjoint_walk_is_unrolled_differentiation(kind, clip, second_order):
    make, shape = NETS[kind]
    net = make().train()
    method = build(net, clip=clip, chunk=2, second_order=second_order, inner_rate=0.3)
    generator = torch.Generator().manual_seed(3)
    method.rates.mul_(torch.rand(len(method.rates), generator=generator, dtype=torch.float64))
    data, memory = batch(shape=shape), past(shape=shape)
    chunks, query = method.chunks(data), joined(data, memory)
    exam = method.query({**query, "share": torch.ones(12, dtype=torch.float64)}, 6)
    slow = unrolled(
        net, leaves(net), rate_leaves(method), [(c.input, c.label) for c in chunks], query,
        clip=clip, second_order=second_order,
    )  # fmt: skip
    fast = method.look_ahead(method.function.weights(), chunks, exam)
    for a, b in zip(fast, slow, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-9, atol=1e-13)
    assert fast.by_weights.norm() > 0
    assert fast.by_rates.norm() > 0


def test_second_order_is_not_cosmetic():
    norms = []
    for second_order in (True, False):
        method = build(mlp(), second_order=second_order, chunk=2)
        method.observe(batch(), FixedReplay(past()))
        norms.append(method.function.weights())
    assert (norms[0] - norms[1]).norm() > 1e-4


@pytest.mark.parametrize("by", ["weights", "rates"])
def test_finite_differences(by):
    method = build(mlp(), chunk=2, inner_rate=0.2)
    data = batch()
    chunks = method.chunks(data)
    exam = method.query({**joined(data, past()), "share": torch.ones(12, dtype=torch.float64)}, 6)
    weights = method.function.weights()

    def meta_loss(shift):
        moved = {"weights": weights, "rates": method.rates}
        moved[by] = moved[by] + shift
        found = hypergradient(method.function, moved["weights"], moved["rates"], chunks, exam, clip=1.0)
        return found.loss, found._asdict()[f"by_{by}"]

    gradient = meta_loss(torch.zeros_like(weights))[1]
    generator = torch.Generator().manual_seed(0)
    for _ in range(5):
        way = torch.randn(len(weights), generator=generator, dtype=torch.float64)
        way = 1e-6 * way / way.norm()
        slope = (meta_loss(way)[0] - meta_loss(-way)[0]) / 2e-6
        torch.testing.assert_close(slope, gradient @ way / 1e-6, rtol=1e-5, atol=1e-8)


def test_without_inner_rates_the_hypergradient_is_the_gradient_of_the_query():
    net = mlp()
    method = build(net, inner_rate=0.0, chunk=2)
    data, memory = batch(), past()
    exam = method.query({**joined(data, memory), "share": torch.ones(12, dtype=torch.float64)}, 6)
    found = method.look_ahead(method.function.weights(), method.chunks(data), exam)
    query = joined(data, memory)
    loss = sliced_query(net(query["input"]), query["label"], 6)
    torch.testing.assert_close(found.loss, loss.detach())
    torch.testing.assert_close(found.by_weights, flat(torch.autograd.grad(loss, list(net.parameters()))))


def test_with_one_inner_step_the_gradient_by_the_rates_is_a_product():
    method = build(mlp(), chunk=6, clip=0.05, inner_rate=0.2)
    data = batch()
    (chunk,) = method.chunks(data)
    exam = method.query({**joined(data, past()), "share": torch.ones(12, dtype=torch.float64)}, 6)
    start = method.function.weights().requires_grad_()
    (slope,) = torch.autograd.grad(chunk.loss(method.function(start, chunk.input)), start)
    move = slope.clamp(-0.05, 0.05)
    assert not move.equal(slope), "the clamp is at work"
    end = (start.detach() - 0.2 * move).requires_grad_()
    (pull,) = torch.autograd.grad(exam.loss(method.function(end, exam.input)), end)
    found = method.look_ahead(start, [chunk], exam)
    torch.testing.assert_close(found.by_rates, -move * pull, rtol=0, atol=1e-15)


@pytest.mark.parametrize("kind", NETS)
@pytest.mark.parametrize("options", [{}, {"second_order": False}, {"clip": 0.1, "storm": 0.4}, {"clamp_rates": True}])
@pytest.mark.parametrize("scale", [1.0, 20.0])  # large inputs: the norm of the gradient by the rates is cut, too
def test_three_steps_by_the_formulas(kind, options, scale):
    make, shape = NETS[kind]
    method = build(make(), chunk=2, **options)
    clip, storm = method.clip, method.storm
    memory = past(shape=shape)
    memory["input"] = scale * memory["input"]
    velocity, previous, cut = None, method.function.weights(), False
    for seed in range(3):
        data = batch(seed, shape=shape)
        data["input"] = scale * data["input"]
        before, rates = method.function.weights(), method.rates.clone()
        query, chunks = joined(data, memory), chunk_pairs(method, data)
        torch.nn.utils.vector_to_parameters(previous.clone(), method.net.parameters())
        then = unrolled(method.net, leaves(method.net), rate_leaves(method), chunks, query, clip=clip,
                        second_order=method.second_order)  # fmt: skip
        torch.nn.utils.vector_to_parameters(before.clone(), method.net.parameters())
        now = unrolled(method.net, leaves(method.net), rate_leaves(method), chunks, query, clip=clip,
                       second_order=method.second_order)  # fmt: skip
        method.observe(data, FixedReplay(memory))
        gradient, old = rescale(now[1], clip), rescale(then[1], clip)
        velocity = gradient if velocity is None else gradient + storm * (velocity - old)
        expected = rates - 0.25 * rescale(rescale(now[2], clip) + then[2], clip)
        if method.clamp_rates:
            expected = expected.clamp(min=0)
        previous, cut = before, cut or now[2].norm() > clip
        torch.testing.assert_close(method.last_loss, now[0])
        torch.testing.assert_close(method.velocity, velocity, rtol=1e-8, atol=1e-12)
        torch.testing.assert_close(method.rates, expected, rtol=1e-8, atol=1e-12)
        torch.testing.assert_close(method.function.weights(), before - 0.35 * velocity, rtol=1e-8, atol=1e-12)
        assert method.previous.equal(before)
    assert cut or scale == 1 or kind == "cnn", "BatchNorm undoes the scale"


@pytest.mark.parametrize("clip", [0.01, 1.0])
def test_without_storm_a_step_is_beta_times_the_clipped_gradient(clip):
    method = build(mlp(), storm=0.0, clip=clip, chunk=2)
    method.observe(batch(0), FixedReplay(past()))
    method.observe(batch(1), FixedReplay(past()))  # with a velocity and an older iterate
    data, before = batch(2), method.function.weights()
    query, chunks = joined(data, past()), chunk_pairs(method, data)
    gradient = unrolled(method.net, leaves(method.net), rate_leaves(method), chunks, query, clip=clip)[1]
    method.observe(data, FixedReplay(past()))
    move = method.function.weights() - before
    torch.testing.assert_close(move, -0.35 * rescale(gradient, clip), rtol=1e-8, atol=1e-12)
    assert move.norm() <= 0.35 * clip * (1 + 1e-9)


def test_a_new_task_forgets_the_older_iterate_and_keeps_velocity_and_rates():
    method = build(mlp(), chunk=2)
    for seed in range(3):
        method.observe(batch(seed), FixedReplay(past()))
    velocity, rates = method.velocity.clone(), method.rates.clone()
    assert not method.previous.equal(method.function.weights())
    method.begin_task(task(CURRENT))
    assert method.previous.equal(method.function.weights())
    assert method.velocity.equal(velocity)
    assert method.rates.equal(rates)
    data = batch(5)
    query, chunks = joined(data, past()), chunk_pairs(method, data)
    gradient = unrolled(method.net, leaves(method.net), rate_leaves(method), chunks, query, clip=1.0)[1]
    method.observe(data, FixedReplay(past()))
    expected = 0.85 * rescale(gradient, 1.0) + 0.15 * velocity
    torch.testing.assert_close(method.velocity, expected, rtol=1e-8, atol=1e-12)


@pytest.mark.parametrize(("times", "updates"), [(0, 1), (1, 1), (2, 1), (1, 3)])
def test_running_statistics_move_only_by_plain_forwards_of_the_query(times, updates):
    net = cnn()
    method = build(net, bn_refreshes=times, meta_updates=updates, chunk=2, lr=0.0, rate_lr=0.0)
    data, memory = batch(shape=(1, 8, 8)), past(shape=(1, 8, 8))
    twin = cnn().train()
    method.observe(data, FixedReplay(memory))
    for _ in range(times * updates):
        twin(joined(data, memory)["input"])
    for (name, mine), theirs in zip(net.named_buffers(), twin.buffers(), strict=True):
        assert mine.equal(theirs), name
    assert net.norm1.num_batches_tracked == times * updates


def test_the_first_batch_of_a_run_is_its_own_query():
    net = mlp()
    method = build(net, inner_rate=0.0, rate_lr=0.0, lr=1.0, clip=1e9)
    data, before = batch(), method.function.weights()
    loss = F.cross_entropy(net(data["input"])[:, 2:], data["label"] - 2)
    gradient = flat(torch.autograd.grad(loss, list(net.parameters())))
    method.observe(data, FixedReplay())
    torch.testing.assert_close(method.function.weights(), before - gradient)


def query_of(method, replay, data):
    seen = []
    original = method.look_ahead
    method.look_ahead = lambda weights, chunks, query: seen.append(query) or original(weights, chunks, query)
    method.observe(data, replay)
    assert seen[0] is seen[1], "both branches see the same rows"
    return seen[0]


def test_long_term_rows_are_further_memory_rows_that_count_gamma_each():
    data, memory, long = batch(), past(), rows(9, [0, 0, 0])
    for gamma, expected in [(1.0, 15.0), (0.5, 13.5)]:
        query = query_of(build(mlp()), FixedReplay(memory, long, gamma), data)
        assert query.input.equal(torch.cat([data["input"], memory["input"], long["input"]]))
        weights = torch.tensor([1.0] * 6 + [0.5] * 6 + [0.5 * gamma] * 3, dtype=torch.float64) / expected
        torch.testing.assert_close(query.weight, weights)
        assert query.low.flatten().tolist() == [2] * 6 + [0] * 9
        assert query.high.flatten().tolist() == [CLASSES] * 6 + [4] * 9
    without = query_of(build(mlp()), FixedReplay(memory, long, 0.0), data)
    assert without.input.equal(joined(data, memory)["input"])


def test_the_split_by_position_takes_the_first_rows_for_current_ones():
    data, memory = batch(n=4), past()  # a short last batch: two memory rows, of tasks 0 and 1, move up
    query = query_of(build(mlp(), split="position"), FixedReplay(memory), data)
    assert query.low.flatten().tolist() == [2, 2, 2, 2, 0, 2, 0, 0, 0, 0]
    assert query.high.flatten().tolist() == [CLASSES] * 6 + [4] * 4
    torch.testing.assert_close(query.weight * 10, torch.tensor([1.0] * 6 + [0.5] * 4, dtype=torch.float64))
    fixed = query_of(build(mlp()), FixedReplay(memory), data)
    assert fixed.low.flatten().tolist() == [2] * 4 + [0] * 6
    full = [query_of(build(mlp(), split=split), FixedReplay(memory), batch()) for split in ("origin", "position")]
    assert full[0].low.equal(full[1].low)
    assert full[0].weight.equal(full[1].weight)


def test_chunks_hold_every_row_once_in_a_new_order_each_time():
    method = build(mlp(), chunk=4)
    data = batch(n=10)
    orders = []
    for _ in range(2):
        chunks = method.chunks(data)
        assert [len(chunk.label) for chunk in chunks] == [4, 4, 2]
        assert all(chunk.weight.sum() == 1 for chunk in chunks)
        found = torch.cat([chunk.input for chunk in chunks])
        orders.append((found[:, None] == data["input"]).all(-1).int().argmax(1))
        assert sorted(orders[-1].tolist()) == list(range(10))
    assert not orders[0].equal(orders[1])


def test_meta_updates_draw_anew_and_the_clamp_keeps_rates_from_turning_negative():
    replay = FixedReplay(past())
    free, clamped = (build(mlp(), meta_updates=3, clamp_rates=each, rate_lr=50.0) for each in (False, True))
    free.observe(batch(), replay)
    assert replay.asked == [6, 6, 6]
    clamped.observe(batch(), replay)
    for seed in range(2, 5):
        free.observe(batch(seed), replay)
        clamped.observe(batch(seed), replay)
    assert free.rates.min() < 0
    assert clamped.rates.min() >= 0


def test_masked_classes_take_no_part_and_leave_no_nan_behind():
    net = mlp()
    function = NetFunction(net)
    data = batch()
    goal = Objective(data["input"], data["label"], torch.full((6,), 1 / 6, dtype=torch.float64), 2, 4)
    start = function.weights().requires_grad_()
    loss = goal.loss(function(start, goal.input))
    torch.testing.assert_close(loss, F.cross_entropy(net(data["input"])[:, 2:4], data["label"] - 2))
    (slope,) = torch.autograd.grad(loss, start, create_graph=True)
    (bend,) = torch.autograd.grad(slope.square().sum(), start)
    assert bend.isfinite().all()
    rest = torch.ones(CLASSES, dtype=torch.bool)
    rest[2:4] = False
    assert slope[-CLASSES:][rest].eq(0).all(), "biases of other classes"


def test_a_step_leaves_mode_and_gradients_alone():
    net = cnn()
    method = build(net)
    method.observe(batch(shape=(1, 8, 8)), FixedReplay(past(shape=(1, 8, 8))))
    assert net.training
    assert all(module.training for module in net.modules())
    assert all(p.grad is None for p in net.parameters())
    assert [type(p) for p in net.parameters()] == [torch.nn.Parameter] * len(list(net.parameters()))


@pytest.mark.parametrize("options", [{}, {"second_order": False}, {"meta_updates": 2, "bn_refreshes": 3}])
def test_a_step_computes_what_it_is_counted_for(options, monkeypatch):
    monkeypatch.setattr(base, "joins", lambda _: True)
    method = build(cnn(), chunk=4, **options)
    step = arithmetic.Step(6, 6, 100, 3, {"chunk": 4, **options}, long_term=3)
    with RowForwards(method.net.conv2.weight) as count:
        method.observe(batch(shape=(1, 8, 8)), FixedReplay(past(shape=(1, 8, 8)), rows(9, [0, 0, 0], (1, 8, 8))))
    assert count.rows == arithmetic.ROW_FORWARDS["vrmcl"](step)


def test_queries_in_half_precision_are_near_and_their_gradients_are_whole():
    moves = []
    for precision in ("same", "bf16"):
        method = build(cnn().float(), query_precision=precision)
        data, memory = batch(shape=(1, 8, 8)), past(shape=(1, 8, 8))
        for part in (data, memory):
            part["input"] = part["input"].float()
        before = method.function.weights()
        method.observe(data, FixedReplay(memory))
        moves.append(method.function.weights() - before)
        assert method.net.compute is None
    assert moves[1].dtype == torch.float32
    assert not moves[0].equal(moves[1])
    assert torch.cosine_similarity(*moves, dim=0) > 0.98


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"query_precision": "fp16"}, "query_precision of vrmcl"),
        ({"chunk": 0}, "vrmcl's chunk must be 1 or more; 0 was given"),
        ({"meta_updates": 0}, "meta_updates"),
        ({"bn_refreshes": -1}, "bn_refreshes must be 0 or more"),
        ({"split": "postion"}, "did you mean 'position'"),
    ],
)
def test_impossible_wishes_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        VRMCL(net=mlp(), draw=4, **options)


MEMORIES = {
    "reservoir": Reservoir(30),
    "native": Native(30),
    **{reading: ODEDM(30, k=2, replay=reading) for reading in ("auxiliary", "union", "both")},
}


def finish(memory, data, **options):
    return Run(Experiment(memory, data=data.name, method="vrmcl", device="cpu", **options), data).finish()


@pytest.mark.parametrize("memory", MEMORIES)
def test_runs_beat_chance_with_every_memory(memory):
    outcome = finish(MEMORIES[memory], blobs(per_class=30), batch=8)
    assert outcome.result.acc_last > 30, "chance is 10 per cent"
    outcome = finish(MEMORIES[memory], shapes(per_class=16), batch=8)
    assert outcome.result.acc_last > 30, "chance is 17 per cent"
    assert outcome.method.rates.isfinite().all()


@pytest.mark.parametrize("capacity", [0, 1, 3])
def test_tiny_memories_and_batches_of_one_row(capacity):
    outcome = finish(Reservoir(capacity), shapes(per_class=5), batch=1, options={"chunk": 1})
    assert all(value.isfinite().all() for value in outcome.method.net.state_dict().values())
    assert outcome.memory.size() == capacity


def test_one_seed_one_run():
    first, second, other = (finish(MEMORIES["auxiliary"], shapes(per_class=10), batch=8, seed=s) for s in (1, 1, 2))
    assert flat(first.method.net.parameters()).equal(flat(second.method.net.parameters()))
    assert first.method.rates.equal(second.method.rates)
    assert not flat(first.method.net.parameters()).equal(flat(other.method.net.parameters()))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_a_step_on_the_gpu_is_the_step_on_the_cpu():
    found = []
    for device in ("cpu", "cuda"):
        method = VRMCL(net=cnn().to(device), draw=6, chunk=6, rng=partial(generator, 0, device=device))
        method.begin_task(task(0))
        method.begin_task(task(CURRENT))
        data, memory, long = (
            {name: column.to(device) for name, column in part.items()}
            for part in (batch(shape=(1, 8, 8)), past(shape=(1, 8, 8)), rows(9, [0, 0], (1, 8, 8)))
        )
        method.observe(data, FixedReplay(memory, long))  # one chunk: its order does not matter
        found.append((method.function.weights().cpu(), method.rates.cpu(), method.last_loss.cpu()))
    for on_cpu, on_gpu in zip(*found, strict=True):
        torch.testing.assert_close(on_gpu, on_cpu, rtol=1e-6, atol=1e-9)
