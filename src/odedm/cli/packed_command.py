"""`odedm results …`: put finished runs into one file that travels, bring such files together, print their table."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odedm.cli import console
from odedm.cli.console import out, say
from odedm.cli.generated_options import opt
from odedm.cli.help_page import CommandApp

if TYPE_CHECKING:
    from odedm.results.folder import FinishedRun

app = CommandApp(
    name="results",
    help="Packed results: many runs in one file, to carry a study from machine to machine.",
    add_completion=False,
)
guarded = console.guarded("Nothing was changed.")

Packed = Annotated[list[Path], typer.Argument(metavar="FILE.jsonl.gz...", help="Files of packed results.")]
Target = Annotated[Path, opt("The file to write.", None, "--out", metavar="FILE.jsonl.gz")]


@app.command()
@guarded
def pack(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or folders that hold runs.")], out_file: Target
) -> None:
    """Write the results of finished runs to one file, a line each: all but their memories and evidence."""
    from odedm.results.packed import check_runs, check_target

    check_target(out_file)
    _write(out_file, check_runs(runs))


@app.command()
@guarded
def merge(files: Packed, out_file: Target) -> None:
    """Bring packed results together, each run once. Two results of one run that differ are refused."""
    from odedm.results.packed import check_target, read_packed

    check_target(out_file, files)
    _write(out_file, [run for file in files for run in read_packed(file)])


@app.command()
@guarded
def table(files: Packed) -> None:
    """Print packed results as REPRODUCTION.md has them: accuracies, changes by ODEDM, the paper's numbers."""
    from odedm.report.ledger_table import to_ledger_table
    from odedm.report.summary import summarise
    from odedm.study.gathering import read_all

    out.file.write(to_ledger_table(summarise(list(read_all(files).values()))))


def _write(path: Path, runs: list[FinishedRun]) -> None:
    from odedm.results.packed import write_packed
    from odedm.study.gathering import by_content

    own = by_content(runs, by_code=False)  # a file with a run twice is one that no report reads
    write_packed(path, [run.result for run in own.values()])
    twice = len(runs) - len(own)
    say(f"Packed: {len(own)} runs in {path}" + (f" ({twice} that were there twice count once)" if twice else ""))
