"""What the library says is right from both doors: options stand beside the thing, and not in its place."""

import ast
import re
from pathlib import Path

import pytest

import odedm
from odedm import UsageError

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
