"""Tricks that compose with methods and memories: updates, stream loss, prediction, average, views; their cost."""

from dataclasses import replace

import pytest
import torch
from driver import EachStep
from emulated_graph import check_replayed_as_eager
from test_resume_matrix import check_equal, straight_and_killed
from torch.nn import functional as F

import odedm
from odedm import ODEDM, Experiment, NoMemory, Reservoir, Run, UsageError, blobs, shapes
from odedm.core.registry import METHODS
from odedm.methods.base import Method
from odedm.methods.er import ER
from odedm.methods.logit_adjustment import RECENT, Adjusted, Asymmetric
from odedm.methods.rotation_task import RotationTask, turned
from odedm.nets.small import MLP, SmallCNN
from odedm.training.experiment import content_key
from odedm.training.preparation import prepare

CHEAP = {"method": "er", "memory": Reservoir(20), "net": "mlp", "device": "cpu", "batch": 8}
IMAGES, VECTORS = shapes(per_class=12), blobs(per_class=16)


def train(data=IMAGES, **more):
    return odedm.train(data, **{**CHEAP, **more})


def test_ingredients_named_by_their_defaults_make_no_other_experiment():
    named = prepare(Experiment(Reservoir(20), data="shapes", stream_loss="plain", predict="head"), IMAGES).experiment
    assert content_key(named.describe()) == content_key(
        prepare(Experiment(Reservoir(20), data="shapes"), IMAGES).experiment.describe()
    )


def test_updates_are_many_and_rows_are_stored_once():
    once, thrice = train(method="derpp"), train(method="derpp", updates=3)
    assert thrice.result.class_counts == once.result.class_counts
    assert thrice.result.sample_gradients == 3 * once.result.sample_gradients
    assert thrice.memory.rows()["index"].equal(once.memory.rows()["index"]), "the policy's draws are not the updates'"
    assert not thrice.memory.rows()["logits"].equal(once.memory.rows()["logits"])


def test_the_cost_counts_every_row_of_which_a_gradient_is_taken():
    alone = train(memory=NoMemory()).result
    assert alone.sample_gradients == 1
    rows = len(IMAGES.label)
    replay = {"memory": Reservoir(10), "batch": 10}
    cost = train(**replay).result.sample_gradients
    assert cost == (rows + rows - 10) / rows, "the first batch of all has nothing to replay"
    assert train(**replay, views="rotations").result.sample_gradients == pytest.approx(5 * cost)
    assert odedm.Result.from_dict(alone.to_dict()) == alone
    older = {name: value for name, value in alone.to_dict().items() if name != "sample_gradients"}
    assert odedm.Result.from_dict(older).sample_gradients is None


def test_the_asymmetric_loss_leaves_out_what_was_here_and_is_not_recent():
    shift = Asymmetric(4, torch.device("cpu"))
    shift.update(torch.tensor([0, 1]))
    for _ in range(RECENT):
        assert shift(torch.zeros(1, 4)).isfinite().all()
        shift.update(torch.tensor([2]))
    assert shift(torch.zeros(1, 4)).isneginf().tolist() == [[True, True, False, False]]
    shift.update(torch.tensor([1]))
    assert shift(torch.zeros(1, 4)).isneginf().tolist() == [[True, False, False, False]], "a class that returned"


def test_the_adjusted_loss_knows_the_running_frequencies():
    shift = Adjusted(3, torch.device("cpu"))
    for _ in range(5):
        shift.update(torch.tensor([0, 0, 0, 1]))
    assert shift(torch.zeros(1, 3)).exp()[0].tolist() == pytest.approx([0.75, 0.25, 0.0], abs=2e-6)


def test_replayed_rows_are_left_as_they_are():
    method = ER(net=MLP((4,), 3), draw=2)
    method.logit_adjustment = Asymmetric(3, torch.device("cpu"))
    method.logit_adjustment.age.copy_(torch.tensor([RECENT, 0, -1]))
    logits, label = torch.randn(4, 3), torch.tensor([1, 1, 0, 2])
    each = [F.cross_entropy(logits[:2, 1:], label[:2] - 1, reduction="sum")]
    each.append(F.cross_entropy(logits[2:], label[2:], reduction="sum"))
    assert method.stream_loss(logits, label, replayed=2).item() == pytest.approx(sum(each).item() / 4, rel=1e-5)


@pytest.mark.parametrize(
    "method", [name for name, entry in METHODS.items() if "stream_loss" not in entry.load().unsupported]
)
def test_every_method_with_a_stream_term_changes_with_its_loss(method):
    own = {"memory": NoMemory()} if "no memory" in METHODS[method].load().requires else {}
    plain, other = (train(VECTORS, method=method, stream_loss=loss, **own).result for loss in ("plain", "adjusted"))
    assert plain.experiment["stream_loss"] is None
    assert plain.class_il != other.class_il


def test_nearest_mean_is_the_nearest_of_the_memorys_means(tmp_path):
    outcome = train(predict="nearest-mean", memory=ODEDM(20, k=1))
    probe, rows, test = outcome.probe, outcome.memory.rows(), IMAGES.test_image
    points = [F.normalize(probe.embed(view)) for view in (rows["image"], rows["image"].flip(-1))]
    means = torch.stack([(sum(points) / 2)[rows["label"] == each].mean(0) for each in range(IMAGES.classes)])
    nearest = torch.cdist(F.normalize(probe.embed(test)), F.normalize(means)).argmin(1)
    assert outcome.predict(test).tolist() == [outcome.labels()[each] for each in nearest.tolist()]
    assert outcome.result.class_il != train(memory=ODEDM(20, k=1)).result.class_il
    model = odedm.load(outcome.save(tmp_path / "model.safetensors"))
    assert model.predict(test).tolist() == outcome.predict(test).tolist()
    assert odedm.Learner.from_model(model).predict(test).tolist() == model.predict(test).tolist()


@pytest.mark.parametrize("left", [0.8, 1.0])
def test_the_average_is_that_of_the_weights_after_every_batch_and_it_predicts(left, tmp_path):
    plan = Experiment(Reservoir(20), "derpp", data="shapes", net="cnn", device="cpu", batch=8)
    run, states = Run(replace(plan, weight_average=left), IMAGES), []
    look = EachStep(lambda _: states.append([each.double() for each in run.method.net.state_dict().values()]))
    outcome = run.finish(look)
    slow = states[0]
    for n, state in enumerate(states[1:], start=2):
        share = max(1 / n, 1 - left)
        slow = [(1 - share) * old + share * new for old, new in zip(slow, state, strict=True)]
    for found, wanted in zip(outcome.method.ema.net.state_dict().values(), slow, strict=True):
        if found.is_floating_point():
            assert found.double() == pytest.approx(wanted, abs=1e-5)
    last = Run(plan, IMAGES).finish()
    for one, other in zip(last.method.net.parameters(), outcome.method.net.parameters(), strict=True):
        assert one.equal(other), "training does not know of it"
    scores = outcome.probe.predict(IMAGES.test_image)
    with torch.no_grad():
        own = outcome.method.ema.net.eval()(outcome.probe.transform.normalize(IMAGES.test_image))
    assert scores.equal(own)
    assert not scores.equal(last.probe.predict(IMAGES.test_image))
    model = odedm.load(outcome.save(tmp_path / "model.safetensors"))
    assert model.predict(IMAGES.test_image).tolist() == outcome.predict(IMAGES.test_image).tolist()
    assert (
        odedm.Learner.from_model(model).predict(IMAGES.test_image).tolist()
        == outcome.predict(IMAGES.test_image).tolist()
    )


@pytest.mark.parametrize(
    "own",
    [
        {},
        {"limit": 6},
        {"domain": "rotated", "tasks": 3},
        {"recurring": 2},
        {"imbalance": "imbalanced"},
        {"imbalance": "long-tail", "factor": 4.0, "limit": 10},
        {"epochs": 2},
    ],
    ids=str,
)
def test_an_average_by_itself_is_over_half_a_task(own):
    epochs, stream = own.get("epochs", 1), {name: value for name, value in own.items() if name != "epochs"}
    batches = [epochs * len(task.rows["label"]) / 4 for task in odedm.split(IMAGES, **stream).tasks]
    left = 1 - 2 / (sum(batches) / len(batches))
    result = train(weight_average="auto", batch=4, **own).result
    assert result.experiment["weight_average"] == pytest.approx(left, abs=1e-3)
    named = train(weight_average=result.experiment["weight_average"], batch=4, **own).result
    assert named.class_il == result.class_il


def test_an_average_over_some_batches_is_no_longer_than_half_a_task():
    half = train(weight_average="auto", batch=4).result.experiment["weight_average"]
    lengths = {length: train(weight_average=length, batch=4).result for length in (2, 10**6)}
    assert [result.experiment["weight_average"] for result in lengths.values()] == [0.5, half]
    assert lengths[2].class_il == train(weight_average=0.5, batch=4).result.class_il


@pytest.mark.parametrize("asked", ["auto", 3000])
def test_a_long_average_is_not_rounded_to_that_of_all_weights(asked):
    data = blobs(per_class=5000, classes=4, tasks=2)
    plan = Experiment(Reservoir(4), data="blobs", method="er", batch=1, weight_average=asked)
    assert prepare(plan, data).experiment.weight_average == {"auto": 0.99975, 3000: 0.999667}[asked]


def test_an_average_over_tasks_of_one_batch_is_the_last_weights():
    assert train(weight_average="auto", batch=10**6).result.experiment["weight_average"] == 0


def test_an_average_of_which_nothing_is_left_is_the_last_weights():
    assert train(weight_average=0.0).result.class_il == train().result.class_il


AVERAGED = [
    name
    for name, entry in METHODS.items()
    if "weight_average" not in entry.load().unsupported and entry.load().predict is Method.predict
]


@pytest.mark.parametrize("method", AVERAGED)
def test_every_method_that_predicts_by_its_network_predicts_by_the_average(method):
    own = {"memory": NoMemory()} if "no memory" in METHODS[method].load().requires else {}
    last, average = (train(VECTORS, method=method, weight_average=left, **own) for left in (None, 0.95))
    assert not average.probe.predict(VECTORS.test_image).equal(last.probe.predict(VECTORS.test_image))


def test_turns_are_quarter_turns():
    image = torch.arange(4.0).view(1, 1, 2, 2)
    rows = turned(image, torch.tensor([5]))
    assert rows["input"].flatten(1).tolist() == [[0, 1, 2, 3], [1, 3, 0, 2], [3, 2, 1, 0], [2, 0, 3, 1]]
    assert rows["label"].tolist() == [5] * 4


def test_a_class_in_a_turn_is_an_answer_of_its_own():
    net = SmallCNN((1, 8, 8), 3, width=4)
    task, rows = RotationTask(net, by_class=True), turned(torch.randn(2, 1, 8, 8), torch.tensor([2, 0]))
    assert task.weight.shape[0] == 12
    task.loss(net, rows).backward()
    right = (task.bias.grad < 0).nonzero().flatten().tolist()
    assert right == [0, 2, 3, 5, 6, 8, 9, 11], "classes 0 and 2 in each turn; class 1 is none of them"


def test_the_rotations_head_is_trained_and_strong_views_change_replay_alone():
    task = train(views="rotations", method="derpp", net="cnn").method.rotation_task
    assert task.weight.abs().sum() > 0
    assert train(views="turned-classes", method="er", net="cnn").method.rotation_task.weight.abs().sum(1).min() > 0
    crop, strong, both = (Run(Experiment(Reservoir(20), "er", data="shapes", device="cpu", views=views), IMAGES)
                          for views in ("crop", "strong", "strong-turned"))  # fmt: skip
    image = IMAGES.image[:8]
    for run in (crop, strong, both):
        run.memory.add({**dict.fromkeys(("label", "task"), torch.zeros(8, dtype=torch.int64)), "image": image,
                        "index": torch.arange(8)}, run.engine.view, rng=run.engine.memory_rng)  # fmt: skip
    one, other = crop.engine.replay(8), strong.engine.replay(8)
    assert one["index"].equal(other["index"])
    assert not one["input"].equal(other["input"])
    assert both.engine.replay(8)["input"].equal(other["input"])
    assert both.method.rotation_task is not None
    assert strong.method.rotation_task is None


ALL = {
    "updates": 2,
    "stream_loss": "asymmetric",
    "predict": "nearest-mean",
    "views": "rotations",
    "weight_average": 0.9,
}


@pytest.mark.parametrize("more", [ALL, {**ALL, "stream_loss": "adjusted", "views": "strong"}], ids=str)
def test_a_run_with_ingredients_goes_on_exactly_from_a_checkpoint(more):
    check_equal(*straight_and_killed(ODEDM(20, k=1), IMAGES, [1, 4], method="derpp", batch=8, **more))


@pytest.mark.usefixtures("emulated_gpu")
@pytest.mark.parametrize("rule", ["fixed", "share"])
def test_a_replayed_run_with_ingredients_has_the_numbers_of_an_eager_one(rule):
    plan = Experiment(ODEDM(12, k=1, gamma_rule=rule), "derpp", data="shapes", device="cpu", batch=2, **ALL)
    assert check_replayed_as_eager(plan, IMAGES).progress.captured > 10


def test_a_share_weighs_the_auxiliary_term_by_the_long_term_rows():
    replay = Run(Experiment(ODEDM(20, k=2, gamma=0.5, gamma_rule="share"), "er", data="shapes", device="cpu"), IMAGES)
    outcome, sizes = replay.finish(), replay.memory.class_counts(IMAGES.classes)
    long, short = sum(sizes["long"]), sum(sizes["short"])
    assert (long, short) == (8, 12)
    assert replay.engine.replay.gamma == 0.5 * 8 / 20
    fixed = odedm.train(IMAGES, method="er", memory=ODEDM(20, k=2, gamma=0.5), device="cpu")
    assert fixed.result.experiment["memory"]["gamma_rule"] == "fixed"
    assert not outcome.method.net.head.weight.equal(fixed.method.net.head.weight)


REFUSED = {
    "iCaRL has no stream cross-entropy": ({"method": "icarl", "stream_loss": "adjusted"}, "binary cross-entropy"),
    "ER-ACE has its own": ({"method": "er-ace", "stream_loss": "plain"}, "its own stream loss is asymmetric"),
    "CoPE by prototypes": ({"method": "cope", "predict": "nearest-mean"}, "predicts by the nearest prototype"),
    "GDumb has no stream term": ({"method": "gdumb", "stream_loss": "adjusted"}, "nothing from the stream's batches"),
    "iCaRL has means, not an average": ({"method": "icarl", "weight_average": 0.9}, "in a way of its own"),
    "GDumb trains at the end": ({"method": "gdumb", "weight_average": 0.9}, "because it trains a network anew"),
    "PuriDivER's fit": (
        {"method": "puridiver", "options": {"fit": True}, "weight_average": 0.9},
        "fitted to the memory",
    ),
    "an average of more than all": (
        {"weight_average": 1.5},
        "weight_average must be 'auto' or a number from 0 to 1 .* or from 2 on",
    ),
    "iCaRL predicts by means": ({"method": "icarl", "predict": "head"}, "which is part of it"),
    "nothing stored": ({"memory": NoMemory(), "predict": "nearest-mean"}, "there is no memory for them"),
    "PuriDivER has views": ({"method": "puridiver", "views": "strong"}, "because it is defined by its own"),
    "no draws": ({"method": "icarl", "views": "strong"}, "it makes no replay draws"),
    "no gradient step": ({"method": "vrmcl", "views": "rotations"}, "no plain gradient step"),
    "vectors do not turn": ({"data": VECTORS, "views": "rotations"}, "for square images"),
    "vectors have no policy": ({"data": VECTORS, "views": "strong"}, "grey or colour images of 8 bits"),
    "no updates": ({"updates": 0}, "updates must be a whole number, 1 or more"),
    "an unknown loss": ({"stream_loss": "asymetric"}, "did you mean 'asymmetric'"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_contradiction_is_refused_with_its_reason(case):
    more, words = REFUSED[case]
    with pytest.raises(UsageError, match=words):
        train(**more)


def test_a_methods_own_way_by_its_name_is_no_contradiction():
    assert train(method="icarl", predict="nearest-mean").result.experiment["predict"] is None
