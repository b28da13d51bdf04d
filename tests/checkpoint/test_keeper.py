"""When checkpoints are written, and that a run is where its last one was."""

import shutil

import pytest
import torch

from odedm.checkpoint.checkpoint import Meta, Position
from odedm.checkpoint.checkpointer import Checkpointer
from odedm.checkpoint.lock import hold
from odedm.checkpoint.schedule import Schedule
from odedm.core.errors import UsageError

META = Meta({"seed": 0}, "data")


class Counting:
    """A run that counts its steps, four a task."""

    def __init__(self, work, lock, schedule="task", stop=lambda: False, meta=META, fresh=False):
        self.place = {"step": 0, "sum": torch.zeros(())}
        self.checkpointer = Checkpointer(
            work,
            lock,
            meta,
            roots=lambda: self.place,
            external_tensors={},
            position=lambda: Position(self.place["step"] // 4, self.place["step"], 8 * self.place["step"]),
            schedule=Schedule.parse(schedule),
            stop=stop,
            fresh=fresh,
        )

    def run(self, until):
        while self.place["step"] < until:
            self.place["step"] += 1
            self.place["sum"] += self.place["step"]
            if self.checkpointer.after_step():
                return
            if self.place["step"] % 4 == 0:
                self.checkpointer.after_task()


def stored_steps(work):
    return sorted(int(path.stem[5:]) for path in (work / "checkpoints").glob("step-*"))


@pytest.mark.parametrize(
    ("schedule", "until", "kept"),
    [
        ("task", 11, [4, 8]),
        ("3 steps", 11, [8, 11]),
        ("every 5 steps", 7, [4]),
        ("1 steps", 3, [2, 3]),
        ("9 s", 6, [4]),
    ],
)
def test_they_are_written_when_the_schedule_says(tmp_path, schedule, until, kept):
    with hold(tmp_path) as lock:
        Counting(tmp_path, lock, schedule).run(until)
        assert stored_steps(tmp_path) == kept


def test_never_means_only_when_asked_to_stop(tmp_path):
    asked = []
    with hold(tmp_path) as lock:
        run = Counting(tmp_path, lock, "never", stop=lambda: bool(asked))
        run.run(9)
        assert stored_steps(tmp_path) == []
        asked.append(True)
        run.run(20)
        assert run.place["step"] == 10, "at the next step, not at the next border"
        assert stored_steps(tmp_path) == [10]
        assert run.checkpointer.last.stem == "step-00000010"


def test_seconds_count_from_the_last_one(tmp_path, monkeypatch):
    now = [100.0]
    monkeypatch.setattr("odedm.checkpoint.checkpointer.time.monotonic", lambda: now[0])
    with hold(tmp_path) as lock:
        run = Counting(tmp_path, lock, "30 seconds")
        run.run(1)
        now[0] += 31
        run.run(2)
        assert stored_steps(tmp_path) == [2]
        now[0] += 29
        run.run(3)
        assert stored_steps(tmp_path) == [2]


def test_borders_are_passed_over_where_they_would_cost_too_much(tmp_path, monkeypatch):
    now, stored = [100.0], []

    def save(work, state, meta, position):
        now[0] += 0.5
        stored.append(position.step)
        return work

    monkeypatch.setattr("odedm.checkpoint.checkpointer.time.monotonic", lambda: now[0])
    monkeypatch.setattr("odedm.checkpoint.checkpointer.save", save)
    with hold(tmp_path) as lock:
        run = Counting(tmp_path, lock, "auto")
        for step in range(4, 101, 4):
            run.run(step)
            now[0] += 9.0
    assert stored[:3] == [4, 28, 40], "the first, and then so that half a second each is 2 % of the time"
    assert 0.5 * len(stored) <= 0.02 * (now[0] - 100)


def test_a_run_goes_on_where_it_was_or_starts_anew(tmp_path):
    with hold(tmp_path) as lock:
        Counting(tmp_path, lock, "1 steps").run(6)
        again = Counting(tmp_path, lock)
        assert again.checkpointer.resume().position == Position(1, 6, 48)
        again.run(10)
        assert again.place["sum"].item() == 55
        fresh = Counting(tmp_path, lock, fresh=True)
        assert fresh.checkpointer.resume() is None
        assert fresh.place["step"] == 0
        assert stored_steps(tmp_path) == []
        other = Counting(tmp_path, lock, meta=Meta({"seed": 1}, "data"))
        fresh.run(4)
        with pytest.raises(UsageError, match="seed=0 there, 1 here"):
            other.checkpointer.resume()


def test_a_folder_that_was_taken_away_is_left_alone(tmp_path):
    work = tmp_path / "work"
    with hold(work) as lock:
        run = Counting(work, lock, "1 steps")
        run.run(2)
        shutil.rmtree(work)
        with hold(work):
            with pytest.raises(UsageError, match="deleted, moved or taken over"):
                run.run(3)
            assert not (work / "checkpoints").exists()


@pytest.mark.parametrize("text", ["", "0 steps", "-1 steps", "steps", "5", "5 minutes", "1e3 steps", "9" * 30 + " s"])
def test_a_schedule_that_is_none_is_refused(text):
    with pytest.raises(UsageError, match="--checkpoint takes 'auto', 'task'"):
        Schedule.parse(text)
