"""`make card` without a card: what it refuses, how it judges forged results, and how it keeps to its time."""

import json
import random
import sys
import time
from types import SimpleNamespace

import pytest
import torch
from beside import ROOT, imported

card = imported("tools", "card")
pytestmark = pytest.mark.skipif(not card.LEDGER.is_file(), reason="only in a checkout")


def test_without_a_card_it_says_so_and_stops(capsys, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(card, "carry_out", lambda *_: pytest.fail("it was started"))
    assert card.main([]) == 1
    assert capsys.readouterr().err == f"This needs a CUDA GPU, and torch {torch.__version__} sees none here.\n"


def test_without_its_data_it_says_which_and_how_to_get_them(capsys, monkeypatch, tmp_path):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)
    monkeypatch.setenv("ODEDM_DATA", str(tmp_path))
    monkeypatch.setattr(card, "carry_out", lambda *_: pytest.fail("it was started"))
    assert card.main([]) == 1
    told = capsys.readouterr().err
    assert told.startswith("The twelve cells are runs on CIFAR-10.")
    assert "odedm data get cifar10" in told
    assert "ODEDM_DATA" in told
    assert card.obstacle(["tests", "steps"]) == "", "the other parts make their own"


def the_ledgers_cells(seed):
    """The ledger, and its runs of the twelve cells with a seed."""
    ledger = card.read_ledger()

    def wanted(run):
        plan = run["experiment"]
        return (
            (plan["data"], plan["imbalance"], plan["seed"]) == ("cifar10", "standard", seed)
            and plan["memory"]["capacity"] == 200
            and plan["method"] in card.METHODS
        )

    return ledger, json.loads(json.dumps([run for run in ledger if wanted(run)]))


def test_the_command_plans_twelve_runs(tmp_path, monkeypatch):
    monkeypatch.setenv("ODEDM_DATA", str(tmp_path))
    (done,) = card.run_all([card.cell_command(str(tmp_path / "runs"), "--dry-run")], 120)
    assert done.returncode == 0, done.stdout
    told = [line.split() for line in done.stdout.splitlines()]
    assert ["12", "runs"] in told
    assert ["12", "to", "do"] in told, "none of them counts as done because it came with odedm"


@pytest.mark.parametrize("seed", range(5))
def test_the_ledgers_own_runs_are_within_its_spread(seed):
    ledger, fresh = the_ledgers_cells(seed)
    outcome = card.compare_cells(fresh, ledger)
    assert outcome.verdict == card.PASSED, outcome.summary
    assert outcome.figures["identical"] == len(outcome.figures["cells"]) == 12
    assert {(cell["method"], cell["runs"]) for cell in outcome.figures["cells"]} == {(m, 5) for m in card.METHODS}


def test_one_cell_that_is_far_off_is_named():
    ledger, fresh = the_ledgers_cells(0)
    run = next(run for run in fresh if run["experiment"]["method"] == "icarl")
    run["acc_last"] -= 12
    outcome = card.compare_cells(fresh, ledger)
    assert outcome.verdict == card.FAILED
    assert "icarl" in outcome.summary
    assert "derpp" not in outcome.summary


@pytest.mark.parametrize("sign", [-1, 1])
@pytest.mark.parametrize(("method", "points"), [("derpp", 12), ("icarl", 3), ("refresh", 9)])
def test_a_method_that_is_a_little_off_everywhere_is_named(method, points, sign):
    by, (ledger, fresh) = sign * points, the_ledgers_cells(0)
    means = {
        (cell["method"], cell["memory"]): cell["mean"] for cell in card.compare_cells(fresh, ledger).figures["cells"]
    }
    for run in fresh:
        memory = run["experiment"]["memory"]
        title = " ".join(str(memory[name]) for name in ("name", "ratio", "k") if memory.get(name) is not None)
        run["acc_last"] = means[run["experiment"]["method"], title] + by * (run["experiment"]["method"] == method)
    outcome = card.compare_cells(fresh, ledger)
    assert outcome.verdict == card.FAILED
    assert f"{method}: {by:+.2f} in the mean" in outcome.summary


def test_an_accuracy_that_is_no_number_fails():
    ledger, fresh = the_ledgers_cells(0)
    fresh[0]["acc_last"] = float("nan")
    assert card.compare_cells(fresh, ledger).verdict == card.FAILED


def test_runs_that_are_missing_or_unknown_fail():
    ledger, fresh = the_ledgers_cells(0)
    assert card.compare_cells(fresh[1:], ledger).summary == "11 of 12 runs were finished"
    assert card.compare_cells([], ledger).verdict == card.FAILED
    fresh[0]["experiment"]["batch"] = 33
    outcome = card.compare_cells(fresh, ledger)
    assert outcome.verdict == card.FAILED
    assert "no cell" in outcome.summary


def test_chance_seldom_fails_it():
    """Seeds that differ by chance alone, in forged cells: about one command in 25."""
    rng, failed = random.Random(0), 0
    for _ in range(300):
        for _ in card.METHODS:
            cells = []
            for k in range(4):
                known = [rng.gauss(40, 2) for _ in range(5)]
                cells.append(card.Cell("er", f"{k}", rng.gauss(40, 2), card.mean(known), card.stdev(known), 5, False))
            failed += bool(card.outside_of_seeds(cells))
    assert 0 < failed < 30


def times(ms, hardware="NVIDIA H200", names=("one run", "16 seeds in 8 lanes")):
    return {
        "about": {"hardware": hardware},
        "parts": {"command": {name: {"ms": ms, "wall_s": 10.0} for name in names}},
    }


@pytest.mark.parametrize(
    ("fresh", "verdict", "told"),
    [
        (times(2.0), card.PASSED, "1.00 to 1.00 times as long"),
        (times(2.29), card.PASSED, "1.15 times"),
        (times(2.4), card.FAILED, "one run, ms takes 1.20 times as long"),
        (times(float("nan")), card.FAILED, "nan"),
        (times(9.0, "NVIDIA L4"), card.OTHER, "NVIDIA L4 here, NVIDIA H200 before"),
        (times(2.0, names=("one run",)), card.FAILED, "not measured: 16 seeds in 8 lanes"),
        ({"about": {"hardware": "NVIDIA H200"}, "parts": {}}, card.FAILED, "not measured: one run"),
    ],
)
def test_step_times(fresh, verdict, told):
    outcome = card.compare_times(fresh, times(2.0))
    assert outcome.verdict == verdict
    assert told in outcome.summary


def test_the_file_of_times_is_what_the_benchmark_writes():
    before = json.loads(card.TIMES.read_text())
    assert card.compare_times(before, before).verdict == card.PASSED
    assert before["about"]["share"] == card.SHARE, "measured with the same share of the card"


@pytest.mark.parametrize(
    ("shards", "verdict"),
    [
        ([(0, "...\n3 passed in 1s"), (0, "...\n2 passed, 4 deselected in 1s")], card.PASSED),
        ([(0, "...\n3 passed in 1s"), (0, "...\n1 passed, 1 skipped in 1s")], card.FAILED),
        ([(0, "...\n3 passed in 1s"), (1, "FAILED tests/a.py::b - no\n1 failed, 1 passed in 1s")], card.FAILED),
        ([(0, "...\n3 passed in 1s"), (-9, "..\n2 passed")], card.FAILED),
        ([(0, "...\n3 passed in 1s"), (2, "")], card.FAILED),
    ],
)
def test_what_pytest_says_in_several_processes(shards, verdict):
    assert card.of_tests(shards, 5).verdict == verdict


def test_the_files_with_gpu_tests_are_found():
    assert "tests/test_gpu.py" in card.gpu_files()
    assert all((ROOT / name).is_file() for name in card.gpu_files())


class Clock:
    """A clock that goes on by as much as a part takes."""

    def __init__(self):
        self.now = 100.0

    def __call__(self):
        return self.now

    def part(self, name, seconds, takes):
        def run(allowed):
            self.allowed[name] = allowed
            self.now += min(takes, allowed)
            if takes > allowed:
                raise card.OutOfTimeError
            return card.Outcome(card.PASSED, "")

        self.allowed = {}
        return card.Part(name, seconds, run)


@pytest.mark.parametrize(
    ("takes", "verdicts"),
    [
        ((150, 150, 100), ["passed", "passed", "passed"]),
        ((9999, 150, 100), ["failed", "passed", "passed"]),  # what is stopped leaves time for the others
        ((200, 9999, 129), ["passed", "failed", "passed"]),
        ((9999, 9999, 9999), ["failed", "failed", "failed"]),
    ],
)
def test_nothing_goes_beyond_the_time(takes, verdicts):
    clock = Clock()
    parts = [clock.part(part.name, part.seconds, time) for part, time in zip(card.PARTS, takes, strict=True)]
    outcomes = card.carry_out(parts, 540, clock)
    assert [outcome.verdict for outcome in outcomes.values()] == verdicts
    assert clock.now <= 100 + 540


def test_a_part_without_time_is_not_started():
    clock = Clock()
    outcomes = card.carry_out([clock.part("a", 200, 10), clock.part("b", 100, 10)], 110, clock)
    assert outcomes["a"].verdict == card.SKIPPED
    assert outcomes["b"].verdict == card.PASSED


def test_the_parts_fit_into_nine_minutes():
    assert sum(part.seconds for part in card.PARTS) <= 9 * 60
    assert [part.name for part in card.PARTS] == [*card.TITLES]


def test_commands_that_take_too_long_are_ended_with_what_they_started(tmp_path):
    alive = tmp_path / "alive"
    child = f"import time, pathlib; time.sleep(3); pathlib.Path({str(alive)!r}).touch()"
    parent = f"import subprocess, sys; subprocess.run([sys.executable, '-c', {child!r}])"
    start = time.monotonic()
    with pytest.raises(card.OutOfTimeError):
        card.run_all([[sys.executable, "-c", parent], [sys.executable, "-c", "pass"]], 1.0)
    assert time.monotonic() - start < 3
    time.sleep(3.5)
    assert not alive.exists()
    (done,) = card.run_all([[sys.executable, "-c", "import sys; print('out'); sys.exit('bad')"]], 20)
    assert (done.returncode, done.stdout) == (1, "out\nbad\n")


@pytest.fixture
def on_a_card(monkeypatch, tmp_path):
    """As if there were a card, and every part passed at once; a place for what is written."""
    monkeypatch.setattr(card, "obstacle", lambda _: "")
    monkeypatch.setattr(card, "commit_of", lambda: "0123456789abcdef")
    monkeypatch.setattr(torch.cuda, "get_device_name", lambda: "NVIDIA H200")
    found = SimpleNamespace(verdicts=dict.fromkeys(card.TITLES, card.PASSED), path=tmp_path / "card.json")

    def run(name):
        return lambda _: card.Outcome(found.verdicts[name], f"{name} done")

    monkeypatch.setattr(card, "PARTS", tuple(card.Part(name, 10, run(name)) for name in card.TITLES))
    return found


def test_what_passed_is_written_with_its_commit(on_a_card, capsys, tmp_path):
    on_a_card.verdicts["steps"] = card.OTHER
    assert card.main(["--out", str(on_a_card.path)]) == 0
    assert capsys.readouterr().out.splitlines()[-1].startswith("Green for 0123456789abcdef. Written into")
    page = tmp_path / "page.md"
    page.write_text("before\n<!-- card.json -->\nold\n<!-- end of card.json -->\nafter\n")
    card.show(on_a_card.path, page)
    shown = page.read_text()
    assert "Commit 0123456, " in shown
    assert "| step times | not comparable | steps done |" in shown
    assert "old" not in shown
    assert shown.startswith("before\n")
    assert shown.endswith("after\n")


@pytest.mark.parametrize("verdict", [card.FAILED, card.SKIPPED])
def test_what_did_not_pass_is_not_written(verdict, on_a_card, capsys):
    on_a_card.verdicts["cells"] = verdict
    assert card.main(["--out", str(on_a_card.path)]) == 1
    assert capsys.readouterr().out.splitlines()[-1] == "Not green for 0123456789abcdef."
    assert not on_a_card.path.exists()


def test_neither_is_a_share_of_the_parts_nor_what_is_no_commit(on_a_card, capsys, monkeypatch):
    assert card.main(["--out", str(on_a_card.path), "--parts", "tests,steps"]) == 0
    assert "only all parts are recorded" in capsys.readouterr().out
    monkeypatch.setattr(card, "commit_of", lambda: None)
    assert card.main(["--out", str(on_a_card.path)]) == 0
    assert "name it by --commit" in capsys.readouterr().out
    assert not on_a_card.path.exists()
    assert card.main(["--out", str(on_a_card.path), "--commit", "abc"]) == 0
    assert json.loads(on_a_card.path.read_text())["commit"] == "abc"
    with pytest.raises(SystemExit):
        card.main(["--parts", "tests,nope"])


def test_a_commit_is_that_of_a_folder_without_changes(tmp_path):
    assert card.commit_of(tmp_path) is None


def test_the_page_shows_what_was_written():
    assert card.paragraph(json.loads(card.RECORD.read_text())) in card.PAGE.read_text()
