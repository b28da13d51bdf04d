"""A learner that is asked and saved while it learns: every answer is that of a state between two updates."""

import copy
import os
import threading
import time

import numpy as np
import pytest
import torch
from torch import nn

from odedm import ODEDM, Learner, UsageError

SECONDS = float(os.environ.get("ODEDM_STRESS_SECONDS", "2"))
"""How long the readers ask; the same test was run by hand for five minutes."""
rng = np.random.default_rng(0)
CENTERS = rng.normal(size=(6, 12)) * 2
QUERY = rng.normal(size=(5, 12)).astype(np.float32)


def batches(amount):
    """Batches of which later ones bring further classes."""
    generator = np.random.default_rng(1)
    for place in range(amount):
        y = generator.integers(0, min(6, 2 + place // 10), 8)
        yield (CENTERS[y] + generator.normal(size=(8, 12))).astype(np.float32), y


with torch.random.fork_rng():
    torch.manual_seed(0)
    NET = nn.Sequential(nn.Linear(12, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 2))


def fresh():
    return Learner("derpp", memory=ODEDM(60, rho=0.5, candidates=5), net=NET, batch=8, patience=None, every=80)


def quiet(amount):
    """Return the answers after each update, as bytes."""
    learner, answers = fresh(), []
    for x, y in batches(amount):
        learner.partial_fit(x, y)
        answers.append((learner.rows_seen_, learner.predict_proba(QUERY).tobytes()))
    return answers


@pytest.mark.filterwarnings("ignore:There is no long-term room")
def test_every_answer_and_every_file_is_that_of_a_state_of_the_quiet_run(tmp_path):
    amount = 60
    expected = quiet(amount)
    legal, by_rows = {answer for _, answer in expected}, dict(expected)
    learner, errors, answers, saves, writer_seconds = fresh(), [], [], [], [0.0, 0.0]
    end, stop = time.monotonic() + SECONDS, threading.Event()

    def until_the_end(ask):
        def loop():
            while not stop.is_set():
                try:
                    ask()
                except Exception as error:
                    errors.append(repr(error))

        return threading.Thread(target=loop)

    def read():
        answers.append(learner.predict_proba(QUERY).tobytes())
        assert len(learner.predict(QUERY)) == 5
        assert len(learner.rows()["y"]) <= 60
        assert learner.events is not None

    def save():
        name = tmp_path / f"{len(saves)}.safetensors"
        saves.append(learner.save(name))
        again = Learner.load(name, net=NET)
        assert again.predict_proba(QUERY).tobytes() == by_rows[again.rows_seen_]
        name.unlink()

    first = next(batches(1))
    learner.partial_fit(*first)
    threads = [until_the_end(read) for _ in range(4)] + [until_the_end(save)]
    for thread in threads:
        thread.start()
    rounds = 0
    try:
        while rounds == 0 or time.monotonic() < end:  # the whole stream again and again, from the start
            started = time.perf_counter()
            if rounds:
                learner.fit(*first)
            for place, (x, y) in enumerate(batches(amount)):
                if place:
                    learner.partial_fit(x, y)
                    if place % 10 == 0:
                        time.sleep(0.002)
            rounds += 1
            writer_seconds[0] += time.perf_counter() - started
    finally:
        stop.set()
        for thread in threads:
            thread.join()
    print(f"{rounds} rounds, {len(answers)} answers, {len(saves)} files, {writer_seconds[0] / rounds:.3f} s a round")
    assert errors == []
    assert len(answers) > 20
    assert len(saves) > 1
    assert set(answers) <= legal
    assert learner.predict_proba(QUERY).tobytes() == expected[-1][1], "and asking changes nothing"


def test_threads_that_compute_at_once_leave_the_callers_settings():
    learner = fresh()
    for x, y in batches(3):
        learner.partial_fit(x, y)
    other, before = copy.deepcopy(learner), learner.predict_proba(QUERY).tobytes()
    try:
        torch.set_default_dtype(torch.float64)
        torch.set_float32_matmul_precision("medium")
        answers = []
        asking = [lambda one=one: answers.append(one.predict_proba(QUERY).tobytes()) for one in (learner, other)]
        threads = [threading.Thread(target=lambda ask=ask: [ask() for _ in range(40)]) for ask in asking * 2]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert torch.get_default_dtype() == torch.float64
        assert torch.get_float32_matmul_precision() == "medium"
        assert set(answers) == {before}
    finally:
        torch.set_default_dtype(torch.float32)
        torch.set_float32_matmul_precision("highest")


def test_a_second_thread_that_learns_is_refused_in_a_sentence():
    inside, go_on = threading.Event(), threading.Event()

    def trigger(_learner):
        inside.set()
        go_on.wait(20)

    learner = Learner("er", memory=20, net="mlp", trigger=trigger, patience=None)
    x, y = next(batches(1))
    thread = threading.Thread(target=learner.partial_fit, args=(x, y))
    thread.start()
    assert inside.wait(20)
    try:
        for change in (
            lambda: learner.partial_fit(x, y),
            lambda: learner.fit(x, y),
            learner.consolidate,
            lambda: learner.release([0]),
        ):
            with pytest.raises(UsageError, match="Another thread is changing this learner"):
                change()
        assert learner.predict(x).shape == (8,), "while others may ask"
    finally:
        go_on.set()
        thread.join()
    assert learner.partial_fit(x, y).rows_seen_ == 16


def test_a_trigger_may_ask_by_another_thread_and_change_the_learner_itself():
    answers = []

    def trigger(learner):
        thread = threading.Thread(target=lambda: answers.append(learner.predict(QUERY)))
        thread.start()
        thread.join(20)
        learner.consolidate()
        return False

    learner = Learner("er", memory=ODEDM(40, rho=0.5), net="mlp", batch=8, trigger=trigger, patience=None)
    for x, y in batches(3):
        learner.partial_fit(x, y)
    assert len(answers) == 3
    assert learner.size("long") > 0


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
@pytest.mark.filterwarnings("ignore:This process .* is multi-threaded")
def test_a_forked_child_predicts_while_its_parent_learns_and_finds_a_whole_learner():
    learner = Learner("er", memory=40, net="mlp", batch=8, threads=2, patience=None)
    first = next(batches(1))
    learner.partial_fit(*first)
    stop = threading.Event()

    def learn():
        while not stop.is_set():
            learner.partial_fit(*first)

    thread = threading.Thread(target=learn)
    thread.start()
    try:
        for _ in range(5):
            child = os.fork()
            if child == 0:
                try:
                    chance = learner.predict_proba(np.repeat(QUERY, 400, 0))
                    learner.partial_fit(*first)
                    os._exit(0 if np.isfinite(chance).all() else 3)
                except BaseException:
                    os._exit(4)
            end = time.monotonic() + 60
            done, status = os.waitpid(child, os.WNOHANG)
            while not done and time.monotonic() < end:
                time.sleep(0.01)
                done, status = os.waitpid(child, os.WNOHANG)
            if not done:
                os.kill(child, 9)
                os.waitpid(child, 0)
            assert done, "the child hangs"
            assert os.waitstatus_to_exitcode(status) == 0
    finally:
        stop.set()
        thread.join()


def ask_in_child(learner, queue):
    queue.put(learner.predict_proba(QUERY).tobytes())


def test_a_spawned_process_is_given_a_learner():
    learner = Learner("derpp", memory=40, net=NET, batch=8, patience=None)
    for x, y in batches(4):
        learner.partial_fit(x, y)
    context = torch.multiprocessing.get_context("spawn")
    queue = context.Queue()
    process = context.Process(target=ask_in_child, args=(learner, queue))
    process.start()
    assert queue.get(timeout=60) == learner.predict_proba(QUERY).tobytes()
    process.join(30)
