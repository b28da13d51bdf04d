"""GSS's memory against gradients taken one by one, and lists."""

import pytest
import torch
from torch.nn import functional as F
from workbench import Bench, batch_of, cnn, flat

from odedm import MemoryPart, Native, UsageError, train
from odedm.memory.gradient_diversity import GSSBuffer, similarities, victim_shares
from odedm.methods.gss import GSS


def slope(net, rows):
    return flat(torch.autograd.grad(F.cross_entropy(net(rows["image"]), rows["label"]), list(net.parameters())))


def part(rows, index):
    return {name: column[index] for name, column in rows.items()}


def test_similarities_are_the_largest_cosines_to_gradients_of_stored_batches():
    bench = Bench(GSS, net=cnn())
    rows, stored, twin = batch_of(0, n=5), batch_of(1, n=6), cnn().eval()
    references = [slope(twin, part(stored, slice(at, at + 3))) for at in (0, 3)]
    before = bench.state()
    single, whole = similarities(rows, stored, 3, bench.probe, "all")
    for row in range(5):
        own = slope(twin, part(rows, slice(row, row + 1)))
        best = max(float(F.cosine_similarity(own, each, dim=0)) for each in references)
        assert float(single[row]) == pytest.approx(best, rel=1e-9)
    best = max(float(F.cosine_similarity(slope(twin, rows), each, dim=0)) for each in references)
    assert float(whole) == pytest.approx(best, rel=1e-9)
    assert all(bench.state()[name].equal(each) for name, each in before.items())
    assert bench.net.training
    assert all(each.grad is None for each in bench.net.parameters())


def filled(monkeypatch, score, whole, capacity=8):
    """A full memory, to which a batch of six is offered whose similarities are set."""
    bench = Bench(GSS, policy=GSSBuffer, capacity=capacity)
    rows = {name: column for name, column in batch_of(0, n=capacity).items() if name != "input"}
    bench.memory.add(rows, bench.probe, rng=bench.keys)
    given = (torch.full((6,), score), torch.tensor(whole))
    monkeypatch.setattr("odedm.memory.gradient_diversity.similarities", lambda *_: given)
    before = bench.memory.rows()
    new = {name: column for name, column in batch_of(1, n=6).items() if name != "input"}
    bench.memory.add(new, bench.probe, rng=bench.keys)
    return bench.memory, before, new


def test_a_batch_that_points_along_stored_rows_changes_nothing(monkeypatch):
    memory, before, _ = filled(monkeypatch, score=-1.0, whole=0.0)
    assert all(memory.rows()[name].equal(column) for name, column in before.items())


def test_rows_of_least_similarity_always_win_and_those_of_most_rarely(monkeypatch):
    memory, before, new = filled(monkeypatch, score=-1.0, whole=-0.1)
    rows = memory.rows()
    assert set(new["index"].tolist()) <= set(rows["index"].tolist()), "(s + 1) / (s + 1 + 0) is 1"
    assert memory.size() == 8
    assert rows["score"].tolist() == [pytest.approx(0.1)] * 2 + [-1.0] * 6
    assert before["score"].tolist() == pytest.approx([0.1] * 8)
    monkeypatch.undo()
    memory, _, new = filled(monkeypatch, score=1.0, whole=-0.1)
    assert len(set(new["index"].tolist()) & set(memory.rows()["index"].tolist())) < 6, "1.1 in 3.1 of them"


def test_victims_are_drawn_by_their_scores():
    score, stored = torch.tensor([-0.5, 0.5, 0.0, 9.0]), torch.tensor([True, True, True, False])
    share = victim_shares(score, stored)[:3]
    wanted = torch.tensor([0.0, 1.0, 0.5], dtype=torch.float64) / 1.01
    torch.testing.assert_close(share, wanted, atol=1e-7, rtol=1e-6)


def test_a_duplicate_of_the_only_stored_row_scores_one_and_no_score_is_outside_its_range():
    bench = Bench(GSS, policy=GSSBuffer, capacity=8)
    row = {name: column[:1] for name, column in batch_of(0).items() if name != "input"}
    for _ in range(2):
        bench.memory.add(row, bench.probe, rng=bench.keys)
    assert bench.memory.rows()["score"].tolist() == pytest.approx([0.1, 1.0])
    for step in range(1, 6):
        bench.step(batch_of(step))
    score = bench.memory.rows()["score"]
    assert bench.memory.size() == 8
    assert score.abs().max() <= 1 + 1e-6


def test_through_a_run_with_its_options_and_hosted():
    outcome = train(
        "blobs",
        method="gss",
        memory=Native(30, policy_options={"references": 3, "size": 4, "of": "head"}),
        batch=16,
        progress=False,
    )
    assert outcome.memory.size() == 30
    assert outcome.memory.size(MemoryPart.LONG) == 0
    with pytest.raises(UsageError, match="references of gss must be a whole number, 1 or more; 0 was given"):
        train("blobs", method="gss", memory=Native(30, policy_options={"references": 0}))
