"""`odedm verify` and `odedm diff`: parse, call, print, nothing else."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from odedm.cli import console
from odedm.cli.console import out
from odedm.core.errors import UsageError
from odedm.results.result import FILE, Result, find

if TYPE_CHECKING:
    from collections.abc import Sequence

BROKEN = 1

guarded = console.guarded("Nothing was changed.")

AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.")]
Run = Annotated[Path, typer.Argument(help="A run's folder.")]


def register(app: typer.Typer) -> None:
    """Make the two commands those of an app."""
    app.command("verify")(verify)
    app.command("diff")(diff)


@guarded
def verify(
    paths: Annotated[list[Path], typer.Argument(help="Folders of runs, or folders that hold runs.")],
    as_json: AsJson = False,
) -> None:
    """Check finished runs: files, figures, memory and data. Exit code 1 where one is broken."""
    from odedm.results.verify import is_sound, lines
    from odedm.results.verify import verify as look

    found = {folder: look(folder) for folder in find(paths)}
    broken = [folder for folder, checks in found.items() if not is_sound(checks)]
    if as_json:
        rows = [
            {"folder": str(folder), "sound": folder not in broken, "checks": [vars(check) for check in checks]}
            for folder, checks in found.items()
        ]
        sys.stdout.write(json.dumps(rows, indent=1) + "\n")
    else:
        for folder, checks in found.items():
            if len(found) > 1:
                _say(str(folder))
            for line in lines(checks):
                _say(line)
        _say(_verdict(list(found), broken))
    if broken:
        raise typer.Exit(BROKEN)


def _verdict(found: Sequence[Path], broken: Sequence[Path]) -> str:
    if not broken:
        return f"'{found[0]}' is sound." if len(found) == 1 else f"All {len(found)} runs are sound."
    names = ", ".join(f"'{folder}'" for folder in broken[:5]) + (" and others" if len(broken) > 5 else "")
    many = "is" if len(broken) == 1 else "are"
    return (
        f"{names} {many} BROKEN: do not use the numbers; run it again." if len(broken) == 1 else f"{names} are BROKEN."
    )


@guarded
def diff(first: Run, second: Run, as_json: AsJson = False) -> None:
    """Say what differs between two runs, and whether they can be compared."""
    from odedm.results.compare import compare, seconds

    one, other = _one(first), _one(second)
    try:
        found, took = compare(one, other), (seconds(one), seconds(other))
    except (AttributeError, TypeError, ValueError, KeyError, IndexError) as error:
        raise UsageError(
            f"One of the two results is not made as it should be ({type(error).__name__}: {error}). "
            "`odedm verify` says which."
        ) from error
    if as_json:
        sys.stdout.write(json.dumps(found.to_dict(), indent=1, ensure_ascii=False) + "\n")
        return
    for title, rows in (
        ("Configuration", found.configuration),
        ("Origin", found.origin),
        ("Outcome", found.outcome),
    ):
        if not rows:
            _say(f"{title}: no difference")
            continue
        table = Table(title, "first", "second", title_justify="left")
        for row in rows:
            table.add_row(*[Text(_printable(each)) for each in row])
        out.print(table)
    _say(f"Seconds: {took[0]:.1f} and {took[1]:.1f}")
    _say(_printable(found.verdict()))


def _one(path: Path) -> Result:
    folders = find([path])
    if len(folders) > 1:
        raise UsageError(f"'{path}' holds {len(folders)} runs; give one, e.g. '{folders[0]}'.")
    return Result.load(folders[0] / FILE)


def _say(line: str) -> None:
    out.print(_printable(line), markup=False, highlight=False, soft_wrap=True)


def _printable(text: str) -> str:
    """A line from a file, without what a terminal would obey."""
    return "".join(each if each.isprintable() else "�" for each in text)
