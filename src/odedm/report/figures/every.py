"""Every figure of a report by its name, for the page and for files."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from odedm.core.errors import UsageError
from odedm.core.files import write_bytes, write_text
from odedm.report.figures.ablation import ablation_bars
from odedm.report.figures.anytime import anytime_curves
from odedm.report.figures.census import memory_by_class, memory_growth
from odedm.report.figures.curves import forgetting_curves
from odedm.report.figures.density import memory_density
from odedm.report.figures.differences import difference_plot
from odedm.report.figures.evidence import memory_projection, sample_stories
from odedm.report.figures.heatmaps import accuracy_matrices
from odedm.report.figures.pictures import long_term_pictures
from odedm.report.figures.runtime import dac_runtime
from odedm.report.figures.seconds import seconds_by_phase
from odedm.report.figures.selections import pictures_by_distance
from odedm.report.figures.style import Panel
from odedm.report.figures.sweeps import accuracy_over_capacity, accuracy_over_share
from odedm.report.summary import Table
from odedm.study.dac_timing_plan import Measured


def report_figures(table: Table, most: int | None = None, timed: Sequence[Measured] = ()) -> dict[str, list[Panel]]:
    """What can be drawn from these runs and timings; a figure without a panel has nothing to show.

    With `most`, figures that have a panel for each group show only the first so many groups.
    """
    groups, shown = table.groups, table.groups[:most]
    if not groups:
        return {"runtime": dac_runtime(timed)}
    differences = difference_plot(table)
    return {
        "differences": [differences] if differences else [],
        "forgetting": forgetting_curves(groups),
        "anytime": anytime_curves(groups),
        "matrices": accuracy_matrices(shown),
        "ablation": ablation_bars(groups),
        "capacity": accuracy_over_capacity(groups),
        "share": accuracy_over_share(groups),
        "classes": memory_by_class(shown),
        "density": memory_density(shown),
        "growth": memory_growth(shown),
        "projection": memory_projection(groups),
        "pictures": long_term_pictures(shown),
        "selections": pictures_by_distance(groups),
        "stories": sample_stories(groups),
        "seconds": [seconds_by_phase(groups)],
        "runtime": dac_runtime(timed),
    }


def save_figures(figures: dict[str, list[Panel]], folder: Path) -> list[Path]:
    """Write every panel as PNG and SVG, and the data behind it as CSV: `<figure>-<number>.png`, `.svg`, `.csv`."""
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, panels in figures.items():
            drawn = [panel for panel in panels if panel.drawing is not None]
            for place, each in enumerate(drawn, start=1):
                written += _save(each, folder / (f"{name}-{place}" if len(drawn) > 1 else name))
    except OSError as error:
        raise UsageError(
            f"Cannot write figures into '{folder}': {error.strerror or error}. Give a folder you may write to."
        ) from error
    return written


def save_panels(panels: Sequence[Panel], folder: Path, name: str) -> list[Path]:
    """The same for the panels of one figure."""
    return save_figures({name: list(panels)}, folder)


def _save(each: Panel, stem: Path) -> list[Path]:
    if each.drawing is None:
        return []
    paths = [stem.with_name(f"{stem.name}.{ending}") for ending in ("png", "svg", "csv")]
    write_bytes(paths[0], each.drawing.png())
    write_text(paths[1], each.drawing.svg())
    write_text(paths[2], each.data)
    return paths
