"""`odedm tune`: parse, call, print, nothing else."""

from __future__ import annotations

import json
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from odedm.cli import console
from odedm.cli.console import err, out
from odedm.cli.study_command import SOME_FAILED, Address, Cpus, Device, EngineName, Gpus, Lanes, Threads, place
from odedm.core.errors import UsageError
from odedm.core.files import writable_folder, write_text

if TYPE_CHECKING:
    from odedm.study.grid import Grid
    from odedm.study.tuning import Tried

guarded = console.guarded("Trials that are over are kept, and the same command goes on from here.")

RATES = "0.01,0.03,0.1,0.3"


@guarded
def tune(
    data: Annotated[str, typer.Option(help="Data set.", rich_help_panel="What")] = "fashion-mini",
    method: Annotated[str, typer.Option(help="Method.", rich_help_panel="What")] = "derpp",
    capacity: Annotated[int, typer.Option(help="Rows in all, λ.", rich_help_panel="What")] = 100,
    setting: Annotated[str, typer.Option(help="Setting of the stream.", rich_help_panel="What")] = "standard",
    batch: Annotated[int, typer.Option(help="Stream rows per step.", rich_help_panel="What")] = 32,
    net: Annotated[str, typer.Option(help="Network.", rich_help_panel="What")] = "auto",
    lr: Annotated[str, typer.Option(metavar="X,Y,…", help="Learning rates.", rich_help_panel="Choices")] = RATES,
    set_: Annotated[
        list[str] | None,
        typer.Option(
            "--set", metavar="NAME=X,Y,…", help="A constant of the method, again and again.", rich_help_panel="Choices"
        ),
    ] = None,
    rho: Annotated[
        str, typer.Option(metavar="X,Y,…", help="Long-term shares, with ODEDM.", rich_help_panel="Choices")
    ] = "0.25",
    tries: Annotated[
        int | None,
        typer.Option(
            min=1,
            help="Combinations that each side may try.",
            rich_help_panel="Choices",
            show_default="as many as the side with fewer has",
        ),
    ] = None,
    first_tasks: Annotated[int, typer.Option(min=1, help="Tasks to train on.", rich_help_panel="Protocol")] = 2,
    share: Annotated[
        float, typer.Option(help="Share of their training rows to hold out.", rich_help_panel="Protocol")
    ] = 0.2,
    seeds: Annotated[int, typer.Option(min=1, help="Seeds of each try.", rich_help_panel="Protocol")] = 3,
    first_seed: Annotated[
        int, typer.Option(min=0, help="The first of them; not one of your runs'.", rich_help_panel="Protocol")
    ] = 1000,
    out_folder: Annotated[
        Path | None,
        typer.Option("--out", help="Folder for what was tried.", rich_help_panel="How", show_default="runs/tune-…"),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print JSON, and nothing else, on stdout.", rich_help_panel="How")
    ] = False,
    lanes: Lanes = None,
    device: Device = "auto",
    threads: Threads = 1,
    engine: EngineName = "lanes",
    address: Address = None,
    cpus: Cpus = 1.0,
    gpus: Gpus = 0.0,
) -> None:
    """Choose learning rate and constants on held-out training rows, as many tries with ODEDM as without.

    The first tasks are trained without a share of their training rows, and these are what a try is scored on. Test
    rows are never read.
    """
    from odedm.cli.study_board import StudyBoard
    from odedm.execute.eta import Pace
    from odedm.execute.listening import Audience
    from odedm.study import session as conduct
    from odedm.study import tuning as contest
    from odedm.study.grid import PLAIN, Grid
    from odedm.study.ledger import Ledger
    from odedm.training.hold_out import Selection

    select = Selection(first_tasks, share, tuple(range(first_seed, first_seed + seeds)))
    where = place(engine, lanes, device, threads, address, cpus, gpus)
    options = {method: _choices(lr, set_ or [])}
    same: dict[str, Any] = {
        "data": (data,), "method": (method,), "capacity": (capacity,), "setting": (setting,), "batch": (batch,),
        "net": (net,),
    }  # fmt: skip
    plain = Grid({**same, "memory": (PLAIN,)}, options)
    dual = Grid({**same, "memory": ("odedm",), "rho": _values("--rho", rho), "dac": ("paper",)}, options)
    ledger = Ledger(out_folder or Path("runs") / f"tune-{Path(data).name}-{method}-{capacity}")
    rivals = contest.contest(contest.candidates(plain, dual, tries), select, ledger, where)
    writable_folder(ledger.folder)
    with ledger.held():
        works = rivals.to_do(ledger.scores())
        _say(
            f"{rivals.tries} tries without ODEDM and {rivals.tries} with it, {seeds} seeds each, on the first "
            f"{first_tasks} tasks of '{data}'; {len(works)} trials to do."
        )
        board = StudyBoard(err, len(works), quiet=as_json)
        with board, Audience(board, works, None, None) as audience:
            outcome = conduct.go(works, ledger, where, audience, Pace())
        tried = rivals.tried(ledger.scores())
    if not all(tried.values()):
        raise UsageError("No try was finished on one of the sides; the lines above say why.")
    _conclude(tried, plain, dual, ledger.folder, as_json=as_json)
    if outcome.failed:
        raise typer.Exit(SOME_FAILED)


def _choices(rates: str, pairs: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    found = {"lr": _values("--lr", rates)}
    for pair in pairs:
        name, sign, values = pair.partition("=")
        if not sign or not name:
            raise UsageError(f"--set takes NAME=X,Y,…, e.g. --set alpha=0.1,0.5; '{pair}' was given.")
        if name in found:
            raise UsageError(f"The constant '{name}' was given twice; give it once, with all its values.")
        found[name] = _values(f"--set {name}", values)
    return found


def _values(flag: str, text: str) -> tuple[Any, ...]:
    """Values separated by commas: numbers, true or false, or names.

    >>> _values("--set", "0.1,2,true,l2")
    (0.1, 2, True, 'l2')
    """
    found = []
    for word in text.split(","):
        try:
            found.append(json.loads(word))
        except ValueError:
            if not word.strip():
                raise UsageError(f"{flag} takes values separated by commas; '{text}' was given.") from None
            found.append(word.strip())
    return tuple(found)


def _conclude(tried: dict[str, list[Tried]], plain: Grid, dual: Grid, folder: Path, *, as_json: bool) -> None:
    """The best of each side first, here and in the folder."""
    from odedm.study.tuning import as_study

    sides = {side: [each.to_dict() for each in own] for side, own in tried.items()}
    write_text(folder / "tuned.json", json.dumps(sides, indent=1, ensure_ascii=False) + "\n")
    write_text(folder / "tuned.toml", as_study(tried, {"without": plain, "with": dual}).to_toml())
    if as_json:
        sys.stdout.write(json.dumps(sides, indent=1, ensure_ascii=False) + "\n")
        return
    for side, own in tried.items():
        table = Table(f"{side} ODEDM", "held-out ACC", "seeds", title_justify="left")
        for each in own:
            spread = f" (sd {statistics.stdev(each.scores):.1f})" if len(each.scores) > 1 else ""
            table.add_row(Text(each.words), f"{each.mean:.1f} %{spread}", str(len(each.scores)))
        out.print(table)
    _say(f"The choices as a study: odedm study {folder / 'tuned.toml'}")


def _say(line: str) -> None:
    err.print(line, markup=False, highlight=False, soft_wrap=True)
