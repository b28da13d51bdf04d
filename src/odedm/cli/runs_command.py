"""`odedm runs …`: look at finished runs, check them, compare two, and carry many in one file."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from rich.table import Table
from rich.text import Text

from odedm.cli.console import SOME_FAILED, echo, echo_json, log, out
from odedm.cli.generated_options import AsJson, opt
from odedm.cli.help_page import CommandApp
from odedm.core.text import printable
from odedm.results.folder import FinishedRun, find_run, find_runs

app = CommandApp(
    name="runs",
    help="Finished runs: show, verify and compare them, pack them into one file.",
    add_completion=False,
    after_interrupt="Nothing was changed.",
)

Run = Annotated[Path, typer.Argument(help="A run's folder.")]
Packed = Annotated[list[Path], typer.Argument(metavar="FILE.jsonl.gz...", help="Files of packed results.")]
Target = Annotated[Path, opt("The file to write.", None, "--out", metavar="FILE.jsonl.gz")]


@app.command()
def show(
    path: Run,
    as_json: AsJson = False,
) -> None:
    """Show one run: its configuration, its accuracy matrices, its memory."""
    from odedm.report.terminal import print_run

    run = FinishedRun.load(find_run(path))
    if as_json:
        echo_json(run.result.to_dict())
    else:
        print_run(run.result, out)


@app.command()
def verify(
    paths: Annotated[list[Path], typer.Argument(help="Folders of runs, or folders that hold runs.")],
    as_json: AsJson = False,
) -> None:
    """Check finished runs: files, format, metrics and memory. Exit code 1 where one is broken."""
    from odedm.results.verification import is_valid, lines
    from odedm.results.verification import verify as look

    checked = {folder: look(folder) for folder in find_runs(paths)}
    broken = [folder for folder, checks in checked.items() if not is_valid(checks)]
    if as_json:
        echo_json(
            [
                {
                    "folder": str(folder),
                    "sound": folder not in broken,
                    "checks": [vars(check) for check in checks],
                }
                for folder, checks in checked.items()
            ]
        )
    else:
        for folder, checks in checked.items():
            if len(checked) > 1:
                echo(folder)
            for line in lines(checks):
                echo(line)
        echo(_verdict(list(checked), broken))
    if broken:
        raise typer.Exit(SOME_FAILED)


def _verdict(checked: Sequence[Path], broken: Sequence[Path]) -> str:
    if not broken:
        return f"'{checked[0]}' is sound." if len(checked) == 1 else f"All {len(checked)} runs are sound."
    names = ", ".join(f"'{folder}'" for folder in broken[:5]) + (" and others" if len(broken) > 5 else "")
    return f"{names} is BROKEN: do not use the numbers; run it again." if len(broken) == 1 else f"{names} are BROKEN."


@app.command()
def diff(first: Run, second: Run, as_json: AsJson = False) -> None:
    """Say what differs between two runs, and whether they can be compared."""
    from odedm.results.comparison import compare

    one, other = (FinishedRun.load(find_run(path)).result for path in (first, second))
    comparison = compare(one, other)
    if as_json:
        echo_json(comparison.to_dict())
        return
    tables = {"Configuration": comparison.configuration, "Origin": comparison.origin, "Outcome": comparison.outcome}
    for title, rows in tables.items():
        if not rows:
            echo(f"{title}: no difference")
            continue
        table = Table(title, "first", "second", title_justify="left")
        for row in rows:
            table.add_row(*[Text(printable(cell, 200)) for cell in row])
        out.print(table)
    echo(f"Seconds: {one.total_seconds:.1f} and {other.total_seconds:.1f}")
    echo(comparison.verdict())


@app.command()
def pack(
    runs: Annotated[list[Path], typer.Argument(help="Folders of runs, or folders that hold runs.")], out_file: Target
) -> None:
    """Write the results of finished runs to one file, a line each: all but their memories and evidence."""
    from odedm.results.packed import check_runs, check_target

    check_target(out_file)
    _write(out_file, check_runs(runs))


@app.command()
def merge(files: Packed, out_file: Target) -> None:
    """Bring packed results together, each run once. Two results of one run that differ are refused."""
    from odedm.results.packed import check_target, read_packed

    check_target(out_file, files)
    _write(out_file, [run for file in files for run in read_packed(file)])


def _write(path: Path, runs: list[FinishedRun]) -> None:
    from odedm.results.packed import write_packed
    from odedm.studies.merging import deduplicate

    kept = deduplicate(runs, by_code=False)  # a file with a run twice is one that no report reads
    write_packed(path, [run.result for run in kept.values()])
    twice = len(runs) - len(kept)
    log(f"Packed: {len(kept)} runs in {path}" + (f" ({twice} that were there twice count once)" if twice else ""))
