"""ER-ACE against its definition, on nets and streams where equality is exact."""

import torch
from torch.nn import functional as F
from workbench import Bench, batch_of, cnn, flat, mlp, sgd

from odedm.methods.er_ace import ERACE


def test_a_batch_of_all_classes_without_memory_is_sgd():
    batches = [batch_of(seed, n=12) for seed in (0, 1, 2)]
    assert all(batch["label"].unique().numel() == 4 for batch in batches)
    bench = Bench(ERACE, capacity=0, lr=0.1)
    for batch in batches:
        bench.step(batch)
    torch.testing.assert_close(bench.weights(), sgd(0.1, batches))


def test_the_stream_moves_no_row_of_the_head_whose_class_is_not_in_the_batch():
    bench = Bench(ERACE, capacity=0, lr=0.5)
    before = bench.net.head_weight().clone()
    bench.step(batch_of(0, classes=(2, 3)))
    assert (bench.net.head_weight() != before).any(1).tolist() == [False, False, True, True]


def slow_cross_entropy(logits, label, classes):
    """The mean of -log softmax over the named classes only, row by row."""
    losses = [
        torch.logsumexp(torch.stack([row[c] for c in classes]), 0) - row[y]
        for row, y in zip(logits, label.tolist(), strict=True)
    ]
    return torch.stack(losses).mean()


def test_a_step_is_the_sum_of_both_restricted_cross_entropies():
    """Equation 3 of the paper by hand: the stream among {2}, the replay among the seen {0, 1, 2}; class 3 never."""
    for net in (mlp, cnn):
        bench = Bench(ERACE, net=net(), capacity=6, lr=1.0)
        bench.step(batch_of(0, classes=(0, 1)))
        twin, past, batch, before = net().train(), bench.memory.rows(), batch_of(1, classes=(2,)), bench.weights()
        twin.load_state_dict(bench.net.state_dict())
        stream = slow_cross_entropy(twin(batch["input"]), batch["label"], [2])
        (stream + slow_cross_entropy(twin(past["image"]), past["label"], [0, 1, 2])).backward()
        bench.step(batch)
        torch.testing.assert_close(before - bench.weights(), flat(p.grad for p in twin.parameters()))


def test_with_unseen_classes_a_batch_of_one_class_teaches_as_in_the_releases():
    for unseen in (False, True):
        bench = Bench(ERACE, capacity=6, lr=1.0, unseen=unseen)
        bench.step(batch_of(0, classes=(0,)))
        assert (bench.method.last_loss > 0) == unseen
        twin, past, batch, before = mlp().train(), bench.memory.rows(), batch_of(1, classes=(2,)), bench.weights()
        twin.load_state_dict(bench.net.state_dict())
        stream = slow_cross_entropy(twin(batch["input"]), batch["label"], [1, 2, 3] if unseen else [2])
        replayed = slow_cross_entropy(twin(past["image"]), past["label"], [0, 1, 2, 3] if unseen else [0, 2])
        (stream + replayed).backward()
        bench.step(batch)
        torch.testing.assert_close(before - bench.weights(), flat(p.grad for p in twin.parameters()))


def test_long_term_rows_compete_among_the_seen_classes():
    bench = Bench(ERACE)
    bench.step(batch_of(0, classes=(0, 3)))
    logits, label = torch.randn(5, 4, dtype=torch.float64), torch.tensor([0, 3, 3, 0, 3])
    bench.method.logits = lambda _: [logits]
    found = bench.method.long_term_loss({"label": label}, bench.replay)
    torch.testing.assert_close(found, slow_cross_entropy(logits, label, [0, 3]))
    assert found < F.cross_entropy(logits, label)


def test_classes_that_join_later_were_not_seen_yet():
    bench = Bench(ERACE)
    bench.step(batch_of(0, classes=(1, 3)))
    bench.method.on_classes_added(6)
    assert bench.method.seen.tolist() == [False, True, False, True, False, False]
