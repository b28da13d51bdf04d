"""Lists every figure of a report by its name, and writes figures to files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from odedm.core.errors import UsageError
from odedm.core.files import write_bytes
from odedm.report.figures import comparisons, curves, memory
from odedm.report.figures.style import Chart, image, look
from odedm.report.summary import Table


def report_figures(table: Table, most: int | None = None) -> dict[str, list[Chart]]:
    """Return what can be drawn from these runs, by name; a list may be empty.

    With `most`, figures of which there is one for each group, or family of them, are those of the first so many.
    """
    groups, shown = table.groups, table.groups[:most]
    if not groups:
        return {}
    with look():
        return {
            "differences": comparisons.difference_plot(table),
            "capacity": curves.accuracy_over_capacity(groups),
            "share": curves.accuracy_over_share(groups),
            "forgetting": curves.forgetting_curves(groups, most),
            "anytime": curves.anytime_curves(groups, most),
            "matrices": comparisons.accuracy_matrices(shown),
            "classes": memory.memory_by_class(shown),
            "projection": memory.memory_projection(groups),
            "pictures": memory.long_term_pictures(shown),
            "selections": memory.pictures_by_distance(groups),
            "seconds": [comparisons.seconds_by_phase(groups)],
        }


def save_figures(figures: Mapping[str, Sequence[Chart]], folder: Path) -> list[Path]:
    """Write every figure as PNG and SVG, and the data behind it as CSV: `<name>-<number>.png`, `.svg`, `.csv`."""
    written: list[Path] = []
    try:
        folder.mkdir(parents=True, exist_ok=True)
        for name, charts in figures.items():
            for i, chart in enumerate(charts, start=1):
                stem = f"{name}-{i}" if len(charts) > 1 else name
                chart.write_title()
                for ending in ("png", "svg", "csv"):
                    content = chart.data.encode() if ending == "csv" else image(chart.figure, ending)
                    written.append(folder / f"{stem}.{ending}")
                    write_bytes(written[-1], content)
    except OSError as error:
        raise UsageError(
            f"Cannot write figures into '{folder}': {error.strerror or error}. Give a folder you may write to."
        ) from error
    return written
