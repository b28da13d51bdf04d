"""An experiment as plain data and back, also from files that anyone may have written."""

import json

import pytest
from sampling import KEEPING

from odedm import DAC, ODEDM, Experiment, Native, Prototypes, Reservoir, UsageError, blobs
from odedm.training.preparation import prepare

PLANS = [
    Experiment(Reservoir(10)),
    Experiment(Native(10, "herded"), method="er", tasks=5, seed=3, cuda_graph=False),
    Experiment(
        ODEDM(60, rho=0.5, selection=Prototypes(dac=None), candidates=5), imbalance="long-tail", factor=4.0, blur=0.1
    ),
    Experiment(
        ODEDM(60, k=2, selection=Prototypes("l2", dac=DAC(4, 2))),
        net="mlp",
        options={"lr": 0.5},
        replay_batch=7,
        precision="fp32",
    ),
]


@pytest.mark.parametrize("plan", PLANS)
def test_there_and_back(plan):
    plain = json.loads(json.dumps(plan.describe()))
    assert Experiment.from_dict(plain) == plan


@pytest.mark.parametrize("method", KEEPING)
def test_resolved_experiments_resolve_to_themselves(method):
    data = blobs()
    once = prepare(Experiment(ODEDM(60, rho=0.5), method=method, data="blobs", device="cpu"), data).experiment
    again = Experiment.from_dict(json.loads(json.dumps(once.describe())))
    assert prepare(again, data).experiment.describe() == once.describe()


SPOILED = {
    "no object": (lambda plain: [], "must be an object; a list"),
    "a field less": (lambda plain: {k: v for k, v in plain.items() if k != "seed"}, "lacks 'seed'"),
    "a field more": (lambda plain: {**plain, "x" * 999: 1}, "does not know"),
    "no memory": (lambda plain: {**plain, "memory": None}, "must be one of reservoir, native, odedm, none; 'None'"),
    "memory of another kind": (lambda plain: {**plain, "memory": {"name": ["odedm"]}}, "was found"),
    "memory with more": (lambda plain: {**plain, "memory": {**plain["memory"], "secret": 1}}, "has 'secret', which"),
    "memory of lists": (lambda plain: {**plain, "memory": {**plain["memory"], "replay": []}}, "replay must be a name"),
    "capacity of words": (lambda plain: {**plain, "memory": {**plain["memory"], "capacity": "all"}}, "whole number"),
    "nested dac": (lambda plain: {**plain, "memory": {**plain["memory"], "dac": [[1], 2]}}, "dac must be a pair"),
    "long dac": (lambda plain: {**plain, "memory": {**plain["memory"], "dac": [1, 2, 3]}}, "a pair"),
    "number for a reading": (
        lambda plain: {**plain, "memory": {**plain["memory"], "replay": 3}},
        "replay must be a name",
    ),
    "options as a list": (lambda plain: {**plain, "options": [1]}, "options must be a table"),
    "options of lists": (lambda plain: {**plain, "options": {"lr": [1]}}, "options must be a table"),
    "net as a list": (lambda plain: {**plain, "net": ["mlp"]}, "net must be a name"),
    "method unknown": (lambda plain: {**plain, "method": "os.system"}, "Unknown method"),
    "batch below one": (lambda plain: {**plain, "batch": 0}, "1 or more; 0"),
    "batch without end": (lambda plain: {**plain, "noise": 1e999}, "finite"),
}


@pytest.mark.parametrize("case", SPOILED)
def test_what_is_no_experiment_is_refused_with_a_sentence(case):
    change, sentence = SPOILED[case]
    with pytest.raises(UsageError, match=sentence):
        Experiment.from_dict(change(json.loads(json.dumps(PLANS[2].describe()))))
