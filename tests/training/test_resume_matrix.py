"""A run that is stopped anywhere, several times, and goes on in newly built objects equals the one that never was."""

import os

import pytest
from driver import Driver
from equal_states import equal_states
from sampling import EVERYTHING, FIRST_METHODS, FIRST_POLICIES, KEEPING, QUICK, pairs

from odedm import ODEDM, Native, NoMemory, Prototypes, Reservoir, blobs, shapes
from odedm.core.choices import REPLAYS
from odedm.core.registry import METHODS, POLICIES

VECTORS, IMAGES = blobs(per_class=16), shapes(per_class=12)

MEMORIES = {
    "nothing": Reservoir(0),
    "reservoir": Reservoir(20),
    "native": Native(20),
    **{f"odedm {reading}": ODEDM(20, k=1, replay=reading) for reading in REPLAYS},
    "odedm bounded": ODEDM(24, k=1, candidates=4),
    "odedm stream": ODEDM(20, k=1, annotate="stream"),
    "odedm bounded stream": ODEDM(24, k=1, candidates=4, annotate="stream"),
    "odedm rho 1": ODEDM(16, rho=1.0),
    "odedm mixup": ODEDM(20, k=1, selection=Prototypes(mixup=True)),
    **{f"policy {policy}": Native(20, policy) for policy in POLICIES},
    **{f"odedm over {policy}": ODEDM(20, k=1, short_policy=policy) for policy in POLICIES},
    "none": NoMemory(),
}


def straight_and_killed(memory, data, kills, **options):
    """A run in one go, and one that is killed after so many steps, and again, each time in new objects."""
    straight = Driver(memory, data, **options)
    outcome, state = straight.go(), None
    for steps in kills:
        part = Driver(memory, data, state, **options)
        assert part.go(steps) is None, "killed before its end"
        state = part.capture()
    killed = Driver(memory, data, state, **options)
    return (straight, outcome), (killed, killed.go())


def check_equal(one, other):
    """Everything but times, and how many steps this process made."""
    (straight, outcome), (killed, again) = one, other
    for each in (straight, killed):
        each.run.timer.seconds.clear()
    assert equal_states(straight.capture(), killed.capture()) == []
    a, b = (timeless(each.result) for each in (outcome, again))
    assert a == b


def timeless(result):
    plain = result.to_dict()
    del plain["seconds"], plain["provenance"]
    return plain


SHARE = 0 if os.environ.get("ODEDM_EVERYTHING") else int(os.environ.get("ODEDM_SHARE", "1"))
"""Every seventh pair of a method and a memory, so that each method and each memory is there; 0: all pairs."""
LATER = {name for name in MEMORIES if name.split()[-1] in POLICIES and name.split()[-1] not in FIRST_POLICIES}
"""Of which every ninth is enough, as of methods that came later."""
PAIRS = [
    (method, memory)
    for row, method in enumerate(KEEPING)
    for column, memory in enumerate(MEMORIES)
    if SHARE == 0 or (row + column + SHARE) % (7 if method in FIRST_METHODS and memory not in LATER else 9) == 0
    if memory not in ("none", "nothing") or "memory" not in METHODS[method].load().requires
]
PAIRS += [(method, "none") for method in METHODS if method not in KEEPING]


def test_a_share_has_every_method_and_every_memory():
    assert {method for method, _ in PAIRS} == set(METHODS)
    assert {memory for _, memory in PAIRS} == set(MEMORIES)


@pytest.mark.parametrize(("method", "memory"), PAIRS)
def test_killed_and_resumed_equals_unkilled(method, memory):
    """Steps: 4 a task, more where memory is mixed in; kills in mid-task, after a task's last step, twice in a row."""
    kills, options = [1, 3, 1, 0, 6, 7], QUICK.get(method, {})
    check_equal(*straight_and_killed(MEMORIES[memory], VECTORS, kills, method=method, batch=8, options=options))


@pytest.mark.parametrize(("method", "memory"), pairs(KEEPING, ["reservoir", "native", "odedm auxiliary"]))
def test_with_convolutions_and_batch_norm(method, memory):
    words = {"method": method, "options": QUICK.get(method, {}), "class_order": "seed"}
    check_equal(*straight_and_killed(MEMORIES[memory], IMAGES, [2, 3], batch=8, **words))


@pytest.mark.parametrize("method", KEEPING if EVERYTHING else FIRST_METHODS)
def test_with_momentum_and_weight_decay(method):
    """Momentum is what other libraries' checkpoints lose."""
    momentum = {} if "momentum" in METHODS[method].load().unsupported else {"momentum": 0.9}
    options = {**momentum, "weight_decay": 1e-3, **QUICK.get(method, {})}
    check_equal(*straight_and_killed(MEMORIES["odedm both"], VECTORS, [3, 6], method=method, options=options, batch=8))


def test_fitting_to_the_memory_between_tasks():
    options = {"fit": True, "fit_epochs": 4, "warmup": 1}
    check_equal(
        *straight_and_killed(MEMORIES["native"], VECTORS, [4, 2, 7], method="puridiver", options=options, batch=8)
    )


def test_killed_at_every_single_step():
    kills = [1] * 19
    check_equal(*straight_and_killed(MEMORIES["odedm both"], VECTORS, kills, method="derpp", batch=8))


def test_the_stream_is_not_stored():
    part = Driver(MEMORIES["reservoir"], VECTORS, method="er", batch=8)
    part.go(6)
    state = part.capture()
    assert not any(name.startswith("progress") for name in state.tensors)
    mixed = Driver(MEMORIES["reservoir"], VECTORS, method="icarl", batch=8)
    mixed.go(6)
    assert any(name.startswith("progress.batches") for name in mixed.capture().tensors), "rows that were mixed in are"


def test_a_finished_run_that_is_carried_over_ends_the_same():
    whole = Driver(MEMORIES["native"], VECTORS, method="icarl", batch=8)
    outcome = whole.go()
    again = Driver(MEMORIES["native"], VECTORS, whole.capture(), method="icarl", batch=8)
    assert timeless(again.go().result) == timeless(outcome.result)


SPOILERS = {
    "momentum": lambda roots: roots["method"].optimizer.state.clear(),
    "a generator": lambda roots: roots["memory_rng"].manual_seed(5),
    "keys": lambda roots: roots["memory"].store.priority.mul_(0.5),
    "replay's generators": lambda roots: roots["replay"].generators.clear(),
    "the place": lambda roots: setattr(roots["progress"], "batch", 0),
    "the count of rows": lambda roots: roots["memory"].num_seen.zero_(),
}


@pytest.mark.parametrize("lost", SPOILERS)
def test_whatever_is_lost_shows(lost):
    """So the tests above can fail."""
    options = {"method": "derpp", "options": {"momentum": 0.9}, "batch": 8}
    straight = Driver(MEMORIES["reservoir"], VECTORS, **options)
    straight.go()
    part = Driver(MEMORIES["reservoir"], VECTORS, **options)
    part.go(6)
    other = Driver(MEMORIES["reservoir"], VECTORS, part.capture(), **options)
    SPOILERS[lost](other.roots)
    other.go()
    for each in (straight, other):
        each.run.timer.seconds.clear()
    assert equal_states(straight.capture(), other.capture())
