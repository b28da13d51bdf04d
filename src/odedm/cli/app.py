"""The command line: every command of `odedm`."""

from __future__ import annotations

import io
import os
import sys
from typing import Annotated

import typer

from odedm.cli import console
from odedm.cli.console import echo
from odedm.cli.data_command import app as data_app
from odedm.cli.generated_options import opt
from odedm.cli.help_page import CommandApp
from odedm.cli.list_command import list_
from odedm.cli.paper_command import paper
from odedm.cli.report_command import report
from odedm.cli.run_command import demo, resume, run
from odedm.cli.runs_command import app as runs_app
from odedm.cli.study_command import study
from odedm.cli.tune_command import tune
from odedm.core.version import __version__

NOTHING = "Nothing was changed."
app = CommandApp(
    name="odedm",
    help="Online continual learning with a bounded memory: rehearsal methods with and without ODEDM.",
    after_interrupt="Finished runs are kept, and the same command goes on with the others.",
)
for command in (demo, run, resume, study, tune, paper):
    app.command()(command)
app.command(after_interrupt=NOTHING)(report)
app.command("list", after_interrupt=NOTHING)(list_)
app.add_typer(data_app, name="data")
app.add_typer(runs_app, name="runs")


def _version(wished: bool) -> None:
    if wished:
        echo(f"odedm {__version__}")
        raise typer.Exit


@app.callback()
def odedm(
    version: Annotated[
        bool, opt("Show the version and exit.", None, "--version", callback=_version, is_eager=True)
    ] = False,
) -> None:
    """Online continual learning with a bounded memory: rehearsal methods with and without ODEDM."""
    del version


def main() -> None:
    """Run the `odedm` command."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="replace")  # a terminal that knows no λ shows a ? in its place
    try:
        app()
    except OSError as error:  # help and versions are written outside of every command
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)  # Python would try the rest again as it ends
        console.log_error(f"The system refused: {error.strerror or error}.")
        sys.exit(console.REFUSED)
