"""Make the README's picture from the demo's runs: forgetting curves beside what the memory kept.

odedm demo && python tools/make_picture.py
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from odedm.core.files import write_bytes
from odedm.report.figures.curves import ceiling, draw_forgetting, forgetting
from odedm.report.figures.stored_images import PIXELS, draw_strips, read_strips
from odedm.report.figures.style import Figure, render
from odedm.report.load import load
from odedm.report.summary import summarise

ROOT = Path(__file__).parent.parent


def readme_picture(folders: Sequence[Path], out_png: Path) -> Path:
    """Draw the curves of the first comparison beside its long-term pictures, on white, 1200 pixels wide."""
    table = summarise(load(folders))
    row = (table.compared or table.rows)[0]
    members = [group for group in (row.partner, row.group) if group is not None]
    kept = "none" if row.group.plain else read_strips(row.group, PIXELS, classes=10, columns=6)

    def draw(figure: Figure) -> None:
        left, right = (figure, None) if isinstance(kept, str) else figure.subfigures(1, 2, width_ratios=(3, 2))
        draw_forgetting(left.subplots(), forgetting(members, ""), ceiling(members))
        left.suptitle("Error on the tasks so far", weight="bold", size=10)
        if right is not None:
            draw_strips(right, kept[1])
            right.suptitle("Kept in long-term memory", weight="bold", size=10)

    out_png.parent.mkdir(parents=True, exist_ok=True)
    write_bytes(out_png, render(draw, 600, 300, "png", size=9.5, scale=2.0))
    return out_png


def main() -> None:
    """Draw docs/picture.png."""
    readme_picture(sorted((ROOT / "runs" / "demo").glob("fashion-mini-derpp-*")), ROOT / "docs" / "picture.png")


if __name__ == "__main__":
    main()
