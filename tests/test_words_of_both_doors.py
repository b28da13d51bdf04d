"""What the library says is right from both doors: options stand beside the thing, and not in its place."""

import ast
import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

import odedm
from odedm import UsageError
from odedm.cli.app import app
from odedm.cli.generated_options import as_options

ROOT = Path(odedm.__file__).parent
ROOMS = (
    "core",
    "nets",
    "stream",
    "selection",
    "memory",
    "methods",
    "training",
    "results",
    "data",
    "learner",
    "recipes",
)
"""What Python calls; the others are commands, or report on them."""
OF_COMMANDS = {
    "core/plugin_modules.py",  # --plugin
    "results/packed.py",  # odedm results
    "data/importer.py",  # odedm data import, which alone has names to overwrite
}
BESIDE = re.compile(r"\([^()]*\)|`[^`]*`|on the command line [^.]*|start anew with --restart")
"""Where an option may stand; only commands store checkpoints, in place of which one starts anew."""


def sentences(path):
    """The texts of errors that a module raises, values left out."""
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Call) and getattr(node.func, "id", "") in ("UsageError", "BadPicture", "refused"):
            parts = [each for given in node.args for each in ast.walk(given)]
            yield "".join(str(each.value) for each in parts if isinstance(each, ast.Constant))


@pytest.mark.parametrize("room", ROOMS)
def test_no_error_of_the_library_tells_to_write_an_option(room):
    found = [
        (path.name, said)
        for path in sorted((ROOT / room).rglob("*.py"))
        if str(path.relative_to(ROOT)) not in OF_COMMANDS
        for said in sentences(path)
        if re.search(r"(?<![-\w])--[a-z]", BESIDE.sub("", said))
    ]
    assert found == []


def test_the_look_at_sentences_finds_one():
    assert re.search(r"--[a-z]", BESIDE.sub("", "Use --net mlp."))
    assert not re.search(r"--[a-z]", BESIDE.sub("", "Use the net 'mlp' (--net mlp), or `odedm run --net mlp`."))
    assert sum(1 for room in ROOMS for path in (ROOT / room).rglob("*.py") for _ in sentences(path)) > 200


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"net": "cnn"}, r"vectors of shape \(16,\)\. Use the net 'mlp' \(--net mlp\)"),
        ({"method": "icarl", "memory": "none"}, r"e\.g\. 'reservoir' \(--memory reservoir\), .* 'er' \(--method er\)"),
        (
            {"method": "gdumb", "memory": odedm.ODEDM(20, gamma=0.5)},
            r"no weight of a long-term term \(--set memory.gamma=0\.5\), because",
        ),
        ({"method": "finetune", "memory": 20}, r"'odedm' was given; say 'none' \(--memory none\)"),
    ],
)
def test_what_is_said_in_python_can_be_written_in_python(settings, words):
    with pytest.raises(UsageError, match=words):
        odedm.train("blobs", **settings)


def test_a_command_spells_settings_as_options():
    done = CliRunner().invoke(app, ["run", "--data", "blobs", "--set", "stream.task_classes=x"])
    assert done.exit_code == 2
    assert "--set stream.task_classes must be how many classes" in done.stderr.replace("\n", " ")
    with pytest.raises(UsageError, match="^task_classes must be how many classes"):
        odedm.train("blobs", task_classes="x")


def test_only_settings_become_options():
    """Not words that are both, names in quotes, parts of paths, and those of other commands."""
    names = ["task_classes", "batch", "net_options"]
    assert as_options("net_options and batch of 'task_classes'", names) == "--set net and batch of 'task_classes'"
    assert as_options("in runs/task_classes/x, my_task_classes", names) == "in runs/task_classes/x, my_task_classes"
    assert (
        as_options("'./d task_classes e' holds task_classes", names)
        == "'./d task_classes e' holds --set stream.task_classes"
    )
    assert (
        as_options('"it\'s task_classes" or task_classes', names) == '"it\'s task_classes" or --set stream.task_classes'
    )
    assert as_options("the net's and runs' task_classes", names) == "the net's and runs' --set stream.task_classes"
    assert as_options("class_order", names) == "class_order"
    assert as_options("class_order", []) == "class_order"
