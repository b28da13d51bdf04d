"""NCM, SLDA and RanPAC against slow oracles, in any order of rows, as learners and in runs."""

import numpy as np
import pytest
import torch

import odedm
from odedm import Learner, NoMemory, UsageError

METHODS = ("ncm", "slda", "ranpac")
OPTIONS = {"ranpac": {"units": 40}}
RNG = np.random.default_rng(0)
CENTRES = RNG.normal(size=(5, 6)) * 2
Y = RNG.permutation(np.arange(5).repeat(30))
X = (CENTRES[Y] + RNG.normal(size=(150, 6)) @ RNG.normal(size=(6, 6))).astype(np.float32)
NAMES = np.array(list("abcde"))[Y]
ASKED = RNG.normal(size=(50, 6)).astype(np.float32) * 3


def learned(method, order=slice(None), batch=7):
    return Learner(method, options=OPTIONS.get(method), batch=batch).partial_fit(X[order], NAMES[order])


def ncm(learner):
    return np.array([[-((x - X[Y == c].astype(float).mean(0)) ** 2).sum() for c in range(5)] for x in ASKED])


def slda(learner, shrinkage=1e-4):
    means = np.array([X[Y == c].astype(float).mean(0) for c in range(5)])
    covariance = sum(np.outer(x - means[y], x - means[y]) for x, y in zip(X.astype(float), Y, strict=True)) / len(X)
    precision = np.linalg.inv((1 - shrinkage) * covariance + shrinkage * np.eye(6))
    return np.array([[m @ precision @ x - m @ precision @ m / 2 for m in means] for x in ASKED.astype(float)])


def ranpac(learner, ridge=0.01):
    projection = learner._fitted.engine.method.net.head.projection.numpy()
    hidden, asked = (np.maximum(rows.astype(float) @ projection, 0) for rows in (X, ASKED))
    gram = sum(np.outer(h, h) for h in hidden)
    gram += ridge * np.diag(gram).mean() * np.eye(len(gram))
    return asked @ np.linalg.solve(gram, hidden.T @ np.eye(5)[Y])


@pytest.mark.parametrize("method", METHODS)
def test_scores_are_those_of_the_formulas(method):
    learner = learned(method)
    order = [learner._fitted.labels.number(name) for name in "abcde"]
    scores = learner._fitted.engine.predict(torch.from_numpy(ASKED))[:, order].numpy()
    expected = globals()[method](learner)
    if method == "ncm":  # ‖φ(x)‖² is left out
        expected = expected + (ASKED.astype(float) ** 2).sum(1, keepdims=True)
    assert np.allclose(scores, expected, rtol=1e-6, atol=1e-8)
    assert (learner.predict(ASKED) == np.array(list("abcde"))[expected.argmax(1)]).all()


@pytest.mark.parametrize("method", METHODS)
def test_the_order_of_rows_makes_no_difference(method):
    first, other = learned(method), learned(method, order=np.argsort(Y, kind="stable")[::-1], batch=11)
    assert np.allclose(first.predict_proba(ASKED), other.predict_proba(ASKED), atol=1e-9)
    buffers = dict(first._fitted.engine.method.net.head.named_buffers())
    places = [other._fitted.labels.number(name) for name in first._fitted.labels.classes]
    for name, buffer in other._fitted.engine.method.net.head.named_buffers():
        assert torch.allclose(buffers[name], buffer[places] if len(buffer) == 5 else buffer, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("method", METHODS)
def test_classes_join_and_a_file_goes_on_as_before(method, tmp_path):
    learner = Learner(method, options=OPTIONS.get(method)).partial_fit(X[Y < 2], NAMES[Y < 2])
    assert set(learner.predict(ASKED)) <= {"a", "b"}
    learner = Learner.load(learner.save(tmp_path / "learner.safetensors"))
    learner.partial_fit(X[Y >= 2], NAMES[Y >= 2])
    assert np.allclose(learner.predict_proba(ASKED), learned(method).predict_proba(ASKED), atol=1e-9)
    assert learner.size() == 0


@pytest.mark.parametrize("method", METHODS)
def test_a_run_counts_its_bytes_and_its_model_goes_on_as_a_learner(method, tmp_path):
    data = odedm.from_arrays(X, NAMES, tasks=5, name="rows")
    outcome = odedm.train(data, method=method, memory=NoMemory(), options=OPTIONS.get(method, {}))
    assert outcome.result.experiment["net"] == "linear"
    head = outcome.method.net.head
    assert outcome.result.bytes == {"rows": 0, "method": sum(buffer.nbytes for buffer in head.buffers())}
    assert head.count.sum() == len(data.image)
    model = odedm.load(outcome.save(tmp_path / "model.safetensors"))
    assert (model.predict(data.test_image.numpy()) == outcome.predict(data.test_image.numpy())).all()
    learner = Learner.from_model(model)
    assert (learner.predict(ASKED) == model.predict(ASKED)).all()
    learner.partial_fit(X, NAMES)
    assert learner._fitted.engine.method.net.head.count.sum() == len(data.image) + len(X)


def test_a_scatter_without_a_cholesky_factor_is_solved_all_the_same():
    x = np.ones((40, 3), np.float32) * 3e7 * RNG.normal(size=(40, 1)).astype(np.float32)
    learner = Learner("slda").partial_fit(x, np.arange(40) % 2)
    assert np.isfinite(learner.predict_proba(x)).all()


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"method": "slda", "memory": 20}, "keeps no rows, and a memory would change nothing"),
        ({"method": "ncm", "lr": 0.1}, "trains no network, so it takes no lr"),
        ({"method": "slda", "options": {"shrinkage": 0}}, "shrinkage must be above 0"),
        ({"method": "ranpac", "options": {"units": 0}}, "1 or more units"),
        ({"method": "ranpac", "options": {"units": 1 << 15}}, "matrix of 32768 × 32768 numbers"),
        ({"method": "slda", "predict_by": "nearest-mean"}, "takes no prediction by"),
    ],
)
def test_what_makes_no_sense_is_refused(settings, message):
    with pytest.raises(UsageError, match=message):
        Learner(**settings).partial_fit(X, Y)
