"""Loggers: what each is told of runs, from every door, and that one that fails ends nothing."""

from __future__ import annotations

import json
import math
import sys
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace

import pytest
from commands import odedm as command
from jobs import SMALL, job_of, run_all

import odedm
from odedm import JsonLines, Learner, LearnerLog, Logger, Reservoir, TensorBoard, UsageError, WandB
from odedm.execute.run_callbacks import LogRuns
from odedm.training.loggers import Loggers, open_loggers


class Notes(Logger):
    """Remembers what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple] = []

    def __getattribute__(self, name: str):
        if name.startswith("on_"):
            return lambda *words: self.told.append((name, *words))
        return super().__getattribute__(name)

    def of(self, moment: str) -> list[tuple]:
        return [words[1:] for words in self.told if words[0] == moment]


def check_told(notes: Notes, result) -> None:
    ((name, config),) = notes.of("on_start")
    assert config["method"] == "er"
    steps = notes.of("on_step")
    assert steps[-1][2]["progress"] == 1
    assert {"loss", "learning rate"} <= {*steps[-1][2]}
    assert all(math.isfinite(metrics["loss"]) for _, _, metrics in steps)
    assert {metrics["learning rate"] for _, _, metrics in steps} == {0.1}
    assert [step for _, step, _ in steps] == sorted(step for _, step, _ in steps)
    assert [metrics["ACC"] for _, _, metrics in notes.of("on_task")] == result.acc
    assert [task for _, task, _ in notes.of("on_task")] == [0, 1, 2, 3, 4]
    ((_, ended),) = notes.of("on_end")
    assert ended.acc == result.acc
    assert name.endswith("seed-0")


def test_train_tells_of_every_step_and_task_and_of_all_seeds_in_a_table() -> None:
    notes = Notes()
    settings = {"method": "er", "memory": Reservoir(20), "batch": 16, "device": "cpu"}
    outcome = odedm.train("blobs", **settings, loggers=[notes])
    check_told(notes, outcome.result)
    assert len(notes.of("on_step")) == 30, "each step"
    assert outcome.result.acc == odedm.train("blobs", **settings).result.acc, "nothing changes by looking on"
    notes = Notes()
    odedm.train("blobs", **settings, seeds=2, loggers=[notes])
    ((rows,),) = notes.of("on_table")
    assert [row["seed"] for row in rows] == [0, 1]


@pytest.mark.parametrize("workers", [1, 2])
def test_runs_in_workers_tell_the_same(tmp_path: Path, workers: int) -> None:
    notes = Notes()
    jobs = [job_of(SMALL.with_seed(seed), tmp_path / f"seed-{seed}") for seed in range(workers)]
    log = LogRuns(Loggers([notes]))
    results = run_all(jobs, log, workers=workers)
    log.close()
    first = Notes()
    first.told = [words for words in notes.told if words[1].endswith("seed-0")]
    check_told(first, results[0])
    assert not notes.of("on_stop")


def test_a_learner_tells_of_its_updates_and_still_asks_the_other_trigger() -> None:
    data, notes, asked = odedm.blobs(), Notes(), []
    log = LearnerLog(notes, "mine", trigger=lambda learner: asked.append(learner.rows_seen_))
    learner = Learner("er", memory=20, device="cpu", trigger=log, batch=16)
    learner.partial_fit(data.image[:64], data.label[:64])
    assert [step for _, step, _ in notes.of("on_step")] == asked == [16, 32, 48, 64]
    assert notes.of("on_step")[-1][2]["loss"] == pytest.approx(learner.loss_)
    assert notes.of("on_step")[0][2]["learning rate"] > 0


def test_a_logger_that_fails_is_told_of_once_and_ends_nothing(caplog) -> None:
    class Failing(Logger):
        def on_step(self, run, step, metrics) -> None:
            raise RuntimeError("no network")

    notes = Notes()
    outcome = odedm.train("blobs", method="er", memory=Reservoir(20), device="cpu", loggers=[Failing(), notes])
    assert caplog.text.count("The logger Failing failed (RuntimeError: no network). The runs go on.") == 1
    check_told(notes, outcome.result)


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_lines_that_cannot_be_written_end_no_run(caplog) -> None:
    odedm.train("blobs", method="er", memory=Reservoir(20), device="cpu", loggers=[JsonLines(Path("/dev/full"))])
    assert caplog.text.count("The logger JsonLines failed") == 1


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="needs the extra 'tensorboard'")
def test_a_tensorboard_whose_folder_is_gone_ends_no_run(tmp_path: Path, caplog, monkeypatch) -> None:
    board = TensorBoard(tmp_path / "logs")

    def refuse(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(board, "_writer", refuse)
    odedm.train("blobs", method="er", memory=Reservoir(20), device="cpu", loggers=[board])
    assert caplog.text.count("The logger TensorBoard failed (OSError") == 1


def test_a_run_that_fails_or_is_stopped_is_told_of() -> None:
    notes = Notes()
    with pytest.raises(UsageError, match="diverged"):
        odedm.train("blobs", method="er", memory=Reservoir(20), lr=1e30, device="cpu", loggers=[notes])
    ((_, event, reason),) = notes.of("on_stop")
    assert event == "failed"
    assert "diverged" in reason
    assert not notes.of("on_table")


def test_lines_of_a_command_are_added_to_a_file(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "events.jsonl"
    words = ("run", "--data", "blobs", "--method", "er", "--memory", "reservoir", "--capacity", 20, "--device", "cpu")
    command(*words, "--out", tmp_path / "runs", "--log", f"jsonl:{path}")
    lines = [json.loads(line) for line in path.read_text().splitlines()]
    events = [line["event"] for line in lines]
    assert (events[0], events[-2:], events.count("task")) == ("begun", ["finished", "table"], 5)
    done = [line for line in lines if line["event"] == "progress"]
    assert done[-1]["progress"] == 1
    assert {"loss", "learning rate", "time", "run"} <= {*done[-1]}
    command(*words, "--seed", 1, "--out", tmp_path / "runs", "--log", f"jsonl:{path}")
    assert len(path.read_text().splitlines()) > len(lines)
    with pytest.raises(UsageError, match="is a folder"):
        JsonLines(tmp_path)


def test_text_that_is_none_is_written_as_json_escapes_it(tmp_path: Path) -> None:
    lines = JsonLines(tmp_path / "events.jsonl")
    lines.on_stop("mine", "failed", "\udcff is no text")
    lines.close()
    assert json.loads((tmp_path / "events.jsonl").read_text())["reason"] == "\udcff is no text"


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="needs the extra 'tensorboard'")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard_has_every_curve_loss_and_rate_among_them(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    settings = {"method": "er", "memory": odedm.ODEDM(20, rho=0.5), "batch": 16, "device": "cpu"}
    result = odedm.train("blobs", **settings, loggers=[TensorBoard(tmp_path)]).result
    (place,) = tmp_path.glob("*/seed-0")
    read = EventAccumulator(str(place))
    read.Reload()
    curve = [(event.step, event.value) for event in read.Scalars("class-IL/ACC")]
    assert curve == [(task, pytest.approx(value)) for task, value in enumerate(result.acc)]
    long = [event.value for event in read.Scalars("memory/long rows")]
    assert long == [sum(entry["long"]) for entry in result.class_counts]
    assert len(read.Scalars("training/loss")) == 30
    assert {round(event.value, 6) for event in read.Scalars("training/learning rate")} == {0.1}


DOORS = ("train", "run", "study")


@pytest.mark.skipif(find_spec("tensorboard") is None, reason="needs the extra 'tensorboard'")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize("door", DOORS)
def test_configuration_curves_and_the_table_arrive_from_every_door(tmp_path: Path, door: str, monkeypatch) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.chdir(tmp_path)
    names = ["jsonl:events.jsonl", "tensorboard:logs"]
    settings = {"data": "blobs", "method": "er"}
    if door == "train":
        loggers = open_loggers(names).loggers
        odedm.train("blobs", method="er", memory=Reservoir(20), device="cpu", loggers=loggers)
    elif door == "study":
        spec = {**settings, "memory": "native", "capacity": 20, "seeds": 1}
        odedm.study(spec, folder="mine", workers=1, device="cpu", loggers=open_loggers(names).loggers)
    else:
        words = [f"--{name}={value}" for name, value in settings.items()]
        command("run", *words, "--capacity=20", "--seeds=1", "--device=cpu", *(f"--log={name}" for name in names))
    lines = [json.loads(line) for line in Path("events.jsonl").read_text().splitlines()]
    by_event = {line["event"]: line for line in lines}
    assert by_event["begun"]["experiment"]["method"] == "er"
    assert {"loss", "learning rate"} <= {*by_event["progress"]}
    assert by_event["task"]["task"] == 4
    (row,) = by_event["table"]["rows"]
    assert row["acc_last"] == by_event["finished"]["acc_last"]
    (place,) = {path.parent for path in Path("logs").rglob("events*") if path.parent.name != "table"}
    read, table = EventAccumulator(str(place)), EventAccumulator("logs/table")
    for log in (read, table):
        log.Reload()
    assert {"training/loss", "training/learning rate", "class-IL/ACC"} <= {*read.Tags()["scalars"]}
    assert "experiment/text_summary" in read.Tags()["tensors"]
    (text,) = table.Tensors("results/text_summary")
    assert str(row["acc_last"]) in text.tensor_proto.string_val[0].decode()


def test_without_its_package_a_logger_is_a_sentence(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setitem(sys.modules, "torch.utils.tensorboard", None)
    monkeypatch.setitem(sys.modules, "wandb", None)
    with pytest.raises(UsageError, match=r"odedm\[tensorboard\]"):
        TensorBoard(tmp_path)
    with pytest.raises(UsageError, match=r"odedm\[wandb\]"):
        WandB()
    with pytest.raises(UsageError, match="Unknown logger 'tensorbord': did you mean 'tensorboard'"):
        open_loggers([f"jsonl:{tmp_path / 'a'}", "tensorbord"])
    with pytest.raises(UsageError, match="A logger must be an object of a subclass of Logger"):
        odedm.train("blobs", loggers=[print])


class StandIn:
    """As much of Weights & Biases as a logger uses."""

    def __init__(self) -> None:
        self.runs: list[SimpleNamespace] = []

    def init(self, **options):
        run = SimpleNamespace(options=options, rows=[], summary={}, exit_code=None)
        run.log = run.rows.append
        run.finish = lambda exit_code=0: setattr(run, "exit_code", exit_code)
        self.runs.append(run)
        return run

    def Table(self, columns, data):  # noqa: N802 - its name there
        return columns, data


def test_weights_and_biases_gets_configuration_curves_and_the_table(monkeypatch) -> None:
    stand_in = StandIn()
    monkeypatch.setitem(sys.modules, "wandb", stand_in)
    (logger,) = open_loggers(["wandb:mine,mode=offline"]).loggers
    result = odedm.train("blobs", method="er", memory=Reservoir(20), batch=16, device="cpu", loggers=[logger]).result
    run, table = stand_in.runs
    assert {"project": "mine", "mode": "offline"}.items() <= run.options.items()
    assert run.options["config"]["method"] == "er"
    assert sum("loss" in row for row in run.rows) == 30
    assert [row["test/ACC"] for row in run.rows if "test/ACC" in row] == result.acc
    assert run.summary["acc_last"] == result.acc_last
    columns, data = table.rows[0]["results"]
    assert dict(zip(columns, data[0], strict=True))["acc_last"] == result.acc_last
    assert (run.exit_code, table.exit_code) == (0, 0)


@pytest.mark.skipif(find_spec("wandb") is None, reason="needs the extra 'wandb'")
@pytest.mark.filterwarnings("ignore::DeprecationWarning", "ignore::ResourceWarning", "ignore::UserWarning")
def test_weights_and_biases_itself_offline(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setenv("WANDB_SILENT", "true")
    monkeypatch.setenv("WANDB_DIR", str(tmp_path))
    logger = WandB("mine", mode="offline", dir=str(tmp_path))
    odedm.train("blobs", method="er", memory=Reservoir(20), device="cpu", loggers=[logger])
    assert len(list(tmp_path.glob("wandb/offline-run-*/*.wandb"))) == 2, "the run, and the table"
