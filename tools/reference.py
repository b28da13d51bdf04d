"""Print docs/reference.md: settings, commands and names, from their own descriptions.

python tools/reference.py > docs/reference.md
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any

import typer

from odedm.cli.app import app
from odedm.cli.dotted_settings import spelling
from odedm.cli.generated_options import shown_default
from odedm.cli.list_command import LISTS
from odedm.core.configuration import settings_of
from odedm.core.plugins import PluginEntry
from odedm.execute.backend import ExecutionConfig
from odedm.memory.settings import KINDS
from odedm.training.experiment import Experiment
from odedm.training.observation import Observation

HEAD = """# Reference

*Made by `make reference` from the settings and commands themselves; do not edit it.*

A setting has one name everywhere. `class_order`, say, is `--set stream.class_order=seed` on the command line,
`class_order = "seed"` in a study's file, where a list of values makes as many runs, and `class_order="seed"` in
`odedm.train` and
`odedm.Experiment`. Settings of a memory are those of `odedm.Reservoir`, `odedm.Native` and `odedm.ODEDM`.
"""


def reference() -> str:
    """Return the whole page."""
    lines = [HEAD, "## Settings", ""]
    groups: dict[str, Any] = {"Experiment": Experiment, **{f"Memory `{name}`": kind for name, kind in KINDS.items()}}
    groups |= {"What is looked at": Observation, "Where runs happen": ExecutionConfig}
    for title, kind in groups.items():
        lines += [f"### {title}", "", *_settings(kind), ""]
    lines += [
        "## Commands",
        "",
        "`odedm --version` says which version this is, and `--help` after any command what it takes.",
        "",
    ]
    for name, command in sorted(_commands()):
        lines += [f"### `odedm {name}`", "", _plain(command.help or "").split("\n\n")[0].replace("\n", " "), ""]
        lines += [*_options(command), ""]
    lines += ["## Names", ""]
    for title, entries in LISTS.items():
        ours = {name: entry for name, entry in entries.items() if not isinstance(entry, PluginEntry)}
        rows = [(f"`{name}`", entry if isinstance(entry, str) else entry.about) for name, entry in ours.items()]
        lines += [f"### {title}", "", *_table(("name", "what it is"), rows), ""]
    return "\n".join(lines).rstrip() + "\n"


def _settings(kind: Any) -> Iterator[str]:
    rows = []
    for name, setting in settings_of(kind).items():
        axis = f"`{name}`" if setting.axis and kind not in (Observation, ExecutionConfig) else ""
        default = shown_default(kind, name, setting)
        rows.append((f"`{spelling(name)}`", axis, setting.validator.expected, default, setting.help))
    return _table(("option", "in a study", "takes", "default", "meaning"), rows)


def _commands() -> Iterator[tuple[str, Any]]:
    root: Any = typer.main.get_command(app)
    for name, command in root.commands.items():
        below = getattr(command, "commands", None)
        yield from (
            ((f"{name} {part}", subcommand) for part, subcommand in below.items()) if below else [(name, command)]
        )


def _options(command: Any) -> Iterator[str]:
    rows = []
    for entry in command.params:
        names = [*entry.opts, *entry.secondary_opts]
        option = any(name.startswith("-") for name in names)
        shown = ", ".join(f"`{name}`" for name in names) if option else f"`{entry.metavar or entry.name.upper()}`"
        rows.append((shown, _plain(getattr(entry, "help", "") or "")))
    return _table(("option", "what it does"), rows) if rows else iter(())


def _plain(text: str) -> str:
    """Help without its markup."""
    return re.sub(r"\[/?(?:dim|bold)?\]", "", text.replace("\\[", "(").replace("][/]", ")"))


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> Iterator[str]:
    yield f"| {' | '.join(head)} |"
    yield f"|{'---|' * len(head)}"
    for row in rows:
        yield f"| {' | '.join(cell.replace('|', chr(92) + '|') for cell in row)} |"


if __name__ == "__main__":
    print(reference(), end="")
