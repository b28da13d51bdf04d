"""Lists every figure of a report by its name, and writes figures to files."""

from __future__ import annotations

from pathlib import Path

from odedm.core.errors import UsageError
from odedm.core.files import write_bytes
from odedm.report.figures import comparisons, curves, memory_contents, stored_images
from odedm.report.figures.matrices import accuracy_matrices
from odedm.report.figures.projection import memory_projection
from odedm.report.figures.selection_ranks import sample_stories
from odedm.report.figures.style import Panel
from odedm.report.figures.timings import seconds_by_phase
from odedm.report.summary import Table


def report_figures(table: Table, most: int | None = None) -> dict[str, list[Panel]]:
    """What can be drawn from these runs; a figure without a panel has nothing to show.

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
        "ablation": comparisons.ablation_bars(groups),
        "capacity": comparisons.accuracy_over_capacity(groups),
        "share": comparisons.accuracy_over_share(groups),
        "classes": memory_contents.memory_by_class(shown),
        "density": memory_contents.memory_density(shown),
        "growth": memory_contents.memory_growth(shown),
        "projection": memory_projection(groups),
        "pictures": stored_images.long_term_pictures(shown),
        "selections": stored_images.pictures_by_distance(groups),
        "stories": sample_stories(groups),
        "seconds": [seconds_by_phase(groups)],
    }


def save_figures(figures: dict[str, list[Panel]], folder: Path) -> list[Path]:
    """Write every panel as PNG and SVG, and the data behind it as CSV: `<figure>-<number>.png`, `.svg`, `.csv`."""
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, panels in figures.items():
            drawn = [(panel.drawing, panel.data) for panel in panels if panel.drawing is not None]
            for place, (drawing, data) in enumerate(drawn, start=1):
                stem = f"{name}-{place}" if len(drawn) > 1 else name
                files = {"png": drawing.png(), "svg": drawing.svg().encode(), "csv": data.encode()}
                for ending, content in files.items():
                    written.append(folder / f"{stem}.{ending}")
                    write_bytes(written[-1], content)
    except OSError as error:
        raise UsageError(
            f"Cannot write figures into '{folder}': {error.strerror or error}. Give a folder you may write to."
        ) from error
    return written
