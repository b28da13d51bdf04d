"""How long runs take, from runs that were measured."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from odedm.core.errors import UsageError
from odedm.execute.job import Work

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
FIRST = ("net", "net_options", "device")
"""Where runs differ in these their times cannot be compared."""
THEN = ("method", "options", "data", "setting", "batch", "memory.name", "memory.dac", "memory.distance", "memory")
"""The more of these two runs share, from the left on, the nearer they are."""


class Pace:
    """Seconds to expect of a run: those of finished ones of the nearest configuration, by rows of the stream."""

    def __init__(self, rows: Mapping[str, int] | None = None) -> None:
        self.rows = dict(rows or {})
        self._seen: dict[tuple[str, ...], dict[tuple[str, ...], list[float]]] = {}
        self._known: dict[tuple[str, str], float | None] = {}

    def learn(self, experiment: Mapping[str, Any], seconds: float) -> None:
        """A run with this configuration, as its result tells it, took so long."""
        plain = dict(experiment)
        method = dict(plain.get("method") or {})
        plain["method"], plain["options"] = method.pop("name", None), method
        memory = dict(plain.get("memory") or {}) | {"replay": plain.get("replay"), "gamma": plain.get("gamma")}
        rows = self.rows.get(str(plain.get("data")), 0)
        if rows:
            must, may = _traits({**plain, "memory": memory})
            self._seen.setdefault(must, {}).setdefault(may, []).append(seconds / rows)
            self._known.clear()

    def expect(self, work: Work) -> float | None:
        """Seconds for a run, None where nothing like it was measured."""
        mark = (work.experiment.slug(), work.kind)
        if mark not in self._known:
            self._known[mark] = self._expect(work)
        return self._known[mark]

    def _expect(self, work: Work) -> float | None:
        plain = work.experiment.describe()
        memory = {"replay": None, "gamma": None} | plain["memory"]
        must, may = _traits({**plain, "memory": memory})
        near = self._seen.get(must)
        rows = self.rows.get(work.experiment.data, 0)
        if not near or not rows:
            return None
        best = max(_shared(other, may) for other in near)
        per_row = [each for other, own in near.items() if _shared(other, may) == best for each in own]
        part = 1.0
        if work.kind == "trial" and work.select is not None and work.experiment.tasks:
            part = min(1.0, work.select.tasks / work.experiment.tasks)
        return part * rows * sum(per_row) / len(per_row)


def _traits(plain: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    memory: Mapping[str, Any] = plain["memory"]
    flat = {**plain, **{f"memory.{name}": value for name, value in memory.items()}}
    flat["memory"] = sorted((name, str(value)) for name, value in memory.items())
    flat |= {name: sorted((flat.get(name) or {}).items()) for name in ("options", "net_options")}
    return tuple(str(flat.get(name)) for name in FIRST), tuple(str(flat.get(name)) for name in THEN)


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How much two runs share: an earlier trait weighs more than all later ones together."""
    return sum(1 << (len(one) - place) for place, (a, b) in enumerate(zip(one, other, strict=True)) if a == b)


def parse_time(text: str) -> float:
    """Seconds from 90, 90s, 30m, 1h30m or 2d.

    >>> parse_time("30m"), parse_time("1h30m"), parse_time("45")
    (1800.0, 5400.0, 45.0)
    """
    words = text.strip().lower().replace(" ", "")
    parts = re.findall(r"(\d+(?:\.\d+)?)([smhd])", words)
    if words.replace(".", "", 1).isdigit():
        parts = [(words, "s")]
    total = sum(float(number) * UNITS[unit] for number, unit in parts)
    if "".join(number + unit for number, unit in parts).removesuffix("s") != words.removesuffix("s") or not total > 0:
        raise UsageError(f"A budget is a time such as 90s, 30m or 1h30m; '{text}' was given.")
    return total


def in_words(seconds: float) -> str:
    """A time to read.

    >>> in_words(42.4), in_words(95), in_words(4000), in_words(200_000)
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
