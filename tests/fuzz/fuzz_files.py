"""Hostile files of studies, results and checkpoints: all that commands read back."""

import io
import json
import shutil
import sys
import tempfile
from contextlib import suppress
from functools import cache
from pathlib import Path

from fuzzing import Fuzzer, mutated
from hypothesis import strategies as st
from odd_text import altered_json, altered_toml

sys.path.insert(0, str(Path(__file__).parents[1]))
from driver import Driver

from odedm import ODEDM, Experiment, UsageError, blobs
from odedm.checkpoint.checkpoint import (
    SCHEMA,
    Meta,
    Position,
    latest_look,
    load_latest,
    restore,
    save,
    working_folder,
)
from odedm.cli.console import PlainConsole
from odedm.cli.generated_options import experiment_from
from odedm.core.checksums import write_checksums
from odedm.core.tensor_archive import read_whole, write_archive
from odedm.execute.backend import ExecutionConfig
from odedm.execute.finished import key_of_result
from odedm.execute.job import RunOptions
from odedm.execute.planning import plan_resumed, unfinished_runs
from odedm.paper.dac_timing import FILE as TIMINGS
from odedm.paper.dac_timing import PAPER, Timing, latest
from odedm.paper.dac_timing import load as load_timings
from odedm.paper.figures import dac_timing_sentences
from odedm.report.load import gather
from odedm.report.page import save_page
from odedm.report.terminal import print_run, print_table
from odedm.results.comparison import compare
from odedm.results.result import Result
from odedm.results.verification import verify
from odedm.studies.run_store import FAILURES, TOML, RunStore
from odedm.studies.runner import StudyRunner
from odedm.studies.spec import parse, read

OLD = Path(__file__).parents[1] / "results" / "runs"
PLANS = {name: Result.load(OLD / name / "result.json").to_dict() for name in ("er-odedm", "er-native", "derpp-odedm")}
RESULTS = [*PLANS.values(), json.loads((OLD / "icarl-odedm" / "result.json").read_text())]
RESULTS.append({**PLANS["er-odedm"], "anytime": [[100, 50.0], [200, 69.16666666666666]]})

STUDIES = [
    """name = "mine"
about = "What it is for"
seeds = 2
evidence = false
anytime = 0
only = ["method=er,derpp"]
[tune]
first_tasks = 2
validation = 0.2
seeds = [1000, 1001]
[[grid]]
method = ["er", "derpp"]
memory = ["native", "odedm"]
data = "blobs"
capacity = [20, 40]
rho = [0.25, 0.5]
dac = "paper"
[grid.options.derpp]
lr = [0.1, 0.3]
[grid.net_options]
width = 16
""",
    """data = "blobs"
method = "er"
memory = "odedm"
capacity = 20
k = 1
distance = "l2"
space = "features"
candidates = "task"
imbalance = "standard"
batch = 16
noise = 0.0
seeds = [0, 3]
[runtime]
rows = [20, 40]
k = [2, 4]
dac = [[3, 4]]
distance = ["l2"]
dimension = [8]
repeats = 1
seed = 0
""",
]
CHOICE = "data = 'blobs'\nmethod = 'er'\ncapacity = 20\nrho = [0.25, 0.5]\nseeds = 1"


def read_study(path):
    """What a dry run does, and the file that a run would write."""
    study = read(path)
    again = parse(study.to_toml())
    assert repr(again) == repr(study), "the file it would write is another study"
    runner = StudyRunner(RunStore(path.parent / "study"), ExecutionConfig())
    runner.status(runner.plan(study, lenient=True))


def read_result(path):
    """What `verify`, `diff`, `show`, `run --from` and a study do with it, and the table of a report."""
    shutil.copy(OLD / "er-odedm" / "memory.safetensors", path.parent)
    write_checksums(path.parent)
    assert verify(path.parent)
    result = Result.load(path)
    screen = PlainConsole(file=io.StringIO(), width=100)
    difference = compare(result, Result.from_dict(PLANS["er-odedm"]))
    for write in (difference.to_dict, difference.verdict, result.to_dict):
        write()
    print_run(result, screen)
    print_table(gather([path.parent, OLD / "fdr-native"]), screen)
    key_of_result(result)
    experiment_from({}, result.experiment)


def read_report(path):
    """The page of a report on it and a sound run."""
    save_page(gather([path.parent, OLD / "fdr-native"]), path.parent / "report.html")


def read_ledger(path):
    """Lines of failures in the folder of a study with a finished run."""
    folder = path.parent
    shutil.copytree(OLD / "er-odedm", folder / "runs" / "a" / "seed-0")
    (folder / TOML).write_text(CHOICE)
    study, runner = read(folder / TOML), StudyRunner(RunStore(folder), ExecutionConfig())
    runner.status(runner.plan(study, lenient=True))
    gather([folder])


def read_timings(path):
    """The timings of the paper's choices, and what is said of them."""
    dac_timing_sentences(latest(load_timings(path.parent), PAPER))


FAILURE_LINES = [
    {"time": "2026-01-01", "key": f"{i}", "folder": f"runs/{name}/seed-0", "error": "it failed"}
    for i, name in enumerate(PLANS)
]
TIMING_LINES = "\n".join(
    ",".join(map(str, line))
    for line in (Timing._fields, *(("cifar10", *cell, "cpu", 1, "2", "c0ffee", 0.5) for cell in PAPER.cells()[:8]))
)


PLAN = Experiment(ODEDM(10, rho=0.5), data="blobs", batch=16, device="cpu")
META = Meta(PLAN.describe(), "c0ffee", {"torch": "2"})


def fresh():
    return Driver(PLAN.memory, blobs(), batch=16)


@cache
def a_checkpoint() -> tuple[bytes, dict, dict]:
    """A checkpoint of a run that was stopped in its second task: its content, its head, its tensors."""
    driver = fresh()
    driver.go(5)
    with tempfile.TemporaryDirectory() as place:
        path = save(Path(place), driver.capture(), META, Position(1, 5, 80))
        return path.read_bytes(), *read_whole(path, SCHEMA)


def checkpoints() -> st.SearchStrategy[bytes]:
    """A checkpoint of which some bytes were changed, or its head, which was then sealed again."""
    return st.deferred(lambda: st.one_of(mutated(a_checkpoint()[0]), altered_json(a_checkpoint()[1])))


def read_checkpoint(path):
    """What a resume does: the run's plan, the newest sound checkpoint, and its state put into a new run."""
    content, _, tensors = a_checkpoint()
    changed, run = path.read_bytes(), path.parent / "run"
    target = working_folder(run) / "checkpoints" / "step-00000005.safetensors"
    target.parent.mkdir(parents=True)
    head = None
    with suppress(ValueError, RecursionError):
        head = json.loads(changed)
    if isinstance(head, dict):
        write_archive(target, head, tensors)
    else:
        target.write_bytes(changed)
    for look in (latest_look, lambda work: plan_resumed(unfinished_runs([run]), ExecutionConfig(), RunOptions())):
        with suppress(UsageError):
            look(working_folder(run))
    checkpoint = load_latest(working_folder(run), META)
    assert head is not None or changed == content, "a changed file was believed"
    driver = fresh()
    restore(driver.roots, checkpoint, driver.external_tensors)


FUZZERS = {
    "studies": Fuzzer(altered_toml(*STUDIES), read_study, "mine.toml", share=30),
    "results": Fuzzer(altered_json(*RESULTS), read_result, "result.json", share=20),
    "reports": Fuzzer(altered_json(*RESULTS), read_report, "result.json", share=2),
    "ledgers": Fuzzer(
        st.lists(altered_json(*FAILURE_LINES), max_size=4).map(b"\n".join), read_ledger, FAILURES, share=12
    ),
    "timings": Fuzzer(mutated(TIMING_LINES.encode()), read_timings, TIMINGS, share=6),
    "checkpoints": Fuzzer(checkpoints(), read_checkpoint, share=20),
}
