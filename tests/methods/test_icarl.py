"""iCaRL against what its definition promises: targets, teacher, mixing, class means and what they predict."""

import copy
import math

import pytest
import torch
from torch.nn import functional as F

from odedm import ODEDM, ColumnSpec, Experiment, MemoryPart, Prototypes, Reservoir, Run, Task, UsageError, blobs, shapes
from odedm.core.choices import REPLAYS
from odedm.core.rng import generator
from odedm.core.rows import distinct
from odedm.memory.reservoir import ReservoirBuffer
from odedm.memory.settings import Native
from odedm.methods.hyperparameters import hyperparameters
from odedm.methods.icarl import ICarl
from odedm.nets.small import MLP, SmallCNN
from odedm.stream.augment import Transform
from odedm.training.model_view import MethodView
from odedm.training.replay import MemoryReplay

CLASSES = 6
PLAIN = Transform(torch.zeros(1, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
INTEGERS = [ColumnSpec(name, dtype=torch.int64) for name in ("label", "task", "index")]


def vectors(n=8, seed=0, labels=range(CLASSES)):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, generator=rng, dtype=torch.float64)
    y = torch.tensor(list(labels))[torch.randint(0, len(list(labels)), (n,), generator=rng)]
    return {"image": x, "input": x, "label": y, "task": y // 2, "index": torch.arange(n) + 1000 * seed}


def images(n=8, seed=0):
    rows = vectors(n, seed)
    x = torch.randn(n, 2, 6, 6, generator=torch.Generator().manual_seed(seed), dtype=torch.float64)
    return {**rows, "image": x, "input": x}


def mlp(shape=(5,)):
    torch.manual_seed(0)
    return MLP(shape, CLASSES, width=12).double()


def cnn():
    torch.manual_seed(0)
    return SmallCNN((2, 6, 6), CLASSES, width=4).double()


def task(index):
    return Task(index, 3, (2 * index, 2 * index + 1), {})


class Bench:
    """iCaRL with a memory filled by hand."""

    def __init__(self, net=None, stored=None, *, capacity=40, reading="union", shape=None, **options):
        self.net = net or mlp()
        self.method = ICarl(net=self.net, draw=4, **options)
        shape = shape or ((5,) if stored is None else tuple(stored["image"].shape[1:]))
        self.memory = ReservoirBuffer(capacity, [ColumnSpec("image", shape, torch.float64), *INTEGERS])
        if stored is not None:
            self.memory.add(stored, None, rng=torch.Generator().manual_seed(0))
        self.replay = MemoryReplay(
            self.memory, PLAIN, mode=reading, draw=4, gamma=0.5, rng=lambda name: generator(0, name)
        )
        self.net.train()

    def pin(self, rows):
        self.memory.pin({**rows, "prototype": torch.zeros_like(rows["label"])})

    def step(self, batch):
        self.replay.begin_step()
        return self.method.observe(batch, self.replay)

    def end(self, index=0):
        self.method.end_task(task(index), self.replay)

    def predict(self, x):
        return MethodView(self.method, PLAIN, self.memory.rows).predict(x)

    def taught(self):
        """Past the border between the first task and the second, with a student that is its teacher."""
        self.method.begin_task(task(0))
        self.end(0)
        self.method.begin_task(task(1))
        return self

    def weights(self):
        return [p.detach().clone() for p in self.net.parameters()]


def moved(bench, batch):
    before = bench.weights()
    bench.step(batch)
    return [old - new.detach() for old, new in zip(before, bench.net.parameters(), strict=True)]


# the step


def slow_loss(net, batch, columns, *, l2, past=None):
    """Entry by entry: −q log σ(s) − (1 − q) log(1 − σ(s)), averaged, plus λ Σ θ²."""
    logits, terms = net(batch["input"]), []
    for i, label in enumerate(batch["label"].tolist()):
        for column in range(columns):
            old = past is not None and column < past.shape[1]
            q = past[i, column] if old else torch.tensor(float(column == label), dtype=torch.float64)
            p = torch.sigmoid(logits[i, column])
            terms.append(-q * p.log() - (1 - q) * (1 - p).log())
    return torch.stack(terms).mean() + l2 * sum(p.square().sum() for p in net.parameters())


@pytest.mark.parametrize(("name", "columns"), [("all", CLASSES), ("seen", 2)])
def test_the_first_task_is_binary_cross_entropy_to_the_label(name, columns):
    bench = Bench(lr=1.0, l2=0.01, bce_columns=name)
    bench.method.begin_task(task(0))
    twin, batch = copy.deepcopy(bench.net), vectors(labels=(0, 1))
    loss = slow_loss(twin, batch, columns, l2=0.01)
    expected = torch.autograd.grad(loss, list(twin.parameters()))
    for change, gradient in zip(moved(bench, batch), expected, strict=True):
        torch.testing.assert_close(change, gradient, rtol=1e-9, atol=1e-12)
    torch.testing.assert_close(bench.method.last_loss, loss.detach())


@pytest.mark.parametrize(("name", "columns"), [("all", CLASSES), ("seen", 4)])
def test_later_tasks_follow_the_teacher_in_old_columns(name, columns):
    bench = Bench(lr=1.0, l2=0.01, bce_columns=name).taught()
    bench.step(vectors(seed=5, labels=(2, 3)))  # away from the teacher
    twin, batch = copy.deepcopy(bench.net), vectors(labels=(0, 1, 2, 3))
    past = bench.method.teacher(batch["input"])[:, :2].sigmoid()
    expected = torch.autograd.grad(slow_loss(twin, batch, columns, l2=0.01, past=past), list(twin.parameters()))
    for change, gradient in zip(moved(bench, batch), expected, strict=True):
        torch.testing.assert_close(change, gradient, rtol=1e-9, atol=1e-12)


def test_a_student_that_is_its_teacher_has_no_gradient_in_old_columns():
    bench = Bench(lr=1.0, l2=0.0).taught()
    before = copy.deepcopy(bench.net.head)
    bench.step(vectors(labels=(0, 1, 2, 3)))
    assert bench.net.head.weight[:2].equal(before.weight[:2])
    assert bench.net.head.bias[:2].equal(before.bias[:2])
    assert not bench.net.head.bias[2:].isclose(before.bias[2:]).any()


def test_classes_to_come_are_negatives_or_left_alone():
    for name, still in (("all", False), ("seen", True)):
        bench = Bench(lr=1.0, l2=0.0, bce_columns=name)
        bench.method.begin_task(task(0))
        change = moved(bench, vectors(labels=(0, 1)))[-1]
        assert (change[2:] == 0).all() == still
        assert still or (change[2:] > 0).all(), "their biases fall"


def test_fewer_columns_weigh_more_each():
    changes = []
    for name in ("all", "seen"):
        bench = Bench(lr=1.0, l2=0.0, bce_columns=name)
        bench.method.begin_task(task(0))
        changes.append(moved(bench, vectors(labels=(0, 1)))[-1][:2])
    torch.testing.assert_close(changes[1], changes[0] * CLASSES / 2)


def test_the_penalty_is_weight_decay_of_twice_its_size():
    runs = []
    for options in ({"l2": 0.05}, {"l2": 0.0, "weight_decay": 0.1}):
        bench = Bench(**options)
        for seed in range(5):
            bench.step(vectors(seed=seed))
        runs.append(bench.weights())
    for a, b in zip(*runs, strict=True):
        torch.testing.assert_close(a, b, rtol=1e-10, atol=1e-13)


def test_the_teacher_is_frozen_in_evaluation_mode_and_no_part_of_the_network():
    bench = Bench(cnn(), shape=(2, 6, 6))
    bench.method.begin_task(task(0))
    bench.step(images())
    before = set(dict(bench.net.named_modules()))
    bench.end()
    teacher = bench.method.teacher
    assert bench.net.training, "the network is in the mode it was in"
    assert set(dict(bench.net.named_modules())) == before
    state = copy.deepcopy(teacher.state_dict())
    for name, value in bench.net.state_dict().items():
        assert state[name].equal(value)
    bench.method.begin_task(task(1))
    bench.step(images(seed=1))
    bench.net.train()
    assert not any(module.training for module in teacher.modules())
    assert not any(p.requires_grad or p.grad is not None for p in teacher.parameters())
    assert all(state[name].equal(value) for name, value in teacher.state_dict().items())
    assert not torch.equal(bench.net.head.weight, teacher.head.weight)


def test_teacher_and_student_see_the_same_view_once_each():
    seen = []

    class Watching(MLP):
        def features(self, x):
            seen.append((self.training, x))
            return super().features(x)

    bench = Bench(Watching((5,), CLASSES).double())
    bench.method.begin_task(task(0))
    batch = {**vectors(), "input": vectors(seed=3)["input"]}
    bench.step(batch)
    assert [training for training, _ in seen] == [True], "no teacher in the first task"
    bench.end()
    bench.method.begin_task(task(1))
    seen.clear()
    bench.step(batch)
    assert sorted(training for training, _ in seen) == [False, True]
    assert all(x is batch["input"] for _, x in seen)


@pytest.mark.parametrize("reading", REPLAYS)
def test_a_step_draws_nothing_but_the_auxiliary_rows(reading):
    bench = Bench(stored=vectors(10), lr=1.0, reading=reading)
    bench.pin(vectors(3, seed=7))
    twin, batch = copy.deepcopy(bench.net), vectors(seed=2)
    drawn, sample = [], bench.memory.sample

    def watched(n, *, part=MemoryPart.ALL, rng):
        rows = sample(n, part=part, rng=rng)
        drawn.append((part, rows))
        return rows

    bench.memory.sample = watched
    change = moved(bench, batch)
    loss = slow_loss(twin, batch, CLASSES, l2=1e-5)
    assert [part for part, _ in drawn] == ([] if reading == "union" else [MemoryPart.LONG])
    if drawn:
        rows = drawn[0][1]
        assert sorted(rows["index"].tolist()) == [7000, 7001, 7002]
        loss = loss + 0.5 * F.cross_entropy(twin(rows["image"]), rows["label"])
    for a, b in zip(change, torch.autograd.grad(loss, list(twin.parameters())), strict=True):
        torch.testing.assert_close(a, b, rtol=1e-8, atol=1e-12)


# prediction


def slow_scores(net, rows, x, *, normalised=True, flip=True):
    """The definition, class by class and row by row."""

    def point(image):
        feature = net.features(image[None])[0]
        return feature / feature.norm() if normalised else feature

    scores = torch.full((len(x), CLASSES), -torch.inf, dtype=torch.float64)
    for label in set(rows["label"].tolist()):
        own = rows["image"][rows["label"] == label]
        mean = torch.stack([point(image) for image in own]).mean(0)
        if flip:
            mean = (mean + torch.stack([point(image.flip(-1)) for image in own]).mean(0)) / 2
        if normalised:
            mean = mean / mean.norm()
        for i in range(len(x)):
            scores[i, label] = -(point(x[i]) - mean).square().sum()
    return scores


@pytest.mark.parametrize("flip", [True, False])
@pytest.mark.parametrize("features", ["normalised", "raw"])
@pytest.mark.parametrize("kind", ["images", "vectors"])
def test_scores_are_distances_to_the_means_of_exemplars(kind, features, flip):
    make, net = (images, cnn()) if kind == "images" else (vectors, mlp())
    bench = Bench(net, make(12), features=features, flip=flip)
    bench.end()
    x = make(7, seed=1)["input"]
    scores = bench.predict(x)
    net.eval()
    with torch.no_grad():
        mirrored = flip and kind == "images"
        expected = slow_scores(net, bench.memory.rows(), x, normalised=features == "normalised", flip=mirrored)
    torch.testing.assert_close(scores, expected, rtol=1e-9, atol=1e-12)
    assert scores.isinf().any(), "twelve rows at random leave a class out here"


def test_a_row_in_both_memories_counts_once_and_mean_images_all_count():
    stored = vectors(12)
    once, twice = Bench(stored=stored), Bench(stored=stored)
    twice.pin({name: column[:5] for name, column in stored.items()})
    x = vectors(6, seed=1)["input"]
    for bench in (once, twice):
        bench.end()
    assert twice.memory.size() == once.memory.size() + 5
    assert twice.predict(x).equal(once.predict(x))
    made = {**vectors(4, seed=2), "index": torch.full((4,), -1)}
    twice.pin(made)
    twice.end()
    union = {name: torch.cat([stored[name], made[name]]) for name in ("image", "label")}
    with torch.no_grad():
        expected = slow_scores(twice.net, union, x, flip=False)
    torch.testing.assert_close(twice.predict(x), expected, rtol=1e-9, atol=1e-12)


def test_distinct_keeps_the_first_of_each_index_in_order():
    assert distinct(torch.tensor([5, -1, 3, 5, 3, -1, 9])).tolist() == [0, 1, 2, 5, 6]
    assert distinct(torch.tensor([], dtype=torch.int64)).tolist() == []


class Scaled(MLP):
    factor = 1.0

    def features(self, x):
        return self.factor * super().features(x)


@pytest.mark.parametrize("factor", [1e-6, 0.3, 1e6])
def test_the_scale_of_features_changes_no_prediction(factor):
    torch.manual_seed(0)
    net = Scaled((5,), CLASSES, width=12).double()
    bench = Bench(net, vectors(20))
    x = vectors(50, seed=1)["input"]
    bench.end()
    before = bench.predict(x)
    net.factor = factor
    bench.end()
    torch.testing.assert_close(bench.predict(x), before, rtol=1e-6, atol=1e-9)


def test_dead_features_give_numbers():
    torch.manual_seed(0)
    net = Scaled((5,), CLASSES).double()
    net.factor = 0.0
    bench = Bench(net, vectors(20))
    bench.end()
    assert not bench.predict(vectors()["input"]).isnan().any()


def separated(n=60, classes=CLASSES):
    """Rows in the directions of orthogonal axes, which a net that hands its input through tells apart."""
    rng = torch.Generator().manual_seed(0)
    label = torch.arange(n) % classes
    image = 3 * F.one_hot(label, classes).double() + 0.3 * torch.rand(n, classes, generator=rng, dtype=torch.float64)
    return {"image": image, "input": image, "label": label, "task": label // 2, "index": torch.arange(n)}


class Through(MLP):
    def features(self, x):
        return x


def test_well_separated_exemplars_are_all_right():
    rows = separated()
    bench = Bench(Through((CLASSES,), CLASSES).double(), rows, capacity=60)
    bench.end()
    assert bench.predict(rows["input"]).argmax(1).equal(rows["label"])


@pytest.mark.parametrize("gone", range(CLASSES))
def test_a_class_without_exemplars_harms_no_other(gone):
    noise = torch.randn(60, CLASSES, generator=torch.Generator().manual_seed(3), dtype=torch.float64)
    rows = separated()
    x = rows["image"] + 2 * noise
    whole = Bench(Through((CLASSES,), CLASSES).double(), rows, capacity=60)
    left = {name: column[rows["label"] != gone] for name, column in rows.items()}
    partial = Bench(Through((CLASSES,), CLASSES).double(), left, capacity=60)
    for bench in (whole, partial):
        bench.end()
    before, after = whole.predict(x), partial.predict(x)
    assert not after.isnan().any()
    assert (after[:, gone] == -torch.inf).all()
    right = before.argmax(1) == rows["label"]
    others = rows["label"] != gone
    assert not right[others].all(), "not too easy to show anything"
    assert (after.argmax(1) == rows["label"])[others & right].all()


def test_class_means_are_those_of_the_weights_and_rows_of_now():
    bench = Bench(stored=vectors(20), lr=5.0)
    x = vectors(6, seed=1)["input"]
    bench.end()
    first = bench.predict(x)
    assert bench.predict(x).equal(first)
    bench.step(vectors(seed=4))
    bench.memory.add(vectors(5, seed=9), None, rng=torch.Generator().manual_seed(1))
    second = bench.predict(x)
    assert not second.allclose(first)
    with torch.no_grad():
        torch.testing.assert_close(second, slow_scores(bench.net, bench.memory.rows(), x, flip=False))


def test_many_exemplars_are_embedded_a_few_at_a_time():
    sizes = []

    class Watching(MLP):
        def features(self, x):
            sizes.append(len(x))
            return super().features(x)

    bench = Bench(Watching((5,), CLASSES).double(), vectors(1300), capacity=1300)
    bench.predict(vectors()["input"])
    assert sum(sizes) == 1300 + 8
    assert max(sizes) <= 512


def test_without_exemplars_the_linear_head_predicts():
    bench = Bench(capacity=0)
    x = vectors()["input"]
    with torch.no_grad():
        assert bench.predict(x).equal(bench.net(x)), "before anything"
    bench.step(vectors(seed=1))
    bench.end()
    with torch.no_grad():
        assert bench.predict(x).equal(bench.net(x)), "and after a task that left nothing"


@pytest.mark.parametrize("training", [True, False])
def test_questions_leave_the_network_as_it_was(training):
    bench = Bench(cnn(), images(10))
    bench.step(images())
    bench.net.train(training)
    before = copy.deepcopy(bench.net.state_dict())
    bench.predict(images(seed=1)["input"])
    bench.end()
    bench.predict(images(seed=1)["input"])
    bench.method.embed(images(seed=1)["input"])
    assert bench.method.annotate(images(seed=1)) == {}
    assert all(module.training is training for module in bench.net.modules())
    assert all(before[name].equal(value) for name, value in bench.net.state_dict().items())


# whole runs

BLOBS = blobs(per_class=24)


def finish(memory, data=BLOBS, spy=None, **options):
    run = Run(Experiment(memory, method="icarl", data=data.name, device="cpu", **{"batch": 8, **options}), data)
    if spy:
        spy(run)
    return run, run.finish()


@pytest.mark.parametrize("memory", [Reservoir(25), Native(25), ODEDM(25, k=2, replay="union")], ids=lambda m: m.name)
def test_every_exemplar_is_mixed_in_exactly_once_a_task(memory):
    tasks = []

    def spy(run):
        begin, step, add = run.method.begin_task, run.method.observe, run.memory.add

        def begin_task(task):
            tasks.append({"task": task, "stored": run.memory.rows()["index"], "seen": [], "added": []})
            begin(task)

        def watched_step(batch, replay):
            assert batch["image"].equal(run.data.image[batch["index"]])
            assert len(batch["label"]) <= 8
            tasks[-1]["seen"].append(batch["index"])
            return step(batch, replay)

        def watched_add(rows, probe, *, rng):
            tasks[-1]["added"].append(rows["index"])
            add(rows, probe, rng=rng)

        run.method.begin_task, run.method.observe, run.memory.add = begin_task, watched_step, watched_add
        run.memory.sample = None  # a step makes no draws

    finish(memory, spy=spy)
    assert [len(each["stored"]) > 0 for each in tasks] == [False, True, True, True, True]
    for each in tasks:
        new, stored = each["task"].rows["index"], each["stored"]
        assert len(each["seen"]) == math.ceil((len(new) + len(stored)) / 8)
        seen = torch.cat(each["seen"])
        assert seen.sort().values.equal(torch.cat([new, stored]).sort().values)
        assert torch.cat(each["added"]).sort().values.equal(new.sort().values), "only new rows reach the memory"
        late = torch.isin(seen, stored).nonzero().flatten()
        assert not len(late) or late.double().mean() < 0.75 * len(seen), "among the new rows, not behind them"


MEMORIES = [
    Reservoir(30),
    Native(30),
    *[ODEDM(30, k=2, replay=reading) for reading in REPLAYS],
    *[ODEDM(30, k=2, replay=reading, short_policy="reservoir") for reading in REPLAYS],
    ODEDM(30, k=2, selection=Prototypes(mixup=True)),
]


@pytest.mark.parametrize("data", [BLOBS, shapes(per_class=24)], ids=lambda data: data.name)
@pytest.mark.parametrize("memory", MEMORIES, ids=str)
def test_every_memory_beats_chance(memory, data):
    _, outcome = finish(memory, data)
    assert outcome.result.acc_last > 2 * 100 / data.classes
    assert outcome.memory.size() <= 30
    assert outcome.method.net.training


def test_options_of_the_older_code_run():
    for options in ({"bce_columns": "seen"}, {"features": "raw", "flip": False}, {"l2": 0.0, "weight_decay": 1e-5}):
        _, outcome = finish(Native(30), options=options)
        assert outcome.result.acc_last > 20


SMALL = [kind(capacity) for kind in (Native, Reservoir, lambda m: ODEDM(m, k=0)) for capacity in (1, 3, 7)]
SMALL += [ODEDM(capacity, k=1, short_policy=short) for capacity in (8, 9) for short in ("native", "reservoir")]


@pytest.mark.parametrize("memory", SMALL, ids=lambda memory: f"{memory.name}-{memory.capacity}")
def test_memories_smaller_than_the_number_of_classes(memory):
    _, outcome = finish(memory)
    assert outcome.memory.size() <= memory.capacity
    if memory.capacity > 1:
        assert sum(outcome.result.class_il[-1]) > 0
    assert all(p.isfinite().all() for p in outcome.method.net.parameters())


def test_a_memory_of_nothing_but_prototypes():
    _, outcome = finish(ODEDM(16, rho=1.0))
    assert (outcome.memory.size(MemoryPart.SHORT), outcome.memory.size(MemoryPart.LONG)) == (0, 16)
    last = outcome.result.class_il[-1]
    assert last[-1] == 0, "the last task is never consolidated, so it has no exemplars"
    assert max(last) > 20


def test_batches_of_one_row():
    data = shapes(per_class=6)
    for memory in (Native(6), Reservoir(1), ODEDM(9, k=1)):
        _, outcome = finish(memory, data, batch=1)
        assert all(p.isfinite().all() for p in outcome.method.net.parameters())


@pytest.mark.parametrize("memory", [Native(20), ODEDM(20, k=1)], ids=lambda m: m.name)
def test_the_same_seed_gives_the_same_bits(memory):
    runs = []
    for seed in (3, 3, 4):
        torch.rand(5)
        runs.append(finish(memory, shapes(per_class=10), seed=seed)[1])
    first, again, other = [[p.detach() for p in each.method.net.parameters()] for each in runs]
    assert all(a.equal(b) for a, b in zip(first, again, strict=True))
    assert runs[0].result.class_il == runs[1].result.class_il
    assert runs[0].memory.rows()["index"].equal(runs[1].memory.rows()["index"])
    assert not all(a.equal(b) for a, b in zip(first, other, strict=True))


@pytest.mark.parametrize(("short", "plain"), [("native", Native(20)), ("reservoir", Reservoir(20))])
@pytest.mark.parametrize("reading", REPLAYS)
def test_without_prototypes_the_dual_memory_is_its_host_bit_for_bit(reading, short, plain):
    _, alone = finish(plain)
    _, dual = finish(ODEDM(20, k=0, replay=reading, short_policy=short))
    for a, b in zip(alone.method.net.parameters(), dual.method.net.parameters(), strict=True):
        assert a.equal(b)
    assert alone.memory.rows()["index"].equal(dual.memory.rows()["index"])
    assert alone.result.class_il == dual.result.class_il


def test_hyperparameters_and_what_is_refused():
    assert hyperparameters(ICarl) == {
        "lr": 0.1, "momentum": 0.0, "weight_decay": 0.0, "l2": 1e-5, "bce_columns": "all", "features": "normalised",
        "flip": True,
    }  # fmt: skip
    for options, sentence in [
        ({"bce_columns": "some"}, "Unknown bce_columns 'some'.*Known: all, seen"),
        ({"features": "row"}, "Unknown features 'row': did you mean 'raw'"),
        ({"l2": -1.0}, "l2 must be 0 or more; -1.0"),
    ]:
        with pytest.raises(UsageError, match=sentence):
            finish(Native(10), options=options)
