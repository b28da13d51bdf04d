"""What a method can change without touching the package: the auxiliary loss, and the gradient before the step."""

from dataclasses import dataclass
from typing import ClassVar

import torch
from torch.nn import functional as F
from workbench import Bench, batch_of, cnn, flat, mlp, same, sgd, task_of

from odedm.methods import base
from odedm.methods.base import Method
from odedm.methods.er import ER
from odedm.methods.gradients import gradient_of, read_gradient, write_gradient


@dataclass(kw_only=True, eq=False)
class AGEM(Method):
    """The stream's gradient, without what of it would raise the loss on a replay draw (Chaudhry et al. 2019)."""

    capturable: ClassVar[bool] = True

    def loss(self, batch, replay):
        (logits,) = self.logits(batch)
        return F.cross_entropy(logits, batch["label"]), {}

    def on_after_backward(self, replay):
        if not replay:
            return
        past = replay()
        (recalled,) = self.logits(past)
        reference = gradient_of(F.cross_entropy(recalled, past["label"]), self.net)
        own = read_gradient(self.net)
        share = (own @ reference).clamp(max=0) / (reference @ reference).clamp(min=1e-12)
        write_gradient(self.net, own - share * reference)


def slopes(net, batch, past):
    """The gradients of both losses, each by itself."""
    return [
        flat(torch.autograd.grad(F.cross_entropy(net(x), y), list(net.parameters())))
        for x, y in ((batch["input"], batch["label"]), (past["image"], past["label"]))
    ]


def against(past):
    """The stored rows with other labels: what is learnt of them hurts the memory."""
    return {**past, "input": past["image"], "label": (past["label"] + 1) % 4}


def test_an_a_gem_projects_a_gradient_that_would_hurt_the_memory():
    for net in (mlp, cnn):
        bench = Bench(AGEM, net=net(), capacity=6, lr=0.5)
        bench.step(batch_of(0))
        twin, past, before = net().train(), bench.memory.rows(), bench.weights()
        twin.load_state_dict(bench.net.state_dict())
        batch = against(past)
        own, reference = slopes(twin, batch, past)
        assert own @ reference < 0, "else nothing is projected"
        wanted = own - (own @ reference) / (reference @ reference) * reference
        bench.step({name: batch[name] for name in ("image", "input", "label", "task", "index")})
        moved = (before - bench.weights()) / 0.5
        torch.testing.assert_close(moved, wanted)
        assert abs(moved @ reference) < 1e-9 * reference.norm() * own.norm()


def test_an_a_gem_leaves_a_gradient_alone_that_helps_the_memory():
    bench = Bench(AGEM, capacity=6, lr=0.5)
    bench.step(batch_of(0))
    twin, past, before = mlp(), bench.memory.rows(), bench.weights()
    twin.load_state_dict(bench.net.state_dict())
    own, reference = slopes(twin, {**past, "input": past["image"]}, past)
    assert own @ reference > 0
    bench.step({**{name: past[name] for name in ("image", "label", "task", "index")}, "input": past["image"]})
    torch.testing.assert_close(before - bench.weights(), 0.5 * own)


def test_without_memory_an_a_gem_is_sgd():
    batches = [batch_of(seed) for seed in (0, 1, 2)]
    bench = Bench(AGEM, capacity=0, lr=0.1)
    for batch in batches:
        bench.step(batch)
    torch.testing.assert_close(bench.weights(), sgd(0.1, batches))


def test_gradients_are_read_and_written_whole_also_where_there_are_none():
    net = mlp()
    wanted = torch.arange(sum(each.numel() for each in net.parameters()), dtype=torch.float64)
    assert not read_gradient(net).any()
    for _ in range(2):
        write_gradient(net, wanted)
        assert read_gradient(net).equal(wanted)
        assert all(each.grad.shape == each.shape for each in net.parameters())
        wanted = wanted.flip(0)


@dataclass(kw_only=True, eq=False)
class Deaf(ER):
    """ER to which long-term rows mean nothing."""

    def long_term_loss(self, rows, replay):
        assert {"input", "label", "image", "prototype"} <= set(rows)
        return 0.0 * self.logits(rows)[0].sum()


def with_prototypes(kind, gamma=1.0):
    """A step with prototypes in the memory."""
    bench = Bench(kind, capacity=8, lr=0.5)
    bench.replay._gamma = gamma
    bench.step(batch_of(0))
    rows = {name: column[:4] for name, column in batch_of(7).items() if name != "input"}
    bench.memory.pin({**rows, "prototype": torch.zeros(4, dtype=torch.int64)})
    bench.step(batch_of(1))
    return bench


def test_the_auxiliary_loss_is_the_methods_to_define():
    deaf, plain, weightless = with_prototypes(Deaf), with_prototypes(ER), with_prototypes(ER, gamma=0.0)
    assert not same(deaf.state(), plain.state())
    torch.testing.assert_close(deaf.weights(), weightless.weights())


def test_on_a_gpu_a_new_optimizer_has_the_old_momentum_at_zero_which_is_as_good_as_none(monkeypatch):
    fresh, taken = (Bench(ER, net=cnn(), lr=0.01, momentum=0.9) for _ in range(2))
    for bench in (fresh, taken):
        monkeypatch.setattr(base, "launch_bound", lambda _device, bench=bench: bench is taken)
        for task in range(2):
            bench.method.begin_task(task_of(task))
            bench.method.renew_optimizer()
            before = [state["momentum_buffer"] for state in bench.method.optimizer.state.values()]
            assert bool(before) == (task == 1 and bench is taken)
            assert not any(each.any() for each in before)
            for seed in range(2):
                bench.step(batch_of(2 * task + seed))
        after = [state["momentum_buffer"] for state in bench.method.optimizer.state.values()]
        assert all(one is other for one, other in zip(before, after, strict=bench is taken))
    assert same(fresh.state(), taken.state())
