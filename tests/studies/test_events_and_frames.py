"""Runs for others to follow: JSON lines, TensorBoard, a frame in a notebook."""

from __future__ import annotations

import json
import os
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
from jobs import run_all, write_run
from odedm.execute.observers import JsonLines, TensorBoard, listeners

import odedm
from odedm.core.errors import UsageError
from odedm.report.notebook import Results


def test_events_of_any_run_as_lines(jobs, tmp_path: Path) -> None:
    path = tmp_path / "deep" / "events.jsonl"
    (log,) = listeners(path, None)
    results = run_all(jobs[:2], log)
    log.close()
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    for job, result in zip(jobs, results, strict=False):
        own = [line for line in lines if line["run"] == job.name]
        assert [line["event"] for line in own][0] == "begun"
        assert [line["event"] for line in own][-1] == "finished"
        assert [line["acc"] for line in own if line["event"] == "task"] == result.acc
        assert own[-1]["acc_last"] == result.acc_last
        done = [line for line in own if line["event"] == "progress"]
        assert done[-1]["done"] == done[-1]["rows"]
    again = JsonLines(path)
    again.progress(jobs[2], 1, 2)
    again.close()
    added = [json.loads(line)["event"] for line in path.read_text().splitlines()[len(lines) :]]
    assert added == ["begun", "progress", "stopped"], (
        "added, not replaced, and nobody waits for an end that never comes"
    )
    with pytest.raises(UsageError, match="is a folder"):
        JsonLines(tmp_path)


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="needs the extra 'tensorboard'")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_every_curve(jobs, tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    (log,) = listeners(None, tmp_path / "logs")
    (result,) = run_all(jobs[1:2], log)
    log.close()
    read = EventAccumulator(str(tmp_path / "logs" / jobs[1].name))
    read.Reload()
    curve = [(event.step, event.value) for event in read.Scalars("class-IL/ACC")]
    assert curve == [(task, pytest.approx(value)) for task, value in enumerate(result.acc)]
    long = [event.value for event in read.Scalars("memory/long rows")]
    assert long == [sum(entry["long"]) for entry in result.class_counts]
    assert read.Scalars("progress/share of rows")[-1].value == 1.0


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_events_that_cannot_be_written_end_no_run(jobs, caplog: pytest.LogCaptureFixture) -> None:
    heard = JsonLines(Path("/dev/full"))
    for done in (1, 2, 3):
        heard.progress(jobs[0], done, 3)
    heard.close()
    assert caplog.text.count("Events can no longer be written to '/dev/full'") == 1


def test_events_into_a_pipe_wait_for_nobody(jobs, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(UsageError, match="nobody reads this pipe"):
        JsonLines(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    heard = JsonLines(tmp_path / "pipe")
    heard.failed(jobs[0], "\udcff is no text")
    heard.close()
    assert json.loads(os.read(reader, 10_000))["reason"] == "\udcff is no text"
    os.close(reader)


def test_without_tensorboard_there_is_a_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    with pytest.raises(UsageError, match=r"odedm\[tensorboard\]"):
        TensorBoard(tmp_path)


def test_a_cluster_that_does_not_answer_is_told_at_once() -> None:
    pytest.importorskip("ray")
    from odedm.execute.ray_backend import RayBackend

    with pytest.raises(UsageError, match=r"Ray could not be reached at '127\.0\.0\.1:1': .*refused\. Bring its token"):
        RayBackend(address="127.0.0.1:1")


def test_without_ray_there_is_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    from odedm.execute.ray_backend import RayBackend

    monkeypatch.setitem(sys.modules, "ray", None)
    with pytest.raises(UsageError, match=r"odedm\[ray\]"):
        RayBackend()


def test_files_of_a_worker_stay_in_their_folder(tmp_path: Path) -> None:
    from odedm.execute.ray_backend import contents, unpack

    for name in ("../result.json", "/etc/x", ".hidden", "a/b"):
        with pytest.raises(UsageError, match="leads out"):
            unpack({name: b"x"}, tmp_path / "run")
    unpack({"result.json": b"{}"}, tmp_path / "run")
    assert contents(tmp_path / "run") == {"result.json": b"{}"}
    with pytest.raises(UsageError, match="more than"):
        contents(tmp_path / "run", most=1)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.fixture
def results(jobs) -> Results:
    for job in jobs:
        write_run(job, acc=40.0 + 10 * (job.experiment.memory.name == "odedm") + job.experiment.seed)
    return Results(jobs[0].folder.parents[1])


def test_one_row_a_run(results: Results) -> None:
    assert len(results) == 4
    assert odedm.Results is Results
    rows = {(row["memory.name"], row["seed"]): row for row in results.rows()}
    assert rows["odedm", 1]["acc_last"] == 51.0
    assert rows["odedm", 0]["memory.rho"] == 0.5
    assert rows["reservoir", 0]["method"] == "er"
    assert len(results.by_task()) == 4 * 15
    assert "4 runs in 2 groups" in repr(results)
    assert results.to_markdown().count("\n") == 4


@pytest.mark.skipif(find_spec("pandas") is None, reason="needs the extra 'notebook'")
def test_a_frame(results: Results) -> None:
    frame = results.to_frame()
    means = frame.groupby("memory.name")["acc_last"].mean()
    assert means.to_dict() == {"odedm": 50.5, "reservoir": 40.5}
    assert len(results.to_frame(by_task=True)) == 60


def test_without_pandas_there_is_a_sentence(results: Results, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pandas", None)
    with pytest.raises(UsageError, match=r"odedm\[notebook\]"):
        results.to_frame()


def test_the_table_shows_itself_and_escapes_what_it_shows(results: Results, jobs) -> None:
    shown = results._repr_html_()
    assert shown.startswith("<table>")
    assert "+10.0" in shown
    folder = jobs[0].folder
    text = (folder / "result.json").read_text().replace('"er"', '"<script>"')
    (folder / "result.json").write_text(text)
    assert "<script>" not in Results(folder)._repr_html_()
    with pytest.raises(UsageError, match="at least one folder"):
        Results()
    with pytest.raises(UsageError, match="caption must be text; 3 was given"):
        Results(folder).to_latex(caption=3)
