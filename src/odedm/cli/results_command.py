"""`odedm report`, `show`, `verify` and `diff`: look at finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from odedm.cli import console
from odedm.cli.console import SOME_FAILED, out, say, tell, tell_json
from odedm.cli.generated_options import AsJson, opt
from odedm.core.errors import UsageError
from odedm.core.files import writable_folder
from odedm.core.text import printable
from odedm.results.folder import FinishedRun, find_run, find_runs

if TYPE_CHECKING:
    from odedm.report.summary import Table as Summary
    from odedm.report.unfinished import Unfinished

guarded = console.guarded("Nothing was changed.")

MOST_PENDING = 12
"""How many unfinished runs a terminal names."""

Run = Annotated[Path, typer.Argument(help="A run's folder.")]


@guarded
def report(
    paths: Annotated[list[Path], typer.Argument(help="Folders of runs, or folders that hold runs.")],
    out_file: Annotated[
        Path | None,
        opt(
            "The page to write. With --markdown, --csv or --latex there is none unless this is given.",
            None,
            "--out",
            default="report.html",
        ),
    ] = None,
    markdown: Annotated[bool, opt("Print the table as Markdown.", None, "--markdown")] = False,
    csv: Annotated[bool, opt("Print the table as CSV.", None, "--csv")] = False,
    latex: Annotated[bool, opt("Print the table as LaTeX (booktabs).", None, "--latex")] = False,
    caption: Annotated[str | None, opt("The caption's first words (--latex).", None, metavar="TEXT")] = None,
    label: Annotated[
        str | None, opt("What to refer to it by (--latex).", None, default="tab:odedm", metavar="NAME")
    ] = None,
    baseline: Annotated[
        str | None,
        opt("Compare all with one group, by words of its label.", None, default="without ODEDM", metavar="NAME"),
    ] = None,
    figures: Annotated[
        Path | None, opt("Write every figure as PNG and SVG, with its data as CSV.", metavar="FOLDER")
    ] = None,
) -> None:
    """Compare runs: a table here and one self-contained HTML page."""
    forms = [name for name, wished in (("markdown", markdown), ("csv", csv), ("latex", latex)) if wished]
    if len(forms) > 1:
        raise UsageError(f"{' and '.join(f'--{name}' for name in forms)} exclude each other; give one.")
    if (caption is not None or label is not None) and not latex:
        raise UsageError("--caption and --label are for --latex; give it too, or leave them out.")
    from odedm.report.figures.style import NEEDED, can_draw
    from odedm.report.load import gather
    from odedm.report.page import check_page
    from odedm.report.tables import LABEL
    from odedm.report.unfinished import find_unfinished

    page = out_file or (None if forms else Path("report.html"))
    if figures is not None and not can_draw():
        raise UsageError(NEEDED)
    if page is not None:
        writable_folder(page.parent)
        check_page(page)
        say_if_no_figures()
    table = gather(paths, baseline)
    form, pending = forms[0] if forms else "rich", find_unfinished(paths)
    tell_report(table, page, form, pending=pending, caption=caption or "", label=label or LABEL)
    if figures is not None:
        from odedm.report.figures.all_figures import report_figures, save_figures

        written = save_figures(report_figures(table), writable_folder(figures))
        say(f"Figures: {len(written)} files in {figures}")


def say_if_no_figures() -> None:
    """Say before any time is spent that pages will have no pictures, where matplotlib is missing."""
    from odedm.report.figures.style import can_draw

    if not can_draw():
        say("Note: matplotlib is not installed, so the page will have no figures: pip install 'odedm[plot]'.")


def tell_report(
    table: Summary,
    page: Path | None,
    form: str = "rich",
    *,
    most: int | None = None,
    pending: Sequence[Unfinished] = (),
    caption: str = "",
    label: str = "",
) -> None:
    """Print the table of runs, with up to `most` sentences about it, and what is not over yet.

    The page is written, if one is given. LaTeX may have a caption and a label of its own.
    """
    from odedm.report.load import told_faults
    from odedm.report.page import save_page
    from odedm.report.terminal import print_table
    from odedm.report.unfinished import to_go_on

    if table.rows:
        print_table(table, out, form, most=most, caption=caption, label=label)
    for sentence in told_faults(table.faults, sum(len(group.runs) for group in table.groups)):
        say(sentence)
    for sentence in table.mixed:
        say(sentence)
    if pending:
        say(f"Not finished yet: {len(pending)} run{'s' if len(pending) > 1 else ''}, not in the table.")
        for each in pending[:MOST_PENDING]:
            say(f"  {each}")
        for sentence in to_go_on(pending):
            say(sentence)
    if page is not None:
        save_page(table, page, pending)
        say(f"Report: {page}")


@guarded
def show(
    path: Run,
    as_json: AsJson = False,
    row: Annotated[
        int | None, opt("What became of row N of the stream; for a run with --evidence.", min=0, metavar="N")
    ] = None,
    figure: Annotated[
        Path | None, opt("Draw that, too: as PNG and SVG, with its data as CSV.", metavar="FOLDER")
    ] = None,
) -> None:
    """Show one run: its configuration, its accuracy matrices, its memory; or one row's story."""
    if figure is not None and row is None:
        raise UsageError("--figure draws the story of one row; give it too, e.g. --row 17.")
    from odedm.report.terminal import print_run, show_row

    run = FinishedRun.load(find_run(path))
    if row is not None:
        show_row(run, row, out, as_json=as_json, folder=figure)
    elif as_json:
        tell_json(run.result.to_dict())
    else:
        print_run(run.result, out)


@guarded
def verify(
    paths: Annotated[list[Path], typer.Argument(help="Folders of runs, or folders that hold runs.")],
    as_json: AsJson = False,
    allow_unsealed: Annotated[
        bool, opt("Runs without checksums may pass, as old ones have none.", None, "--allow-unsealed")
    ] = False,
) -> None:
    """Check finished runs: files, format, metrics and memory. Exit code 1 where one is broken, or without checksums."""
    from odedm.results.verification import is_sealed, is_sound, lines
    from odedm.results.verification import verify as look

    found = {folder: look(folder) for folder in find_runs(paths)}
    broken = [folder for folder, checks in found.items() if not is_sound(checks)]
    bare = [folder for folder, checks in found.items() if not allow_unsealed and not is_sealed(checks)]
    if as_json:
        tell_json(
            [
                {
                    "folder": str(folder),
                    "sound": folder not in broken,
                    "sealed": is_sealed(checks),
                    "checks": [vars(check) for check in checks],
                }
                for folder, checks in found.items()
            ]
        )
    else:
        for folder, checks in found.items():
            if len(found) > 1:
                tell(folder)
            for line in lines(checks):
                tell(line)
        tell(_verdict(list(found), broken, bare))
    if broken or bare:
        raise typer.Exit(SOME_FAILED)


def _verdict(found: Sequence[Path], broken: Sequence[Path], bare: Sequence[Path]) -> str:
    if bare and not broken:
        more = f" and {len(bare) - 1} others are" if len(bare) > 1 else " is"
        return f"'{bare[0]}'{more} unsealed, but sound as far as can be seen. If that is enough: --allow-unsealed."
    if not broken:
        return f"'{found[0]}' is sound." if len(found) == 1 else f"All {len(found)} runs are sound."
    names = ", ".join(f"'{folder}'" for folder in broken[:5]) + (" and others" if len(broken) > 5 else "")
    return f"{names} is BROKEN: do not use the numbers; run it again." if len(broken) == 1 else f"{names} are BROKEN."


@guarded
def diff(first: Run, second: Run, as_json: AsJson = False) -> None:
    """Say what differs between two runs, and whether they can be compared."""
    from odedm.results.comparison import compare

    one, other = (FinishedRun.load(find_run(path)).result for path in (first, second))
    try:
        found = compare(one, other)
    except (AttributeError, TypeError, ValueError, KeyError, IndexError) as error:
        raise UsageError(
            f"One of the two results is not made as it should be ({type(error).__name__}: {error}). "
            "`odedm verify` says which."
        ) from error
    if as_json:
        tell_json(found.to_dict())
        return
    tables = {"Configuration": found.configuration, "Origin": found.origin, "Outcome": found.outcome}
    for title, rows in tables.items():
        if not rows:
            tell(f"{title}: no difference")
            continue
        table = Table(title, "first", "second", title_justify="left")
        for row in rows:
            table.add_row(*[Text(printable(each, 200)) for each in row])
        out.print(table)
    tell(f"Seconds: {one.total_seconds:.1f} and {other.total_seconds:.1f}")
    tell(found.verdict())
