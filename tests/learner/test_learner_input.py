"""What a learner is given: frames, odd labels, rows that cannot be. Refused is refused whole: nothing has changed."""

import copy
import inspect
import pickle

import numpy as np
import pandas as pd
import pytest
import torch
from scipy.sparse import csr_array
from sklearn.base import clone, is_classifier
from sklearn.model_selection import cross_val_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.utils.estimator_checks import estimator_checks_generator
from sklearn.utils.validation import check_is_fitted

from odedm import ODEDM, Learner, UsageError
from odedm.learner.learner_state import capture

X = np.random.default_rng(0).normal(size=(40, 3)).astype(np.float32)
Y = np.array(["low", "high"])[(X[:, 0] > 0).astype(int)]
FRAME = pd.DataFrame(X, columns=["a", "b", "c"])


def small(**settings):
    return Learner(**{"method": "er", "memory": 20, "net": "mlp", "net_options": {"width": 8}, **settings})


def state(learner):
    found = capture(learner)
    return found["head"], {name: each.clone() for name, each in found["tensors"].items()}


def same(one, other):
    return one[0] == other[0] and all(one[1][name].equal(other[1][name]) for name in one[1] | other[1])


NAN = X.copy()
NAN[3, 1] = np.nan
REFUSED = {
    "zero rows": (X[:0], Y[:0], "x has 0 rows"),
    "a wrong width": (X[:, :2], Y, r"shape \[2\], and in the first rows it had \[3\]"),
    "no rows at all": (X[0], Y[:1], r"x must be vectors.*One row alone is x\[None\]"),
    "NaN": (NAN, Y, "NaN or an infinity in 1 of 40 rows, first in row 3"),
    "beyond float32": (X.astype(float) * 1e60, Y, "NaN or an infinity"),
    "words": (np.array([["x", "y", "z"]]), Y[:1], "x must hold numbers"),
    "sparse": (csr_array(X), Y, "x is a sparse matrix"),
    "ragged": ([[1, 2], [3]], Y[:2], "x is not an array"),
    "fewer labels": (X, Y[:5], "x has 40 rows but y has 5"),
    "labels in a column": (X, Y[:, None], r"one label for each row, \[n\]; its shape is \[40, 1\]"),
    "one label": (X, "low", "y must be a list or an array"),
    "mixed labels": (X[:2], ["low", 3], r"of one type: row 0 has text \('low'\), row 1 whole numbers \(3\)"),
    "other labels": (X[:2], [1, 2], "labels so far are text, such as 'high'; these are whole numbers, such as 1"),
    "missing labels": (X[:2], pd.Series(["low", None]), "label of row 1 of y is (None|nan)"),
    "labels that are none": (X[:2], [("a",), ("b",)], "label of row 0 of y is"),
    "a frame that lacks a column": (FRAME[["a", "c"]], Y, "lacks 'b'"),
    "a frame with a new column": (FRAME.assign(d=1.0), Y, "has 'd', which is new"),
    "a frame in another order": (FRAME[["b", "a", "c"]], Y, r"another order: \['b', 'a', 'c'\]"),
    "a frame with words": (FRAME.assign(b="x"), Y, "column 'b' does not hold numbers"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_learned_is_a_sentence_and_changes_nothing(name):
    x, y, words = REFUSED[name]
    learner = small().partial_fit(FRAME, Y)
    before = state(learner)
    with pytest.raises(UsageError, match=words):
        learner.partial_fit(x, y)
    assert same(before, state(learner))
    if "label" not in name:
        with pytest.raises(UsageError):
            learner.predict(x)
    learner.partial_fit(X, Y)


def test_a_first_batch_that_is_refused_leaves_a_learner_that_can_begin():
    learner = small()
    for x, y, _ in REFUSED.values():
        if isinstance(x, pd.DataFrame) or len(y) == len(X):
            continue
        with pytest.raises(UsageError):
            learner.partial_fit(x, y if len(y) != 2 or not isinstance(y[1], int) else ["a", 1])
    for classes, words in (
        ("low", "classes must be a list"),
        (3, "classes must be"),
        ([1, 2], "classes are whole numb"),
    ):
        with pytest.raises(UsageError, match=words):
            learner.partial_fit(X, Y, classes=classes)
    with pytest.raises(UsageError, match="for images"):
        small(net="cnn", net_options=None).partial_fit(X, Y)
    assert learner.partial_fit(X, Y).rows_seen_ == 40


@pytest.mark.parametrize("ask", ["predict", "predict_proba", "save", "consolidate", "rows"])
def test_nothing_can_be_asked_before_something_was_learned(ask, tmp_path):
    with pytest.raises(UsageError, match="has learned nothing yet: call partial_fit"):
        getattr(small(), ask)(*{"save": [tmp_path / "x"], "consolidate": [], "rows": []}.get(ask, [X]))
    assert not hasattr(small(), "classes_")


@pytest.mark.parametrize(
    ("labels", "kind"),
    [
        (Y, "U"),
        (pd.Series(Y).astype("category"), "U"),
        (list(Y), "U"),
        (torch.from_numpy((Y == "low").astype(np.int64)) + 7, "i"),
        (Y == "low", "b"),
        ([0.5 if each == "low" else 1 for each in Y], "f"),
    ],
)
def test_labels_come_back_as_they_were_given(labels, kind):
    guess = small(options={"lr": 0.3}).partial_fit(X, labels).predict(X)
    assert guess.dtype.kind == kind
    assert set(guess.tolist()) <= set(labels.tolist() if not isinstance(labels, list) else labels)


def test_frames_and_arrays():
    learner = small().partial_fit(FRAME, pd.Series(Y, index=range(5, 45)))
    assert learner.feature_names_in_.tolist() == ["a", "b", "c"]
    assert learner.n_features_in_ == 3
    assert (learner.predict(FRAME) == learner.predict(X)).all()
    integers = FRAME.assign(b=np.arange(40), c=[True, False] * 20)
    assert len(learner.predict(integers)) == 40
    assert not hasattr(small().partial_fit(X, Y), "feature_names_in_")


def test_parameters_can_be_read_set_and_cloned():
    memory = ODEDM(30, k=2)
    learner = small(memory=memory, options={"lr": 0.2}).partial_fit(X, Y)
    assert learner.get_params()["memory"] is memory
    fresh = clone(learner)
    assert fresh.get_params() == learner.get_params()
    assert not hasattr(fresh, "classes_")
    assert learner.set_params(patience=7, every=9).patience == 7
    with pytest.raises(UsageError, match="memory cannot change after rows were learned"):
        learner.set_params(memory=50)
    with pytest.raises(UsageError, match="Unknown parameter of a learner 'patients': did you mean 'patience'"):
        learner.set_params(patients=7)
    with pytest.raises(UsageError, match="batch must be a whole number"):
        learner.set_params(batch=0, patience=3)
    assert (learner.patience, learner.batch) == (7, 32)
    assert fresh.set_params(method="der", memory=50).partial_fit(X, Y).size() == 40
    assert repr(small(patience=3)).startswith("Learner(method='er', memory=20, net='mlp'")


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"method": "erp"}, "Unknown method 'erp': did you mean 'er'"),
        ({"method": "DER++"}, "did you mean 'derpp'"),
        ({"method": "der++refresh"}, "did you mean 'refresh'"),
        ({"method": "finetune"}, "keeps no rows, and a memory would change nothing"),
        (
            {"method": "icarl"},
            r"^iCaRL must be told .* Use one of er, der, derpp, fdr, er-ace, .* ncm, slda, ranpac; or odedm.train",
        ),
        ({"method": 3}, "method must be a name"),
        ({"options": {"rate": 1}}, "Unknown hyper-parameter of er 'rate'"),
        ({"options": 3}, "options must be a table"),
        ({"memory": "big"}, "memory must be a number of rows, or an ODEDM"),
        ({"memory": ODEDM(20, k=1, candidates=15)}, "more than 10, half of the rows"),
        ({"scaling": "none"}, "scaling must be 'auto', None or a Transform"),
        ({"patience": 0}, "patience must be a whole number, 1 or more"),
        ({"trigger": 3}, "trigger must be a function"),
        ({"device": "tpu"}, "Unknown device 'tpu'"),
        ({"seed": -1}, "seed must be a whole number"),
    ],
)
def test_settings_that_cannot_be_are_sentences(settings, words):
    with pytest.raises(UsageError, match=words):
        small(**settings)


OTHERWISE = {
    "check_estimators_unfitted": "the error is odedm's own",
    "check_do_not_raise_errors_in_init_or_set_params": "what cannot be is refused at once",
    "check_n_features_in_after_fitting": "the sentence is another",
    "check_complex_data": "the sentence is another",
    "check_dtype_object": "the sentence is another",
    "check_estimators_empty_data_messages": "the sentence is another",
    "check_fit2d_predict1d": "the sentence is another",
    "check_requires_y_none": "the sentence is another",
    "check_supervised_y_2d": "a column of labels is refused",
    "check_classifiers_regression_target": "numbers can be labels",
    "check_array_api_input": "skipped by scikit-learn itself",
}


@pytest.mark.filterwarnings("ignore")
def test_scikit_learns_own_checks_pass_but_for_wording():
    failed = {}
    for estimator, check in estimator_checks_generator(Learner("er", memory=50, net="mlp", options={"lr": 0.1})):
        try:
            check(estimator)
        except BaseException as error:
            failed[check.func.__name__] = error
    assert set(failed) == set(OTHERWISE), failed


def test_a_name_that_is_none_is_a_sentence():
    with pytest.raises(UsageError, match=r"alpha is a hyper-parameter of derpp, .*: options=\{'alpha': 0.1\}"):
        Learner(alpha=0.1)
    with pytest.raises(UsageError, match=r"options=\{'momentum': 0.9\}"):
        Learner("er", momentum=0.9)
    with pytest.raises(TypeError, match="unexpected keyword argument 'predict'"):
        Learner("er", predict="head")
    assert list(inspect.signature(Learner).parameters)[:2] == ["method", "memory"]


def test_the_learning_rate_is_a_parameter_as_in_train():
    learner = small(lr=0.2)
    assert learner.partial_fit(X, Y)._fitted.engine.method.lr == 0.2
    assert np.array_equal(small(options={"lr": 0.2}).partial_fit(X, Y).predict_proba(X), learner.predict_proba(X))
    again = clone(learner)
    assert again.get_params()["lr"] == 0.2
    assert again.set_params(lr=0.3).partial_fit(X, Y)._fitted.engine.method.lr == 0.3
    for wrong, words in ((-1, "lr must be 0 or more; -1.0 was given"), ("x", "lr must be a finite number; 'x' was")):
        with pytest.raises(UsageError, match=words):
            small(lr=wrong)
    with pytest.raises(UsageError, match="lr was given twice, as a keyword and in options"):
        small(lr=0.1, options={"lr": 0.1})


def test_the_learning_rate_is_in_the_file(tmp_path):
    learner = small(lr=np.float64(0.2)).partial_fit(X, Y)
    again = Learner.load(learner.save(tmp_path / "learner"))
    assert (again.lr, again._fitted.engine.method.lr) == (0.2, 0.2)


def test_scikit_learn_takes_it_for_a_classifier():
    assert is_classifier(small())
    with pytest.raises(ValueError, match="not fitted yet"):
        check_is_fitted(small())
    check_is_fitted(small().partial_fit(X, Y))
    x, y = np.tile(X, (5, 1)), np.tile(Y, 5)
    pipeline = make_pipeline(StandardScaler(), small(batch=4, options={"lr": 0.3}))
    assert cross_val_score(pipeline, x, y, cv=3).mean() > 0.8
    learner = small().partial_fit(X, Y)
    assert learner.fit(X[:8], [1, 2] * 4).classes_.tolist() == [1, 2]


@pytest.mark.parametrize("through", [copy.deepcopy, lambda learner: pickle.loads(pickle.dumps(learner))])
def test_copies_go_on_on_their_own(through):
    learner = small(every=16).partial_fit(X, Y)
    other = through(learner)
    before = state(learner)
    other.partial_fit(X, Y)
    assert same(before, state(learner))
    assert same(state(learner.partial_fit(X, Y)), state(other))
    assert through(small()).partial_fit(X, Y).rows_seen_ == 40


def test_a_learner_that_diverged_says_so_from_then_on():
    learner = small(options={"lr": 1e30})
    with pytest.raises(UsageError, match=r"training diverged.*last file.*lower learning rate"):
        learner.partial_fit(np.tile(X * 100, (20, 1)), np.tile(Y, 20))
    with pytest.raises(UsageError, match="stopped in the middle of an update"):
        learner.predict(X)


@pytest.mark.parametrize("method", ["er", "derpp", "mir", "gss", "cope", "scr"])
def test_a_callers_buffer_may_be_filled_again_after_each_call(method):
    batches = [torch.randn(8, 6, generator=torch.Generator().manual_seed(seed)) for seed in range(6)]
    label, buffer, answers = torch.arange(8) % 3, torch.empty(8, 6), []
    for refill in (False, True):
        learner = Learner(method, memory=ODEDM(30, rho=0.5, candidates=3), net="mlp", batch=8, every=16)
        for batch in batches:
            learner.partial_fit(buffer.copy_(batch) if refill else batch, label)
            buffer.fill_(7.0)
        answers.append(learner.predict_proba(batches[0]).tobytes())
    assert answers[0] == answers[1]
