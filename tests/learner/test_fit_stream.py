"""Learning from an iterator: what is learned, how far it is read ahead, how it ends."""

import itertools
import threading
import time

import numpy as np
import pytest

import odedm
from odedm import UsageError
from odedm.learner.fit_stream import read_ahead


def batches(number, seed=0):
    rng = np.random.default_rng(seed)
    for _ in range(number):
        y = rng.integers(0, 3, 20)
        yield rng.normal(size=(20, 4)) + 3 * y[:, None], y


def weights(learner):
    return [value.clone() for value in learner.model.state_dict().values()]


@pytest.mark.parametrize("prefetch", [0, 1, 3])
def test_it_learns_what_partial_fit_learns(prefetch):
    learner = odedm.Learner("er", memory=30).fit_stream(batches(8), prefetch=prefetch)
    other = odedm.Learner("er", memory=30)
    for x, y in batches(8):
        other.partial_fit(x, y)
    assert np.array_equal(*(one.predict_proba(next(batches(1, 5))[0]) for one in (learner, other)))


def test_a_slow_learner_slows_the_reading_down():
    given = []

    def source():
        for number in itertools.count():
            given.append(number)
            yield number

    stream = read_ahead(source(), 2)
    assert [next(stream) for _ in range(3)] == [0, 1, 2]
    time.sleep(0.3)
    assert len(given) <= 3 + 2 + 1  # taken, ready, in hand
    stream.close()
    time.sleep(0.3)
    assert not [thread for thread in threading.enumerate() if thread.name == "odedm reads ahead"]


def test_an_error_of_the_source_comes_after_the_batches_before_it():
    def source():
        yield from batches(2)
        raise OSError("the line is dead")

    learner = odedm.Learner("er", memory=30)
    with pytest.raises(OSError, match="the line is dead"):
        learner.fit_stream(source())
    assert len(learner.classes_) == 3


def test_what_is_no_pair_is_refused():
    with pytest.raises(UsageError, match=r"pairs \(x, y\)"):
        odedm.Learner("er").fit_stream([np.zeros((3, 2))])
    with pytest.raises(UsageError, match="an iterable of pairs"):
        odedm.Learner("er").fit_stream(5)
