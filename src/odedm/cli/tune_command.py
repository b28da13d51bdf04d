"""`odedm tune`: learning rate and constants by held-out training rows, as many tries with ODEDM as without."""

from __future__ import annotations

import json
import statistics
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from odedm.cli import console
from odedm.cli.board import Board
from odedm.cli.console import SOME_FAILED, err, out, say, tell_json
from odedm.cli.generated_options import Given, experiment_from, opt, pairs, with_settings
from odedm.cli.study_command import PLACE, session_from
from odedm.core.errors import UsageError
from odedm.core.files import writable_folder, write_text
from odedm.execute.engine import Placement
from odedm.memory.settings import DEFAULT_RHO, ODEDM
from odedm.study.grid import PLAIN, Grid
from odedm.training.experiment import Experiment
from odedm.training.hold_out import Selection

if TYPE_CHECKING:
    from odedm.study.tuning import Tried

guarded = console.guarded("Trials that are over are kept, and the same command goes on from here.")

RATES = "0.01,0.03,0.1,0.3"
SHARED = ("data", "method", "setting", "batch", "net")
"""Settings that both sides of a contest have in common."""


@guarded
@with_settings((Experiment, SHARED), (ODEDM, ("capacity",)), Placement, (Experiment, PLACE))
def tune(
    given: Given,
    lr: Annotated[str, opt("Learning rates.", "Choices", metavar="X,Y,…")] = RATES,
    set_: Annotated[
        list[str] | None, opt("A constant of the method, again and again.", "Choices", "--set", metavar="NAME=X,Y,…")
    ] = None,
    rho: Annotated[str, opt("Long-term shares, with ODEDM.", "Choices", metavar="X,Y,…")] = str(DEFAULT_RHO),
    tries: Annotated[
        int | None,
        opt("Combinations that each side may try.", "Choices", default="as many as the side with fewer has", min=1),
    ] = None,
    first_tasks: Annotated[int, opt("Tasks to train on.", "Protocol", min=1)] = 2,
    share: Annotated[float, opt("Share of their training rows to hold out.", "Protocol")] = 0.2,
    seeds: Annotated[int, opt("Seeds of each try.", "Protocol", min=1)] = 3,
    first_seed: Annotated[int, opt("The first of them; not one of your runs'.", "Protocol", min=0)] = 1000,
    out_folder: Annotated[Path | None, opt("Folder for what was tried.", "How", "--out", default="runs/tune-…")] = None,
    as_json: Annotated[bool, opt("Print JSON, and nothing else, on stdout.", "How", "--json")] = False,
) -> None:
    """Choose learning rate and constants on held-out training rows, as many tries with ODEDM as without.

    The first tasks are trained without a share of their training rows, and these are what a try is scored on. Test
    rows are never read.
    """
    from odedm.study import tuning

    select = Selection(first_tasks, share, tuple(range(first_seed, first_seed + seeds)))
    plan = experiment_from({name: given.pop(name) for name in (*SHARED, "capacity") if name in given})
    same: dict[str, Any] = {name: (getattr(plan, name),) for name in SHARED} | {"capacity": (plan.memory.capacity,)}
    options = {plan.method: _choices(lr, set_ or [])}
    plain = Grid({**same, "memory": (PLAIN,)}, options)
    dual = Grid({**same, "memory": ("odedm",), "rho": _values("--rho", rho), "dac": ("paper",)}, options)
    default = f"tune-{Path(plan.data).name}-{plan.method}-{plan.memory.capacity}"
    session = session_from(given, out_folder or Path("runs") / default)
    rivals, planned = tuning.contest(tuning.candidates(plain, dual, tries), select, session)
    ledger = session.ledger
    writable_folder(ledger.folder)
    with ledger.held():
        jobs = rivals.to_do(ledger.scores())
        say(
            f"{rivals.tries} tries without ODEDM and {rivals.tries} with it, {seeds} seeds each, on the first "
            f"{first_tasks} tasks of '{plan.data}'; {len(jobs)} trials to do."
        )
        with Board(err, len(jobs), quiet=as_json) as board:
            summary = session.run(jobs, planned, [board])
        tried = rivals.tried(ledger.scores())
    if not all(tried.values()):
        raise UsageError("No try was finished on one of the sides; the lines above say why.")
    _conclude(tried, plain, dual, ledger.folder, as_json=as_json)
    if summary.failed:
        raise typer.Exit(SOME_FAILED)


def _choices(rates: str, given: Sequence[str]) -> dict[str, tuple[Any, ...]]:
    once = "give it once, with all its values"
    found = pairs("--set", "constant", [f"lr={rates}", *given], "NAME=X,Y,…, e.g. {} alpha=0.1,0.5", once)
    return {name: _values("--lr" if name == "lr" else f"--set {name}", text) for name, text in found.items()}


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
        tell_json(sides)
        return
    for side, own in tried.items():
        table = Table(f"{side} ODEDM", "held-out ACC", "seeds", title_justify="left")
        for each in own:
            spread = f" (sd {statistics.stdev(each.scores):.1f})" if len(each.scores) > 1 else ""
            table.add_row(Text(each.words), f"{each.mean:.1f} %{spread}", str(len(each.scores)))
        out.print(table)
    say(f"The choices as a study: odedm study {folder / 'tuned.toml'}")
