"""An interrupt at any line of the package leaves a learner whole, or it says that it is not."""

import copy
import json
import threading

import numpy as np
import pytest
import torch
from interrupts import EVERY, interrupt, places_of
from torch import nn

from odedm import ODEDM, Learner, UsageError
from odedm.core.tensor_archive import archive_checksum
from odedm.learner import learner_state, turns
from odedm.learner.turns import Turns
from odedm.training import numerics

rng = np.random.default_rng(0)
CENTERS = rng.normal(size=(6, 8)) * 2
QUERY = rng.normal(size=(6, 8)).astype(np.float32)


def data(classes, amount=16, seed=0):
    generator = np.random.default_rng(seed)
    y = generator.choice(classes, amount)
    return (CENTERS[y] + generator.normal(size=(amount, 8))).astype(np.float32), y


def net():
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2))


def taught():
    learner = Learner(
        "derpp", memory=ODEDM(30, rho=0.5, candidates=3), net=net(), batch=8, patience=None, options={"momentum": 0.9}
    )
    learner.partial_fit(*data([0, 1]))
    learner.consolidate()
    return learner.partial_fit(*data([0, 1, 2], seed=1))


ACTIONS = {
    "the first rows": (
        lambda: Learner("er", memory=20, net=net(), batch=8),
        lambda one: one.partial_fit(*data([0, 1])),
    ),
    "rows": (taught, lambda one: one.partial_fit(*data([0, 1, 2], seed=2))),
    "classes that join": (taught, lambda one: one.partial_fit(*data([3, 4, 5], 8, seed=2))),
    "consolidation": (taught, lambda one: one.consolidate()),
    "release": (taught, lambda one: one.release([0])),
    "a question": (taught, lambda one: one.predict_proba(QUERY)),
    "fit": (taught, lambda one: one.fit(*data([0, 1], seed=3))),
}


def answer(learner):
    """What a learner is: its answers, its memory, its counts, and what it answers after one more update."""
    if not learner.rows_seen_:
        return None
    again = copy.deepcopy(learner)
    before = again.predict_proba(QUERY).tobytes(), again.rows()["x"].tobytes(), again.rows_seen_, len(again.classes_)
    again.partial_fit(*data([0, 1], 8, seed=9))
    return *before, again.predict_proba(QUERY).tobytes(), again.rows()["x"].tobytes()


def others_may_enter(learner):
    """Whether another thread finds all locks free."""
    found = []

    def enter():
        for lock in (learner._turns.lock, learner._turns.writer, numerics._process._lock):
            found.append(lock.acquire(timeout=5))
            lock.release()

    thread = threading.Thread(target=enter)
    thread.start()
    thread.join()
    return found == [True, True, True]


def states_of(begin, action):
    """Return what the learner is before the action, after each of its updates, and after it."""
    learner = begin()
    states = [answer(learner)]
    original = type(learner)._learn

    def watched(self, *given):
        original(self, *given)
        type(learner)._learn = original  # while the answer is taken
        states.append(answer(self))
        type(learner)._learn = watched

    type(learner)._learn = watched
    try:
        action(learner)
    finally:
        type(learner)._learn = original
    return [*states, answer(learner)]


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("what", ACTIONS)
def test_an_interrupt_at_any_line_leaves_it_whole_or_it_says_so(what, tmp_path):
    begin, action = ACTIONS[what]
    legal, template = states_of(begin, action), begin()
    places = places_of(action, copy.deepcopy(template))
    threads, dtype, whole, broken, silent = torch.get_num_threads(), torch.get_default_dtype(), 0, 0, []
    for at in places[::EVERY]:
        learner = copy.deepcopy(template)
        place = interrupt(action, learner, at)
        settings = torch.get_num_threads() == threads and torch.get_default_dtype() is dtype
        if not settings or not torch.is_grad_enabled():
            silent.append((place, "settings"))
            torch.set_num_threads(threads)
            torch.set_grad_enabled(True)
        if not others_may_enter(learner):
            silent.append((place, "lock"))
            learner._turns, numerics._process = Turns(), numerics.ProcessNumerics()
        if learner._broken:
            broken += 1
            with pytest.raises(UsageError, match="stopped in the middle"):
                learner.save(tmp_path / "file")
            continue
        whole += 1
        if learner.rows_seen_:
            file = learner.save(tmp_path / "file")
            states = [answer(learner), answer(Learner.load(file, net=net()))]
        else:
            states = [None]
        if any(state not in legal for state in states):
            silent.append((place, "state"))
    tried = f"{what}: {len(places[::EVERY])} of {len(places)} lines"
    print(f"{tried}, {whole} whole, {broken} say that they are broken, {len(silent)} silent")
    assert silent == []
    assert whole


def whole_content(file):
    """What a file holds, which must be whole; the order of its bytes may be another after each save."""
    state = learner_state.read(file)
    return archive_checksum(json.dumps(state["head"]), state["tensors"])


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize("what", ["load", "save"])
def test_an_interrupt_of_a_save_or_a_load_changes_neither_learner_nor_file(what, tmp_path):
    learner = taught()
    file = learner.save(tmp_path / "file")
    content, before = whole_content(file), answer(learner)
    action = {"load": lambda _: Learner.load(file, net=net()), "save": lambda one: one.save(file)}[what]
    places = places_of(action, learner)
    threads, dtype, silent = torch.get_num_threads(), torch.get_default_dtype(), []
    for at in places[::EVERY]:
        place = interrupt(action, learner, at)
        settings = torch.get_num_threads() == threads and torch.get_default_dtype() is dtype
        if not settings or not torch.is_grad_enabled() or numerics._process._open:
            silent.append((place, "settings"))
            torch.set_grad_enabled(True)
        if not others_may_enter(learner) or turns._forking.locked():
            silent.append((place, "lock"))
        if whole_content(file) != content or answer(learner) != before or learner._broken:
            silent.append((place, "state"))
    print(f"{what}: {len(places[::EVERY])} of {len(places)} lines, {len(silent)} silent")
    assert silent == []
    assert answer(Learner.load(file, net=net())) == before
    assert [*tmp_path.iterdir()] == [file] or what == "save"  # what a kill leaves is swept by the next save
    learner.save(file)
    assert [*tmp_path.iterdir()] == [file]


def test_what_is_refused_changes_nothing():
    learner = taught()
    before = answer(learner)
    x, y = data([0, 1])
    for call in (
        lambda: learner.partial_fit(x[:, :3], y),
        lambda: learner.partial_fit(x, y[:3]),
        lambda: learner.partial_fit(x, y.astype(str)),
        lambda: learner.partial_fit(x * np.nan, y),
        lambda: learner.partial_fit(x, y, classes=["a"]),
        lambda: learner.fit(x * np.nan, y),
        lambda: learner.fit(x, y[:3]),
        lambda: learner.consolidate([77]),
        lambda: learner.release([77]),
        lambda: learner.set_params(batch=0),
        lambda: learner.set_params(lr=3.0),
    ):
        with pytest.raises(UsageError):
            call()
        assert answer(learner) == before
