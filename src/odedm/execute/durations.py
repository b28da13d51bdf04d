"""Times that people write and read, and how long jobs will take that are like those that are over."""

from __future__ import annotations

import re
from collections.abc import Sequence

from odedm.core.errors import UsageError

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}


def seconds_left(finished: Sequence[float], running: Sequence[float], waiting: int, workers: int) -> float | None:
    """Return the seconds until all is done, if each job takes as long as the mean of the finished ones.

    Args:
        finished: seconds of those that are over.
        running: of those under way, the share that is left.
        waiting: how many have not begun.
        workers: how many go side by side.

    >>> seconds_left([10, 20], [0.5], 3, workers=1), seconds_left([], [], 3, workers=1)
    (52.5, None)
    """
    if not finished:
        return None
    return sum(finished) / len(finished) * (sum(running) + waiting) / max(1, workers)


def parse_time(text: str) -> float:
    """Return the seconds of 90, 90s, 30m, 1h30m or 2d.

    >>> parse_time("30m"), parse_time("1h30m"), parse_time("45")
    (1800.0, 5400.0, 45.0)
    """
    words = text.strip().lower().replace(" ", "")
    legal = re.fullmatch(r"(\d+(\.\d+)?[smhd])+|\d+(\.\d+)?", words, re.ASCII)
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd]?)", words) if legal else []
    total = sum(float(number) * UNITS[unit or "s"] for number, unit in parts)
    if not 0 < total < float("inf"):
        raise UsageError(f"A budget is a time such as 90s, 30m or 1h30m; '{text}' was given.")
    return total


def format_duration(seconds: float) -> str:
    """Return a time to read.

    >>> format_duration(42.4), format_duration(95), format_duration(4000), format_duration(200_000)
    ('42 s', '1 min 35 s', '1 h 6 min', '2 d 7 h')
    """
    whole = round(seconds)
    if whole < 60:
        return f"{whole} s"
    if whole < 3600:
        return f"{whole // 60} min {whole % 60} s"
    if whole < 86400:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 86400} d {whole % 86400 // 3600} h"
