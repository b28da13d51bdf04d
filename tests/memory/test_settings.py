"""Settings of a memory reach what they set, and what is not set leaves a run what it was."""

import pytest
import torch

from odedm import ODEDM, Experiment, Native, UsageError, blobs, train
from odedm.memory.settings import consolidator
from odedm.memory.site import StreamShape
from odedm.selection.dac import Dac
from odedm.selection.distance import L2, MMD, Sinkhorn
from odedm.training.preparation import prepare


def chooser(**own):
    found = consolidator(ODEDM(60, k=2, **own))
    assert found is not None
    return found


def test_epsilon_reaches_the_clusters_of_divide_and_conquer():
    assert chooser(epsilon=0.3).dac.distance.epsilon == 0.3
    assert chooser(epsilon=0.3, distance="l2").dac.distance.epsilon == 0.3
    assert chooser().dac.distance == Sinkhorn()


def test_epsilon_changes_what_is_kept():
    """Clusters are compared sharply or hardly at all, so others are the closest."""
    kept = [
        train(blobs(), memory=ODEDM(60, k=3, dac=(5, 3), epsilon=epsilon), method="er", device="cpu").memory.rows()[
            "index"
        ]
        for epsilon in (0.02, 5.0)
    ]
    assert not torch.equal(*kept)


def test_divide_and_conquer_has_a_distance_of_its_own():
    assert isinstance(chooser(dac_distance="l2").dac.distance, L2)
    assert isinstance(chooser(dac_distance="l2").distance, Sinkhorn)


def test_the_bandwidth_reaches_mmd():
    assert chooser(distance="mmd", bandwidth=2.5).distance == MMD(2.5)


@pytest.mark.parametrize(
    "own",
    [
        {"distance": "l2", "pair_epsilon": 0.2},
        {"distance": "l2", "epsilon": 0.2, "dac": None},
        {"distance": "l2", "epsilon": 0.2, "dac_distance": "l1"},
        {"bandwidth": 1.0},
        {"epsilon": 0.2, "dac": None},
        {"epsilon": 0.2, "dac_distance": "l1"},
    ],
)
def test_a_setting_of_a_distance_that_is_not_used_is_refused(own):
    with pytest.raises(UsageError, match="is for the"):
        ODEDM(60, k=2, **own)


@pytest.mark.parametrize("own", [{"dac": None}, {"distance": "random"}])
def test_a_distance_between_clusters_is_refused_where_there_are_none(own):
    with pytest.raises(UsageError, match=r"dac_distance='l2' compares the clusters .* none; leave it out"):
        ODEDM(60, k=2, dac_distance="l2", **own)


def test_a_memory_compares_all_rows_of_clusters():
    assert chooser().dac.sample is None
    assert Dac(3, 4).sample == 256


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
