"""Lists every figure of a report by its name, and writes figures to files."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from odedm.core.errors import UsageError
from odedm.core.files import write_bytes
from odedm.report.figures import comparisons, curves
from odedm.report.figures.matrices import accuracy_matrices
from odedm.report.figures.memory_contents import memory_by_class
from odedm.report.figures.projection import memory_projection
from odedm.report.figures.stored_images import long_term_pictures, pictures_by_distance
from odedm.report.figures.style import Panel
from odedm.report.figures.timings import seconds_by_phase
from odedm.report.summary import Table

FORMS: tuple[Literal["png", "svg"], ...] = ("png", "svg")


def report_figures(table: Table, most: int | None = None) -> dict[str, list[Panel]]:
    """Return what can be drawn from these runs; a figure without a panel has nothing to show.

    With `most`, figures that have a panel for each group, or for each family of them, show only the first so many.
    """
    groups, shown = table.groups, table.groups[:most]
    if not groups:
        return {}
    return {
        "differences": comparisons.difference_plot(table),
        "forgetting": curves.forgetting_curves(groups, most),
        "anytime": curves.anytime_curves(groups, most),
        "matrices": accuracy_matrices(shown),
        "capacity": comparisons.accuracy_over_capacity(groups),
        "share": comparisons.accuracy_over_share(groups),
        "classes": memory_by_class(shown),
        "projection": memory_projection(groups),
        "pictures": long_term_pictures(shown),
        "selections": pictures_by_distance(groups),
        "seconds": [seconds_by_phase(groups)],
    }


def save_figures(figures: dict[str, list[Panel]], folder: Path) -> list[Path]:
    """Write every panel as PNG and SVG, and the data behind it as CSV: `<figure>-<number>.png`, `.svg`, `.csv`."""
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, panels in figures.items():
            drawn = [panel for panel in panels if panel.draw is not None]
            for number, panel in enumerate(drawn, start=1):
                stem = f"{name}-{number}" if len(drawn) > 1 else name
                contents = {form: panel.file(form) for form in FORMS} | {"csv": panel.data.encode()}
                for ending, content in contents.items():
                    written.append(folder / f"{stem}.{ending}")
                    write_bytes(written[-1], content)
    except OSError as error:
        raise UsageError(
            f"Cannot write figures into '{folder}': {error.strerror or error}. Give a folder you may write to."
        ) from error
    return written
