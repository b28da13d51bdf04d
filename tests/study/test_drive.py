"""The loop of a study: nothing is run twice, nothing late is started, a failure ends itself alone."""

from __future__ import annotations

from dataclasses import replace
from functools import partial

import pytest
from puppets import Notes, Puppet
from rich.console import Console

from odedm.cli.study_board import StudyBoard
from odedm.core.errors import UsageError
from odedm.execute.eta import Pace, in_words, parse_time
from odedm.execute.scheduler import Driver
from odedm.study.identity import fault
from odedm.study.ledger import Ledger
from odedm.training.hold_out import Selection


@pytest.fixture
def ledger(works) -> Ledger:
    found = Ledger(works[0].folder.parents[2])
    found.folder.mkdir(parents=True)
    return found


def test_all_work_is_done_in_order_and_noted(works, write, ledger) -> None:
    engine = Puppet(write)
    outcome = Driver(engine, ledger, Notes(), Pace()).run(works)
    assert (outcome.done, outcome.failed, outcome.left) == (4, {}, [])
    assert engine.started == works
    assert engine.most == 2
    events = [(line["event"], line["key"]) for line in ledger.journal()]
    for work in works:
        assert events.index(("started", work.key)) < events.index(("finished", work.key))


def test_a_failure_is_noted_and_the_rest_goes_on(works, write, ledger) -> None:
    engine = Puppet(write)
    engine.failing[works[1].key] = "It diverged."
    outcome = Driver(engine, ledger, Notes(), Pace()).run(works)
    assert outcome.done == 3
    assert outcome.failed == ledger.failures() == {works[1].key: "It diverged."}


def test_a_run_on_other_data_than_this_studys_is_a_failure(works, write, ledger) -> None:
    engine = Puppet(lambda work: write(replace(work, checksum="other")))
    outcome = Driver(engine, ledger, Notes(), Pace()).run(works[:1])
    assert "other data" in outcome.failed[works[0].key]


def test_a_run_by_other_code_is_a_failure(works, write, ledger) -> None:
    own = partial(fault, reuse="version", version="9.9", commit=None)
    outcome = Driver(Puppet(write), ledger, Notes(), Pace(), fault=own).run(works[:1])
    assert "made by odedm 0.1.0" in outcome.failed[works[0].key]


def test_a_trial_leaves_its_score_and_no_folder(works, write, ledger) -> None:
    trial = replace(works[0], kind="trial", key="t", select=Selection())
    assert Driver(Puppet(write), ledger, Notes(), Pace()).run([trial]).done == 1
    assert ledger.scores() == {"t": 42.0}
    assert not ledger.runs.exists()


def test_nothing_starts_that_would_end_after_the_budget(works, write, ledger) -> None:
    pace = Pace({"blobs": 100})
    now = 0.0

    def clock() -> float:
        return now

    def run(work):
        nonlocal now
        now += 10.0
        return write(work, seconds=10.0)

    engine = Puppet(run, lanes=1)
    outcome = Driver(engine, ledger, Notes(), pace, until=25.0, clock=clock).run(works)
    assert outcome.done == 2
    assert outcome.left == works[2:]
    assert [work.key for work in engine.started] == [work.key for work in works[:2]]


def test_the_nearest_measured_run_tells_the_time(works) -> None:
    pace = Pace({"blobs": 100, "big": 1000})
    assert pace.expect(works[0]) is None
    plain, dual = works[0].experiment.describe(), works[1].experiment.describe()
    for plan in (plain, dual):
        plan["method"] = {"name": plan["method"], **plan.pop("options")}
    pace.learn(plain, 10.0)
    assert pace.expect(works[1]) == pytest.approx(10.0)  # another memory, but nothing nearer
    pace.learn(dual, 30.0)
    assert pace.expect(works[1]) == pytest.approx(30.0)
    assert pace.expect(works[2]) == pytest.approx(10.0)
    larger = replace(works[0], experiment=replace(works[0].experiment, data="big"))
    assert pace.expect(larger) == pytest.approx(100.0)
    other = replace(works[0], experiment=replace(works[0].experiment, net="resnet18"))
    assert pace.expect(other) is None
    trial = replace(works[0], kind="trial", select=Selection(tasks=2))
    assert pace.expect(trial) == pytest.approx(4.0)


@pytest.mark.parametrize("text", ["", "0", "soon", "-5", "5x", "1h2", "m30", "1e3"])
def test_a_budget_that_is_no_time_is_refused(text: str) -> None:
    with pytest.raises(UsageError, match="such as 90s"):
        parse_time(text)


def test_the_board_says_where_the_study_stands(works, write, ledger) -> None:
    console = Console(record=True, width=200, force_terminal=False, file=open("/dev/null", "w"))  # noqa: SIM115
    now = 0.0

    def clock() -> float:
        nonlocal now
        now += 60.0
        return now

    with console.file, StudyBoard(console, 4, clock=clock) as board:
        engine = Puppet(lambda work: write(work, acc=70.0 if work is works[1] else 50.0), lanes=1)
        engine.failing[works[3].key] = "It diverged."
        Driver(engine, ledger, board, Pace({"blobs": 100})).run(works)
    said = console.export_text()
    assert "3 of 4 done" in said
    assert "1 failed" in said
    assert "It diverged." in said
    assert "best so far er · odedm ρ=0.5 · λ=20: ACC 70.0 % (1 seed)" in said
    assert in_words(61) == "1 min 1 s"
