"""Which stored rows a draw takes: each strategy against a slow version of it, through every door, and resumed."""

import copy
import json
from dataclasses import dataclass
from functools import cache

import pytest
import torch
from driver import Driver
from equal_states import equal_states
from sampling import KEEPING, pairs
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode
from typer.testing import CliRunner
from workbench import Bench, batch_of, cnn, mlp, same

from odedm import ODEDM, Experiment, Native, Reservoir, Retrieval, UsageError, blobs, shapes, train
from odedm.cli.app import app
from odedm.core.registry import METHODS, RETRIEVALS
from odedm.core.rows import take
from odedm.memory.balanced_reservoir import make_room
from odedm.methods.er import ER
from odedm.methods.er_ace import ERACE, cross_entropy_among
from odedm.studies.spec import parse
from odedm.training.experiment import content_key
from odedm.training.preparation import prepare
from odedm.training.retrieval import MIR, Balanced, Uniform, class_balanced, interference

VECTORS, IMAGES = blobs(per_class=16), shapes(per_class=12)


def raised_losses(net, batch, rows, rate):
    """How much a real step on the batch, made by a copy of the network, raises each row's loss."""
    moved = copy.deepcopy(net)
    optimizer = torch.optim.SGD(moved.parameters(), lr=rate)
    F.cross_entropy(moved(batch["input"]), batch["label"]).backward()
    before = copy.deepcopy(net)(rows["input"])  # a forward moves running statistics, so by copies
    optimizer.step()
    after = moved(rows["input"])
    each = [F.cross_entropy(out, rows["label"], reduction="none") for out in (before, after)]
    return (each[1] - each[0]).detach()


@pytest.mark.parametrize("net", [mlp, cnn])
def test_interference_is_what_a_real_step_does_to_a_copy(net):
    bench = Bench(ER, net=net(), lr=0.5)
    batch, rows, before = batch_of(0, n=8), batch_of(1, n=20), bench.state()
    found = interference(bench.method, batch, rows)
    torch.testing.assert_close(found, raised_losses(bench.net, batch, rows, 0.5))
    assert same(before, bench.state()), "weights and running statistics are as they were"
    assert all(each.grad is None for each in bench.net.parameters())


def test_mir_replays_the_most_interfered_candidates():
    bench = Bench(ER, capacity=40, draw=5, lr=0.5, retrieval=MIR(candidates=20))
    bench.memory.add(
        {name: column for name, column in batch_of(3, n=40).items() if name != "input"}, None, rng=bench.keys
    )
    batch, seen = batch_of(4, n=6, classes=(0, 1)), []
    draw = bench.memory.sample
    bench.memory.sample = lambda n, **words: seen.append(draw(n, **words)) or seen[-1]
    bench.replay.begin_step(batch)
    chosen = bench.replay(5)
    (pool,) = seen
    assert len(pool["index"]) == 20
    harm = raised_losses(bench.net, batch, {**pool, "input": pool["image"]}, 0.5)
    assert set(chosen["index"].tolist()) == set(pool["index"][harm.argsort()[-5:]].tolist())
    assert len(bench.replay(25)["index"]) == 25, "a larger draw is all candidates"


def test_a_balanced_draw_takes_classes_in_turns():
    label = torch.tensor([0] * 30 + [1] * 3 + [2] * 9 + [9])
    rng, kept = torch.Generator().manual_seed(0), torch.zeros(len(label))
    for n, sizes in ((13, [[4, 3, 4, 1], [5, 3, 4, 1], [4, 3, 5, 1]]), (4, [[1, 1, 1, 1]]), (99, [[30, 3, 9, 1]])):
        for _ in range(50):
            place = class_balanced(label, n, rng)
            assert len(place.unique()) == len(place) == min(n, len(label))
            found = label[place].bincount(minlength=10)[[0, 1, 2, 9]].tolist()
            assert found in sizes, found
    lucky = torch.zeros(4)
    for _ in range(600):
        place = class_balanced(label, 2, rng)
        kept[place] += 1
        lucky += label[place].bincount(minlength=10)[[0, 1, 2, 9]]
    assert (lucky / 600 - 0.5).abs().max() < 0.1, "no class comes first more often than another"
    assert kept[:30].min() > 0, "any row of a class may come"


@dataclass(frozen=True, kw_only=True)
class Oldest(Retrieval):
    """A strategy of someone's own: the stored rows that came first, `skip` of them left out."""

    skip: int = 0

    def __call__(self, n, stored, batch, method):
        assert "input" in batch
        assert isinstance(method, ER)
        rows = stored.draw(len(stored))
        return stored.view(take(rows, rows["index"].argsort()[self.skip : self.skip + n]))


def test_a_strategy_of_ones_own_is_three_lines():
    bench = Bench(ER, capacity=12, draw=4, retrieval=Oldest(skip=1))
    bench.step(batch_of(0))
    bench.step(batch_of(1))
    bench.replay.begin_step(batch_of(2))
    assert bench.replay(4)["index"].tolist() == bench.memory.rows()["index"].sort().values[1:5].tolist()


SMALL = {"batch": 16, "replay_batch": 4, "device": "cpu"}


@cache
def uniform_weights(method):
    return train(VECTORS, memory=ODEDM(20, k=1), method=method, **SMALL).method.net.state_dict()


LOADED = {name: METHODS[name].load() for name in KEEPING}
DRAWING = [
    name
    for name, kind in LOADED.items()
    if "retrieval" not in kind.unsupported and "mixing" not in kind.requires and kind.retrieval == "uniform"
]
OTHERS = [name for name in RETRIEVALS if name != "uniform"]


@pytest.mark.parametrize(("method", "retrieval"), pairs(DRAWING, OTHERS, ("mir", "balanced")))
def test_every_method_takes_every_retrieval(method, retrieval):
    options = {"candidates": 12} if retrieval == "mir" else {}
    words = {"method": method, "retrieval": retrieval, "retrieval_options": options, **SMALL}
    a, b = uniform_weights(method), train(VECTORS, memory=ODEDM(20, k=1), **words).method.net.state_dict()
    assert all(value.isfinite().all() for value in b.values())
    small = method == "pocl"  # whose draw is the whole memory
    assert small or any(not a[name].equal(b[name]) for name in a), "it has an effect"


@pytest.mark.parametrize("data", [VECTORS, IMAGES], ids=["vectors", "images"])
@pytest.mark.parametrize("retrieval", ["mir", "balanced"])
def test_killed_and_resumed_equals_unkilled(retrieval, data):
    words = {"method": "derpp", "batch": 8, "replay_batch": 4, "retrieval": retrieval}
    straight, state = Driver(ODEDM(20, k=1), data, **words), None
    straight.go()
    for steps in (2, 3):
        part = Driver(ODEDM(20, k=1), data, state, **words)
        assert part.go(steps) is None
        state = part.capture()
        assert not any("replay._batch" in name for name in state.tensors), "the batch is no state"
    killed = Driver(ODEDM(20, k=1), data, state, **words)
    killed.go()
    for each in (straight, killed):
        each.run.timer.seconds.clear()
    assert equal_states(straight.capture(), killed.capture()) == []


def test_names_classes_and_objects_are_one_run():
    plans = [
        Experiment(retrieval="mir", retrieval_options={"candidates": "30"}),
        Experiment(retrieval=MIR, retrieval_options={"candidates": 30}),
        Experiment(retrieval=MIR(candidates=30)),
    ]
    found = [prepare(plan).experiment for plan in plans]
    assert {each.retrieval for each in found} == {"mir"}
    assert len({content_key(each.describe()) for each in found}) == 1
    assert found[0].retrieval_options == {"candidates": 30}
    again = Experiment.from_dict(json.loads(json.dumps(found[2].describe())))
    assert again == found[2]
    assert Experiment(retrieval=Balanced()).retrieval == "balanced"
    assert Experiment(retrieval=Uniform) == Experiment()


def test_another_retrieval_is_another_experiment():
    plain = prepare(Experiment(Reservoir(5), data="blobs")).experiment.describe()
    assert content_key({**plain, "retrieval": "mir"}) != content_key(plain)
    assert Experiment.from_dict(plain).retrieval == "uniform"


REFUSED = {
    "unknown": ({"retrieval": "mri"}, "Unknown retrieval 'mri': did you mean 'mir'"),
    "no name": ({"retrieval": 3}, "retrieval must be a name"),
    "unknown option": ({"retrieval": "mir", "retrieval_options": {"pool": 3}}, "'mir' has no option 'pool'; it has"),
    "option of another": (
        {"retrieval_options": {"candidates": 3}},
        "'uniform' has no option 'candidates'; it has none",
    ),
    "no number": (
        {"retrieval": "mir", "retrieval_options": {"candidates": "many"}},
        "candidates must be a whole number",
    ),
    "too few": ({"retrieval": "mir", "retrieval_options": {"candidates": 0}}, "1 or more; 0 was given"),
    "no draws": ({"retrieval": "mir", "method": "icarl"}, "nothing to choose: iCaRL mixes all stored rows"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_what_cannot_be_is_refused_with_a_sentence(case):
    words, sentence = REFUSED[case]
    with pytest.raises(UsageError, match=sentence):
        train(VECTORS, memory=Native(10), **words)


class NoReadBack(TorchDispatchMode):
    """Refuses what would make the host wait for a device: a recorded step cannot hold it."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        name = func.name().removeprefix("aten::").partition(".")[0]
        assert name not in {"_local_scalar_dense", "item", "nonzero", "masked_select", "_unique2", "bincount"}, name
        return func(*args, **(kwargs or {}))


def test_nothing_is_read_back_from_the_device():
    bench = Bench(ERACE, net=cnn())
    batch, rows, rng = batch_of(0), batch_of(1, n=9), torch.Generator().manual_seed(0)
    key, which = torch.rand(9, dtype=torch.float64), rows["label"]
    bench.step(batch)
    with NoReadBack():
        interference(bench.method, batch, rows)
        class_balanced(which, 4, rng)
        make_room(key, which, torch.zeros(4, dtype=torch.bool), torch.arange(6, 9), key[:3])
        cross_entropy_among(bench.method.seen, torch.zeros(9, 4), which)
        with pytest.raises(AssertionError, match="nonzero"):
            which.nonzero()


def test_the_command_line_and_studies_have_them(tmp_path):
    words = ["--data", "blobs", "--method", "er", "--memory", "reservoir", "--capacity", "20", "--batch", "8"]
    given = [
        "--set",
        "training.retrieval=mir",
        "--set",
        "retrieval.candidates=12",
        "--device",
        "cpu",
        "--out",
        str(tmp_path),
    ]
    done = CliRunner().invoke(app, ["run", *words, *given])
    assert done.exit_code == 0, done.output
    (result,) = tmp_path.glob("*/seed-0/result.json")
    plan = json.loads(result.read_text())["experiment"]
    assert (plan["retrieval"], plan["retrieval_options"]) == ("mir", {"candidates": 12})
    refused = CliRunner().invoke(app, ["run", *words, "--set", "retrieval.candidates=12"])
    assert refused.exit_code == 2
    assert "has no option 'candidates'" in " ".join(refused.output.split())

    study = parse('seeds = 1\nretrieval = ["uniform", "mir"]\n[retrieval_options.mir]\ncandidates = [20, 60]')
    found = [(plan.retrieval, dict(plan.retrieval_options)) for plan in study.experiments()]
    assert found == [("uniform", {}), ("mir", {"candidates": 20}), ("mir", {"candidates": 60})]
    assert parse(study.to_toml()).experiments() == study.experiments()
    with pytest.raises(UsageError, match=r"write \[retrieval_options.NAME\]"):
        parse("seeds = 1\n[retrieval_options]\ncandidates = 3")
