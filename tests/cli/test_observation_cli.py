"""Looking on by command: evidence, any-time accuracy, events, and what became of one row."""

import json
import re
from importlib.util import find_spec

import pytest
from commands import interrupted
from safetensors.numpy import load_file
from typer.testing import CliRunner

from odedm.cli.app import app
from odedm.paper.studies import READY
from odedm.results.folder import EVIDENCE_FILE
from odedm.results.result import Result

TINY = ["--data", "blobs", "--batch", "32", "--capacity", "30", "--device", "cpu", "--workers", "1"]
LOOKS = ["--evidence", "--anytime", "2"]


def call(*words):
    return CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})


def said(done):
    return " ".join(re.sub(r"\x1b\[[0-9;]*m", "", done.stderr).split())


@pytest.fixture(scope="module")
def looked(tmp_path_factory):
    out = tmp_path_factory.mktemp("runs")
    done = call("run", *TINY, *LOOKS, "--seeds", 2, "--log", f"jsonl:{out}/logs/events.jsonl", "--out", out)
    assert done.exit_code == 0, done.output
    return out


@pytest.fixture(scope="module")
def folder(looked):
    return next(looked.glob("*/seed-0"))


def test_a_run_that_looks_leaves_evidence_accuracies_and_events(looked, folder):
    assert {"choice.kept", "feature.data"} <= set(load_file(folder / EVIDENCE_FILE))
    result = Result.load(folder / "result.json")
    assert len(result.anytime) == 10
    lines = [json.loads(line) for line in (looked / "logs" / "events.jsonl").read_text().splitlines()]
    ends = {line["run"]: line for line in lines if line["event"] == "finished"}
    assert set(ends) == {f"{folder.parent.name}/seed-{seed}" for seed in (0, 1)}
    assert ends[f"{folder.parent.name}/seed-0"]["acc_last"] == result.acc_last


def test_what_is_finished_without_a_look_says_so_and_is_not_trained_again(tmp_path):
    words = ["run", *TINY, "--method", "er", "--out", tmp_path]
    assert call(*words).exit_code == 0
    (path,) = tmp_path.glob("*/seed-0/result.json")
    before = path.read_bytes()
    done = call(*words, *LOOKS, "--log", f"jsonl:{tmp_path}/events.jsonl")
    assert done.exit_code == 0
    for what in ("evidence", "anytime"):
        assert f"was finished without {what}. --overwrite would train again, and make it." in said(done)
    assert path.read_bytes() == before
    assert not (tmp_path / "events.jsonl").exists(), "nothing has happened"
    assert "finished without" not in said(call(*words))
    done = call(*words, *LOOKS, "--overwrite")
    assert done.exit_code == 0
    assert path.with_name(EVIDENCE_FILE).is_file()
    assert "finished without" not in said(call(*words, *LOOKS))


def test_resume_looks_at_what_the_run_did(tmp_path, monkeypatch, folder):
    with interrupted(monkeypatch, 7):
        assert call("run", *TINY, *LOOKS, "--out", tmp_path).exit_code == 130
    done = call("resume", tmp_path, "--log", f"jsonl:{tmp_path}/events.jsonl")
    assert done.exit_code == 0, done.output
    assert "Going on after step" in said(done)
    assert "began" not in said(done)
    (other,) = tmp_path.glob("*/seed-0")
    assert (other / EVIDENCE_FILE).read_bytes() == (folder / EVIDENCE_FILE).read_bytes()
    assert Result.load(other / "result.json").anytime == Result.load(folder / "result.json").anytime
    assert '"finished"' in (tmp_path / "events.jsonl").read_text()


BAD = {
    "fewer than no tests": (["--anytime", "-1"], "anytime must be a whole number, 0 or more; '-1'"),
    "half a test": (["--anytime", "1.5"], "0 or more; '1.5' was given"),
    "events into a folder": (["--log", "jsonl:."], "is a folder; events go into a file"),
}


@pytest.mark.parametrize("case", BAD)
def test_bad_words_end_in_one_sentence_and_leave_nothing(case, tmp_path):
    words, sentence = BAD[case]
    done = call("run", *TINY, *words, "--out", tmp_path / "out")
    assert done.exit_code == 2
    assert sentence in said(done)
    assert not list(tmp_path.rglob("*.json"))


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="needs the extra 'tensorboard'")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_logs_for_tensorboard(tmp_path):
    done = call(
        "run", *TINY, "--method", "er", "--anytime", 2, "--log", f"tensorboard:{tmp_path}/logs", "--out", tmp_path / "o"
    )
    assert done.exit_code == 0, done.output
    assert list((tmp_path / "logs").glob("*/seed-0/events.*"))


def test_the_ready_studies_are_listed():
    done = call("list", "studies")
    assert done.exit_code == 0
    for name, about in READY.items():
        assert name in done.stdout
        assert about in done.stdout
