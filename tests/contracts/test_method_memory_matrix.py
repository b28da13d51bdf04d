"""Every method with every memory, every replay reading and every setting: it runs, keeps its promises, beats chance."""

import itertools

import pytest
from sampling import EVERYTHING, FIRST_METHODS, FIRST_POLICIES, KEEPING, QUICK, pairs

from odedm import ODEDM, Experiment, MemoryPart, Native, NoMemory, Prototypes, Reservoir, Run, UsageError, blobs, shapes
from odedm.core.choices import REPLAYS
from odedm.core.registry import DISTANCES, MEMORIES, METHODS, POLICIES
from odedm.selection.prototype_settings import ROW_SELECTORS
from odedm.testing import contracts
from odedm.testing.contracts import CAPACITY, check_run, same_weights

BLOBS = blobs(per_class=30)

ODEDMS = {
    "task": {},
    "bounded": {"candidates": 5},
    "pixels": {"selection": Prototypes(space="pixels")},
    "mixup": {"selection": Prototypes(mixup=True)},
    "no DAC": {"selection": Prototypes(dac=None)},
}


def finish(memory, data=BLOBS, **options):
    quick = QUICK.get(options.get("method"), {})
    return contracts.finish(memory, data, **{"batch": 32, "options": quick, **options})


KINDS_AND_SETTINGS = list(itertools.product(["reservoir", "native", *REPLAYS], ["standard", "imbalanced"]))


def words(part):
    return part if isinstance(part, str) else "-".join(part)


@pytest.mark.parametrize(("method", "case"), pairs(KEEPING, KINDS_AND_SETTINGS), ids=words)
def test_every_method_with_every_memory_and_reading(method, case):
    memory, setting = case
    plain = {"reservoir": Reservoir(CAPACITY), "native": Native(CAPACITY)}
    plan = plain.get(memory) or ODEDM(CAPACITY, k=2, replay=memory)
    run, outcome = finish(plan, method=method, imbalance=setting, batch=8, class_order="seed")
    check_run(run, outcome)
    assert outcome.result.acc_last > 15, "chance is 10 per cent"
    if memory not in plain:
        assert [sum(part["long"]) for part in outcome.result.class_counts] == [4, 8, 12, 16, 16]
        assert set(outcome.result.class_counts[-1]["long"]) == {0, 2}, "balanced over the classes of finished tasks"


@pytest.mark.parametrize(("method", "variant"), pairs(KEEPING, ODEDMS))
def test_every_method_with_every_kind_of_long_term_memory(method, variant):
    run, outcome = finish(ODEDM(CAPACITY, k=2, **ODEDMS[variant]), method=method, batch=16)
    check_run(run, outcome)
    assert outcome.memory.size(MemoryPart.LONG) == 16


@pytest.mark.parametrize(("method", "policy"), pairs(KEEPING, POLICIES, FIRST_POLICIES))
def test_every_method_with_every_policy_alone_and_hosted(method, policy):
    for plan in (Native(CAPACITY, policy), ODEDM(CAPACITY, k=2, short_policy=policy)):
        run, outcome = finish(plan, method=method, batch=16)
        check_run(run, outcome)
        assert outcome.memory.size() > 0


@pytest.mark.parametrize("candidates", ["task", 5])
@pytest.mark.parametrize("method", ["der", "derpp", "fdr"])
def test_long_term_logits_may_be_those_of_the_stream(method, candidates):
    """The logits of a pinned row are the ones it had when it arrived, not those of the network when its task ended."""
    seen = {}
    run = Run(
        Experiment(
            ODEDM(CAPACITY, k=2, annotate="stream", candidates=candidates), data="blobs", method=method, batch=16
        ),
        BLOBS,
    )
    original = run.memory.add

    def add(rows, probe, *, rng):
        seen.update(zip(rows["index"].tolist(), rows["logits"], strict=True))
        original(rows, probe, rng=rng)

    run.memory.add = add
    long = run.finish().memory.rows(MemoryPart.LONG)
    assert len(long["index"]) == 16
    assert all(seen[index].equal(logits) for index, logits in zip(long["index"].tolist(), long["logits"], strict=True))
    plain = finish(ODEDM(CAPACITY, k=2, candidates=candidates), method=method, batch=16)[1].memory.rows(MemoryPart.LONG)
    own = [seen.get(index) for index in plain["index"].tolist()]
    assert not all(a.equal(b) for a, b in zip(own, plain["logits"], strict=True))


@pytest.mark.parametrize("distance", DISTANCES)
@pytest.mark.parametrize("space", ["features", "pixels"])
def test_every_distance_in_every_space_on_images(distance, space):
    selection = distance if distance in ROW_SELECTORS else Prototypes(distance, space=space)
    run, outcome = finish(ODEDM(20, k=2, selection=selection), shapes(per_class=20), batch=16)
    check_run(run, outcome)
    assert outcome.memory.size(MemoryPart.LONG) == 8


@pytest.mark.parametrize(("method", "capacity"), pairs(KEEPING, [0, 1, 3, 500]))
def test_capacities_from_nothing_to_more_than_the_stream(method, capacity):
    if capacity == 0 and "memory" in METHODS[method].load().requires:
        with pytest.raises(UsageError, match="means nothing without stored rows. Give it a capacity of 1 or more"):
            finish(Reservoir(0), method=method, batch=16)
        return
    run, outcome = finish(Reservoir(capacity), method=method, batch=16)
    check_run(run, outcome)
    assert outcome.memory.size() == min(capacity, len(BLOBS.image))
    run, outcome = finish(ODEDM(capacity, k=0), method=method, batch=16)
    check_run(run, outcome)


@pytest.mark.parametrize(("method", "reading"), pairs(KEEPING, REPLAYS))
def test_a_dual_memory_without_prototypes_is_its_short_term_policy_bit_for_bit(method, reading):
    _, plain = finish(Native(CAPACITY), method=method, batch=16)
    _, dual = finish(ODEDM(CAPACITY, k=0, replay=reading), method=method, batch=16)
    assert same_weights(plain, dual)
    assert all(plain.memory.rows()[name].equal(column) for name, column in dual.memory.rows().items())
    assert plain.result.class_il == dual.result.class_il


def test_a_long_term_share_of_one_leaves_no_short_term_rows():
    _, outcome = finish(ODEDM(24, rho=1.0), method="derpp", batch=16)
    assert outcome.memory.size(MemoryPart.SHORT) == 0
    assert outcome.memory.size(MemoryPart.LONG) == 24
    assert [sum(part["short"]) for part in outcome.result.class_counts] == [18, 12, 6, 0, 0]


def test_bounded_candidates_count_inside_the_capacity():
    run, outcome = finish(ODEDM(CAPACITY, k=2, candidates=5), batch=16)
    assert run.memory.capacity == CAPACITY
    assert run.memory.pool.reserved() == 10
    assert outcome.memory.size() == CAPACITY - 10


@pytest.mark.parametrize("method", KEEPING)
def test_without_a_memory_a_method_is_what_it_is_with_an_empty_one_or_says_that_it_is_nothing(method):
    plan = Experiment(NoMemory(), data="blobs", method=method, batch=16, device="cpu")
    if "memory" in METHODS[method].load().requires:
        with pytest.raises(UsageError, match="means nothing without stored rows"):
            Run(plan, BLOBS)
        return
    none = Run(plan, BLOBS).finish()
    assert none.memory.size() == 0
    assert same_weights(none, finish(Reservoir(0), method=method, batch=16)[1])


def test_a_sample_of_later_parts_has_each_of_them_with_some_of_the_others():
    methods, policies = [*FIRST_METHODS, "later"], [*FIRST_POLICIES, "newer"]
    chosen = set(pairs(methods, policies, FIRST_POLICIES))
    assert {(a, b) for a in FIRST_METHODS for b in FIRST_POLICIES} <= chosen
    assert EVERYTHING or len(chosen) < len(methods) * len(policies)
    assert len({b for a, b in chosen if a == "later"}) >= 2
    assert len({a for a, b in chosen if b == "newer"}) >= 3


def test_the_tables_name_every_kind_once():
    assert set(MEMORIES) == {"reservoir", "native", "odedm", "none"}
    assert all(METHODS[name].load().__doc__ for name in METHODS)
