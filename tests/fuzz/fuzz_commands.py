"""Hostile words on the command line, through every command, as far as nothing is trained or fetched."""

import json
import os
import shutil
from contextlib import ExitStack, chdir
from itertools import chain
from pathlib import Path
from unittest.mock import patch

import typer
from fuzzing import Fuzzer
from hypothesis import strategies as st
from typer.testing import CliRunner

from odedm import UsageError
from odedm.cli.app import app
from odedm.cli.list_command import LISTS

OLD = Path(__file__).parents[1] / "results" / "runs" / "er-odedm"
COMMAND = typer.main.get_command(app)
SPARED = ("--install-completion", "--show-completion")  # which change the settings of a shell
DOORS = ("odedm.cli.run_command.run_jobs", "odedm.studies.runner.run_jobs", "odedm.data.download.download")
DOORS += ("odedm.paper.dac_timing.measure",)
PATHS = ["run", "other", "runs", "study.toml", "broken.toml", "missing", "", ".", "..", "/dev/null", "run/result.json"]
PATHS += ["a" * 300, "x\0y", "~nobody", "\udcff", "\x1b[2J", "-", "report.html", "new/folder"]
VALUES = ["0", "1", "-1", "2", "0.5", "1e308", "nan", "-inf", "9" * 25, "9" * 5000, "1_0", "٣", "0x10", "true", "none"]
VALUES += ["3,4", "3,4,5", ",", "=", "a=b", "lr=0.1", "lr=nan", "lr=", "=1", "width=9", "width=-1", "x" * 2000, "auto"]
VALUES += [
    "er",
    "derpp",
    "ER++",
    "odedm",
    "native",
    "reservoir",
    "blobs",
    "fashion-mini",
    "cifar10",
    "l2",
    "paper",
]
VALUES += [
    "os:system",
    "[red]x[/]",
    "%s{}",
    "é",
    "30m",
    "1e9d",
    "10s",
    "step",
    "task",
    "cpu",
    "cuda",
    "ray",
    "local",
    "{",
    "[1]",
]
VALUES += [
    "long-tail",
    "sinkhorn",
    "method=er",
    "memory=native,odedm",
    "capacity=",
    "1000000000",
    "9223372036854775808",
]


def commands(command, above=()):
    """The words of every command, with its options."""
    if hasattr(command, "commands"):  # a group, of click's or of the copy that typer brings
        for name, below in command.commands.items():
            yield from commands(below, (*above, name))
    else:
        yield (
            list(above),
            [option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)]
            + ["--help"],
        )


def lines() -> st.SearchStrategy[bytes]:
    """A command, its arguments, and options with values that may be theirs."""
    value = st.sampled_from([*VALUES, *PATHS, *LISTS])
    path = st.sampled_from(PATHS[:6])

    def of(command):
        words, options = command
        option = st.sampled_from([option for option in options if option.startswith("-") and option not in SPARED])
        part = st.one_of(st.tuples(option, value), st.tuples(option, path), option.map(lambda name: (name,)))
        first = st.lists(st.one_of(path, value), max_size=2)
        parts = st.tuples(first, st.lists(part, max_size=3), st.lists(value, max_size=1))
        return parts.map(lambda it: json.dumps([*words, *it[0], *chain(*it[1]), *it[2]]).encode())

    return st.sampled_from([*commands(COMMAND), ([], ["--version", "--help"])]).flatmap(of)


def closed(*_, **__):
    raise UsageError("Nothing is trained or fetched here.")


def call(path):
    """Call the command in a folder of its own: what it prints can be printed, and it ends with a code of ours."""
    home = path.parent / "home"
    home.mkdir()
    for name in ("run", "other", "runs/seed-0"):
        shutil.copytree(OLD, home / name)
    (home / "study.toml").write_text("data = 'blobs'\nmethod = ['er', 'derpp']\ncapacity = 20\nseeds = 2\n")
    (home / "broken.toml").write_text("data = [")
    words = json.loads(path.read_bytes())
    with ExitStack() as stack:
        stack.enter_context(chdir(home))
        stack.enter_context(patch.dict(os.environ, {"HOME": str(home), "COLUMNS": "100"}))
        for door in DOORS:
            stack.enter_context(patch(door, closed))
        done = CliRunner().invoke(app, words)
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        raise done.exception
    assert done.exit_code in (0, 1, 2), done.exit_code
    output = done.output.replace("\n", "")
    assert output.isprintable() or "--help" in words, (
        f"it prints {[letter for letter in output if not letter.isprintable()][:5]}"
    )


FUZZERS = {"commands": Fuzzer(lines(), call, share=12)}
