"""Gives every figure one look and turns it into SVG, PNG and CSV; the only file that needs matplotlib."""

from __future__ import annotations

import hashlib
import html
import io
import math
import re
import textwrap
import warnings
from collections.abc import Callable, Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
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

# Okabe and Ito's colours without the yellow, which white paper swallows. The page redefines each for dark screens.
INK, MUTED, RULE, CARD, BAND = "#1d2127", "#5d6571", "#dcdad4", "#fffffe", "#f4f2ed"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
PLAIN = "#6b7280"
SHORT, LONG = "#b4bac4", "#0072b3"
PHASES = ("#0072b4", "#9aa1ac", "#e69f01", "#009e74", "#cc79a8", "#56b4ea", "#d55e01", "#5d6572")
NAMED = {"ink": INK, "muted": MUTED, "rule": RULE, "card": CARD, "band": BAND}
NAMED |= {"plain": PLAIN, "short": SHORT, "long": LONG}
NAMED |= {f"s{place}": colour for place, colour in enumerate(SERIES)}
NAMED |= {f"p{place}": colour for place, colour in enumerate(PHASES)}
VARIABLES = {colour: f"--{name}" for name, colour in NAMED.items()}
COLOUR_MAP = "cividis"
TEXT, HEADING, LINE = 11.0, 24.0, 15.0
NEEDED = "Figures need matplotlib, which is not installed: pip install 'odedm[plot]'."
MOST_ROWS = 200
"""Of a figure with a row for each group: more would be no picture any more, and none can be made of thousands."""
WIDTH = 360.0
"""Of most panels: letters of ten pixels on a phone. Wider panels scroll there rather than shrink further."""
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
    **{f"{whole}.facecolor": "none" for whole in ("axes", "figure", "savefig")},
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    **dict.fromkeys(("axes.axisbelow", "axes.unicode_minus", "svg.image_inline"), True),
    "svg.fonttype": "none",
    "svg.hashsalt": "odedm",
}
KEY: Any = {"borderaxespad": 0.2, "borderpad": 0.0, "handlelength": 2.4, "columnspacing": 1.6, "labelspacing": 0.3}
"""How tight the key above a picture is."""


@dataclass(frozen=True)
class Frame:
    """Size and margins of a panel in CSS pixels, and how far the page may enlarge it."""

    width: float
    height: float
    left: float = 52.0
    right: float = 14.0
    top: float = 12.0
    bottom: float = 44.0
    scale: float = 1.25

    def axes(self, figure: Figure) -> Axes:
        """New axes inside the margins."""
        wide, tall = self.width - self.left - self.right, self.height - self.top - self.bottom
        box = (self.left / self.width, self.bottom / self.height, wide / self.width, tall / self.height)
        return figure.add_axes(box)

    def taller(self, room: float) -> Frame:
        """With so much more room above the axes."""
        return replace(self, height=self.height + room, top=self.top + room)

    def with_key(self, entries: int, columns: int = 1) -> Frame:
        """With room above the axes for a key of so many entries."""
        return self.taller(16 * math.ceil(entries / columns))


Paint = Callable[[Axes], None]


@dataclass(frozen=True)
class Drawing:
    """How a panel is painted, so that it can be painted again for a file."""

    frame: Frame
    title: str
    paint: Paint

    def svg(self) -> str:
        """A file of its own on white: editors and papers know nothing of the page's colours and headings."""
        return _drawn(*self._headed(), facecolor="white")

    def png(self) -> bytes:
        """The same in pixels, three to the point."""
        frame, paint = self._headed()
        return png(frame.width, frame.height, lambda figure: paint(frame.axes(figure)), size=TEXT, scale=3.0)

    def _headed(self) -> tuple[Frame, Paint]:
        """With the title above it in as many lines as it needs: on a page it is the panel's heading."""
        most = int((self.frame.width - 16) / (0.62 * TEXT))
        lines = textwrap.wrap(printable(self.title, 4 * most), most)
        room = HEADING + LINE * (len(lines) - 1) if lines else 0.0
        frame = self.frame.taller(room)

        def paint(axes: Axes) -> None:
            for number, line in enumerate(lines):
                place = (8 / frame.width, 1 - (0.6 * HEADING + LINE * number) / frame.height)
                axes.figure.text(*place, line, weight="bold", va="center")
            self.paint(axes)

        return frame, paint


@dataclass(frozen=True)
class Panel:
    """One picture of a figure: its title, the SVG for a page, and the data behind it as CSV.

    In place of the picture there may be a note that says why there is none.
    """

    title: str
    svg: str
    note: str = ""
    data: str = ""
    drawing: Drawing | None = field(default=None, compare=False, repr=False)


def can_draw() -> bool:
    """Whether matplotlib is here; without it everything but pictures can be had."""
    return find_spec("matplotlib") is not None


def panel(
    title: str, frame: Frame, alt: str, paint: Paint, columns: Sequence[str], rows: Iterable[Sequence[object]]
) -> Panel:
    """Paint one pair of axes, for a page now and for files later; the columns and rows are the data behind it."""
    return Panel(title, svg(frame, alt, paint), "", csv_text(columns, rows), Drawing(frame, title, paint))


def svg(frame: Frame, alt: str, paint: Paint) -> str:
    """Paint one pair of axes and give it back as SVG to put inside a page."""
    return _tidy(_drawn(frame, paint), alt, frame)


def _drawn(frame: Frame, paint: Paint, **how: Any) -> str:
    nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))  # the same runs give the same bytes
    how |= {"format": "svg", "metadata": nothing, "dpi": 144}  # the last for what is drawn in pixels
    return _saved(frame.width, frame.height, lambda figure: paint(frame.axes(figure)), TEXT, **how).decode()


def png(width: float, height: float, paint: Callable[[Figure], None], *, size: float, scale: float) -> bytes:
    """Paint a whole figure on white and give it back as PNG, `scale` pixels to the point."""
    how = {"format": "png", "metadata": {"Software": None}, "dpi": 72 * scale, "facecolor": "white"}
    return _saved(width, height, paint, size, **how)


def _saved(width: float, height: float, paint: Callable[[Figure], None], size: float, **how: Any) -> bytes:
    """A figure in this style as a file, a point to the pixel, without touching pyplot or the caller's settings."""
    try:
        import matplotlib
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UsageError(NEEDED) from error
    content = io.BytesIO()
    with matplotlib.rc_context({**RC, "font.size": size, "legend.fontsize": size}), warnings.catch_warnings():
        # The browser has the glyphs that the measuring font lacks.
        warnings.filterwarnings("ignore", message="Glyph .* missing from font")
        figure = Figure(figsize=(width / 72, height / 72), dpi=72)
        paint(figure)
        figure.savefig(content, **how)
    return content.getvalue()


def _tidy(drawn: str, alt: str, frame: Frame) -> str:
    """Make a standalone SVG fit to stand inside HTML: own ids, the page's colours, a name for who cannot see it."""
    body = re.sub(r"<!--.*?-->", "", drawn[drawn.index("<svg") :], flags=re.DOTALL)
    mark = "f" + hashlib.sha256((alt + body).encode()).hexdigest()[:8]

    def inside(match: re.Match[str]) -> str:
        tag = re.sub(r'(\bid="|url\(#|href="#)', rf"\g<1>{mark}-", match.group())
        return re.sub(r"#[0-9a-f]{6}\b", lambda m: _variable(m.group()), tag)

    body = re.sub(r"<[^>]*>", inside, body)
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink" role="img" '
        f'aria-label="{html.escape(alt)}" viewBox="0 0 {frame.width:g} {frame.height:g}" '
        f'style="width: {frame.width * frame.scale:g}px; min-width: {frame.width:g}px">'
    )
    body = re.sub(r"\s*\n\s*", "\n", body)
    return re.sub(r"^<svg[^>]*>", lambda _: head, body, count=1)


def _variable(colour: str) -> str:
    """A colour the page may redefine.

    >>> _variable("#1d2127"), _variable("#123456")
    ('var(--ink, #1d2127)', '#123456')
    """
    return f"var({VARIABLES[colour]}, {colour})" if colour in VARIABLES else colour


def colour_of(share: float) -> Sequence[float]:
    """The colour of an accuracy from 0 to 1 as red, green, blue and opacity; inside `svg` and `png` only."""
    import matplotlib

    return tuple(matplotlib.colormaps[COLOUR_MAP](share))


def finish(axes: Axes, *, grid: Literal["x", "y"], keys: int = 0, **properties: Any) -> None:
    """Set limits, ticks and labels, rule the lines of one axis, and put the key above the axes in `keys` columns."""
    axes.set(**properties)
    axes.grid(axis=grid)
    axes.spines["left"].set_visible(grid == "y")
    if keys:
        axes.legend(loc="lower left", bbox_to_anchor=(0.0, 1.0), ncols=keys, **KEY)


def titled(what: str, title: str) -> str:
    """The beginning of a panel's description; a panel that stands alone has no title.

    >>> titled("Forgetting", "ER"), titled("Forgetting", "")
    ('Forgetting: ER', 'Forgetting')
    """
    return f"{what}: {title}" if title else what


def row_frame(labels: Collection[str], least: float, **margins: float) -> Frame:
    """The frame of a panel with bars under labels, `least` pixels to the row where each label has one line."""
    pitch = least + 14.0 * max((wrapped(label).count("\n") for label in labels), default=0)
    margins = {"left": 8.0, "top": 6.0, "bottom": 46.0} | margins
    return Frame(WIDTH, margins["top"] + margins["bottom"] + pitch * len(labels), **margins, scale=1.45)


def draw_bar(axes: Axes, place: int, length: float, *, full: bool, height: float) -> None:
    """A bar in the colour of long-term memory, or one that is hatched in that of short-term memory."""
    colour, hatch = (LONG, "") if full else (SHORT, "////")
    axes.barh([place], [length], height=height, color=colour, hatch=hatch, edgecolor=MUTED, linewidth=0.6)


def write_over(axes: Axes, y: float, label: str) -> None:
    """A label at the left edge, on the card's own colour so that no line runs through it."""
    ground = {"facecolor": CARD, "edgecolor": "none", "pad": 1.5}
    beside = axes.get_yaxis_transform()
    axes.text(0.0, y, wrapped(label), transform=beside, va="center", bbox=ground, zorder=6, linespacing=1.15)


def write_beside(axes: Axes, x: float, y: float, text: str, *, gap: float, within: Any = "data") -> None:
    """What a bar amounts to, `gap` pixels to the right of a place that may lie on the edge of the axes."""
    how: dict[str, Any] = {"va": "center", "color": MUTED, "annotation_clip": False}
    axes.annotate(text, (x, y), xycoords=within, xytext=(gap, 0), textcoords="offset points", **how)


def wrapped(label: str, most: int = 54) -> str:
    r"""A label in as many lines as it needs, broken between its parts: names must stay apart to their last word.

    >>> wrapped("ER · ODEDM · k=3", 12)
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
    """Task numbers to write under an axis, from 1 to n.

    >>> task_ticks(5, 12), task_ticks(100, 6)
    ([1, 2, 3, 4, 5], [1, 20, 40, 60, 80, 100])
    """
    if n <= most:
        return list(range(1, n + 1))
    step = next(step for step in (2, 5, 10, 20, 50, 100, 200, 500, n) if n / step <= most)
    return [1, *range(step, n + 1, step)]
