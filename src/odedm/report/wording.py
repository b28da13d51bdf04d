"""How names, numbers and settings are written: for people, as CSV, and as one comparable text."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterable, Sequence

import numpy as np

from odedm.core.text import LONGEST, printable
from odedm.report.published_number import Published
from odedm.report.statistics import Estimate


def number(value: float, digits: int = 1, *, sign: bool = False) -> str:
    """Return a number to read, with a real minus and no negative zero.

    >>> number(-3.14), number(-0.01), number(2, sign=True), number(0.04, sign=True)
    ('−3.1', '0.0', '+2.0', '0.0')
    """
    text = f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"
    return text.replace("-", "−") if float(text) else f"{0:.{digits}f}"


def format_mean(value: Estimate | Published | None) -> str:
    """Return a mean with its standard error, or alone with one seed; a dash where there is no such number.

    >>> format_mean(Estimate(12.34, 1.16, 5)), format_mean(Estimate(12.34, None, 1)), format_mean(None)
    ('12.3 ± 1.2', '12.3', '–')
    """
    if value is None:
        return "–"
    return number(value.mean) if value.error is None else f"{number(value.mean)} ± {number(value.error)}"


def format_interval(interval: tuple[float, float]) -> str:
    """Return an interval in words.

    >>> format_interval((-0.94, 3.0))
    '[−0.9, 3.0]'
    """
    return f"[{number(interval[0])}, {number(interval[1])}]"


def format_p(p: float, name: str = "p") -> str:
    """Return a probability with its name, or alone where the name is empty.

    >>> format_p(0.25), format_p(0.0625), format_p(0.0004), format_p(0.0625, "")
    ('p = 0.25', 'p = 0.062', 'p < 0.001', '0.062')
    """
    low = p < 0.001
    text = "0.001" if low else f"{p:.2f}" if p >= 0.1 else f"{p:.3f}"
    return f"{name} {'<' if low else '='} {text}" if name else f"{'below ' if low else ''}{text}"


def csv_text(head: Sequence[str], rows: Iterable[Iterable[object]]) -> str:
    r"""Return a table as CSV, in full precision; None is an empty cell, and words that spreadsheets compute stay words.

    >>> csv_text(["task", "mean"], [(1, -2.5), (2, None), ("=1+1", "-")])
    "task,mean\n1,-2.5\n2,\n'=1+1,'-\n"
    """
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerows([_csv_cell(cell) for cell in row] for row in (head, *rows))
    return text.getvalue()


def _csv_cell(cell: object) -> object:
    if isinstance(cell, str):
        return ("'" if cell.startswith(("=", "+", "-", "@")) else "") + printable(cell, LONGEST)
    return float(cell) if isinstance(cell, np.floating) else cell


def canonical(value: object) -> str:
    """Return settings as one text, equal for equal settings whatever their order.

    >>> canonical({"b": [1, None], "a": "ρ"})
    '{"a": "ρ", "b": [1, null]}'
    """
    return json.dumps(value, sort_keys=True, ensure_ascii=False)
