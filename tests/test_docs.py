"""The pages speak of what is there: every path, module, option, value and key that they name exists."""

import ast
import inspect
import re
import tomllib
from dataclasses import fields
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

import pytest
import typer

import odedm
from odedm.cli.app import app
from odedm.cli.dotted_settings import PARTS, grouped_settings, spelling
from odedm.cli.list_command import LISTS, SETTINGS
from odedm.core.configuration import settings_of
from odedm.core.registry import DISTANCES, METHODS
from odedm.core.validators import Choice
from odedm.execute.backend import ExecutionConfig
from odedm.memory.settings import KINDS
from odedm.methods.hyperparameters import hyperparameters
from odedm.paper.studies import READY
from odedm.studies.grid import axes
from odedm.studies.spec import parse
from odedm.training.experiment import Experiment
from odedm.training.observation import Observation

ROOT = Path(__file__).parent.parent
PAGES = [page for page in [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))] if page.stem != "CHANGELOG"]
"""All but the changelog, which speaks of the past."""
FOREIGN = {"--head", "--address", "--generate", "--index-url", "--group"}
"""Options of `ray` and of `pip`."""

pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="only in a checkout")
every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


def spans(text):
    """Code in the running text."""
    return re.findall(r"`([^`]+)`", re.sub(r"```.*?```", "", text, flags=re.S))


def blocks(text, language=r"\w*"):
    """Fenced code of a language."""
    return re.findall(rf"```{language}\n(.*?)```", text, flags=re.S)


def calls(text):
    """Every use of the command: its words without the comment behind them."""
    lines = [line for block in blocks(text, "(?:bash|sh)?") for line in block.splitlines()]
    for line in [*lines, *spans(text)]:
        for part in re.split(r"\s#\s|&&|\s\|\s", " ".join(line.split(" #")[0].split())):
            words = part.split()
            if words[:1] == ["odedm"]:
                yield words[1:]


def commands():
    """Each command's options by its name."""
    root = typer.main.get_command(app)
    found = {(): options_of(root)}
    for name, command in root.commands.items():
        below = getattr(command, "commands", None)
        found |= {(name, each): options_of(own) for each, own in below.items()} if below else {}
        found[name,] = set().union(*(found[name, each] for each in below)) if below else options_of(command)
    return found


def options_of(command):
    own = {name for each in command.params for name in [*each.opts, *each.secondary_opts] if name.startswith("--")}
    return own | {"--help"}


COMMANDS = commands()
NAMED = {
    spelling(name): (own.validator.names, kind)
    for kind in (Experiment, *KINDS.values(), Observation, ExecutionConfig)
    for name, own in settings_of(kind).items()
    if isinstance(own.validator, Choice)
}
"""Options that take one of some names."""


@every_page
def test_commands_options_and_names_after_odedm_exist(page):
    for words in calls(page.read_text()):
        own = tuple(words[:2]) if tuple(words[:2]) in COMMANDS else tuple(words[:1])
        said = f"{page.name}: odedm {' '.join(words)}"
        if own and not re.fullmatch(r"[a-z]+", own[0]):
            own = ()
        assert own in COMMANDS, said
        if own == ("study",) and len(words) > 1 and re.fullmatch(r"[a-z0-9-]+", words[1]):
            assert words[1] in READY, said
        if own == ("list",) and len(words) > 1:
            assert words[1] in {*LISTS, SETTINGS}, said
        for pair in [
            words[at + 1] for at, word in enumerate(words[:-1]) if word == "--set" and "…" not in words[at + 1]
        ]:
            group, dot, name = pair.partition("=")[0].partition(".")
            assert not dot or group in PARTS or name in grouped_settings()[group], said
        for at, word in enumerate(words):
            flag, _, value = word.partition("=")
            if re.fullmatch(r"--[a-z][a-z-]*", flag):
                assert flag in COMMANDS[own], f"{said}: there is no {flag}"
                value = value or (words[at + 1] if at + 1 < len(words) else "")
                if flag in NAMED and "--plugin" not in words and re.fullmatch(r"[a-z][a-z0-9,-]*", value):
                    assert set(value.split(",")) <= {*NAMED[flag][0]}, f"{said}: {flag} takes no {value}"


@every_page
def test_options_named_alone_exist(page):
    """Those of the command, or of a script in `benchmarks` or `tools`."""
    scripts = "".join(path.read_text() for folder in ("benchmarks", "tools") for path in (ROOT / folder).glob("*.py"))
    known = set().union(*COMMANDS.values()) | set(re.findall(r'"(--[a-z][a-z-]*)"', scripts)) | FOREIGN
    known |= {"--install-completion", "--show-completion"}
    named = re.findall(r"(?<![\w-])--[a-z][a-z-]*", " ".join([*spans(page.read_text()), *blocks(page.read_text())]))
    assert set(named) <= known


@every_page
def test_modules_and_their_names_exist(page):
    for dotted in re.findall(r"(?<![\w./@-])odedm(?:\.[A-Za-z_]\w*)+(?![\w/-])", page.read_text()):
        words, depth = dotted.split("."), 1
        while depth < len(words) and is_module(".".join(words[: depth + 1])):
            depth += 1
        if depth == len(words) > 1:
            continue  # a module that is there; those of odedm.integrations import libraries that need not be
        thing = import_module(".".join(words[:depth]))
        for name in words[depth:]:
            assert hasattr(thing, name), f"{page.name}: {dotted}"
            thing = getattr(thing, name)


def is_module(name):
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:
        return False


@every_page
def test_paths_exist(page):
    text = page.read_text()
    named = re.findall(r"(?<![\w/.-])(?:src|tests|tools|benchmarks|examples|docs)/[\w./-]*[\w/](?![\w<])", text)
    for path in named:
        assert (ROOT / path).exists(), f"{page.name}: {path}"
    here = [path.relative_to(ROOT).as_posix() for folder in ("src", "tests", "tools", "benchmarks", "examples")
            for path in (ROOT / folder).rglob("*.py")]  # fmt: skip
    for path in re.findall(r"(?<![\w/<>.-])[\w/]+\.py\b", " ".join(spans(text))):
        assert any(f"/{each}".endswith(f"/{path}") for each in here), f"{page.name}: {path}"


@every_page
def test_python_in_the_pages_imports_what_there_is(page):
    for block in blocks(page.read_text(), "python"):
        for node in ast.walk(ast.parse(block)):
            if isinstance(node, ast.ImportFrom) and node.module.startswith("odedm"):
                for alias in node.names:
                    assert hasattr(import_module(node.module), alias.name), f"{page.name}: {ast.unparse(node)}"


@every_page
def test_studies_in_the_pages_can_be_read(page):
    for block in blocks(page.read_text(), "toml"):
        assert tomllib.loads(block)
        assert parse(block).experiments() or "[runtime]" in block


def test_keys_of_a_study_are_those_there_are():
    (listed,) = re.findall(r"Further keys: (.*?), and `evidence`", (ROOT / "docs/how-to/studies.md").read_text(), re.S)
    names = {name.strip("[]").partition(".")[0] for name in re.findall(r"`([^`]+)`", listed)}
    assert names - set(axes()) == {"net_options", "retrieval_options", "policy_options", "name", "about", "only"}
    used = {"data", "method", "memory", "capacity", "rho", "k", "dac"}
    assert set(axes()) - names == used, "the example shows the others"


def test_arguments_in_the_list_of_decisions_exist():
    known = {*axes(), *settings_of(Experiment)} | {field.name for field in fields(DISTANCES["sinkhorn"].load())}
    known |= {name for entry in METHODS.values() for name in hyperparameters(entry.load())}
    text = (ROOT / "REPRODUCTION.md").read_text()
    named = {name for span in spans(text) for name in re.findall(r"(?:^|\s)([a-z_]\w*)=", span)}
    assert len(named) > 15
    assert named <= known


def test_the_package_says_which_version_it_is():
    assert f"## {odedm.__version__}" in (ROOT / "CHANGELOG.md").read_text()
    assert f"\nversion: {odedm.__version__}\n" in (ROOT / "CITATION.cff").read_text()


@every_page
def test_targets_of_make_exist(page):
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.M))
    code = [*spans(page.read_text()), *blocks(page.read_text())]
    assert set(re.findall(r"\bmake ([a-z][a-z-]*)", " ".join(code))) <= targets


CLASSES_OF_DATA = {"Reservoir", "Native", "ODEDM", "Dataset", "Stream", "Result", "Experiment"}
FUNCTIONS = {"from_arrays", "load_dataset", "blobs", "shapes", "split", "select", "prototypes_per_class", "train"}
FUNCTIONS.add("prequential")


@pytest.mark.parametrize("name", sorted(CLASSES_OF_DATA | FUNCTIONS))
def test_what_users_call_says_what_it_takes_and_shows_an_example(name):
    """Every parameter stands under Args, or in the words of another one there; a function says what it returns."""
    thing = getattr(odedm, name)
    text = inspect.getdoc(thing)
    assert ">>> " in text
    assert "Args:\n" in text
    assert name in CLASSES_OF_DATA or "Returns:\n" in text
    taken = inspect.signature(thing).parameters if name in FUNCTIONS else {field.name for field in fields(thing)}
    known = set() if name != "train" else {*settings_of(Experiment), "memory"} - {"data"}
    own = text.split("Args:\n")[1]
    assert [each for each in taken if each not in known and not re.search(rf"\b{each}\b", own)] == []


@pytest.mark.parametrize("name", [name for name in vars(odedm.DualMemory) if name[0] != "_"])
def test_the_live_memory_says_what_each_call_takes(name):
    thing = getattr(odedm.DualMemory, name)
    text = inspect.getdoc(thing)
    taken = set(inspect.signature(thing).parameters) - {"self"} if callable(thing) else set()
    missing = [each for each in taken if not re.search(rf"\b{each}\b", text)]
    assert missing == [] or name == "of"


@pytest.mark.parametrize("name", sorted({*odedm.__all__} - {"__version__", "Rows"}))
def test_every_public_name_says_what_it_is(name):
    assert len((inspect.getdoc(getattr(odedm, name)) or "").split()) >= 5
