"""The command line: every command of `odedm`, and the lists of names that they take."""

from __future__ import annotations

import io
import os
import signal
import sys
import threading
from collections.abc import Mapping
from typing import Annotated, Any

import typer
from rich.table import Table
from rich.text import Text

from odedm.cli import console
from odedm.cli.console import out, tell
from odedm.cli.data_command import app as data_app
from odedm.cli.generated_options import Plugins, opt, settings_in_words
from odedm.cli.help_page import CommandApp
from odedm.cli.paper_command import paper
from odedm.cli.report_command import report
from odedm.cli.run_command import demo, resume, run
from odedm.cli.runs_command import app as runs_app
from odedm.cli.study_command import study
from odedm.cli.tune_command import tune
from odedm.core import registry
from odedm.core.errors import choose
from odedm.core.plugin_modules import load_plugins
from odedm.core.plugins import discover
from odedm.core.registry import typed
from odedm.core.version import __version__
from odedm.execute.backend import BACKENDS
from odedm.paper.studies import READY
from odedm.recipes.recommendations import recipe_lines, recipes

app = CommandApp(
    name="odedm", help="Online continual learning with a bounded memory: rehearsal methods with and without ODEDM."
)
for command in (demo, run, resume, study, tune, paper, report):
    app.command()(command)

LISTS: dict[str, dict[str, Any]] = {
    "methods": registry.METHODS,
    "memories": registry.MEMORIES,
    "policies": registry.POLICIES,
    "retrievals": registry.RETRIEVALS,
    "data": registry.DATASETS,
    "distances": registry.DISTANCES,
    "nets": registry.NETS,
    "optimizers": registry.OPTIMIZERS,
    "transforms": registry.TRANSFORMS,
    "stream-losses": registry.STREAM_LOSSES,
    "predictions": registry.PREDICTIONS,
    "views": registry.VIEWS,
    "imbalances": registry.IMBALANCES,
    "domains": registry.DOMAINS,
    "replays": {"auto": registry.AUTO_REPLAY, **registry.REPLAYS},
    "gamma-rules": registry.GAMMA_RULES,
    "spaces": registry.SPACES,
    "grounds": registry.GROUNDS,
    "class-orders": registry.CLASS_ORDERS,
    "precisions": registry.PRECISIONS,
    "backends": BACKENDS,
    "recipes": recipe_lines(),
    "studies": READY,
}
SETTINGS = "settings"


@app.command("list")
@console.guarded("Nothing was changed.")
def list_(
    what: Annotated[
        str | None, typer.Argument(help=f"{' | '.join([*LISTS, SETTINGS])}.", show_default="all names, briefly")
    ] = None,
    plugin: Plugins = None,
) -> None:
    """Show the names that the other commands take; of one kind with a line on each."""
    load_plugins(plugin or ())
    discover()
    if what is None:
        names = {title: ", ".join(typed(names)) for title, names in (LISTS | {"recipes": recipes()}).items()}
        _print_rows("", names | {SETTINGS: "every setting of a run with its default, and how a command spells it"})
        tell("With a line on each name: odedm list NAME, e.g. odedm list methods.")
        return
    if what == SETTINGS:
        _print_rows(what, settings_in_words())
        return
    names = choose("list", what, LISTS)
    _print_rows(what, {name: entry if isinstance(entry, str) else entry.about for name, entry in names.items()})


app.add_typer(data_app, name="data")
app.add_typer(runs_app, name="runs")


def _print_rows(title: str, rows: Mapping[str, str]) -> None:
    """Names in bold, and what is to be said of each."""
    table = Table(title=title or None, title_justify="left", show_header=False, box=None, padding=(0, 2))
    for name, words in rows.items():
        table.add_row(Text(name, style="bold"), words)
    out.print(table)


def _version(wished: bool) -> None:
    if wished:
        tell(f"odedm {__version__}")
        raise typer.Exit


@app.callback()
def odedm(
    version: Annotated[
        bool, opt("Show the version and exit.", None, "--version", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Online continual learning with a bounded memory: rehearsal methods with and without ODEDM."""
    del version


def repeat_interrupt(unraisable: sys.UnraisableHookArgs) -> None:
    """Interrupt again where an interrupt came in a destructor: Python would print and forget it."""
    if not isinstance(unraisable.exc_value, KeyboardInterrupt):
        sys.__unraisablehook__(unraisable)
        return
    main_thread = threading.main_thread().ident or 0
    timer = threading.Timer(0.01, signal.pthread_kill, (main_thread, signal.SIGINT))  # after the destructor
    timer.daemon = True
    timer.start()


def main() -> None:
    """Entry point of the `odedm` command."""
    sys.unraisablehook = repeat_interrupt
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no λ shows a ? in its place
    try:
        app()
    except OSError as error:  # help and versions are written outside of every command
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python would try the rest again as it ends
        console.say_error(f"The system refused: {error.strerror or error}.")
        sys.exit(console.REFUSED)
