"""Make the README's picture from the demo's runs: forgetting curves beside what the memory kept.

odedm demo && python tools/make_picture.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from odedm.core.files import write_bytes
from odedm.report.figures.curves import ceiling, draw_curves, error_curves
from odedm.report.figures.memory import draw_pictures, read_kept
from odedm.report.figures.style import finish, image, look, new_figure
from odedm.report.load import load
from odedm.report.summary import summarise

ROOT = Path(__file__).parent.parent


def readme_picture(folders: Sequence[Path], out_png: Path) -> Path:
    """Draw the curves of the first comparison beside its long-term pictures, on white, 1200 pixels wide."""
    table = summarise(load(folders))
    row = (table.compared or table.rows)[0]
    members = [group for group in (row.partner, row.group) if group is not None]
    kept = None if row.group.plain else read_kept(row.group)
    with look(**{"font.size": 9.5, "legend.fontsize": 9.5}):
        figure = new_figure(600, 300)
        left, right = figure.subplots(1, 2, width_ratios=(3, 2)) if kept else (figure.subplots(), None)
        draw_curves(left, error_curves(members, ""))
        words = {"xlabel": "tasks learned", "ylabel": "%", "ylim": (0.0, ceiling(members))}
        finish(left, grid="y", keys=1, **words)
        left.set_title("Error on the tasks so far", weight="bold", size=10, pad=34)
        left.locator_params(axis="x", integer=True)
        if kept is not None and right is not None:
            draw_pictures(right, dict(list(kept.by_class().items())[:10]), 6)
            right.set_title("Kept in long-term memory", weight="bold", size=10)
        out_png.parent.mkdir(parents=True, exist_ok=True)
        write_bytes(out_png, image(figure, "png", scale=2.0))
    return out_png


def main() -> None:
    """Draw docs/picture.png."""
    readme_picture(sorted((ROOT / "runs" / "demo").glob("fashion-mini-derpp-*")), ROOT / "docs" / "picture.png")


if __name__ == "__main__":
    main()
