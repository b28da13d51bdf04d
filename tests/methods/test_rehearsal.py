"""ER, DER and DER++ against what their definitions promise, on nets and streams where equality is exact."""

import pytest
import torch
from torch.nn import functional as F

from odedm import ColumnSpec, MemoryPart
from odedm.core.rng import generator
from odedm.memory.reservoir import ReservoirBuffer
from odedm.methods.der import DER
from odedm.methods.derpp import DERpp
from odedm.methods.er import ER
from odedm.methods.hyperparameters import configure, hyperparameters
from odedm.nets.build import build
from odedm.nets.small import MLP, SmallCNN
from odedm.stream.augment import Transform
from odedm.training.replay import MemoryReplay

CLASSES = 4
PLAIN = Transform(torch.zeros(1), torch.ones(1))
METHODS = [ER, DER, DERpp]


def vectors(seed, n=6):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 5, generator=rng)
    y = torch.randint(0, CLASSES, (n,), generator=rng)
    return {"image": x, "input": x, "label": y, "task": y * 0, "index": torch.arange(n) + 100 * seed}


class Bench:
    """A method, a reservoir and a replay, stepped by hand as the loop does."""

    def __init__(self, kind, *, capacity=12, net=None, transform=PLAIN, draw=6, **options):
        shape = (5,) if net is None else (1, 8, 8)
        self.net = net or build("mlp", shape, CLASSES, seed=0)
        self.method = kind(net=self.net, draw=draw, **options)
        fields = [
            ColumnSpec("image", shape),
            *[ColumnSpec(name, dtype=torch.int64) for name in ("label", "task", "index")],
        ]
        self.memory = ReservoirBuffer(capacity, [*fields, *self.method.fields()])
        self.replay = MemoryReplay(
            self.memory, transform, mode="auxiliary", draw=draw, gamma=1.0, rng=lambda name: generator(0, name)
        )
        self.keys = generator(0, "memory")
        self.net.train()

    def step(self, batch):
        self.replay.begin_step()
        stored = self.method.observe(batch, self.replay)
        self.memory.add({**{name: batch[name] for name in batch if name != "input"}, **stored}, None, rng=self.keys)
        return stored

    def weights(self):
        return torch.cat([p.detach().flatten() for p in self.net.parameters()])


def sgd(lr, steps, net=None, batch=vectors):
    net = net or build("mlp", (5,), CLASSES, seed=0)
    for seed in range(steps):
        loss = F.cross_entropy(net(batch(seed)["input"]), batch(seed)["label"])
        net.zero_grad()
        loss.backward()
        with torch.no_grad():
            for p in net.parameters():
                p.sub_(lr * p.grad)
    return torch.cat([p.detach().flatten() for p in net.parameters()])


@pytest.mark.parametrize("kind", METHODS)
def test_without_memory_every_method_is_sgd(kind):
    bench = Bench(kind, capacity=0, lr=0.1)
    for seed in range(5):
        bench.step(vectors(seed))
    torch.testing.assert_close(bench.weights(), sgd(0.1, 5), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize("kind", METHODS)
def test_the_first_update_is_sgd_on_cross_entropy(kind):
    bench = Bench(kind, lr=0.1)
    bench.step(vectors(0))
    torch.testing.assert_close(bench.weights(), sgd(0.1, 1), rtol=1e-6, atol=1e-7)


@pytest.mark.parametrize(("kind", "options"), [(DER, {"alpha": 0.0}), (DERpp, {"alpha": 0.0, "beta": 0.0})])
def test_zero_weights_give_the_trajectory_of_sgd(kind, options):
    bench = Bench(kind, lr=0.1, **options)
    for seed in range(6):
        bench.step(vectors(seed))
    torch.testing.assert_close(bench.weights(), sgd(0.1, 6), rtol=1e-6, atol=1e-7)


def images(seed, n=6):
    rng = torch.Generator().manual_seed(seed)
    x = torch.randn(n, 1, 8, 8, generator=rng)
    y = torch.randint(0, CLASSES, (n,), generator=rng)
    return {"image": x, "input": x, "label": y, "task": y * 0, "index": torch.arange(n)}


def cnn():
    torch.manual_seed(0)
    return SmallCNN((1, 8, 8), CLASSES, width=4)


def test_zero_weights_keep_the_parameters_of_sgd_but_not_the_batchnorm_buffers():
    bench = Bench(DERpp, net=cnn(), lr=0.1, alpha=0.0, beta=0.0)
    for seed in range(4):
        bench.step(images(seed))
    plain = cnn().train()
    torch.testing.assert_close(bench.weights(), sgd(0.1, 4, plain, images), rtol=1e-5, atol=1e-6)
    assert not torch.allclose(bench.net.norm1.running_mean, plain.norm1.running_mean), "replay forwards count there"


def test_er_with_equal_draws_follows_the_mean_of_both_gradients():
    bench = Bench(ER, lr=1.0)
    bench.step(vectors(0))
    before = bench.weights()
    twin = build("mlp", (5,), CLASSES, seed=0)
    twin.load_state_dict(bench.net.state_dict())
    past = bench.memory.rows()  # six rows, all drawn
    batch = vectors(1)
    loss = 0.5 * F.cross_entropy(twin(batch["input"]), batch["label"])
    loss = loss + 0.5 * F.cross_entropy(twin(past["image"]), past["label"])
    loss.backward()
    gradient = torch.cat([p.grad.flatten() for p in twin.parameters()])
    bench.step(batch)
    torch.testing.assert_close(before - bench.weights(), gradient, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("kind", METHODS)
def test_after_the_first_step_memory_holds_the_first_batch_unaugmented(kind):
    bench = Bench(kind)
    batch = vectors(0)
    bench.step({**batch, "input": batch["image"] + 3.0})
    rows = bench.memory.rows()
    assert rows["image"].equal(batch["image"])
    assert rows["label"].equal(batch["label"])


@pytest.mark.parametrize("kind", [DER, DERpp])
def test_stored_logits_are_those_before_the_update_and_carry_no_graph(kind):
    bench = Bench(kind, lr=0.5)
    batch = vectors(0)
    with torch.no_grad():
        expected = bench.net(batch["input"])
    stored = bench.step(batch)
    assert stored["logits"].equal(expected)
    assert not stored["logits"].requires_grad
    assert bench.memory.rows()["logits"].equal(expected)
    assert not torch.allclose(bench.net(batch["input"]), expected), "the update did change the network"


def test_der_replay_term_is_zero_while_nothing_moves():
    losses = []

    class Recording(DER):
        def optimizer_step(self, loss, replay=None):
            losses.append(loss.detach())
            super().optimizer_step(loss, replay)

    bench = Bench(Recording, lr=0.0, alpha=1000.0)
    for seed in range(3):
        bench.step(vectors(seed))
    for seed, loss in enumerate(losses):
        batch = vectors(seed)
        assert loss == F.cross_entropy(bench.net(batch["input"]), batch["label"]).detach()


def test_derpp_without_labels_is_der_bit_for_bit():
    der, derpp = Bench(DER, lr=0.1, alpha=0.7), Bench(DERpp, lr=0.1, alpha=0.7, beta=0.0)
    noisy = Transform(torch.zeros(1), torch.ones(1))
    for bench in (der, derpp):
        bench.replay.transform = noisy
        for seed in range(8):
            bench.step(vectors(seed))
    assert der.weights().equal(derpp.weights())
    assert der.memory.rows()["logits"].equal(derpp.memory.rows()["logits"])


def test_the_two_draws_of_derpp_are_independent():
    drawn = []

    class Recording(DERpp):
        def observe(self, batch, replay):
            drawn.append((replay(4)["index"].tolist(), replay(4)["index"].tolist()))
            return {"logits": self.net(batch["input"]).detach()}

    bench = Bench(Recording, capacity=40)
    bench.memory.add({**vectors(0, 40), "logits": torch.zeros(40, CLASSES)}, None, rng=bench.keys)
    for seed in range(20):
        bench.step(vectors(seed + 1))
    assert sum(first == second for first, second in drawn) == 0
    assert len({tuple(first) for first, _ in drawn}) == 20, "every step draws anew"


def test_alpha_gradient_of_a_single_record():
    bench = Bench(DERpp, capacity=1, lr=1.0, alpha=0.3, beta=0.0, draw=1)
    one = {name: column[:1] for name, column in vectors(0).items()}
    target = torch.randn(1, CLASSES, generator=torch.Generator().manual_seed(9))
    bench.memory.add({**{k: v for k, v in one.items() if k != "input"}, "logits": target}, None, rng=bench.keys)
    batch, net = vectors(1), bench.net
    twin = build("mlp", (5,), CLASSES, seed=0)
    output = twin(one["input"])
    rest = F.cross_entropy(twin(batch["input"]), batch["label"])
    expected = torch.autograd.grad(rest, list(twin.parameters()))
    pull = 0.3 * (2 / CLASSES) * (output - target).detach()
    replayed = torch.autograd.grad(output, list(twin.parameters()), grad_outputs=pull)
    before = [p.detach().clone() for p in net.parameters()]
    bench.step(batch)
    for old, new, a, b in zip(before, net.parameters(), expected, replayed, strict=True):
        torch.testing.assert_close(old - new.detach(), a + b, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize(("kind", "cost"), [(ER, 64), (DER, 64), (DERpp, 96)])
def test_images_forwarded_per_step(kind, cost):
    class Counting(MLP):
        images = 0

        def features(self, x):
            type(self).images += len(x)
            return super().features(x)

    net = Counting((1, 8, 8), CLASSES)
    bench = Bench(kind, net=net, capacity=50, draw=32)
    bench.step(images(0, 40))
    Counting.images = 0
    bench.step(images(1, 32))
    assert Counting.images == cost


@pytest.mark.parametrize("reading", ["auxiliary", "union", "both"])
@pytest.mark.parametrize("kind", METHODS)
def test_auxiliary_term_is_one_cross_entropy_on_long_term_rows(kind, reading):
    seen = []

    class Recording(kind):
        def optimizer_step(self, loss, replay=None):
            seen.append((loss.detach(), replay))
            super().optimizer_step(loss, replay)

    bench = Bench(Recording, capacity=20, lr=1.0)
    bench.replay = MemoryReplay(
        bench.memory, PLAIN, mode=reading, draw=6, gamma=0.5, rng=lambda name: generator(0, name)
    )
    bench.step(vectors(0))
    long = {k: v for k, v in vectors(7, 3).items() if k != "input"} | {"prototype": torch.arange(3)}
    long |= {field.name: torch.zeros(3, *field.shape) for field in bench.method.fields()}
    bench.memory.pin(long)
    twin = build("mlp", (5,), CLASSES, seed=0)
    twin.load_state_dict(bench.net.state_dict())
    before = bench.weights()
    drawn = []
    original = bench.memory.sample

    def sample(n, *, part=MemoryPart.ALL, rng):
        rows = original(n, part=part, rng=rng)
        drawn.append((part, rows["index"].tolist()))
        return rows

    bench.memory.sample = sample
    bench.step(vectors(1))
    extra = [(part, index) for part, index in drawn if part is MemoryPart.LONG]
    parts = {part for part, _ in drawn} - {MemoryPart.LONG}
    assert parts == {MemoryPart.SHORT if reading == "auxiliary" else MemoryPart.ALL}
    if reading == "union":
        assert extra == []
        return
    assert len(extra) == 1
    assert extra[0][0] is MemoryPart.LONG
    assert sorted(extra[0][1]) == [700, 701, 702], "all three long-term rows, as fewer than a draw are there"
    auxiliary = 0.5 * F.cross_entropy(twin(long["image"]), long["label"])
    pull = torch.cat([g.flatten() for g in torch.autograd.grad(auxiliary, list(twin.parameters()))])
    # the same draws, without the extra term: what is left of the two moves is the auxiliary gradient
    rewound = Bench(kind, capacity=20, lr=1.0)
    rewound.step(vectors(0))
    rewound.memory.pin(long)
    rewound.net.load_state_dict(twin.state_dict())
    rewound.replay = MemoryReplay(
        rewound.memory, PLAIN, mode=reading, draw=6, gamma=0.0, rng=lambda name: generator(0, name)
    )
    rewound.step(vectors(1))
    torch.testing.assert_close(rewound.weights() - bench.weights(), pull, rtol=1e-3, atol=1e-5)
    assert not before.equal(bench.weights())


def test_a_full_long_term_memory_still_serves_the_methods_own_terms():
    bench = Bench(DER, capacity=2)
    rows = {k: v for k, v in vectors(7, 2).items() if k != "input"}
    bench.memory.pin({**rows, "prototype": torch.arange(2), "logits": torch.zeros(2, CLASSES)})
    assert bench.memory.size(MemoryPart.SHORT) == 0
    assert sorted(bench.replay(5)["index"].tolist()) == [700, 701]


@pytest.mark.parametrize("kind", METHODS)
def test_batches_and_memories_of_one_row(kind):
    bench = Bench(kind, net=cnn(), capacity=1, draw=1)
    for seed in range(4):
        bench.step(images(seed, 1))
    assert all(p.isfinite().all() for p in bench.net.parameters())


@pytest.mark.parametrize("kind", METHODS)
def test_questions_leave_the_network_as_it_was(kind):
    bench = Bench(kind, net=cnn())
    bench.step(images(0))
    for training in (True, False):
        bench.net.train(training)
        before = {name: value.clone() for name, value in bench.net.state_dict().items()}
        bench.method.predict(images(1)["input"])
        bench.method.embed(images(1)["input"])
        bench.method.annotate(images(1))
        assert bench.net.training is training
        assert all(module.training is training for module in bench.net.modules())
        assert all(before[name].equal(value) for name, value in bench.net.state_dict().items())


def test_annotation_is_the_evaluation_output():
    bench = Bench(DERpp, net=cnn())
    bench.step(images(0))
    bench.net.eval()
    with torch.no_grad():
        expected = bench.net(images(1)["input"])
    bench.net.train()
    assert bench.method.annotate(images(1))["logits"].equal(expected)


def test_momentum_crosses_a_border_unless_the_method_renews_its_optimizer():
    bench = Bench(DER, momentum=0.9)
    bench.step(vectors(0))
    assert bench.method.optimizer.state
    bench.method.begin_task(None)
    assert bench.method.optimizer.state
    bench.method.renew_optimizer()
    assert not bench.method.optimizer.state


def test_hyperparameters_come_from_the_method_and_foreign_ones_are_refused():
    assert hyperparameters(DERpp) == {
        "lr": 0.03, "momentum": 0.0, "weight_decay": 0.0, "alpha": 0.1, "beta": 0.5,
    }  # fmt: skip
    assert configure("derpp", DERpp, {"alpha": "0.2"})["alpha"] == 0.2
    for given, sentence in [
        ({"beta": 1}, "Unknown hyper-parameter of er 'beta'"),
        ({"lr": "fast"}, "er's lr must be a finite number; 'fast'"),
        ({"lr": "nan"}, "finite"),
        ({"lr": -1}, "0 or more"),
    ]:
        with pytest.raises(ValueError, match=sentence):
            configure("er", ER, given)
