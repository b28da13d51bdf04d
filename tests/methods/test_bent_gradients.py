"""A-GEM and GEM against their definitions, in float64."""

import pytest
import torch
from torch.nn import functional as F
from workbench import Bench, batch_of, cnn, flat, mlp, task_of

from odedm import UsageError
from odedm.methods.agem import AGEM, project
from odedm.methods.gem import GEM, solve_qp


def slope(net, x, y):
    return flat(torch.autograd.grad(F.cross_entropy(net(x), y), list(net.parameters())))


def other_labels(past):
    """The stored rows with other labels: what is learnt of them hurts the memory."""
    return {**past, "input": past["image"], "label": (past["label"] + 1) % 4}


@pytest.mark.parametrize("net", [mlp, cnn])
def test_a_step_of_a_gem_goes_across_the_gradient_of_the_memory(net):
    bench = Bench(AGEM, net=net(), capacity=6, lr=0.5)
    bench.step(batch_of(0))
    twin, past, before = net().train(), bench.memory.rows(), bench.weights()
    twin.load_state_dict(bench.net.state_dict())
    batch = other_labels(past)
    own, reference = slope(twin, batch["input"], batch["label"]), slope(twin, past["image"], past["label"])
    assert own @ reference < 0, "else nothing is bent"
    bench.step({name: batch[name] for name in ("image", "input", "label", "task", "index")})
    wanted = own - (own @ reference) / (reference @ reference) * reference
    torch.testing.assert_close((before - bench.weights()) / 0.5, wanted)
    assert abs((before - bench.weights()) @ reference) < 1e-12


def test_a_gradient_that_agrees_is_left_as_it_is_and_its_opposite_becomes_nothing():
    gradient = torch.randn(50, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    assert project(gradient, gradient).equal(gradient)
    assert project(gradient, torch.zeros_like(gradient)).equal(gradient)
    torch.testing.assert_close(project(gradient, -gradient), torch.zeros_like(gradient))


def least(products, along, margin, ridge):
    """The same quadratic program by gradient steps far smaller and far more than needed."""
    p = torch.tensor(products, dtype=torch.float64) + ridge * torch.eye(len(along), dtype=torch.float64)
    q, v = torch.tensor(along, dtype=torch.float64), torch.full((len(along),), margin, dtype=torch.float64)
    for _ in range(3000):
        v = (v - (p @ v + q) / p.diagonal().sum()).clamp(min=margin)
    return v


@pytest.mark.parametrize("margin", [0.0, 0.5])
def test_solve_qp_are_those_of_the_quadratic_program(margin):
    for seed in range(3):
        rng = torch.Generator().manual_seed(seed)
        past, own = (torch.randn(n, 9, generator=rng, dtype=torch.float64) for n in (4, 1))
        products, along = past @ past.T, 3 * (past @ own[0])
        found = torch.tensor(solve_qp(products.tolist(), along.tolist(), margin, 1e-3), dtype=torch.float64)
        torch.testing.assert_close(found, least(products.tolist(), along.tolist(), margin, 1e-3), atol=1e-7, rtol=1e-7)
        steep = products @ found + 1e-3 * found + along
        assert found.min() >= margin
        assert steep.min() > -1e-7, "no multiplier could do better"
        assert abs(steep @ (found - margin)) < 1e-6, "one above the bound has no slope"


def test_gem_with_one_past_task_and_no_margin_is_a_gem_over_all_its_rows():
    bench = Bench(GEM, capacity=12, lr=0.5, margin=0.0, ridge=0.0)
    bench.memory.add(
        {name: column for name, column in batch_of(0, n=12).items() if name != "input"}, None, rng=bench.keys
    )
    bench.memory.store.columns["task"].zero_()
    bench.method.begin_task(task_of(1))
    past, before = bench.memory.rows(), bench.weights()
    batch = other_labels(past)
    own, reference = (slope(mlp().train(), past["image"], each) for each in (batch["label"], past["label"]))
    bench.step({name: batch[name] for name in ("image", "input", "label", "task", "index")})
    torch.testing.assert_close((before - bench.weights()) / 0.5, project(own, reference))


def test_gem_keeps_every_past_task_from_harm_and_the_running_one_is_no_past():
    bench = Bench(GEM, capacity=16, lr=0.5, margin=0.0, ridge=1e-9)
    rows = {name: column for name, column in batch_of(0, n=16).items() if name != "input"}
    bench.memory.add({**rows, "task": rows["label"] // 2}, None, rng=bench.keys)
    bench.method.begin_task(task_of(1))
    assert len(bench.method.past_gradients(bench.replay)) == 1
    bench.method.now = 2
    past = bench.memory.rows()
    slopes = bench.method.past_gradients(bench.replay)
    for task, found in enumerate(slopes):
        own = past["task"] == task
        torch.testing.assert_close(found, slope(mlp().train(), past["image"][own], past["label"][own]))
    batch, before = other_labels(past), bench.weights()
    bench.step({name: batch[name] for name in ("image", "input", "label", "task", "index")})
    step = before - bench.weights()
    assert min(float(step @ each) for each in slopes) > -1e-7
    assert min(float(slope(mlp().train(), batch["input"], batch["label"]) @ each) for each in slopes) < 0


def test_gem_refuses_what_is_below_nothing():
    with pytest.raises(UsageError, match="margin must be 0 or more; -1"):
        Bench(GEM, margin=-1)
