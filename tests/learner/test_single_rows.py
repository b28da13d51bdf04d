"""Rows that come alone, through networks that normalise a batch by its own deviation."""

import numpy as np
import pytest
import torch
from torch import nn

from odedm import ODEDM, Learner

rng = np.random.default_rng(0)
X, Y = rng.normal(size=(33, 5)).astype(np.float32), np.arange(33) % 3


def net():
    return nn.Sequential(nn.Linear(5, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))


@pytest.mark.parametrize("method", ["er", "derpp"])
def test_a_left_over_row_does_not_end_a_learner(method):
    learner = Learner(method, memory=20, net=net(), batch=32).partial_fit(X, Y)
    assert learner.rows_seen_ == 33
    assert learner.predict(X).shape == (33,)


@pytest.mark.parametrize("method", ["er", "derpp"])
def test_rows_one_at_a_time_and_a_single_prototype(method):
    learner = Learner(method, memory=ODEDM(12, k=1, replay="auxiliary"), net=net(), draw=1, patience=None)
    for row in range(6):
        learner.partial_fit(X[row : row + 1], Y[row : row + 1])
        learner.consolidate()
    body = learner._fitted.engine.method.net.body
    assert body[1].training
    assert learner.size("long") == 3


def test_two_rows_are_normalised_as_ever():
    one, other = net(), net()
    other.load_state_dict(one.state_dict())
    learner = Learner("er", memory=0, net=one, batch=2, scaling=None, lr=0.1, updates=1)
    learner.partial_fit(X[:2], Y[:2], classes=[0, 1, 2])
    loss = nn.functional.cross_entropy(other(torch.from_numpy(X[:2])), torch.from_numpy(Y[:2]))
    assert abs(learner.loss_ - loss.item()) < 1e-6
