"""A run's trained model, kept in one file: it predicts as the run's own test did, in the user's labels, and goes on."""

import numpy as np
import pytest
import torch
from commands import odedm as command
from jobs import job_of
from rewritten_files import rewrite
from sampling import KEEPING, QUICK
from torch import nn

import odedm
from odedm import ODEDM, Experiment, Observation, Reservoir, UsageError
from odedm.checkpoint.stop import Stopped
from odedm.execute.run_job import run_job
from odedm.methods.er import ER
from odedm.results.verification import is_valid, verify

WORDS = np.array(["dog", "ant", "cat", "bee"])
NUMBER = np.arange(4).repeat(20)
RNG = np.random.default_rng(0)
X = (RNG.normal(size=(4, 3, 6, 6))[NUMBER] * 40 + 120 + 20 * RNG.normal(size=(80, 3, 6, 6))).clip(0, 255)
X = X.astype(np.uint8)
DATA = odedm.from_arrays(X, WORDS[NUMBER], tasks=2, flip=True)
TESTED = np.array(DATA.class_names)[DATA.test_label]


def learned(data=DATA, method="er", **settings):
    settings = {"memory": ODEDM(16, k=2), "batch": 8, "device": "cpu", **settings}
    return odedm.train(data, method=method, **settings)


@pytest.fixture(scope="module")
def plain():
    return learned()


@pytest.fixture
def path(plain, tmp_path):
    return plain.save(tmp_path / "model.safetensors")


@pytest.mark.parametrize("method", KEEPING)
def test_it_predicts_what_the_runs_own_test_did_bit_for_bit(method, tmp_path):
    outcome = learned(method=method, class_order="seed", seed=3, options=QUICK.get(method, {}))
    torch.set_num_threads(2)  # a caller's own settings change nothing
    model = odedm.load(outcome.save(tmp_path / "model.safetensors"))
    scores = outcome.probe.predict(DATA.test_image)
    assert model._score_rows(DATA.test_image)[0].equal(scores)
    assert np.array_equal(model.predict(DATA.test_image), outcome.predict(DATA.test_image))
    task = np.repeat([0, 1], 2)[[outcome.labels().index(each) for each in TESTED]]
    shares = [100 * model.score(DATA.test_image[task == each], TESTED[task == each]) for each in (0, 1)]
    assert shares == pytest.approx(outcome.result.class_il[-1])
    rows = outcome.memory.rows()
    assert all(model.memory[name].equal(column) for name, column in rows.items()), "all columns of its memory"


def test_answers_are_in_the_users_own_labels(tmp_path, plain, path):
    model = odedm.load(path)
    assert set(model.predict(X)) <= set(WORDS)
    assert model.classes_.tolist() == sorted(WORDS)
    chance = model.predict_proba(X)
    assert np.array_equal(model.classes_[chance.argmax(1)], model.predict(X))
    assert chance.sum(1) == pytest.approx(1)
    assert model.features(X[:3]).shape == (3, plain.probe.embed(DATA.image[:1]).shape[1])
    assert model.rows("long")["y"].tolist() == ["ant", "ant", "bee", "bee"], "k = 2 of both classes of the first task"
    assert len(model.rows()["x"]) == len(model.memory["label"]) == 16
    assert model.result == plain.result
    assert model.plan == Experiment.from_dict(plain.result.experiment)
    assert repr(model).startswith("<TrainedModel of ER · ODEDM · λ=16 on 'arrays', seed 0: ACC_2")
    years = learned(odedm.from_arrays(X / 255, NUMBER * 10 + 1990, tasks=2, class_names=list("abcd")))
    model = odedm.load(years.save(tmp_path / "years.safetensors"))
    assert set(model.predict(X / 255).tolist()) <= {1990, 2000, 2010, 2020}
    assert model.class_names[2000] == "b"
    assert years.predict(X[:5] / 255).tolist() == model.predict(X[:5] / 255).tolist()
    stream = odedm.from_batches(
        [(X[NUMBER < 2], NUMBER[NUMBER < 2] + 7, 0), (X[NUMBER > 1], NUMBER[NUMBER > 1] + 7, 1)]
    )
    assert set(learned(stream).predict(X).tolist()) <= {7, 8, 9, 10}


@pytest.mark.parametrize(("method", "memory"), [("derpp", ODEDM(16, rho=0.5)), ("er-ace", Reservoir(16))])
def test_it_goes_on_as_a_learner(method, memory, tmp_path):
    outcome = learned(method=method, memory=memory)
    model = odedm.load(outcome.save(tmp_path / "model.safetensors"))
    before = model._score_rows(X)[0]
    learner = odedm.Learner.from_model(model, patience=30)
    assert np.array_equal(learner.predict_proba(X), model.predict_proba(X))
    held = learner._fitted.engine.memory.buffer
    assert all(held.rows()[name].equal(model.memory[name]) for name in held.rows())
    assert held.store.priority.sort().values.equal(model.memory["priority"].sort().values)
    for start in range(0, 40, 8):
        learner.partial_fit(X[start : start + 8], ["emu"] * 8)
    assert "emu" in learner.predict(X[:40])
    pinned = {label for event in learner.events if event.what == "pinned" for label in event.labels}
    assert pinned == ({"cat", "dog"} if isinstance(memory, ODEDM) else set()), "those the run had not consolidated"
    assert model._score_rows(X)[0].equal(before), "the model stays as it is"
    again = odedm.Learner.load(learner.save(tmp_path / "learner.safetensors"))
    assert np.array_equal(again.predict(X), learner.predict(X))


@pytest.mark.parametrize(
    ("settings", "trained"),
    [
        ({"method": "scr"}, lambda method: method.projection.state_dict()),
        ({"method": "er", "views": "rotations"}, lambda method: method.rotation_task.state_dict()),
        ({"method": "er", "weight_average": 0.9}, lambda method: method.ema.state_dict()),
        ({"method": "er-ace"}, lambda method: {"seen": method.seen}),
    ],
)
def test_what_a_method_trains_beside_its_network_goes_on_too(settings, trained, tmp_path):
    outcome = learned(**settings)
    learner = odedm.Learner.from_model(odedm.load(outcome.save(tmp_path / "model.safetensors")))
    before, now = trained(outcome.method), trained(learner._fitted.engine.method)
    assert before.keys() == now.keys()
    assert all(before[name].equal(now[name]) for name in before)
    assert any(tensor.any() for tensor in before.values())
    learner.partial_fit(X[:8], learner.predict(X[:8]))
    assert not all(tensor.equal(trained(learner._fitted.engine.method)[name]) for name, tensor in before.items()) or (
        settings["method"] == "er-ace"
    )


@pytest.mark.parametrize(
    ("settings", "sentence"),
    [
        ({"method": "icarl"}, "must be told where tasks begin and end"),
        ({"transform": lambda image: image}, "no views of its own"),
    ],
)
def test_what_cannot_go_on_says_so(settings, sentence, tmp_path):
    model = odedm.load(learned(**settings).save(tmp_path / "model.safetensors"))
    assert len(model.predict(X)) == len(X)
    with pytest.raises(UsageError, match=sentence):
        odedm.Learner.from_model(model)


@pytest.mark.parametrize("settings", [{"optimizer": "adamw"}, {"retrieval": "mir"}])
def test_a_model_goes_on_with_its_optimizer_and_its_retrieval(settings, tmp_path):
    model = odedm.load(learned(**settings).save(tmp_path / "model.safetensors"))
    learner = odedm.Learner.from_model(model)
    assert learner.get_params().items() >= settings.items()
    assert np.array_equal(learner.predict(X), model.predict(X))
    learner.partial_fit(X[:40], learner.predict(X[:40]))


class Mine(ER):
    """Predicts by a network that follows the one that learns, and keeps it from the first step on."""

    def observe(self, batch, replay):
        self.slow = getattr(self, "slow", None) or type(self.net)(*self.net.made_of)
        return super().observe(batch, replay)

    def predict(self, x):
        return self.slow.eval()(x).detach()


class Tiny(odedm.Net):
    def __init__(self, shape, classes):
        super().__init__()
        self.classes, self.made_of = classes, (shape, classes)
        self.head = nn.Linear(int(np.prod(shape)), classes)

    def backbone(self, x):
        return x.flatten(1)


def test_a_method_of_ones_own_has_nothing_to_declare(tmp_path):
    outcome = learned(method=Mine, net=Tiny)
    model = odedm.load(outcome.save(tmp_path / "model.safetensors"))
    assert model._score_rows(DATA.test_image)[0].equal(outcome.probe.predict(DATA.test_image))
    assert not torch.equal(outcome.method.slow.head.weight, outcome.method.net.head.weight)


def test_code_from_outside_is_given_or_registered_and_never_imported(tmp_path):
    module = nn.Sequential(nn.Flatten(), nn.Linear(108, 5), nn.ReLU(), nn.Linear(5, 4))
    outcome = learned(net=module)
    path = outcome.save(tmp_path / "model.safetensors")
    with pytest.raises(UsageError, match=r"net was 'Sequential'.*no file holds.*odedm.load\(path, net=…\)"):
        odedm.load(path)
    empty = nn.Sequential(nn.Flatten(), nn.Linear(108, 5), nn.ReLU(), nn.Linear(5, 4))
    model = odedm.load(path, net=empty)
    assert model._score_rows(X_TENSOR)[0].equal(outcome.probe.predict(X_TENSOR))
    assert np.array_equal(odedm.Learner.from_model(model).predict(X), model.predict(X))
    with pytest.raises(UsageError, match="weights"):
        odedm.load(path, net=nn.Sequential(nn.Flatten(), nn.Linear(108, 6), nn.ReLU(), nn.Linear(6, 4)))
    odedm.register("nets", "tiny", Tiny)
    path = learned(net="tiny").save(tmp_path / "tiny.safetensors")
    del odedm.core.registry.NETS["tiny"]
    with pytest.raises(UsageError, match="Unknown net 'tiny'.*--plugin"):
        odedm.load(path)
    with pytest.raises(UsageError, match="The file names its net"):
        odedm.load(path, net=empty)


X_TENSOR = torch.from_numpy(X)


def head_of(**values):
    return lambda head, tensors: head.update(values)


def planned(**values):
    return lambda head, tensors: head["result"]["experiment"].update(values)


def put(name, change):
    return lambda head, tensors: tensors.update({name: change(tensors[name])})


def kept(**values):
    return lambda head, tensors: head["state"]["items"][0][1]["attributes"].update(values)


WEIGHT = "method.net._modules.head._parameters.weight"
HOSTILE = {
    "another version": (head_of(schema="odedm.model/9"), "'odedm.model/9' and this version .* reads 'odedm.model/3'"),
    "a learner's": (head_of(schema="odedm.learner/1"), "'odedm.learner/1' and this version .* reads 'odedm.model"),
    "a method that is none": (planned(method="os.system"), "Unknown method 'os.system'"),
    "a net that is none": (planned(net="subprocess:Popen"), "Unknown net"),
    "a net far too large": (planned(net_options={"width": 1 << 22}), "would have .* weights"),
    "options that are none": (planned(options=[1]), "options"),
    "no draw": (planned(replay_batch=0), "replay_batch must be"),
    "a label too few": (head_of(labels=["a", "b"]), "not one label for each class"),
    "labels of mixed types": (head_of(labels=["a", 1, 2, 3]), "mixed types"),
    "no shape": (head_of(rows=[[], "uint8", None]), "no shape"),
    "views that are none": (head_of(transform=[-1, True]), "crop and flip settings are malformed"),
    "code in the state": (kept(predict=1), "has no 'predict'"),
    "a rate in the state": (kept(lr=5.0), "has no 'lr'"),
    "a state that is none": (head_of(state=["object", "os"]), "cannot be used"),
    "a class that is none": (kept(extra={"type": "object", "path": "x", "class": "os", "attributes": {}}), "class os"),
    "fewer weights": (lambda head, tensors: tensors.pop(f"state.{WEIGHT}"), "weights"),
    "other weights": (put(f"state.{WEIGHT}", lambda each: each[:, :-1]), "head.weight' is"),
    "weights that are no numbers": (put(f"state.{WEIGHT}", lambda each: each * torch.nan), "NaN"),
    "no scale": (put("transform.scale", lambda each: each / 0), "constants"),
    "rows of no class": (put("host.label", lambda each: each + 9), "rows of no class"),
    "rows of other sizes": (put("host.label", lambda each: each[:3]), r"'host.label' is torch.int64 \[3\] where"),
    "rows of another shape": (put("host.image", lambda each: each[..., 1:]), "'host.image' is torch.uint8"),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_file_of_anyones_is_refused_with_a_sentence(name, path):
    change, sentence = HOSTILE[name]
    rewrite(path, change)
    with pytest.raises(UsageError, match=sentence):
        odedm.load(path)


def test_files_that_are_not_whole_are_refused_with_a_sentence(plain, path, tmp_path):
    content = path.read_bytes()
    for torn, sentence in [(content[:-1], "not whole"), (b"", "not whole|empty"), (b"\xff" * 64, "not whole")]:
        path.write_bytes(torn)
        with pytest.raises(UsageError, match=sentence):
            odedm.load(path)
    path.write_bytes(content)
    rewrite(path, put(f"state.{WEIGHT}", lambda each: each + 1), seal=False)
    with pytest.raises(UsageError, match="has changed since it was written"):
        odedm.load(path)
    with pytest.raises(UsageError, match="There is no file .*nowhere.*outcome.save or --keep-model has written"):
        odedm.load(tmp_path / "nowhere")
    with pytest.raises(UsageError, match="is there already.*overwrite=True"):
        plain.save(path)
    assert odedm.load(plain.save(path, overwrite=True)).result == plain.result
    with pytest.raises(UsageError, match="Cannot write the model"):
        plain.save(path / "below a file.safetensors")
    bare = plain.save(tmp_path / "bare", keep_model=False)
    with pytest.raises(UsageError, match=r"no model.safetensors in .*bare.*--keep-model"):
        odedm.load(bare)
    (tmp_path / "empty").mkdir()
    with pytest.raises(UsageError, match="No finished run at or below"):
        odedm.load(tmp_path / "empty")
    model = odedm.load(plain.save(tmp_path / "whole"))
    assert odedm.load(plain.save(tmp_path / "empty" / "one").parent).result == plain.result, "the only one"
    plain.save(tmp_path / "empty" / "two")
    with pytest.raises(UsageError, match="holds 2 runs; give one, e.g. '.*one'"):
        odedm.load(tmp_path / "empty")
    for call, sentence in [
        (lambda: model.predict(X[:, :1]), "in the first rows it had"),
        (lambda: model.predict(X / 255), "uint8"),
        (lambda: model.score(X, NUMBER), "The labels so far are text"),
        (lambda: model.score(X, ["ant"]), "80 rows but y has 1"),
        (lambda: model.rows("middle"), "Unknown part of the memory"),
        (lambda: odedm.load(path, device="tpu"), "Unknown device"),
        (lambda: odedm.load(3), "A path must be text or a Path"),
    ]:
        with pytest.raises(UsageError, match=sentence):
            call()


def test_the_command_keeps_it_and_verify_looks_at_it(tmp_path):
    words = ["run", "--data", "blobs", "--method", "er", "--memory", "odedm", "--capacity", "20", "--device", "cpu"]
    words += ["--out", str(tmp_path / "runs"), "--keep-model"]
    assert "seed-0/model.safetensors, for odedm.load" in command(*words)
    command(*words, "--seed", 1)
    first, second = sorted((tmp_path / "runs").glob("*/*"))
    data = odedm.blobs()
    for folder in (first, second):
        model = odedm.load(folder)
        here = odedm.train(data, method="er", memory=ODEDM(20), device="cpu", seed=model.plan.seed)
        assert model._score_rows(data.test_image)[0].equal(here.probe.predict(data.test_image)), "as train makes it"
        assert 100 * model.score(data.test_image, data.test_label) == pytest.approx(model.result.acc_last)
        assert is_valid(verify(folder))
    (second / "model.safetensors").write_bytes((first / "model.safetensors").read_bytes())
    assert [check.name for check in verify(second) if check.valid is False] == ["files"]


def test_a_resumed_run_keeps_it_as_it_was_asked_to(tmp_path):
    plan = Experiment(ODEDM(20, k=1), method="er", data="blobs", batch=16, device="cpu")
    for name, first, then in [("asked", True, None), ("later", False, True)]:
        looks = [None if each is None else Observation(keep_model=each) for each in (first, then)]
        with pytest.raises(Stopped):
            run_job(job_of(plan, tmp_path / name, observation=looks[0]), stop=lambda: True)
        said = []
        outcome = run_job(job_of(plan, tmp_path / name, observation=looks[1]), said.append)
        assert not [each for each in said if "This run began" in getattr(each, "line", "")]
        x = outcome.data.test_image
        assert np.array_equal(odedm.load(tmp_path / name).predict(x), outcome.predict(x))


def test_a_study_can_ask_for_it():
    from odedm.studies.spec import parse

    study = parse("keep_model = true\nmethod = 'er'\nseeds = 1")
    assert study.observation.keep_model
    assert parse(study.to_toml()).observation == study.observation
