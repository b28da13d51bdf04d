"""Runs that are stopped and killed as people and systems do it, and go on by the same command or by `resume`."""

import json
import os
import re
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
from commands import alive_in_group, interrupted
from sampling import EVERYTHING, thorough
from typer.testing import CliRunner

from odedm.checkpoint.checkpoint import SCHEMA, checkpoint_paths
from odedm.checkpoint.stop import Stopped, stop_on_signal
from odedm.cli.app import app
from odedm.core.tensor_archive import read_whole, write_archive

TINY = ["--data", "blobs", "--batch", "4", "--capacity", "30", "--memory", "reservoir"]
LONG = ["run", "--method", "pocl", "--memory", "reservoir", "--batch", "2", "--device", "cpu"]
linux = pytest.mark.skipif(not Path("/proc").is_dir(), reason="looks for processes in /proc")


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words])


def plain(text):
    return re.sub(r"\x1b\[[0-9;]*m", "", text)


def begin(*words):
    """A process of its own in a group of its own, which signals reach."""
    return subprocess.Popen(
        [sys.executable, "-m", "odedm", *map(str, words)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509 - ignored in the background
    )


def wait_for(look, seconds=90):
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        if found := look():
            return found
        time.sleep(0.02)
    raise AssertionError("in vain")


def works(out):
    return sorted(out.glob("*/.seed-*.work"))


@pytest.fixture
def stopped(tmp_path, monkeypatch):
    """Two seeds, stopped in their midst."""
    out = tmp_path / "runs"
    for seed in (0, 1):
        with interrupted(monkeypatch, 30):
            done = call("run", *TINY, "--seed", seed, "--out", out, "--log", f"jsonl:{tmp_path}/events.jsonl")
        assert done.exit_code == 130
        *_, last = (tmp_path / "events.jsonl").read_text().splitlines()
        assert json.loads(last)["event"] == "stopped"
        said = plain(done.stderr).replace("\n", " ")
        assert "Interrupted. Finished runs are kept, and the same command goes on with the others." in said
    assert [work.name for work in works(out)] == [".seed-0.work", ".seed-1.work"]
    return out


@pytest.fixture(scope="module")
def straight(tmp_path_factory):
    done = call("run", *TINY, "--seeds", 2, "--workers", 1, "--json", "--out", tmp_path_factory.mktemp("straight"))
    return [timeless(each) for each in json.loads(done.stdout)]


def timeless(result):
    del result["seconds"], result["folder"], result["provenance"]["finished"]
    return result


def test_the_same_command_goes_on(stopped, straight):
    done = call("run", *TINY, "--seeds", 2, "--workers", 1, "--json", "--out", stopped)
    assert done.exit_code == 0, done.output
    assert plain(done.stderr).count("Going on after step 30") == 2
    assert [timeless(each) for each in json.loads(done.stdout)] == straight
    assert not works(stopped)


@pytest.mark.parametrize("what", ["run", "work", "experiment", "above"] if EVERYTHING else ["work", "above"])
def test_resume_finds_what_is_unfinished(what, stopped, straight):
    first = works(stopped)[0]
    path = {"run": first.with_name("seed-0"), "work": first, "experiment": first.parent, "above": stopped}[what]
    done = call("resume", path, "--workers", 1, "--json")
    assert done.exit_code == 0, done.output
    expected = straight[:1] if what in ("run", "work") else straight
    assert [timeless(each) for each in json.loads(done.stdout)] == expected
    again = call("resume", path)
    assert again.exit_code == 2, "there is nothing left to do"
    assert "Traceback" not in again.output


def test_fresh_starts_anew(stopped, straight):
    done = call("run", *TINY, "--seed", 1, "--restart", "--json", "--out", stopped)
    assert "Going on" not in done.stderr
    assert timeless(json.loads(done.stdout)[0]) == straight[1]
    assert [work.name for work in works(stopped)] == [".seed-0.work"]


def test_looking_at_an_unfinished_run_says_how_to_go_on(stopped):
    done = call("runs", "show", works(stopped)[0].with_name("seed-0"))
    assert done.exit_code == 2
    assert "is not finished. Go on with `odedm resume" in plain(done.stderr)


@pytest.mark.parametrize(
    ("change", "sentence"),
    [
        ((b"odedm.checkpoint/6", b"odedm.checkpoint/x"), "its format is 'odedm.checkpoint/x'"),
        ((rb"\"seed\": 0", rb"\"seed\": 9"), "its checksum is another"),
    ],
)
def test_resume_believes_no_checkpoint_that_was_changed(change, sentence, stopped):
    work = works(stopped)[0]
    for path in checkpoint_paths(work):
        content = path.read_bytes()
        assert change[0] in content
        path.write_bytes(content.replace(*change))
    done = call("resume", work)
    assert done.exit_code == 2
    assert sentence in plain(done.stderr)
    assert checkpoint_paths(work), "they are kept"


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["nowhere"], "There is no 'nowhere'"),
        (["."], "Nothing is unfinished at or below '.'"),
        ([".", "--checkpoint", "5"], "--checkpoint takes"),
    ],
)
def test_resume_refuses_bad_words(words, sentence, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    done = call("resume", *words)
    assert done.exit_code == 2
    assert sentence in plain(done.stderr)
    assert not list(tmp_path.iterdir())


def test_a_finished_run_is_not_resumed(tmp_path):
    assert call("run", *TINY, "--out", tmp_path).exit_code == 0
    (path,) = tmp_path.glob("*/seed-0")
    done = call("resume", path)
    assert done.exit_code == 2
    assert "is finished" in plain(done.stderr)
    work = path.parent / ".seed-0.work"
    work.mkdir()
    for given in (path, work):
        done = call("resume", given)
        assert done.exit_code == 2
        assert "is finished. Look at it with `odedm runs show`" in plain(done.stderr)
    done = call("resume", tmp_path)
    assert "Nothing is unfinished" in plain(done.stderr)
    assert call("run", *TINY, "--out", tmp_path).exit_code == 0
    assert not work.exists(), "what was left of it is cleared up"


@linux
@thorough
@pytest.mark.parametrize("workers", [1, 2])
def test_a_polite_end_by_the_system_stores_the_state(workers, tmp_path):
    words = [*LONG, "--seeds", 2, "--workers", workers, "--out", tmp_path]
    process = begin(*words)
    wait_for(lambda: len(list(tmp_path.glob("*/.seed-*.work/lock"))) >= workers)
    time.sleep(1.5)  # some steps
    process.terminate()
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM, errors
    assert "Stopping: the state" in errors
    assert "Traceback" not in errors
    assert len(works(tmp_path)) == workers
    assert all(checkpoint_paths(work) for work in works(tmp_path))
    assert not list(tmp_path.glob("*/.seed-*.work/lock"))
    wait_for(lambda: not alive_in_group(process.pid))


@linux
def test_workers_end_with_a_killed_parent_and_let_go(tmp_path):
    words = [*LONG, "--seeds", 2, "--workers", 2, "--checkpoint", "5 steps", "--out", tmp_path]
    process = begin(*words)
    wait_for(lambda: sum(bool(checkpoint_paths(work)) for work in works(tmp_path)) == 2)
    process.kill()
    process.communicate(timeout=60)
    wait_for(lambda: not alive_in_group(process.pid), 10)
    if not EVERYTHING:  # that they go on is held by other tests, too
        return
    again = begin(*words)
    wait_for(lambda: "Going on after step" in (again.stderr.readline() or "Going on after step"))
    again.terminate()
    _, errors = again.communicate(timeout=60)
    assert again.returncode == 128 + signal.SIGTERM, errors


def test_the_second_signal_stops_at_once():
    before = signal.getsignal(signal.SIGTERM)
    with stop_on_signal() as wish:
        assert not wish()
        os.kill(os.getpid(), signal.SIGTERM)
        assert wish(), "the first one asks"
        with pytest.raises(Stopped):
            os.kill(os.getpid(), signal.SIGTERM)
    assert wish.number == signal.SIGTERM
    assert signal.getsignal(signal.SIGTERM) is before


def test_one_experiment_that_was_begun_in_two_folders_is_finished_in_both(tmp_path, monkeypatch):
    for name in ("one", "two"):
        with interrupted(monkeypatch, 30):
            assert call("run", *TINY, "--checkpoint", "5 steps", "--out", tmp_path / name).exit_code == 130
    done = call("resume", tmp_path / "one", tmp_path / "two", "--json")
    assert done.exit_code == 0, done.output
    assert len(json.loads(done.stdout[: done.stdout.rindex("]") + 1])) == 2
    assert len(list(tmp_path.glob("*/*/seed-0/result.json"))) == 2


def test_an_unfinished_run_goes_on_with_as_many_threads_as_it_began(tmp_path, monkeypatch):
    with interrupted(monkeypatch, 30):
        call("run", *TINY, "--checkpoint", "5 steps", "--out", tmp_path)
    done = call("run", *TINY, "--threads", 2, "--json", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert json.loads(done.stdout)[0]["experiment"]["threads"] == 1
    again = call("run", *TINY, "--threads", 2, "--out", tmp_path)
    assert again.exit_code == 0, again.output
    assert "finished already" in plain(again.output)


def test_fresh_starts_what_is_unfinished_anew_and_leaves_what_is_done(tmp_path):
    assert call("run", *TINY, "--out", tmp_path).exit_code == 0
    done = call("run", *TINY, "--seeds", 2, "--restart", "--out", tmp_path)
    assert done.exit_code == 0, done.output
    assert len(list(tmp_path.glob("*/seed-*/result.json"))) == 2


def test_a_run_that_cannot_go_on_keeps_no_other_from_it(tmp_path, monkeypatch):
    """One without a checkpoint, one whose data is gone, and one that goes on."""
    monkeypatch.setenv("ODEDM_DATA", str(tmp_path / "none"))
    with interrupted(monkeypatch, 10):
        assert call("run", *TINY, "--method", "er", "--device", "cpu", "--out", tmp_path / "runs").exit_code == 130
    (work,) = works(tmp_path / "runs")
    empty, gone = tmp_path / "runs" / "a" / ".seed-0.work", tmp_path / "runs" / "b" / ".seed-0.work"
    empty.mkdir(parents=True)
    shutil.copytree(work, gone)
    for path in checkpoint_paths(gone):
        head, tensors = read_whole(path, SCHEMA)
        head["configuration"]["data"] = "cifar10"
        write_archive(path, head, tensors)
    done = call("resume", tmp_path / "runs")
    said = " ".join(plain(done.output).split())
    assert done.exit_code == 1
    assert "a/seed-0' cannot go on: There is no checkpoint" in said
    assert "b/seed-0' cannot go on: " in said
    assert "2 of 3 runs could not go on; the lines above say why." in said
    assert (work.with_name("seed-0") / "result.json").is_file()
    done = call("resume", empty)
    assert done.exit_code == 2
    assert "There is no checkpoint" in plain(done.output)
