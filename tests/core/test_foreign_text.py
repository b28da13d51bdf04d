"""Text of others is shown and never obeyed: by a terminal, by rich, or by a spreadsheet."""

import csv
import io
import json
import os
import re

import numpy as np
import pytest
from rich.progress import Progress, TextColumn
from rich.table import Table
from rich.text import Text
from typer.testing import CliRunner

from odedm import UsageError
from odedm.cli.console import PlainConsole
from odedm.cli.data_command import app
from odedm.report.wording import csv_text
from odedm.stream.dataset import from_arrays

HOSTILE = [
    "\x1b]0;title\x07",
    "\x9b31m",
    "\x1b[2J",
    "a\rb",
    "\u202egnp",
    "\ud800",
    "[/]",
    "[bold]x[/bold]",
    "[link=http://x]",
    ":x:",
]
OBEYED = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e\ud800]")


@pytest.mark.parametrize("text", HOSTILE)
def test_no_sentence_commands_a_terminal(text):
    sentence = str(UsageError(f"There is no '{text}'."))
    assert sentence.isprintable()
    assert "[" not in text or "[" in sentence
    assert len(str(UsageError("a" * 10**6))) <= 10_000


@pytest.mark.parametrize("text", HOSTILE)
@pytest.mark.parametrize("shape", ["line", "cell", "Text", "title", "progress", "json"])
def test_nothing_that_is_printed_commands_a_terminal(shape, text):
    console = PlainConsole(file=io.StringIO(), width=100, force_terminal=False)
    table = Table("name", title=text if shape == "title" else None)
    table.add_row(Text(text) if shape == "Text" else text)
    if shape == "progress":
        bar = Progress(TextColumn("{task.description}", markup=False), console=console)
        bar.add_task(text)
        console.print(bar)
    elif shape == "json":
        console.print_json(data={text: text})
    else:
        console.print(text if shape == "line" else table)
    shown = console.file.getvalue()
    assert not OBEYED.search(shown)
    if text.isprintable():
        assert text in shown


@pytest.fixture
def odd_data(tmp_path, monkeypatch):
    monkeypatch.setenv("ODEDM_DATA", str(tmp_path / "[/]cache"))
    path = tmp_path / "[/]\x1b[2J\udcff.npz"
    path.parent.mkdir()
    np.savez(os.fspath(path), x=np.zeros((20, 2), np.float32) + np.arange(20)[:, None], y=np.arange(20) % 2,
             class_names=["[/]", "\x1b[2J"])  # fmt: skip
    return path


def test_odd_names_pass_through_every_command(odd_data):
    def call(*words):
        done = CliRunner().invoke(app, [str(word) for word in words])
        assert not OBEYED.search(done.stdout + done.stderr)
        assert done.exception is None or isinstance(done.exception, SystemExit), done.exception
        return done

    assert call("import", odd_data, "--as", "mine").exit_code == 0
    assert "[/]" in call("show", "mine").stdout
    assert json.loads(call("show", "mine", "--json").stdout)["class_names"] == ["[/]", "�[2J"]
    assert call("list").exit_code == call("list", "--json").exit_code == call("verify", "mine").exit_code == 0
    for words in (("show", "[/]"), ("import", "[/]\x1b[2J", "--as", "x"), ("import", odd_data, "--as", "[/]"),
                  ("get", "[/]"), ("get", "cifar10", "--url", "[/]\x1b[2J")):  # fmt: skip
        assert call(*words).exit_code == 2


def test_classes_are_told_apart():
    x, y = np.eye(6).repeat(5, 0), np.arange(6).repeat(5)
    data = from_arrays(x, y, tasks=2, class_names=["a", "a", "a (2)", "b", "a", "b"])
    assert data.class_names == ("a", "a (2)", "a (2) (2)", "b", "a (3)", "b (2)")


@pytest.mark.parametrize("word", ["=1+1", "+1", "-1", "@SUM(A1)"])
def test_a_spreadsheet_computes_nothing(word):
    (head, row) = csv.reader(io.StringIO(csv_text([word], [(word,)]), newline=""))
    assert head == row == [f"'{word}"]
    assert csv_text(["a"], [("\r=1",)]) == "a\n�=1\n"
    assert csv_text(["a"], [(-1.5,), (np.float32(-2),), (None,)]) == 'a\n-1.5\n-2.0\n""\n'
