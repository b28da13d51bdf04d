"""Lanes of this machine: processes and threads do the same work, and a lane that dies takes its own work down alone."""

from __future__ import annotations

import json
import os
import signal
from dataclasses import replace

from puppets import Notes

from odedm.execute.eta import Pace
from odedm.execute.job import Failed, Progressed
from odedm.execute.ray_engine import do_remotely, packed
from odedm.execute.scheduler import Driver
from odedm.execute.workers import Processes, Threads
from odedm.results.result import EVIDENCE_FILE, FILE, Result
from odedm.study.ledger import Ledger
from odedm.study.session import Where, go, open_engine
from odedm.training.hold_out import Selection
from odedm.training.observation import Looks


def measured(folder) -> object:
    plain = Result.load(folder / FILE).to_dict()
    return json.dumps([plain["class_il"], plain["task_il"], plain["census"]])


def test_processes_and_threads_measure_the_same(works, tmp_path) -> None:
    found = []
    trial = replace(works[1], kind="trial", key="trial", select=Selection(seeds=(77,)))
    for name, engine in (("processes", Processes(2)), ("threads", Threads(2))):
        ledger = Ledger(tmp_path / name)
        ledger.folder.mkdir()
        own = [replace(work, folder=ledger.runs / f"{place}" / "seed-0") for place, work in enumerate(works)]
        try:
            outcome = Driver(engine, ledger, Notes(), Pace()).run([*own, trial])
        finally:
            engine.close()
        assert (outcome.done, outcome.failed) == (5, {})
        found.append([measured(work.folder) for work in own] + [ledger.scores()])
    assert found[0] == found[1]


def test_threads_and_workers_elsewhere_look_alike(works, tmp_path) -> None:
    work = replace(works[1], looks=Looks(evidence=True, anytime=2))
    engine = Threads(1)
    try:
        assert Driver(engine, Ledger(tmp_path), Notes(), Pace()).run([work]).done == 1
    finally:
        engine.close()
    files = do_remotely(packed(work), 0, None)["files"]
    assert files[EVIDENCE_FILE] == (work.folder / EVIDENCE_FILE).read_bytes()
    assert json.loads(files[FILE])["anytime"] == Result.load(work.folder / FILE).anytime


def test_a_lane_that_dies_takes_its_own_work_down_alone(works, tmp_path) -> None:
    ledger = Ledger(tmp_path / "study")
    ledger.folder.mkdir(exist_ok=True)
    slow = replace(works[0], experiment=replace(works[0].experiment, batch=1))
    engine = Processes(1)
    try:
        engine.start(0, slow)
        victim = None
        while victim is None:
            for event in engine.events(1.0):
                if isinstance(event, Progressed):
                    victim = event.process
        os.kill(victim, signal.SIGKILL)
        said = []
        while not said:
            said = [event for event in engine.events(1.0) if isinstance(event, Failed)]
        assert "died by signal 9" in said[0].error
        assert Driver(engine, ledger, Notes(), Pace()).run(works[1:2]).done == 1  # the engine is as good as before
    finally:
        engine.close()


def test_a_run_that_fails_says_why_and_the_others_are_kept(works, tmp_path) -> None:
    ledger = Ledger(tmp_path / "study")
    ledger.folder.mkdir(exist_ok=True)
    wild = replace(works[0], key="wild", experiment=replace(works[0].experiment, options={"lr": 1e30}))
    outcome = go([wild, works[1]], ledger, Where(lanes=2, device="cpu"), Notes(), Pace())
    assert outcome.done == 1
    assert "diverged" in outcome.failed["wild"]
    assert (works[1].folder / FILE).is_file()


def test_a_study_that_is_left_stores_what_is_under_way(works, tmp_path) -> None:
    slow = replace(works[0], experiment=replace(works[0].experiment, batch=1))
    engine = open_engine([slow], Where(lanes=1, device="cpu"))
    engine.start(0, slow)
    while not any(isinstance(event, Progressed) for event in engine.events(1.0)):
        pass
    engine.close()
    assert not slow.folder.exists()
    work = slow.folder.with_name(f".{slow.folder.name}.work")
    assert list(work.glob("checkpoints/step-*"))
