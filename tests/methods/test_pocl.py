"""POCL against its definition: weights on the simplex, the balanced step by its formulas, the release by its flags."""

import pytest
import torch
from beside import imported
from counted import RowForwards
from fixed_replay import CLASSES, NETS, FixedReplay, adapted, cnn, flat, forward, leaves, mlp, rows, task
from hypothesis import given
from hypothesis import strategies as st
from torch.nn import functional as F

from odedm import ODEDM, Experiment, Native, Reservoir, Run, blobs, shapes
from odedm.core.rows import take
from odedm.methods.er import ER
from odedm.methods.pocl import POCL, towards_least_norm
from odedm.nets import base

arithmetic = imported("benchmarks", "arithmetic")

DOUBLE = torch.float64


def build(net, at=2, **options):
    """A method in the task `at`, with equal weights on the tasks before it and no warm-up."""
    method = POCL(net=net, draw=options.pop("draw", 6), **{"warmup": 0, **options})
    for index in range(at + 1):
        method.begin_task(task(index))
    return method


def batch(seed=1, n=4, at=2, shape=(5,)):
    return rows(seed, [at] * n, shape)


def past(seed=2, tasks=(0, 1, 0, 2, 1, 0, 1), shape=(5,)):
    return rows(seed, list(tasks), shape)


def joined(*parts):
    return {name: torch.cat([part[name] for part in parts]) for name in ("input", "label", "task")}


def query_loss(logits, query, pool=None, seen=CLASSES):
    """Plain mean over all classes, or the release's sum by position."""
    if pool is None:
        return F.cross_entropy(logits, query["label"])
    mine = F.cross_entropy(logits[:pool], query["label"][:pool], reduction="sum")
    rest = F.cross_entropy(logits[pool:, :seen], query["label"][pool:], reduction="sum")
    return (mine + 0.5 * rest) / len(query["label"])


def slow_hypergradients(net, query, groups, *, rate=0.03, clamp=2.0, second_order=True, **split):
    """h_i for each listed task by differentiation through the inner step."""
    found = {}
    for index in groups:
        own = query["task"] == index
        weights = leaves(net)
        x, y = query["input"][own], query["label"][own]
        fast = adapted(net, weights, rate, x, y, 2 * index, 2 * index + 2, clamp, second_order)
        loss = query_loss(forward(net, fast, query["input"]), query, **split)
        found[index] = flat(torch.autograd.grad(loss, list(weights.values())))
    return found


def head_part(net):
    return sum(p.numel() for p in net.head.parameters())  # the last weights of every net here


def moved(method, data, replay):
    """What one step follows: (θ before - θ after) / η."""
    before = method.function.weights()
    method.observe(data, replay)
    return (before - method.function.weights()) / method.lr


def least_norm_move(vectors, share):
    """The move, written with numbers."""
    mixture = sum(w * v for w, v in zip(share, vectors, strict=True))
    cosines = [float(v @ mixture / (v.norm() * mixture.norm())) for v in vectors]
    k = cosines.index(min(cosines))
    uu, uv, vv = (float(a @ b) for a, b in ((mixture, mixture), (mixture, vectors[k]), (vectors[k], vectors[k])))
    tau = 0.85 if uv >= uu else 0.15 if uv >= vv else (vv - uv) / (uu + vv - 2 * uv)
    return [tau * w + (1 - tau) * (i == k) for i, w in enumerate(share)], 0 < tau < 1 and tau not in (0.85, 0.15)


# the weights


@given(n=st.integers(2, 6), d=st.integers(1, 8), seed=st.integers(0, 10**6), scale=st.floats(1e-3, 1e3))
def test_weights_stay_on_the_simplex_and_inner_moves_do_not_lengthen_the_mixture(n, d, seed, scale):
    rng = torch.Generator().manual_seed(seed)
    share = torch.full((n,), 1 / n, dtype=DOUBLE)
    for _ in range(6):
        vectors = scale * torch.randn(n, d, generator=rng, dtype=DOUBLE)
        new = towards_least_norm(vectors, share)
        slow, inside = least_norm_move(vectors, share.tolist())
        torch.testing.assert_close(new, torch.tensor(slow, dtype=DOUBLE), rtol=1e-7, atol=1e-9)
        assert (new > 0).all()
        torch.testing.assert_close(new.sum(), torch.ones((), dtype=DOUBLE))
        if inside:
            assert (new @ vectors).norm() <= (share @ vectors).norm() * (1 + 1e-9)
        share = new


def test_opposite_vectors_are_balanced_in_one_move():
    p = torch.tensor([1.0, -2.0, 3.0], dtype=DOUBLE)
    share = torch.tensor([0.9, 0.1], dtype=DOUBLE)
    new = towards_least_norm(torch.stack([p, -p]), share)
    assert new[0].item() == pytest.approx(0.5, abs=1e-15)
    assert new[1].item() == pytest.approx(0.5, abs=1e-15)
    assert new[0] / share[0] == pytest.approx(5 / 9), "τ"


@pytest.mark.parametrize("dtype", [torch.float32, DOUBLE])
@pytest.mark.parametrize("kind", ["equal", "zero", "one zero", "huge", "tiny", "parallel"])
def test_degenerate_vectors_leave_proper_weights(kind, dtype):
    p = torch.tensor([1.0, 2.0], dtype=dtype)
    vectors = {
        "equal": torch.stack([p, p, p]),
        "zero": torch.zeros(3, 2, dtype=dtype),
        "one zero": torch.stack([p, 0 * p, -p]),
        "huge": torch.finfo(dtype).max * torch.stack([p, p, -p]),
        "tiny": torch.finfo(dtype).tiny * torch.stack([p, p, -p]),
        "parallel": torch.stack([p, 2 * p, 3 * p]),
    }[kind]
    share = torch.tensor([0.2, 0.3, 0.5], dtype=dtype)
    for _ in range(50):
        share = towards_least_norm(vectors, share)
        assert (share >= 0).all()
        torch.testing.assert_close(share.sum(), torch.ones((), dtype=dtype))


# the step


@pytest.mark.parametrize("second_order", [True, False])
@pytest.mark.parametrize("clamp", [0.02, 2.0])
@pytest.mark.parametrize("kind", NETS)
def test_the_balanced_step_by_the_formulas(kind, clamp, second_order):
    make, shape = NETS[kind]
    method = build(make(), inner_rate=0.5, inner_clamp=clamp, slot_clamp=0.05, second_order=second_order)
    share = [0.5, 0.5]
    for seed in range(3):
        data, memory = batch(seed, shape=shape), past(seed + 10, shape=shape)
        found = slow_hypergradients(
            method.net, joined(data, memory), range(3), rate=0.5, clamp=clamp, second_order=second_order
        )
        slots = [found[index].clamp(-0.05, 0.05) for index in range(3)]
        assert not slots[0].equal(found[0]), "the slots' clamp is at work"
        share, _ = least_norm_move([slot[-head_part(method.net) :] for slot in slots[:2]], share)
        way = moved(method, data, FixedReplay(memory))
        torch.testing.assert_close(way, share[0] * slots[0] + share[1] * slots[1] + slots[2], rtol=1e-7, atol=1e-11)
        torch.testing.assert_close(method.balance, torch.tensor(share, dtype=DOUBLE), rtol=1e-7, atol=1e-11)
        assert method.last_loss.isfinite()


@pytest.mark.parametrize("share", [(0.5, 0.5), (0.9, 0.1)])
def test_without_an_inner_rate_every_verdict_is_the_gradient_of_the_query(share):
    net = mlp()
    method = build(net, inner_rate=0.0)
    method.balance.copy_(torch.tensor(share))
    data, memory = batch(), past()
    query = joined(data, memory)
    loss = query_loss(net(query["input"]), query)
    gradient = flat(torch.autograd.grad(loss, list(net.parameters())))
    torch.testing.assert_close(moved(method, data, FixedReplay(memory)), 2 * gradient, rtol=1e-9, atol=1e-12)
    for slot in method.slots:
        torch.testing.assert_close(slot, gradient, rtol=1e-9, atol=1e-14)
    torch.testing.assert_close(method.last_loss, loss.detach())


def test_the_first_task_is_plain_sgd_without_replay():
    net, twin = cnn(), cnn().train()
    method, replay = build(net, at=0, lr=0.1), FixedReplay(past(shape=(1, 8, 8)))
    for seed in range(3):
        data = batch(seed, at=0, shape=(1, 8, 8))
        method.observe(data, replay)
        gradients = torch.autograd.grad(F.cross_entropy(twin(data["input"]), data["label"]), list(twin.parameters()))
        with torch.no_grad():
            for p, gradient in zip(twin.parameters(), gradients, strict=True):
                p.sub_(0.1 * gradient)
    assert replay.asked == []
    for name, value in twin.state_dict().items():
        torch.testing.assert_close(net.state_dict()[name], value)


def test_the_released_warm_up_moves_statistics_only():
    net = cnn()
    method, replay = build(net, at=1, warmup=6, warmup_update=False), FixedReplay(past(shape=(1, 8, 8), tasks=(0, 1)))
    before = method.function.weights()
    for seed in range(6):
        statistics = net.norm1.running_mean.clone()
        method.observe(batch(seed, at=1, shape=(1, 8, 8)), replay)
        assert method.function.weights().equal(before)
        assert not net.norm1.running_mean.equal(statistics)
        assert method.last_loss > 0
    assert replay.asked == []
    method.observe(batch(6, at=1, shape=(1, 8, 8)), replay)
    assert not method.function.weights().equal(before)
    assert replay.asked == [300]
    method.begin_task(task(2))
    after = method.function.weights()
    method.observe(batch(7, shape=(1, 8, 8)), replay)
    assert method.function.weights().equal(after), "every later task begins with it"


def test_the_warm_up_is_experience_replay():
    method = build(cnn(), at=1, warmup=2, lr=0.1)
    er = ER(net=cnn(), draw=6, lr=0.1)
    er.net.train()
    memory = past(tasks=(0, 1, 0, 0, 1, 0), shape=(1, 8, 8))
    replay = FixedReplay(memory, rows(5, [0, 0], (1, 8, 8)), gamma=0.7)
    for seed in range(2):
        data = batch(seed, at=1, shape=(1, 8, 8))
        method.observe(data, replay)
        er.observe(data, replay)
    assert flat(method.net.parameters()).equal(flat(er.net.parameters()))
    data = batch(3, at=1, shape=(1, 8, 8))
    method.observe(data, replay)
    er.observe(data, replay)
    assert not flat(method.net.parameters()).equal(flat(er.net.parameters()))


def test_cumulative_slots_are_running_sums():
    method = build(mlp(), cumulative=True, inner_rate=0.5)
    data, memory = batch(), past()
    h = slow_hypergradients(method.net, joined(data, memory), range(3), rate=0.5)
    way = moved(method, data, FixedReplay(memory))
    w = method.balance
    expected = (1 + w[0] + w[1]) * h[0] + (1 + w[1]) * h[1] + h[2]
    torch.testing.assert_close(way, expected, rtol=1e-8, atol=1e-12)
    torch.testing.assert_close(method.slots[1], h[0] + h[1], rtol=1e-8, atol=1e-12)


def test_tasks_missing_from_the_draw_are_left_out():
    """Task 1 is not drawn: the weights of 0 and 2 are rescaled among themselves, that of 1 waits."""
    net = mlp()
    method = POCL(net=net, draw=6, warmup=0, inner_rate=0.5)
    heads = [(0, 2), (2, 3), (3, 4), (4, 6)]
    for index, (low, high) in enumerate(heads):
        method.begin_task(type(task(0))(index, 4, tuple(range(low, high)), {}))
    method.balance.copy_(torch.tensor([0.2, 0.5, 0.3]))
    method.slots.fill_(7.0)  # stale vectors must not count
    query = {**rows(1, [0] * 8), "task": torch.tensor([3, 3, 0, 2, 0, 2, 2, 0])}
    query["label"] = torch.tensor([4, 5, 0, 3, 1, 3, 3, 1])
    data, memory = ({name: column[part] for name, column in query.items()} for part in (slice(0, 2), slice(2, 8)))
    found = {}
    for index in (0, 2, 3):
        own, weights = query["task"] == index, leaves(net)
        fast = adapted(net, weights, 0.5, query["input"][own], query["label"][own], *heads[index], 2.0)
        loss = F.cross_entropy(forward(net, fast, query["input"]), query["label"])
        found[index] = flat(torch.autograd.grad(loss, list(weights.values())))
    share, _ = least_norm_move([found[index][-head_part(net) :] for index in (0, 2)], [0.4, 0.6])
    way = moved(method, data, FixedReplay(memory))
    torch.testing.assert_close(way, share[0] * found[0] + share[1] * found[2] + found[3], rtol=1e-7, atol=1e-11)
    expected = torch.tensor([0.5 * share[0], 0.5, 0.5 * share[1]], dtype=DOUBLE)
    torch.testing.assert_close(method.balance, expected, rtol=1e-6, atol=1e-9)


@pytest.mark.parametrize("replay", [FixedReplay(), FixedReplay(past(tasks=(2, 2, 2)))], ids=["empty", "current only"])
def test_the_current_task_is_always_heard(replay):
    method = build(mlp(), inner_rate=0.5)
    data = batch()
    query = joined(data, replay.past) if replay else joined(data)
    found = slow_hypergradients(method.net, query, [2], rate=0.5)
    torch.testing.assert_close(moved(method, data, replay), found[2], rtol=1e-8, atol=1e-12)
    assert method.balance.tolist() == [0.5, 0.5], "no past task was heard: their weights wait"


def test_released_groups_keep_stale_vectors_and_hear_only_what_is_drawn():
    net = cnn()
    method = build(net, groups="released", inner_rate=0.5, cumulative=True)
    shape = (1, 8, 8)
    moved(method, batch(shape=shape), FixedReplay(past(shape=shape)))
    slots, statistics = method.slots.clone(), net.norm1.running_mean.clone()
    data, memory = batch(3, shape=shape), past(4, (1, 1, 1), shape)
    found = slow_hypergradients(net, joined(data, memory), [1], rate=0.5)
    way = moved(method, data, FixedReplay(memory))
    assert method.slots[0].equal(slots[0])
    assert method.slots[2].equal(slots[2])
    torch.testing.assert_close(method.slots[1], found[1], rtol=1e-7, atol=1e-11)
    expected = method.balance[0] * slots[0] + method.balance[1] * found[1] + slots[2]
    torch.testing.assert_close(way, expected, rtol=1e-7, atol=1e-11)
    assert net.norm1.running_mean.equal(statistics), "the first task is not in the draw"
    way = moved(method, batch(5, shape=shape), FixedReplay())
    torch.testing.assert_close(way, method.balance @ method.slots[:2] + method.slots[2], rtol=1e-8, atol=1e-11)


def test_statistics_are_refreshed_once_per_step_whatever_is_drawn():
    net, twin, shape = cnn(), cnn().train(), (1, 8, 8)
    method = build(net, lr=0.0)
    for seed, tasks in enumerate([(0, 1, 2), (1, 1), (2,)]):
        data, memory = batch(seed, shape=shape), past(seed, tasks, shape)
        method.observe(data, FixedReplay(memory))
        twin(joined(data, memory)["input"])
    for mine, theirs in zip(net.buffers(), twin.buffers(), strict=True):
        assert mine.equal(theirs)


def test_the_released_query_splits_by_position():
    method = build(mlp(), at=1, pos_split=True, pool=7, inner_rate=0.5)
    data, memory = batch(at=1), past(tasks=(0, 1, 0, 0, 1, 0))
    found = slow_hypergradients(method.net, joined(data, memory), range(2), rate=0.5, pool=7, seen=4)
    replay = FixedReplay(memory)
    torch.testing.assert_close(moved(method, data, replay), found[0] + found[1], rtol=1e-8, atol=1e-12)
    assert replay.asked == [7]


def test_the_slice_is_the_head_or_the_last_weights_of_the_release():
    net = cnn()
    whole = POCL(net=net, draw=4)
    assert len(whole.judged) == (net.head.in_features + 1) * CLASSES
    assert flat(net.parameters())[whole.judged].equal(flat(net.head.parameters()))
    released = POCL(net=net, draw=4, slice="released")
    assert len(released.judged) == min(3210, len(flat(net.parameters())))
    assert released.judged[-1] == len(flat(net.parameters())) - 1


def test_long_term_rows_join_their_tasks_and_count_gamma_each():
    method, seen = build(mlp(), at=1, inner_rate=0.5), []
    original = method.support
    method.support = lambda index, group: seen.append(group) or original(index, group)
    data, memory, long = batch(at=1), past(tasks=(0, 1, 0)), rows(9, [0, 0])
    query = joined(data, memory, long)
    share = torch.tensor([1.0] * 7 + [0.5] * 2, dtype=DOUBLE)
    found = []
    for index in range(2):
        own, weights = query["task"] == index, leaves(method.net)
        x, y, part = query["input"][own], query["label"][own] - 2 * index, share[own]
        logits = forward(method.net, weights, x)[:, 2 * index : 2 * index + 2]
        loss = part @ F.cross_entropy(logits, y, reduction="none") / part.sum()
        slopes = torch.autograd.grad(loss, list(weights.values()), create_graph=True)
        fast = {name: weights[name] - 0.5 * slope for name, slope in zip(weights, slopes, strict=True)}
        losses = F.cross_entropy(forward(method.net, fast, query["input"]), query["label"], reduction="none")
        found.append(flat(torch.autograd.grad(share @ losses / share.sum(), list(weights.values()))))
    way = moved(method, data, FixedReplay(memory, long, gamma=0.5))
    torch.testing.assert_close(way, found[0] + found[1], rtol=1e-8, atol=1e-12)
    assert [group["share"].sum().item() for group in seen] == [3.0, 5.0]
    nothing, plain = (build(mlp(), at=1) for _ in range(2))
    nothing.observe(data, FixedReplay(memory, long, gamma=0.0))
    plain.observe(data, FixedReplay(memory))
    assert nothing.function.weights().equal(plain.function.weights())


def test_steps_compute_what_they_are_counted_for(monkeypatch):
    """The mean over the second and the third of three tasks, each of which is heard."""
    monkeypatch.setattr(base, "joins", lambda _: True)
    method, total, shape = build(cnn(), at=0), 0, (1, 8, 8)
    for at, tasks in ((1, (0, 1, 0, 1, 0, 1, 1)), (2, (0, 1, 0, 2, 1, 0, 1))):
        method.begin_task(task(at))
        with RowForwards(method.net.conv2.weight) as count:
            method.observe(batch(at=at, shape=shape), FixedReplay(past(tasks=tasks, shape=shape)))
        total += count.rows
    assert total / 2 == arithmetic.ROW_FORWARDS["pocl"](arithmetic.Step(4, 6, 7, 3))


def test_a_new_task_starts_from_equal_weights_and_one_more_slot():
    method = build(mlp(), inner_rate=0.5)
    method.observe(batch(), FixedReplay(past()))
    assert method.balance.tolist() != [0.5, 0.5]
    method.begin_task(type(task(0))(3, 4, (0, 1), {}))
    torch.testing.assert_close(method.balance, torch.full((3,), 1 / 3, dtype=DOUBLE))
    assert method.slots.shape == (4, len(method.function.weights()))
    assert method.batches == 0


@pytest.mark.parametrize(
    ("options", "sentence"),
    [
        ({"pool": 0}, "pocl's pool must be 1 or more; 0 was given"),
        ({"warmup": -1}, "warmup must be 0 or more"),
        ({"slice": "heads"}, "did you mean 'head'"),
        ({"groups": "all"}, "Known: present, released"),
    ],
)
def test_impossible_wishes_are_refused(options, sentence):
    with pytest.raises(ValueError, match=sentence):
        POCL(net=mlp(), draw=4, **options)


def test_classes_must_be_numbered_by_arrival():
    with pytest.raises(ValueError, match=r"consecutive numbers; \(0, 3\) were given"):
        POCL(net=mlp(), draw=4).begin_task(type(task(0))(0, 2, (0, 3), {}))


MEMORIES = {
    "reservoir": Reservoir(30),
    "native": Native(30),
    **{reading: ODEDM(30, k=2, replay=reading) for reading in ("auxiliary", "union", "both")},
}
RELEASE = {"cumulative": True, "slice": "released", "groups": "released", "pos_split": True, "warmup_update": False}


def finish(memory, data, **options):
    return Run(Experiment(memory, data=data.name, method="pocl", device="cpu", **options), data).finish()


@pytest.mark.parametrize("memory", MEMORIES)
def test_runs_beat_chance_with_every_memory(memory):
    options = {"warmup": 1, "lr": 0.05}
    outcome = finish(MEMORIES[memory], blobs(per_class=30), batch=8, options=options)
    assert outcome.result.acc_last > 30, "chance is 10 per cent"
    outcome = finish(MEMORIES[memory], shapes(per_class=16), batch=8, options=options)
    assert outcome.result.acc_last > 30, "chance is 17 per cent"
    assert outcome.method.net.training
    assert all(p.grad is None for p in outcome.method.net.parameters())


def test_the_release_runs_and_beats_chance():
    outcome = finish(Reservoir(40), blobs(per_class=60), batch=8, options=RELEASE)
    assert outcome.result.acc_last > 20, "chance is 10 per cent"


@pytest.mark.parametrize("options", [{}, RELEASE], ids=["default", "release"])
@pytest.mark.parametrize("capacity", [1, 3])
def test_tiny_memories_and_batches_of_one_row(capacity, options):
    outcome = finish(Reservoir(capacity), shapes(per_class=5), batch=1, options={**options, "warmup": 2})
    assert all(value.isfinite().all() for value in outcome.method.net.state_dict().values())
    assert outcome.memory.size() == capacity


def test_one_seed_one_run():
    data, options = shapes(per_class=10), {"warmup": 1}
    first, second, other = (finish(MEMORIES["auxiliary"], data, batch=8, seed=s, options=options) for s in (1, 1, 2))
    assert flat(first.method.net.parameters()).equal(flat(second.method.net.parameters()))
    assert first.method.balance.equal(second.method.balance)
    assert not flat(first.method.net.parameters()).equal(flat(other.method.net.parameters()))


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("options", [{}, RELEASE], ids=["default", "release"])
def test_a_step_on_the_gpu_is_the_step_on_the_cpu(options):
    found, shape = [], (1, 8, 8)
    for device in ("cpu", "cuda"):
        method = build(cnn().to(device), **{**options, "warmup": 0})
        for seed in range(2):
            data, memory, long = (
                {name: column.to(device) for name, column in part.items()}
                for part in (batch(seed, shape=shape), past(seed, shape=shape), rows(9, [0, 0], shape))
            )
            method.observe(data, FixedReplay(memory, long))
        found.append((method.function.weights().cpu(), method.balance.cpu(), method.last_loss.cpu()))
    for on_cpu, on_gpu in zip(*found, strict=True):
        torch.testing.assert_close(on_gpu, on_cpu, rtol=1e-6, atol=1e-9)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
@pytest.mark.parametrize("options", [{}, RELEASE], ids=["default", "release"])
@pytest.mark.parametrize("memory", ["native", "auxiliary", "union"])
def test_recorded_verdicts_have_the_numbers_of_eager_ones(memory, options):
    data, words = shapes(), {"method": "pocl", "data": "shapes", "device": "cuda", "batch": 4}
    words["options"] = {**options, "warmup": 1}
    runs = [Run(Experiment(MEMORIES[memory], cuda_graph=capture, **words), data) for capture in (True, False)]
    recorded, eager = (run.finish() for run in runs)
    assert runs[0].method.verdict.replayed > 10
    assert runs[1].method.verdict.replayed == 0
    assert recorded.result.class_il == eager.result.class_il
    for a, b in zip(recorded.method.net.state_dict().values(), eager.method.net.state_dict().values(), strict=True):
        assert a.equal(b)
    assert recorded.method.balance.equal(eager.method.balance)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU")
def test_rows_that_fill_up_a_group_change_nothing():
    found, shape = [], (1, 8, 8)
    for filled in (True, False):
        method = build(cnn().float().cuda(), inner_rate=0.5)
        if not filled:
            method.group = take
        for seed in range(2):
            data, memory = (
                {name: (each.float() if each.is_floating_point() else each).cuda() for name, each in part.items()}
                for part in (batch(seed, shape=shape), past(seed, shape=shape))
            )
            shared = {**data, "share": torch.ones(4, device="cuda")}
            group = method.group(shared, torch.arange(4, device="cuda"))
            assert len(group["label"]) == (16 if filled else 4)
            assert group["share"].sum() == 4
            with torch.backends.cudnn.flags(enabled=True, allow_tf32=False):
                method.observe(data, FixedReplay(memory))
        found.append(method.function.weights())
    torch.testing.assert_close(*found, rtol=1e-4, atol=1e-6)
