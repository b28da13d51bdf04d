"""`odedm report`: compare finished runs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from odedm.cli.console import log, out
from odedm.cli.generated_options import opt
from odedm.core.errors import UsageError
from odedm.core.files import writable_folder

if TYPE_CHECKING:
    from odedm.report.summary import Table as Summary
    from odedm.report.unfinished import Unfinished

MOST_PENDING = 12
"""How many unfinished runs a terminal names."""


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
        log_missing_figures()
    table = gather(paths, baseline)
    form, pending = forms[0] if forms else "rich", find_unfinished(paths)
    show_report(table, page, form, pending=pending, caption=caption or "", label=label or LABEL)
    if figures is not None:
        from odedm.report.figures.all_figures import report_figures, save_figures

        written = save_figures(report_figures(table), writable_folder(figures))
        log(f"Figures: {len(written)} files in {figures}")


def log_missing_figures() -> None:
    """Say before any time is spent that pages will have no pictures, where matplotlib is missing."""
    from odedm.report.figures.style import can_draw

    if not can_draw():
        log("Note: matplotlib is not installed, so the page will have no figures: pip install 'odedm[plot]'.")


def show_report(
    table: Summary,
    page: Path | None,
    form: str = "rich",
    *,
    pending: Sequence[Unfinished] = (),
    caption: str = "",
    label: str = "",
) -> None:
    """Print the table of runs, with notes about it, and what is not over yet.

    The page is written, if one is given. LaTeX may have a caption and a label of its own.
    """
    from odedm.report.load import fault_lines
    from odedm.report.page import save_page
    from odedm.report.terminal import print_table

    if table.rows:
        print_table(table, out, form, caption=caption, label=label)
    for sentence in fault_lines(table.faults, sum(len(group.runs) for group in table.groups)):
        log(sentence)
    for sentence in table.mixed:
        log(sentence)
    if pending:
        log(f"Not finished yet: {len(pending)} run{'s' if len(pending) > 1 else ''}, not in the table.")
        for run in pending[:MOST_PENDING]:
            log(f"  {run}")
    if page is not None:
        save_page(table, page, pending)
        log(f"Report: {page}")
