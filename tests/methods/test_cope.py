"""CoPE against its definition, term by term in float64."""

import math

import pytest
import torch
from torch.nn import functional as F
from workbench import Bench, batch_of, cnn

from odedm import NoMemory, UsageError, train
from odedm.methods.cope import CoPE, ppp_loss


def slow_loss(points, label, prototypes, temperature):
    """The sums as they are written, one pair at a time."""
    exp = lambda a, b: math.exp(float(a @ b) / temperature)  # noqa: E731
    total = 0.0
    for c in set(label.tolist()):
        rest = lambda x: sum(exp(p, x) for k, p in enumerate(prototypes) if k != c)  # noqa: B023, E731
        chance = lambda q, x: exp(q, x) / (exp(q, x) + rest(x))  # noqa: B023, E731
        own = [i for i, y in enumerate(label.tolist()) if y == c]
        for i in own:
            proxies = [points[j] for j in own if j != i] + [prototypes[c]]
            total += math.log(sum(chance(q, points[i]) for q in proxies) / len(own))
        for j in set(range(len(label))) - set(own):
            for i in own:
                total += math.log(1 - (chance(points[i], points[j]) + chance(prototypes[c], points[j])) / 2)
    return -total / len(label)


def vectors(seed, n, classes=4, d=5):
    rng = torch.Generator().manual_seed(seed)
    points, prototypes = (F.normalize(torch.randn(m, d, generator=rng, dtype=torch.float64)) for m in (n, classes))
    return points, torch.randint(0, classes, (n,), generator=rng), prototypes


def test_the_loss_is_the_sum_of_all_pairs_and_does_not_see_a_common_rotation():
    every = torch.ones(4, dtype=torch.bool)
    for seed in range(4):
        points, label, prototypes = vectors(seed, 9)
        found = ppp_loss(points, label, prototypes, every, 0.3)
        assert float(found) == pytest.approx(slow_loss(points, label, prototypes, 0.3), rel=1e-12)
        turn = torch.linalg.qr(torch.randn(5, 5, dtype=torch.float64, generator=torch.Generator().manual_seed(9)))[0]
        torch.testing.assert_close(ppp_loss(points @ turn, label, prototypes @ turn, every, 0.3), found)


def test_a_class_never_seen_takes_no_part_and_one_class_alone_teaches_nothing():
    points, label, prototypes = vectors(0, 8, classes=3)
    wide = torch.cat([prototypes, torch.ones(1, 5, dtype=torch.float64)])
    seen = torch.tensor([True, True, True, False])
    narrow = ppp_loss(points, label, prototypes, seen[:3], 0.1)
    torch.testing.assert_close(ppp_loss(points, label, wide, seen, 0.1), narrow)
    points.requires_grad_()
    alone = ppp_loss(points, torch.zeros(8, dtype=torch.int64), wide, torch.tensor([True, False, False, False]), 0.1)
    (slope,) = torch.autograd.grad(alone, points)
    assert alone == 0
    assert slope.equal(torch.zeros_like(slope))


def test_the_repellor_pushes_one_side_or_both():
    points, label, prototypes = vectors(1, 6)
    points.requires_grad_()
    every = torch.ones(4, dtype=torch.bool)
    one, both = (
        torch.autograd.grad(ppp_loss(points, label, prototypes, every, 0.3, repellor_gradient=flag), points)[0]
        for flag in (False, True)
    )
    assert not torch.allclose(one, both)


def test_prototypes_are_unit_vectors_that_follow_their_class():
    for alpha in (0.0, 0.9, 1.0):
        bench = Bench(CoPE, net=cnn(), capacity=0, alpha=alpha, width=7, lr=0.1)
        batch, head = batch_of(0, classes=(0, 2)), bench.method.head
        head.meet(batch["label"], torch.Generator().manual_seed(1))
        before = head.prototypes.clone()
        with torch.no_grad():
            points = head.points(cnn().train().features(batch["input"]))
        bench.step(batch)
        assert head.seen.tolist() == [True, False, True, False]
        for c in (0, 2):
            mean = points[batch["label"] == c].mean(0)
            torch.testing.assert_close(head.prototypes[c], F.normalize(alpha * before[c] + (1 - alpha) * mean, dim=0))
        assert head.prototypes[[1, 3]].equal(torch.zeros(2, 7, dtype=torch.float64))


def test_a_row_at_a_prototype_is_of_its_class_and_no_row_of_one_never_seen():
    bench = Bench(CoPE, capacity=0, width=7)
    bench.step(batch_of(0, n=12, classes=(0, 2, 3)))
    x = batch_of(1, n=30)["input"]
    scores = bench.method.predict(x)
    with torch.no_grad():
        points = bench.method.head.points(bench.net.eval().features(x))
    nearest = (points @ bench.method.head.prototypes[[0, 2, 3]].T).argmax(1)
    assert scores.argmax(1).equal(torch.tensor([0, 2, 3])[nearest])
    assert scores[:, 1].isinf().all()


def test_more_iterations_are_more_updates_and_new_rows_count_once():
    seen = []
    bench = Bench(CoPE, iterations=3, width=7, lr=0.1)
    bench.step(batch_of(0))
    follow = bench.method.head.follow
    bench.method.head.follow = lambda total, amount, alpha: seen.append(amount.sum()) or follow(total, amount, alpha)
    bench.step(batch_of(1, n=4))
    assert seen == [4 + 3 * 6]


def test_without_a_memory_it_is_the_same_rule_and_its_retrieval_is_its_own():
    outcome = train("blobs", method="cope", memory=NoMemory(), batch=16, progress=False)
    assert outcome.result.experiment["retrieval"] == "uniform"
    plan = train("blobs", method="cope", memory="reservoir", batch=16, progress=False, options={"width": 8})
    assert plan.result.experiment["retrieval"] == "balanced"
    assert plan.method.net.head.prototypes.norm(dim=1).allclose(torch.ones(10))


@pytest.mark.parametrize("options", [{"alpha": 2.0}, {"temperature": 0.0}, {"width": 0}, {"iterations": 0}])
def test_what_cannot_be_is_refused(options):
    with pytest.raises(UsageError, match="cope"):
        Bench(CoPE, **options)
