"""Test-then-train: every row is predicted before it is learned, and labels may come late."""

import numpy as np
import pytest
from matplotlib.figure import Figure
from sklearn.linear_model import SGDClassifier

import odedm
from odedm import Learner, Prequential, UsageError, prequential


class Diary:
    """Answers with the last label it was taught, and writes down what happened."""

    def __init__(self):
        self.did = []

    def predict(self, x):
        self.did.append(("predict", x[0][0]))
        return np.repeat(self.classes_[-1], len(x))

    def partial_fit(self, x, y):
        self.did.append(("learn", x[0][0]))
        self.classes_ = [y[-1]]


def stream(batches, size=2):
    for number in range(batches):
        yield np.full((size, 1), number), ["even" if number % 2 == 0 else "odd"] * size


def test_a_batch_is_predicted_and_then_learned():
    diary = Diary()
    result = prequential(diary, stream(3))
    assert diary.did == [("learn", 0), ("predict", 1), ("learn", 1), ("predict", 2), ("learn", 2)]
    assert (result.unanswered, result.rows, result.right) == (2, 4, 0)


def test_late_labels_are_learned_when_as_many_rows_have_come():
    diary = Diary()
    result = prequential(diary, stream(5), delay=3)
    learned = [place for what, place in diary.did if what == "learn"]
    assert learned == [0, 1, 2, 3, 4]
    assert diary.did[:3] == [("learn", 0), ("predict", 3), ("learn", 1)]
    assert result.unanswered == 6
    assert result.right == 0, "batch 3 is odd, and batch 0 was even; batch 4 is even, and batch 1 was odd"
    assert prequential(Diary(), stream(5), delay=100).unanswered == 10


def test_windows_cut_through_batches_and_add_up():
    result = Prequential(window=3)
    result.unanswered = 4
    result.count(np.array([True, False, True, True, True]))
    result.count(np.array([False, False]))
    assert result.windows == [(7, 3, 2), (10, 3, 2), (11, 1, 0)]
    assert [round(each, 3) for _, each in result.by_window] == [0.667, 0.667, 0.0]
    assert (result.rows, result.right, round(result.accuracy, 4)) == (7, 4, 0.5714)


def test_the_line_and_the_plot():
    data = odedm.blobs()
    batches = list(zip(data.image.split(16), data.label.split(16), strict=True))
    result = prequential(Learner("er", memory=40, net="mlp", batch=16), batches, window=20, delay=10)
    assert len(result.windows) > 12
    assert "labels 10 rows late" in repr(result)
    assert f"{result.accuracy:.2%} of {result.rows} rows" in repr(result)
    axes = result.plot()
    assert [len(line.get_xdata()) for line in axes.lines] == [len(result.windows)] * 2
    own = Figure().subplots()
    assert result.plot(own) is own


def test_any_estimator_can_be_tested_and_nothing_at_all():
    data = odedm.blobs()
    order = np.random.default_rng(0).permutation(len(data.label))
    x, y = data.image[order].numpy(), data.label[order].numpy()
    batches = [(x[start : start + 20], y[start : start + 20]) for start in range(0, len(x), 20)]
    assert prequential(SGDClassifier(random_state=0), batches, classes=np.arange(10)).accuracy > 0.5
    nothing = prequential(SGDClassifier(), [])
    assert nothing.rows == 0
    assert "nan% of 0 rows" in repr(nothing)
    assert nothing.plot() is not None


@pytest.mark.parametrize(
    ("given", "words"),
    [
        (3, "stream must be an iterable"),
        ([(1, 2, 3)], "Batch 0 of the stream is no pair"),
        ([5], "is no pair"),
        ([(5, 5)], "is no pair"),
    ],
)
def test_a_stream_that_is_none_is_a_sentence(given, words):
    with pytest.raises(UsageError, match=words):
        prequential(Diary(), given)
    with pytest.raises(UsageError, match="window must be"):
        prequential(Diary(), [], window=0)


def test_labels_that_may_come_are_given_with_the_first_rows_and_not_again():
    class Listens(Diary):
        def partial_fit(self, x, y, **more):
            super().partial_fit(x, y)
            self.told = [*getattr(self, "told", []), more]

    listens = Listens()
    prequential(listens, stream(3), classes=["even", "odd"], delay=2)
    assert listens.told == [{"classes": ["even", "odd"]}, {}, {}]
    learner = Learner("er", memory=10)
    prequential(learner, [(np.eye(4), ["a"] * 4)], classes=["a", "b"])
    assert learner.classes_.tolist() == ["a", "b"]


@pytest.mark.parametrize("given", ["er", Learner, 5])
def test_what_cannot_learn_is_refused_before_the_stream_begins(given):
    with pytest.raises(UsageError, match=r"learner must be an odedm\.Learner, .* Write prequential\(odedm\.Learner"):
        odedm.prequential(given, stream(3))
