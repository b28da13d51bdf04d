"""Estimates how long runs take, from runs that were measured, and how long is left."""

from __future__ import annotations

import heapq
import re
from collections.abc import Mapping, Sequence
from typing import Any

from odedm.core.errors import UsageError
from odedm.execute.job import Job

UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
FIRST = ("net", "net_options", "device")
"""Where runs differ in these, others say little about their times."""
THEN = (
    "method",
    "updates",
    "options",
    "data",
    "imbalance",
    "batch",
    "memory.name",
    "memory.dac",
    "memory.distance",
    "memory",
)
"""The more of these two runs share, from the left on, the nearer they are."""
TOLD = 0.1
"""The share of a run from which on its own pace says more than others of its kind."""
UnderWay = tuple[Job, float, float]
"""A job with the seconds that it took so far and the share of it that is done."""


class TimeEstimate:
    """Seconds to expect of a run: those of finished ones of the nearest configuration, by rows that are trained on."""

    def __init__(self) -> None:
        self._seen: dict[tuple[str, ...], dict[tuple[str, ...], list[float]]] = {}
        self._known: dict[tuple[str, bool], float | None] = {}
        self._kinds: dict[str, tuple[str, bool]] = {}

    def learn(self, experiment: Mapping[str, Any], rows: int, seconds: float) -> None:
        """A run with this described configuration, on so many rows, took so long."""
        if rows:
            must, may = _traits(experiment)
            self._seen.setdefault(must, {}).setdefault(may, []).append(seconds / (rows * _updates(experiment)))
            self._known.clear()

    def expect(self, job: Job) -> float | None:
        """Seconds for a job, None where nothing like it was measured."""
        if job.key not in self._kinds:  # a slug takes time, and all waiting jobs are looked at again and again
            self._kinds[job.key] = (job.experiment.slug(), job.is_trial)
        kind = self._kinds[job.key]
        if kind not in self._known:
            self._known[kind] = self._expect(job)
        return self._known[kind]

    def _expect(self, job: Job) -> float | None:
        described = job.experiment.describe()
        must, may = _traits(described)
        near = self._seen.get(must)
        if not near or not job.rows:
            return None
        best = max(_shared(other, may) for other in near)
        per_row = [each for other, own in near.items() if _shared(other, may) == best for each in own]
        part = 1.0
        if job.select is not None and job.experiment.tasks:
            part = min(1.0, job.select.tasks / job.experiment.tasks)
        return part * job.rows * _updates(described) * sum(per_row) / len(per_row)

    def left(self, running: Sequence[UnderWay], waiting: Sequence[Job], workers: int) -> float | None:
        """Seconds until all is done, where jobs start in this order; None before anything is known."""
        expected = self.expect_all(running, waiting)
        if expected is None:
            return None
        rest, seconds = expected
        free = [*rest, *[0.0] * (workers - len(rest))] or [0.0]
        heapq.heapify(free)
        for each in seconds:
            heapq.heapreplace(free, free[0] + each)
        return max(free)

    def expect_all(self, running: Sequence[UnderWay], waiting: Sequence[Job]) -> tuple[list[float], list[float]] | None:
        """Seconds that are left of jobs under way, and seconds of those that wait; None before anything is known.

        A run that is well under way tells its own time; of a kind that was never measured the mean of all others is
        taken.
        """
        known = [seconds for job in (*waiting, *(job for job, _, _ in running)) if (seconds := self.expect(job))]
        told = [gone / share for _, gone, share in running if share >= TOLD]
        if not known and not told:
            return None
        typical = sum(known or told) / len(known or told)
        rest = []
        for job, gone, share in running:
            whole = gone / share if share >= TOLD else self.expect(job) or typical
            rest.append(max(0.0, whole - gone))
        return rest, [self.expect(job) or typical for job in waiting]


def _traits(plain: Mapping[str, Any]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    memory: Mapping[str, Any] = plain["memory"]
    flat = {**plain, **{f"memory.{name}": value for name, value in memory.items()}}
    flat |= {name: sorted((flat.get(name) or {}).items(), key=str) for name in ("options", "net_options", "memory")}
    return tuple(str(flat.get(name)) for name in FIRST), tuple(str(flat.get(name)) for name in THEN)


def _updates(plain: Mapping[str, Any]) -> int:
    """Updates for each row; a job's rows count its epochs already."""
    return int(plain.get("updates") or 1)


def _shared(one: tuple[str, ...], other: tuple[str, ...]) -> int:
    """How much two runs share: an earlier trait weighs more than all later ones together."""
    return sum(1 << (len(one) - place) for place, (a, b) in enumerate(zip(one, other, strict=True)) if a == b)


def parse_time(text: str) -> float:
    """Seconds from 90, 90s, 30m, 1h30m or 2d.

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
    """A time to read.

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
