"""Tricks in a learner: classes join on the way, files go on bit for bit, and what cannot be is refused."""

import numpy as np
import pytest
import torch
from test_learner import blocks, feed, learned, rows

import odedm
from odedm import ODEDM, Learner, UsageError

SOME = {
    "updates": {"updates": 3},
    "asymmetric": {"stream_loss": "asymmetric"},
    "adjusted": {"stream_loss": "adjusted"},
    "nearest mean": {"predict_by": "nearest-mean"},
    "average": {"weight_average": 0.9},
    "adamw": {"optimizer": "adamw", "options": {"lr": 0.01}},
    "mir": {"retrieval": "mir", "retrieval_options": {"candidates": 20}},
    "balanced": {"retrieval": "balanced"},
    "all": {"updates": 2, "stream_loss": "asymmetric", "predict_by": "nearest-mean", "weight_average": 0.9},
}


def images(labels, seed=0):
    """Squares that are bright in a place of their class."""
    picture = np.random.default_rng(seed).integers(0, 60, (len(labels), 1, 8, 8), dtype=np.uint8)
    for each, label in zip(picture, labels, strict=True):
        each[0, 2 * label : 2 * label + 2] += 180
    return picture, np.asarray(labels)


@pytest.mark.parametrize("method", ["er", "derpp"])
@pytest.mark.parametrize("own", SOME.values(), ids=SOME)
def test_a_learner_with_ingredients_learns_words_that_join_and_its_file_goes_on(method, own, tmp_path):
    learner = learned(blocks(0, 1, 2), method=method, patience=40, **own)
    assert learner.score(*rows([0, 1, 2] * 10, seed=77)) > 0.5
    again = Learner.load(learner.save(tmp_path / "learner"))
    for each in (learner, again):
        feed(each, blocks(3, 0))
    asked = rows([0, 1, 2, 3] * 10, seed=78)
    assert again.get_params().items() >= own.items()
    assert learner.score(*asked) > 0.4
    assert np.array_equal(learner.predict_proba(asked[0]), again.predict_proba(asked[0]))
    assert not np.array_equal(
        learner.predict_proba(asked[0]),
        learned([*blocks(0, 1, 2), *blocks(3, 0)], method=method, patience=40).predict_proba(asked[0]),
    )


@pytest.mark.parametrize("views", ["strong", "rotations"])
def test_views_of_replayed_pictures(views, tmp_path):
    own = {"memory": ODEDM(40, rho=0.5), "batch": 8, "options": {"lr": 0.05}, "views": views}
    learner, plain = Learner("er", **own), Learner("er", **own | {"views": "crop"})
    for start, label in enumerate([0, 1, 2, 3] * 6):
        for each in (learner, plain):
            each.partial_fit(*images([label] * 8, seed=start))
    x, y = images([0, 1, 2, 3] * 10, seed=99)
    assert learner.score(x, y) > 0.5
    assert not np.array_equal(learner.predict_proba(x), plain.predict_proba(x))
    again = Learner.load(learner.save(tmp_path / "learner"))
    assert np.array_equal(again.predict_proba(x), learner.predict_proba(x))
    with pytest.raises(UsageError, match=f"The views '{views}' are for"):
        Learner("er", views=views).partial_fit(*rows([0, 1]))


def test_several_updates_cost_as_many_gradients():
    one, three = (learned(blocks(0, 1), updates=each)._fitted.engine.method.net.gradient_rows for each in (1, 3))
    assert three == 3 * one


def test_the_average_is_that_of_the_weights_after_every_batch_while_classes_join():
    learner = Learner("er", memory=20, batch=8, net="mlp", weight_average=1.0)
    states, outputs = [], []
    for x, y in blocks(0, 1, 2, each=16):
        learner.partial_fit(x, y)
        net = learner._fitted.engine.method.net
        states.append({name: each.clone() for name, each in net.state_dict().items()})
        outputs.append(net.classes)
    averaged = learner._fitted.engine.method.ema.net.state_dict()
    assert outputs == [1, 1, 2, 2, 3, 3]
    for name, found in averaged.items():
        if not name.startswith("head"):
            assert found.allclose(torch.stack([state[name] for state in states]).mean(0), atol=1e-6)
    first = torch.stack([state["head.weight"][0] for state in states]).mean(0)
    assert averaged["head.weight"][0].allclose(first, atol=1e-6)
    method = learner._fitted.engine.method
    method.ema.update(method.net)  # shapes agree


def test_class_means_are_taken_once_between_two_lessons(monkeypatch):
    learner = learned(blocks(0, 1), predict_by="nearest-mean")
    calls = []
    probe = type(learner._fitted.engine.view)
    asked = probe.predictor
    monkeypatch.setattr(probe, "predictor", lambda self: calls.append(1) or asked(self))
    x, y = rows([0, 1])
    for _ in range(3):
        before = learner.predict_proba(x)
    assert len(calls) == 1
    learner.partial_fit(x, y)
    assert not np.array_equal(learner.predict_proba(x), before)
    learner.consolidate()
    learner.predict(x)
    learner.release(["class 0"])
    learner.predict(x)
    assert len(calls) == 4


def test_a_class_whose_rows_are_all_candidates_has_a_mean():
    memory = ODEDM(40, rho=0.5, candidates=4, short_policy="reservoir")
    own = {"memory": memory, "batch": 8, "net": "mlp", "predict_by": "nearest-mean"}
    learner = Learner("er", patience=None, **own)
    feed(learner, blocks(0, 1, each=2000))
    feed(learner, blocks(2, each=8))  # too late for a reservoir that has seen thousands
    held = learner.rows("all")["y"].tolist()
    assert "class 2" not in held
    assert "class 2" in learner.rows("candidates")["y"].tolist()
    assert (learner.predict(rows([2] * 10, seed=5)[0]) == "class 2").mean() > 0.5


def test_a_run_with_ingredients_goes_on_as_a_learner_with_them(tmp_path):
    data = odedm.blobs()
    own = {"updates": 2, "stream_loss": "asymmetric", "weight_average": 0.9}
    outcome = odedm.train(data=data, memory=odedm.Reservoir(40), method="er", predict="nearest-mean", **own)
    kept = odedm.load(outcome.save(tmp_path / "model"))
    learner = odedm.Learner.from_model(kept)
    assert learner.get_params().items() >= {**own, "predict_by": "nearest-mean"}.items()
    assert np.array_equal(learner.predict(data.test_image), kept.predict(data.test_image))
    before, after = outcome.method, learner._fitted.engine.method
    assert before.ema.progress.equal(after.ema.progress)
    assert (after.logit_adjustment(torch.zeros(1, 10)) == -torch.inf).all(), "every class was here"
    learner.partial_fit(data.image[:32], data.label[:32].numpy())
    turned = odedm.train(data="fashion-mini", memory=odedm.Reservoir(40), method="er", limit=20, views="turned-classes")
    with pytest.raises(UsageError, match="a learner's classes join on the way"):
        odedm.Learner.from_model(odedm.load(turned.save(tmp_path / "turned")))


WRONG = {
    "no such optimizer": ({"optimizer": "luck"}, "luck"),
    "an optimizer that no file holds": ({"optimizer": torch.optim.SGD}, "must be a name, one of sgd"),
    "no such retrieval": ({"retrieval": "luck"}, "luck"),
    "a retrieval of its own": (
        {"method": "mir", "retrieval": "balanced"},
        "chooses the rows that it replays by itself",
    ),
    "no such option": ({"retrieval_options": {"candidates": 3}}, "has no option 'candidates'"),
    "no table": ({"retrieval_options": 3}, "retrieval_options must be a table"),
    "no update": ({"updates": 0}, "updates must be 'auto' or a whole number, 1 or more"),
    "no such loss": ({"stream_loss": "mine"}, "mine"),
    "no such prediction": ({"predict_by": "luck"}, "luck"),
    "no share": ({"weight_average": 1.5}, "weight_average must be a number from 0 to 1"),
    "no task to take half of": (
        {"weight_average": "auto"},
        "weight_average must be a number from 0 to 1 \\(how much of it is left after a batch\\) or .*; 'auto'",
    ),
    "no such views": ({"views": ["crop"]}, "views"),
    "classes are not known": ({"views": "turned-classes"}, "Give one of crop, strong, rotations"),
    "a loss of its own": ({"method": "er-ace", "stream_loss": "adjusted"}, "takes no stream loss 'adjusted'"),
    "a prediction of its own": ({"method": "cope", "predict_by": "head"}, "takes no prediction by 'head'"),
    "no rows": ({"method": "scr", "weight_average": "many"}, "weight_average"),
}


@pytest.mark.parametrize(("own", "said"), WRONG.values(), ids=WRONG)
def test_what_cannot_be_is_refused_at_once(own, said):
    with pytest.raises(UsageError, match=said):
        Learner(**own)
    learner = Learner()
    with pytest.raises(UsageError, match=said):
        learner.set_params(**own)
    assert learner.get_params()["updates"] == "auto"


def test_numbers_of_numpy_are_learned_with_and_saved(tmp_path):
    whole = {"batch": 8, "draw": 4, "seed": 3, "patience": 20, "every": 30, "threads": 1, "updates": 2}
    own = {name: np.int64(each) for name, each in whole.items()} | {"weight_average": np.float32(0.9)}
    own |= {"retrieval": "mir", "retrieval_options": {"candidates": np.int64(9)}, "options": {"lr": np.float32(0.1)}}
    learner = learned(blocks(0, 1), net_options={"width": np.int64(20)}, **own)
    again = Learner.load(learner.save(tmp_path / "learner"))
    for each in (learner, again):
        feed(each, blocks(2))
    x, _ = rows([0, 1, 2])
    assert np.array_equal(learner.predict_proba(x), again.predict_proba(x))


def test_an_optimizer_that_keeps_rows_and_columns_goes_on_when_classes_join(tmp_path):
    odedm.register("optimizers", "by-rows", torch.optim.Adafactor)
    learner = learned(blocks(0, 1, 2), optimizer="by-rows", options={"lr": 0.05})
    again = Learner.load(learner.save(tmp_path / "learner"))
    for each in (learner, again):
        feed(each, blocks(3))
    x, y = rows([0, 1, 2, 3] * 10, seed=78)
    assert learner.score(x, y) > 0.5
    assert np.array_equal(learner.predict_proba(x), again.predict_proba(x))


def test_a_warm_up_and_a_norm_for_gradients_go_on_after_a_file(tmp_path):
    batches = list(blocks(0, 1))
    settings = {"warmup": 6, "clip_norm": 0.01, "lr": 0.5, "optimizer": "adamw"}
    whole = learned(batches, **settings)
    first = learned(batches[:3], **settings)
    rates = [float(group["lr"]) for group in first._fitted.engine.method.optimizer.param_groups]
    assert rates == [pytest.approx(0.25)], "three of six batches"
    again = Learner.load(first.save(tmp_path / "file"))
    for x, y in batches[3:]:
        again.partial_fit(x, y)
    x, _ = batches[0]
    assert again.predict_proba(x).tobytes() == whole.predict_proba(x).tobytes()
    assert float(again._fitted.engine.method.optimizer.param_groups[0]["lr"]) == 0.5


def test_gradients_are_cut_to_the_norm():
    learner = learned([rows([0, 1] * 4)], clip_norm=1e-3, lr=1.0, updates=1)
    weights = [weight.detach().clone() for weight in learner._fitted.engine.method.net.parameters()]
    learner.partial_fit(*rows([1, 0] * 4, seed=3))
    moved = [new - old for new, old in zip(learner._fitted.engine.method.net.parameters(), weights, strict=True)]
    assert torch.cat([each.flatten() for each in moved]).norm().item() == pytest.approx(1e-3, rel=1e-3)


@pytest.mark.parametrize("name", ["linear", "cosine"])
def test_a_schedule_that_ends_with_the_stream_is_refused(name):
    with pytest.raises(UsageError, match=f"The schedule '{name}' falls until the stream ends"):
        Learner("er", schedule=name)
