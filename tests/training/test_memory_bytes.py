"""Memories in bytes: counted in results, and given as a capacity."""

import pytest

import odedm
from odedm import ODEDM, Experiment, Learner, Native, NoMemory, Reservoir, UsageError
from odedm.core.validators import as_bytes
from odedm.training.memory_bytes import store_bytes
from odedm.training.preparation import prepare

DATA = odedm.blobs()
ROW = 16 * 4 + 6 * 8
"""Features of four bytes; label, task, index, prototype, order and key of eight."""


def run(method, memory, **more):
    return odedm.train(DATA, method=method, memory=memory, batch=32, **more)


@pytest.mark.parametrize(
    ("method", "memory", "row"),
    [("er", Reservoir(20), ROW), ("derpp", ODEDM(20, rho=0.5, short_policy="native"), ROW + 10 * 4)],
)
def test_rows_count_with_all_their_columns(method, memory, row):
    outcome = run(method, memory)
    assert outcome.result.bytes == {"rows": 20 * row, "method": 0}
    assert store_bytes(getattr(outcome.memory, "buffer", outcome.memory)) == 20 * row
    assert outcome.result.kilobytes == 20 * row / 1000
    assert odedm.Result.from_dict(outcome.result.to_dict()) == outcome.result


def test_second_networks_count():
    weights = sum(weight.nbytes for weight in run("er", NoMemory()).method.net.parameters())
    icarl, average = run("icarl", Native(20)).result.bytes, run("er", NoMemory(), weight_average=0.9).result.bytes
    assert weights <= icarl["method"] <= weights + 100  # and which columns are old
    assert weights <= average["method"] <= weights + 100
    assert run("finetune", NoMemory()).result.bytes == {"rows": 0, "method": 0}


@pytest.mark.parametrize(("method", "row"), [("er", ROW), ("der", ROW + 40)])
def test_a_capacity_in_bytes_is_as_many_rows_as_fit(method, row):
    plan = prepare(Experiment(ODEDM("5kB"), method=method, data="blobs"), DATA).experiment
    assert plan.memory.capacity == 5000 // row
    assert plan == prepare(Experiment(ODEDM(5000 // row), method=method, data="blobs"), DATA).experiment
    assert run(method, Reservoir("5kB")).result.bytes["rows"] <= 5000


def test_bytes_as_text():
    assert [as_bytes(text) for text in ("5B", "2.5kB", "1MiB", "3", "kB", 3)] == [5, 2500, 2**20, None, None, None]
    for wrong in ("5 apples", "-5kB", "0kB", -1, "1e3"):
        with pytest.raises(UsageError, match=r"capacity must be a whole number of rows, .* or of bytes such as"):
            Reservoir(wrong)
    with pytest.raises(UsageError, match=f"Not one row fits in 100B: a stored row of this run has {ROW} bytes"):
        run("er", Reservoir("100B"))
    with pytest.raises(UsageError, match="A learner's memory is a number of rows"):
        Learner("er", memory=ODEDM("5kB"))
    with pytest.raises(UsageError, match="capacity must be a whole number"):
        ODEDM.paper("5kB")
    with pytest.raises(UsageError, match="A live memory's capacity is a number of rows"):
        odedm.DualMemory("5kB")


def test_a_learner_says_what_it_holds():
    learner = Learner("slda").partial_fit(DATA.image.numpy(), DATA.label.numpy())
    assert learner.bytes == {"rows": 0, "method": (10 + 10 * 16 + 16 * 16) * 8}
    replay = Learner("er", memory=Reservoir(20)).partial_fit(DATA.image.numpy(), DATA.label.numpy())
    assert replay.bytes == {"rows": 20 * (16 * 4 + 5 * 8), "method": 0}
