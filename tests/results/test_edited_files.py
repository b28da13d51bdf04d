"""Results from anyone: whatever they hold, commands end with a sentence, and no name in them is ever imported."""

from __future__ import annotations

import copy
import json
import os
import random
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from commands import odedm
from jobs import DUAL, job_of, run_all
from sampling import EVERYTHING
from typer.testing import CliRunner

from odedm import ODEDM, Native, Reservoir, UsageError
from odedm.checkpoint.checkpoint import working_folder
from odedm.cli.app import app
from odedm.core.checksums import FILE as SEAL
from odedm.core.tensor_archive import write_archive
from odedm.core.validators import Bool, Float, Int, RowsOrBytes, Share
from odedm.data.cache import load_manifest
from odedm.execute.backend import ExecutionConfig
from odedm.execute.job import RunOptions
from odedm.execute.planning import plan_resumed, unfinished_runs
from odedm.results.result import Result
from odedm.results.schema import FLAGS, INTEGERS, NUMBERS
from odedm.studies.spec import parse
from odedm.studies.spec import read as read_study
from odedm.training.experiment import Experiment, settings_of

VALUES: list[Any] = [None, True, 0, -1, 1.5, 1e308, -1e308, 1e-320, 10**400, 2**63, "", "x", "\x1b[31m[/]", "9" * 5000]
VALUES += [[], [[]], [None], [1e308] * 3, [[1e308], [1e308, 1e308]], {}, {"a": 1}]
SAVED = Path(__file__).parent / "runs"
FOREIGN = ["os:system", "trap:Trap", "trap", "odedm.cli.app:main", "../trap", "methods.er:ER"]


@pytest.fixture(scope="module")
def runs(tmp_path_factory) -> Path:
    place = tmp_path_factory.mktemp("runs")
    for seed in range(2):
        run_all([job_of(DUAL.with_seed(seed), place / f"seed-{seed}")])
    return place


def places(plain: Any, above: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The way to every value, in lists to the first two."""
    yield above
    for key in plain if isinstance(plain, dict) else range(min(len(plain), 2)) if isinstance(plain, list) else ():
        yield from places(plain[key], (*above, key))


def put(plain: Any, place: tuple[Any, ...], value: Any) -> Any:
    if not place:
        return value
    plain = below = copy.deepcopy(plain)
    for key in place[:-1]:
        below = below[key]
    below[place[-1]] = value
    return plain


@pytest.mark.parametrize("command", ["show", "verify", "diff", "report"])
def test_an_edited_result_ends_in_a_sentence(runs, tmp_path, command):
    whole = json.loads((runs / "seed-0" / "result.json").read_text())
    for name in ("seed-0", "seed-1"):
        shutil.copytree(runs / name, tmp_path / "runs" / name, ignore=shutil.ignore_patterns(SEAL))  # so it is read
    words = {"diff": [tmp_path / "runs" / "seed-0", tmp_path / "runs" / "seed-1"]}
    words["report"] = [tmp_path / "runs", "--csv", "--out", tmp_path / "report.html"]
    rng, ways = random.Random(command), list(places(whole))
    for _ in range(10 if command == "report" else 25):
        place, value = rng.choice(ways), rng.choice(VALUES)
        (tmp_path / "runs" / "seed-0" / "result.json").write_text(json.dumps(put(whole, place, value)))
        arguments = [
            *(["runs"] if command != "report" else []),
            command,
            *map(str, words.get(command, [tmp_path / "runs" / "seed-0"])),
        ]
        done = CliRunner().invoke(app, arguments)
        assert done.exception is None or isinstance(done.exception, SystemExit), (place, value, done.exception)


HOSTILE = "\x1b[31mPWN\u202e\x07<b>PWN</b>\x9b31m"
"""What a terminal, a page and a reader would obey."""


def readable_places(whole: Any) -> list[tuple[Any, ...]]:
    """Where a text may stand in a result that is read."""
    readable = []
    for place in places(whole):
        try:
            Result.from_dict(put(whole, place, HOSTILE))
        except UsageError:
            continue
        readable.append(place)
    return readable


def test_hostile_text_anywhere_in_a_result_reaches_neither_terminal_nor_page(tmp_path):
    whole = json.loads((SAVED / "er-odedm" / "result.json").read_text())
    readable = readable_places(whole)
    assert {("classes", 0), ("experiment", "data"), ("provenance", "device")} <= set(readable)
    assert {place for place in readable if place[-1] in ("limit", "tasks", "capacity", "rho", "shuffle")} == set()
    for number in range(len(readable) if EVERYTHING else 4):
        group = [readable[number]] if EVERYTHING else readable[number::4]
        plain = whole
        for place in group:
            plain = put(plain, place, HOSTILE)
        for seed in range(2):
            folder = tmp_path / "runs" / f"seed-{seed}"
            shutil.copytree(SAVED / "er-odedm", folder, dirs_exist_ok=True, ignore=shutil.ignore_patterns(SEAL))
            (folder / "result.json").write_text(json.dumps(put(plain, ("experiment", "seed"), seed)))
        page = tmp_path / "report.html"
        first, second = (tmp_path / "runs" / f"seed-{seed}" for seed in range(2))
        report = ["report", first.parent, "--csv", "--out", page]
        for words in (["show", first], ["verify", first], ["diff", first, second], report):
            done = CliRunner().invoke(app, [str(word) for word in words])
            assert done.exception is None or isinstance(done.exception, SystemExit), (group, words, done.exception)
            html = page.read_text("utf-8") if page.exists() else ""
            page.unlink(missing_ok=True)
            assert "<b>PWN" not in html, (group, words)
            for sign in ("\x1b[31mPWN", "\u202e", "\x07", "\x9b"):
                assert sign not in done.output + html, (group, words, sign)


def test_every_number_and_flag_of_an_experiment_is_typed_on_reading():
    names: dict[type, set[str]] = {Int: set(), Float: set(), Bool: set()}
    kinds = {Share: Float, RowsOrBytes: Int}
    for plan in (Experiment, ODEDM, Native, Reservoir):
        for name, setting in settings_of(plan).items():
            kind = kinds.get(type(setting.validator), type(setting.validator))
            if kind in names:
                names[kind].add(name)
    assert (INTEGERS, NUMBERS, FLAGS) == tuple(names.values())


@pytest.fixture
def trap(tmp_path, monkeypatch) -> Iterator[None]:
    """A module that can be found, and must not be looked for."""
    (tmp_path / "trap.py").write_text("import pathlib\npathlib.Path(__file__).with_name('imported').touch()\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("trap", None)
    assert not (tmp_path / "imported").exists()


@pytest.mark.parametrize("name", FOREIGN)
@pytest.mark.usefixtures("trap")
class TestNamesThatAreNotRegistered:
    def test_in_a_result(self, runs, tmp_path, name):
        whole = json.loads((runs / "seed-0" / "result.json").read_text())
        shutil.copytree(runs / "seed-0", tmp_path / "run")
        for place in (("method",), ("net",), ("memory", "name"), ("memory", "distance"), ("memory", "short_policy")):
            plain = put(whole, ("experiment", *place), name)
            (tmp_path / "run" / "result.json").write_text(json.dumps(plain))
            odedm("runs", "show", tmp_path / "run")  # a name is text to look at
            output = odedm("run", "--from", tmp_path / "run", "--out", tmp_path / "again", code=2)
            assert "Known: " in output or "must be one of" in output
            with pytest.raises(UsageError):
                Experiment.from_dict(plain["experiment"])

    def test_in_a_checkpoint(self, runs, tmp_path, name):
        plan = json.loads((runs / "seed-0" / "result.json").read_text())["experiment"]
        path = working_folder(tmp_path / "seed-0") / "checkpoints" / "step-00000001.safetensors"
        path.parent.mkdir(parents=True)
        for place in (("method",), ("net",), ("memory", "name")):
            configuration = put(plan, place, name)
            head = {
                "schema": "odedm.checkpoint/6",
                "position": {"task": 0, "step": 1, "rows": 1},
                "configuration": configuration,
                "data_checksum": "",
                "versions": {},
                "observation": {},
                "tree": None,
            }
            write_archive(path, head, {})
            planned, faults = plan_resumed(unfinished_runs([tmp_path]), ExecutionConfig(), RunOptions())
            assert planned.jobs == []
            (sentence,) = faults.values()
            assert "Known: " in sentence or "must be one of" in sentence

    def test_in_a_study(self, name):
        for line in (f"method = {name!r}", f"memory = {name!r}", f"net = {name!r}", f"distance = {name!r}"):
            with pytest.raises(UsageError, match="Known: "):
                parse(line).experiments()
        with pytest.raises(UsageError, match="Known: "):
            parse(f"[options.{json.dumps(name)}]\nlr = 0.1").experiments()


READERS = {
    "result.json": Result.load,
    "study.toml": read_study,
    "manifest.json": lambda path: load_manifest(path.parent.name),
}


@pytest.mark.parametrize("name", READERS)
@pytest.mark.parametrize("fault", ["pipe", "endless"])
def test_a_file_that_never_ends_keeps_nobody_waiting(name, fault, tmp_path, monkeypatch):
    monkeypatch.setenv("ODEDM_DATA", str(tmp_path))
    path = tmp_path / "mine" / name
    path.parent.mkdir()
    if fault == "pipe":
        os.mkfifo(path)
    else:
        path.touch()
        os.truncate(path, 1 << 40)
    with pytest.raises(UsageError, match=str(path) if name != "manifest.json" else "'mine' cannot be used"):
        READERS[name](path)


def test_results_that_a_store_of_large_files_left_links_for_are_read(runs, tmp_path):
    folder, store = tmp_path / "seed-0", tmp_path / "store"
    shutil.copytree(runs / "seed-0", folder)
    (folder / "result.json").rename(store)
    (folder / "result.json").symlink_to(store)
    assert Result.load(folder / "result.json").to_dict() == Result.load(runs / "seed-0" / "result.json").to_dict()
    (folder / "result.json").unlink()
    (folder / "result.json").symlink_to(folder / "result.json")
    with pytest.raises(UsageError, match="Cannot read the result"):
        Result.load(folder / "result.json")
