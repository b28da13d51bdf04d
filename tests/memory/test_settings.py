"""Settings of a memory reach what they set, and what is not set leaves a run what it was."""

import pytest
import torch

from odedm import (
    DAC,
    L2,
    MMD,
    ODEDM,
    DualMemory,
    Experiment,
    Herding,
    Native,
    Prototypes,
    Sinkhorn,
    UsageError,
    blobs,
    train,
)
from odedm.memory.build_context import StreamShape
from odedm.memory.settings import memory_from_dict, memory_to_dict, prototype_selector
from odedm.selection import distance
from odedm.selection.prototype_settings import name_of
from odedm.training.preparation import prepare


def chooser(selection=None):
    found = prototype_selector(ODEDM(60, k=2, selection=selection or Prototypes()))
    assert found is not None
    return found


def test_epsilon_reaches_the_clusters_of_divide_and_conquer():
    sharp = DAC(distance=Sinkhorn(epsilon=0.3))
    assert chooser(Prototypes(dac=sharp)).dac.distance.epsilon == 0.3
    assert chooser(Prototypes("l2", sharp)).dac.distance.epsilon == 0.3
    assert chooser().dac.distance == distance.Sinkhorn()


def test_epsilon_reaches_rows_and_prototypes():
    found = chooser(Prototypes(Sinkhorn(epsilon=0.3, ground="profile", screen=7)))
    assert found.distance == distance.Sinkhorn(pair_epsilon=0.3, ground="profile", screen=7)
    assert found.dac.distance == distance.Sinkhorn()


def test_epsilon_changes_what_is_kept():
    """Clusters are compared sharply or hardly at all, so others are the closest."""
    kept = [
        train(
            blobs(),
            memory=ODEDM(60, k=3, selection=Prototypes(dac=DAC(5, 3, distance=Sinkhorn(epsilon=epsilon)))),
            method="er",
            device="cpu",
        ).memory.rows()["index"]
        for epsilon in (0.02, 5.0)
    ]
    assert not torch.equal(*kept)


def test_divide_and_conquer_has_a_distance_of_its_own():
    found = chooser(Prototypes(dac=DAC(distance="l2")))
    assert isinstance(found.dac.distance, distance.L2)
    assert isinstance(found.distance, distance.Sinkhorn)


def test_the_bandwidth_reaches_mmd():
    assert chooser(Prototypes(MMD(2.5))).distance == distance.MMD(2.5)


FLAT = [
    {},
    {"distance": "l2"},
    {"distance": "mmd", "bandwidth": 2.0, "dac": None},
    {"pair_epsilon": 0.2, "ground": "profile", "screen": 5, "epsilon": 0.3, "dac": (5, 3), "dac_sample": None},
    {"dac_distance": "l1", "space": "pixels", "mixup": True, "dac_sample": 20},
    {"distance": "random"},
    {"distance": "herding", "space": "pixels"},
]


@pytest.mark.parametrize("flat", FLAT)
def test_settings_side_by_side_are_the_nested_ones(flat):
    memory = ODEDM.from_flat(capacity=60, k=2, **flat)
    assert memory_from_dict(memory_to_dict(memory)) == memory
    assert ODEDM.from_flat(**memory.flat()) == memory
    assert {name: memory.flat()[name] for name in flat} == flat


@pytest.mark.parametrize("flat", FLAT)
def test_what_was_resolved_is_the_same_memory_resolved_again(flat):
    resolved = ODEDM.from_flat(capacity=60, k=2, **flat).resolve(StreamShape(5, 2), "reservoir")
    assert resolved.resolve(StreamShape(5, 2), "reservoir") == memory_from_dict(memory_to_dict(resolved)) == resolved


@pytest.mark.parametrize(
    "flat",
    [
        {"distance": "l2", "pair_epsilon": 0.2},
        {"distance": "l2", "epsilon": 0.2, "dac": None},
        {"distance": "l2", "epsilon": 0.2, "dac_distance": "l1"},
        {"bandwidth": 1.0},
        {"epsilon": 0.2, "dac": None},
        {"epsilon": 0.2, "dac_distance": "l1"},
        {"dac": None, "dac_distance": "l2"},
        {"dac": None, "dac_sample": 20},
    ],
)
def test_a_setting_that_would_do_nothing_is_refused(flat):
    with pytest.raises(UsageError, match="does nothing beside"):
        ODEDM.from_flat(capacity=60, k=2, **flat)


@pytest.mark.parametrize("distance", ["random", "herding"])
@pytest.mark.parametrize("idle", [{"dac": (3, 4)}, {"dac_distance": "l2"}, {"dac_sample": 9}, {"epsilon": 0.1}])
def test_clusters_are_refused_where_a_choice_makes_none(distance, idle):
    with pytest.raises(UsageError, match=rf"does nothing beside distance='{distance}'; .* Leave it out"):
        ODEDM.from_flat(capacity=60, k=2, distance=distance, **idle)


@pytest.mark.parametrize(
    ("make", "said"),
    [
        (lambda: DAC(distance=Sinkhorn(ground="profile")), "ground of 'sinkhorn' is for rows and prototypes"),
        (lambda: DAC(distance=MMD(1.0)), "bandwidth of 'mmd' is for rows and prototypes"),
        (lambda: DAC(distance="random"), "compares clusters, and 'random' makes none"),
        (lambda: DAC(3, -1), "dac must be a pair of whole numbers"),
        (lambda: DAC(sample=0), "sample must be a whole number, 1 or more, or none; 0"),
        (lambda: Prototypes("herding"), "compares clusters, and 'herding' makes none"),
        (lambda: Prototypes(dac=3), r"dac must be a DAC\(clusters, depth\), a pair of these, or None; 3"),
        (lambda: ODEDM(20, selection=3), r"selection must be Prototypes\(…\), Herding\(…\) or Random\(\)"),
        (lambda: ODEDM(20, selection="nearest"), "nearest"),
        (lambda: Sinkhorn(epsilon=-1), "epsilon must be a finite number, 0 or more; -1"),
    ],
)
def test_a_selection_that_cannot_be_is_refused_in_a_sentence(make, said):
    with pytest.raises(UsageError, match=said):
        make()


def test_a_distance_stands_for_prototypes_by_it():
    assert ODEDM(20, selection="l2") == ODEDM(20, selection=L2()) == ODEDM(20, selection=Prototypes(L2()))
    assert ODEDM(20, selection="herding") == ODEDM(20, selection=Herding)


def test_a_memory_compares_a_sample_of_clusters_and_the_papers_compares_all():
    assert chooser().dac.sample == 256
    assert chooser(ODEDM.paper(200).selection).dac.sample is None


def test_options_of_a_policy_reach_it():
    memory = Native(20, "purity", {"alpha": 0.3})
    assert train(blobs(), memory=memory, method="er", device="cpu").memory.alpha == 0.3
    dual = ODEDM(20, k=1, short_policy="purity", policy_options={"alpha": 0.3})
    assert train(blobs(), memory=dual, method="er", device="cpu").memory.buffer.alpha == 0.3


@pytest.mark.parametrize(
    ("options", "said"),
    [({"beta": 1}, "has no option 'beta'; it has alpha"), ({"alpha": 3}, "between 0 and 1")],
)
def test_options_that_a_policy_lacks_are_refused_before_a_run(options, said):
    plan = Experiment(Native(20, "purity", options), data="blobs")
    with pytest.raises(UsageError, match=said):
        prepare(plan, blobs())


def test_without_weight_the_auxiliary_term_is_off():
    """Not even the running statistics of BatchNorm see its rows: as if the method read only its short-term part."""
    off, on = (train("shapes", memory=ODEDM(40, k=2, gamma=gamma), method="er", device="cpu") for gamma in (0.0, 1e-9))
    seen, unseen = (each.method.net.state_dict() for each in (on, off))
    means = [name for name in seen if "running_mean" in name]
    assert means
    assert any(not torch.equal(seen[name], unseen[name]) for name in means)


def test_a_share_that_cannot_be_had_says_what_to_do_about_what_was_given():
    shape = StreamShape(tasks=5, classes_per_task=2)
    with pytest.raises(UsageError, match=r"Raise the capacity to 8, or give rho=0, which pins none\.$"):
        ODEDM(5, rho=0.9).resolve(shape, "reservoir")
    assert ODEDM(8, rho=0.9).resolve(shape, "reservoir").k == 1
    assert ODEDM(5, rho=0).resolve(shape, "reservoir").k == 0
    with pytest.raises(UsageError, match=r"The largest k that fits is 0; or raise the capacity to 16\.$"):
        ODEDM(5, k=2).resolve(shape, "reservoir")


def resolved(capacity, method_policy="reservoir", **settings):
    return ODEDM(capacity, **settings).resolve(StreamShape(tasks=5, classes_per_task=2), native=method_policy)


def test_none_of_divide_and_conquer_is_a_choice_and_a_stored_memory_without_one_has_none():
    assert ODEDM.from_flat(dac_sample=None).selection == Prototypes(dac=DAC(sample=None))
    assert ODEDM.from_flat(dac=None).selection == Prototypes(dac=None)
    assert ODEDM.from_flat().selection is None
    assert memory_from_dict(memory_to_dict(ODEDM(9))) == ODEDM(9)


def test_where_classes_have_few_rows_they_have_equally_many_and_the_nearest_ones_are_kept():
    few, more = resolved(50), resolved(51)
    assert (few.short_policy, few.selection) == ("balanced-reservoir", Prototypes("l2", dac=None))
    assert (more.short_policy, name_of(more.selection.distance)) == ("reservoir", "sinkhorn")
    assert more.selection.dac
    assert (few.rho, more.rho) == (0.25, 0.25)


@pytest.mark.parametrize("settings", [{"k": 0}, {"rho": 0}])
def test_without_prototypes_the_memory_is_the_methods_own(settings):
    assert resolved(20, **settings).short_policy == "reservoir"
    assert DualMemory(20, **settings).settings.short_policy == "reservoir"


@pytest.mark.parametrize("settings", [{"short_policy": "native"}, {"short_policy": "reservoir"}])
def test_what_is_given_counts_whatever_classes_have(settings):
    assert resolved(20, **settings).short_policy == "reservoir"
    assert resolved(20, **settings, selection="sinkhorn").selection.dac
    assert resolved(20, method_policy="herded").short_policy == "herded"
    assert resolved(500, short_policy="balanced-reservoir").short_policy == "balanced-reservoir"


def test_classes_of_unequal_tasks_count_once():
    shape = StreamShape.of(((0, 1), (1, 2), (3,)))
    assert [ODEDM(rows, k=1).resolve(shape, "reservoir").short_policy for rows in (20, 21)] == [
        "balanced-reservoir",
        "reservoir",
    ]


def test_where_nobody_knows_the_classes_they_have_equally_many_rows():
    memory = DualMemory(500)
    assert (memory.settings.short_policy, memory.settings.selection) == (
        "balanced-reservoir",
        Prototypes("l2", dac=None),
    )
    assert DualMemory(500, short_policy="native").settings.short_policy == "reservoir"


@pytest.mark.parametrize("capacity", [20, 500])
def test_the_papers_memory_does_not_follow_the_defaults(capacity):
    memory = ODEDM.paper(capacity, rho=0.5).resolve(StreamShape(tasks=5, classes_per_task=2), native="reservoir")
    assert memory.short_policy == "reservoir"
    assert memory.selection.dac == DAC(3, 2, distance=Sinkhorn(epsilon=0.05), sample=None)
