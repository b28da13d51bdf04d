"""Gives every figure one look and writes it as SVG, PNG and CSV; the only module that needs matplotlib."""

from __future__ import annotations

import io
import textwrap
import warnings
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any, Literal, TypeAlias

from numpy.typing import NDArray

from odedm.core.errors import UsageError
from odedm.core.text import printable
from odedm.report.wording import csv_text

if TYPE_CHECKING:
    import matplotlib.axes
    import matplotlib.figure

Array = NDArray[Any]
Axes: TypeAlias = "matplotlib.axes.Axes"
Figure: TypeAlias = "matplotlib.figure.Figure"
Draw = Callable[[Figure], None]

INK, MUTED, RULE, BAND, PLAIN = "#1d2127", "#5d6571", "#dcdad4", "#f4f2ed", "#6b7280"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's colours without the yellow, which white paper swallows."""
SHORT, LONG = "#b4bac4", "#0072b2"
"""Colours of the two parts of a memory."""
COLOUR_MAP = "cividis"
TEXT, LINE = 11.0, 16.0
"""The size of letters and the height of a line of them, in pixels."""
WIDTH, HEIGHT = 360.0, 240.0
"""Of most panels: letters of ten pixels on a phone. Wider panels scroll there rather than shrink further."""
MOST_ROWS = 200
"""Of a figure with a row for each group: none can be made of thousands."""
NEEDED = "Figures need matplotlib, which is not installed: pip install 'odedm[plot]'."
RC: Any = {
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "text.color": INK,
    "text.parse_math": False,  # a name from a file may hold a dollar sign
    "grid.color": RULE,
    **{f"axes.{part}color": MUTED for part in ("edge", "label")},
    **{f"{axis}tick.{part}": MUTED for axis in "xy" for part in ("color", "labelcolor")},
    **{f"{axis}tick.major.size": 3.0 for axis in "xy"},
    **dict.fromkeys(("axes.linewidth", "grid.linewidth"), 0.8),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("axes.axisbelow", "axes.unicode_minus", "svg.image_inline"), True),
    "svg.fonttype": "none",
    "svg.hashsalt": "odedm",
}
KEY: Any = {"borderaxespad": 0.2, "borderpad": 0.0, "handlelength": 2.4, "columnspacing": 1.6, "labelspacing": 0.3}
"""How tight the key above a picture is."""


@dataclass(frozen=True)
class Panel:
    """One picture of a figure: how it is drawn, what it shows in words, and the data behind it.

    In place of the picture there may be a note that says why there is none. `size` is in pixels of a page.
    """

    title: str
    alt: str = ""
    draw: Draw | None = field(default=None, compare=False, repr=False)
    columns: Sequence[str] = ()
    rows: Sequence[Sequence[object]] = ()
    size: tuple[float, float] = (WIDTH, HEIGHT)
    note: str = ""

    @property
    def svg(self) -> str:
        """The picture for a page, which has the title as a heading; empty where there is a note."""
        return "" if self.draw is None else render(self.draw, *self.size, "svg").decode()

    def file(self, form: Literal["svg", "png"]) -> bytes:
        """The picture as a file of its own, with its title above it."""
        draw, width, height = self.draw, *self.size
        assert draw is not None
        letters = int((width - 16) / (0.62 * TEXT))
        lines = textwrap.wrap(printable(self.title, 4 * letters), letters)

        def draw_titled(figure: Figure) -> None:
            draw(figure)
            figure.suptitle("\n".join(lines), x=0.02, ha="left", weight="bold", size=TEXT)

        return render(draw_titled if lines else draw, width, height + LINE * len(lines), form)

    @property
    def data(self) -> str:
        """The data behind the picture as CSV; empty where there are none."""
        return csv_text(self.columns, self.rows) if self.columns else ""


def can_draw() -> bool:
    """Whether matplotlib is installed; without it everything but pictures can be had."""
    return find_spec("matplotlib") is not None


def render(
    draw: Draw, width: float, height: float, form: Literal["svg", "png"], *, size: float = TEXT, scale: float = 3.0
) -> bytes:
    """Draw a figure on white, a point to the pixel, without touching pyplot or the caller's settings.

    A PNG has `scale` pixels to the point. The same figure gives the same bytes.
    """
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(NEEDED) from error
    metadata = {"Software": None} if form == "png" else dict.fromkeys(("Date", "Creator", "Format", "Type"))
    # in an SVG the resolution is that of parts which are drawn in pixels
    dpi = 72 * scale if form == "png" else 144
    content = io.BytesIO()
    with matplotlib.rc_context({**RC, "font.size": size, "legend.fontsize": size}), warnings.catch_warnings():
        # The browser has the glyphs that the measuring font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(width / 72, height / 72), dpi=72, layout="constrained")
        draw(figure)
        figure.savefig(content, format=form, metadata=metadata, dpi=dpi, facecolor="white")
    return content.getvalue()


def finish(axes: Axes, *, grid: Literal["x", "y"], keys: int = 0, **properties: Any) -> None:
    """Set limits, ticks and labels, rule the lines of one axis, and put the key above the axes in `keys` columns."""
    axes.set(**properties)
    axes.grid(axis=grid)
    axes.spines["left"].set_visible(grid == "y")
    if keys:
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=keys, **KEY)


def titled(what: str, title: str) -> str:
    """Return the beginning of a panel's description; a panel that stands alone has no title.

    >>> titled("Forgetting", "ER"), titled("Forgetting", "")
    ('Forgetting: ER', 'Forgetting')
    """
    return f"{what}: {title}" if title else what


def height_of_rows(labels: Collection[str], least: float, more: float) -> float:
    """Return the height of a panel with bars under labels: `least` pixels a row with one line, `more` in all."""
    lines = max((wrap_label(label).count("\n") for label in labels), default=0)
    return more + (least + 14.0 * lines) * len(labels)


def write_over(axes: Axes, y: float, label: str) -> None:
    """Write a label at the left edge, on white so that no line runs through it."""
    ground = {"facecolor": "white", "edgecolor": "none", "pad": 1.5}
    beside = axes.get_yaxis_transform()
    text = axes.text(0.0, y, wrap_label(label), transform=beside, va="center", bbox=ground, zorder=6, linespacing=1.15)
    text.set_in_layout(False)  # else a long name would narrow the axes


def wrap_label(label: str, most: int = 54) -> str:
    r"""Return a label in as many lines as it needs, broken between its parts: names must differ to their last word.

    >>> wrap_label("ER · ODEDM · k=3", 12)
    'ER · ODEDM\n· k=3'
    """
    lines = [""]
    for part in printable(label, 4 * most).split(" · "):
        longer = f"{lines[-1]} · {part}" if lines[-1] else part
        if len(longer) <= most or not lines[-1]:
            lines[-1] = longer
        else:
            lines.append(f"· {part}")
    return "\n".join(printable(line, most) for line in lines)


def task_ticks(n: int, most: int) -> list[int]:
    """Return the task numbers to write under an axis, from 1 to n.

    >>> task_ticks(5, 12), task_ticks(100, 6)
    ([1, 2, 3, 4, 5], [1, 20, 40, 60, 80, 100])
    """
    if n <= most:
        return list(range(1, n + 1))
    step = next(step for step in (2, 5, 10, 20, 50, 100, 200, 500, n) if n / step <= most)
    return [1, *range(step, n + 1, step)]
