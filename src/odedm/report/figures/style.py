"""Gives every figure one look and writes it as SVG, PNG and CSV; the only module that needs matplotlib."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from odedm.core.errors import UsageError
from odedm.core.text import printable
from odedm.report.wording import csv_text

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

Axes: TypeAlias = "matplotlib.axes.Axes"
Figure: TypeAlias = "matplotlib.figure.Figure"

INK, MUTED, RULE, GREY = "#1d2127", "#5d6571", "#dcdad4", "#6b7280"
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's colours without the yellow, which white paper swallows."""
DASHES = ("-", (0, (5, 1.5)), (0, (1, 1.2)), (0, (6, 1.5, 1, 1.5)), (0, (3, 1)), (0, (8, 2)))
MARKERS = "o^DvPX"
"""Lines differ in dashes and markers, too: for readers without colour."""
TEXT, LINE = 11.0, 16.0
"""The size of letters and the height of a line of them, in pixels of a page."""
WIDTH, HEIGHT = 360.0, 240.0
"""Of most figures: letters of ten pixels on a phone. Wider ones scroll there rather than shrink further."""
MOST_ROWS = 200
"""Of a figure with a row for each group: none can be made of thousands."""
NEEDED = "Figures need matplotlib, which is not installed: pip install 'odedm[plot]'."
RC: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": TEXT,
    "legend.fontsize": TEXT,
    "text.color": INK,
    "text.parse_math": False,  # a name from a file may hold a dollar sign
    "lines.linewidth": 2.0,
    "lines.markeredgecolor": "white",
    "grid.color": RULE,
    **{f"axes.{part}color": MUTED for part in ("edge", "label")},
    **{f"{axis}tick.{part}": MUTED for axis in "xy" for part in ("color", "labelcolor")},
    **dict.fromkeys(("axes.linewidth", "grid.linewidth"), 0.8),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    "axes.axisbelow": True,
    "svg.fonttype": "none",
    "svg.hashsalt": "odedm",
}


@dataclass(frozen=True)
class Chart:
    """A figure with a title, what it shows in words, and the data behind it."""

    title: str
    alt: str
    figure: Figure
    columns: Sequence[str]
    rows: Sequence[Sequence[object]]

    @property
    def width(self) -> int:
        """The width on a page, in pixels."""
        return round(72 * self.figure.get_figwidth())

    @property
    def svg(self) -> str:
        """The picture for a page, which has the title as a heading."""
        return image(self.figure, "svg").decode()

    @property
    def data(self) -> str:
        """The data behind the picture as CSV."""
        return csv_text(self.columns, self.rows)

    def write_title(self) -> None:
        """Write the title above the picture, once, for a file of its own."""
        lines = textwrap.wrap(printable(self.title, 200), round(self.width / (0.62 * TEXT)))
        if lines and not self.figure.get_suptitle():
            self.figure.set_figheight(self.figure.get_figheight() + LINE * len(lines) / 72)
            self.figure.suptitle("\n".join(lines), x=0.02, ha="left", weight="bold", size=TEXT)


def can_draw() -> bool:
    """Return whether matplotlib is installed; without it everything but pictures can be had."""
    return find_spec("matplotlib") is not None


@contextmanager
def look(**settings: Any) -> Iterator[None]:
    """Draw in this look inside the block, without touching pyplot or the caller's settings."""
    try:
        import matplotlib
        from matplotlib.rcsetup import cycler
    except ImportError as error:
        raise UsageError(NEEDED) from error
    cycle = cycler(color=COLOURS, linestyle=DASHES, marker=list(MARKERS))
    rc: Any = {**RC, "axes.prop_cycle": cycle, **settings}
    with matplotlib.rc_context(rc), warnings.catch_warnings():
        # The browser has the glyphs that the measuring font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        yield


def new_figure(width: float = WIDTH, height: float = HEIGHT) -> Figure:
    """Return an empty figure of a size in pixels of a page."""
    from matplotlib.figure import Figure

    return Figure(figsize=(width / 72, height / 72), dpi=72, layout="constrained")


def image(figure: Figure, form: str, *, scale: float = 3.0) -> bytes:
    """Return a figure on white, the same bytes every time; a PNG has `scale` pixels to the pixel of a page."""
    metadata = {"Software": None} if form == "png" else dict.fromkeys(("Date", "Creator", "Format", "Type"))
    content = io.BytesIO()
    with look():
        # in an SVG the resolution is that of parts which are drawn in pixels
        figure.savefig(
            content, format=form, metadata=metadata, dpi=72 * scale if form == "png" else 144, facecolor="white"
        )
    return content.getvalue()


def finish(axes: Axes, *, grid: Literal["x", "y"], keys: int = 0, **properties: Any) -> None:
    """Set limits, ticks and labels, rule the lines of one axis, and put the key above the axes in `keys` columns."""
    axes.set(**properties)
    axes.grid(axis=grid)
    axes.spines["left"].set_visible(grid == "y")
    if keys:
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=keys, borderpad=0.0, labelspacing=0.3)


def name_rows(axes: Axes, labels: Sequence[str]) -> None:
    """Write a label above each row 0, 1, …, where a long one narrows no axis; rows go downwards."""
    axes.set(ylim=(len(labels) - 0.5, -0.75), yticks=[])
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1.0}
    for row, label in enumerate(labels):
        text = textwrap.fill(printable(label, 200), 54)
        written = axes.text(0, row - 0.4, text, transform=axes.get_yaxis_transform(), va="center", bbox=ground)
        written.set_in_layout(False)
