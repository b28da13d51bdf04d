"""Compares two runs: what differs in their configuration, in what computed them, and in what came out."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from odedm.core.plain_data import ABSENT, dict_diff
from odedm.core.text import printable
from odedm.results.result import Matrix, Result

FIGURES = {
    "acc_last": "ACC after the last task, %",
    "acc_mean": "mean ACC, %",
    "task_il_last": "Task-IL after the last task, %",
    "forgetting": "forgetting",
    "backward_transfer": "backward transfer",
}
STREAM = ("tasks", "task_classes", "recurring", "domain", "setting", "factor", "limit", "blur", "noise", "shuffle")
"""What makes the stream: with another one the same task is another problem."""
IDLE = ("seed", "threads", "device", "capture", "class_order")
"""Fields that are spoken of elsewhere, or change nothing that is measured."""

MOST_DIGITS = 17
"""By so many any two numbers can be told apart."""

DIGITS = 2
"""Of a figure behind the point, unless it takes more to tell two apart."""
LONGEST_WRITTEN = 1e6
"""From here on numbers, which nobody measured, are written short."""

Row = tuple[str, str, str]


@dataclass(frozen=True)
class Difference:
    """Rows of (name, first, second) that differ, and what follows for a comparison.

    `obstacles` make the two incomparable, `cautions` are to be kept in mind.
    """

    configuration: list[Row]
    origin: list[Row]
    outcome: list[Row]
    obstacles: list[str]
    cautions: list[str]

    @property
    def same_outcome(self) -> bool:
        """Whether every number that came out is the same, times aside."""
        return not self.outcome

    def verdict(self) -> str:
        """One sentence on whether the two can be compared."""
        if self.obstacles:
            return f"Not comparable: {'; '.join(self.obstacles)}."
        if self.same_outcome:
            start = "The same outcome, to the last digit"
        else:
            start = "Comparable: the same data, stream and evaluation"
        return f"{start}. But {'; '.join(self.cautions)}." if self.cautions else f"{start}."

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        verdict = {"comparable": not self.obstacles, "same_outcome": self.same_outcome, "verdict": self.verdict()}
        return {**asdict(self), **verdict}


def compare(one: Result, other: Result) -> Difference:
    """What differs between two results, and whether they can be compared honestly."""
    configuration = _rows(one.experiment, other.experiment)
    origins = [{**each.provenance, "finished": None} for each in (one, other)]
    cautions = _cautions(one, other, configuration)
    return Difference(configuration, _rows(*origins), _outcome(one, other), _obstacles(one, other), cautions)


def _rows(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[Row]:
    """The fields that differ, in the order of the first.

    >>> _rows({"method": "er", "options": {"lr": 0.1}}, {"method": "er", "options": {"lr": 0.1 + 0.2}})
    [('options.lr', '0.1', '0.3')]
    """
    return [(name, *_told_apart(_shown, left, right)) for name, left, right in dict_diff(one, other)]


def _told_apart(show: Callable[[Any, int], str], left: Any, right: Any, *, digits: int = 6) -> tuple[str, str]:
    """Both values with so many digits, or with as many more as it takes to see that they differ.

    >>> _told_apart(_shown, 0.1 + 0.2, 0.5), _told_apart(_shown, 0.1 + 0.2, 0.3)
    (('0.3', '0.5'), ('0.30000000000000004', '0.3'))
    """
    for more in range(digits, MOST_DIGITS + 1):
        texts = show(left, more), show(right, more)
        if texts[0] != texts[1]:
            return texts
    return show(left, digits), show(right, digits)


def _shown(value: Any, digits: int) -> str:
    if value is ABSENT:
        return "—"
    plain = value if isinstance(value, str) else json.dumps(_rounded(value, digits), ensure_ascii=False)
    return printable(plain, 80)


def _rounded(value: Any, digits: int) -> Any:
    """Fractions with so many digits, also those in lists; what is before the point stays whole.

    >>> _rounded([1234567.25, 1 / 3, 1e-12 / 3, True, "er"], 3)
    [1234567.25, 0.333, 3.33e-13, True, 'er']
    """
    if isinstance(value, list):
        return [_rounded(each, digits) for each in value]
    if not isinstance(value, float) or not math.isfinite(value):
        return value
    return round(value, digits) if abs(value) >= 1 else float(f"{value:.{digits}g}")


def _outcome(one: Result, other: Result) -> list[Row]:
    rows = []
    for name, title in FIGURES.items():
        a, b = getattr(one, name), getattr(other, name)
        if a != b:
            first, second = _told_apart(_figure, a, b, digits=DIGITS)
            shown = len(second.partition(".")[2])
            rows.append((title, first, second if None in (a, b) else f"{second} ({b - a:+.{shown}f})"))
    for title, left, right in (("Class-IL", one.class_il, other.class_il), ("Task-IL", one.task_il, other.task_il)):
        if left != right and left is not None and right is not None:
            rows.append((f"{title} matrix", *_matrices(left, right)))
    if one.anytime and other.anytime and one.anytime != other.anytime:  # where only one looked there is no difference
        means = [math.fsum(value for _, value in each.anytime or []) / len(each.anytime or []) for each in (one, other)]
        rows.append(("mean accuracy at any time, %", *_told_apart(_figure, *means, digits=DIGITS)))
    for part in ("short", "long"):
        ends = [sum(each.class_counts[-1].get(part, [])) if each.class_counts else 0 for each in (one, other)]
        if [entry.get(part) for entry in one.class_counts] != [entry.get(part) for entry in other.class_counts]:
            rows.append((f"{part}-term rows at the end", str(ends[0]), f"{ends[1]}, or other classes or times"))
    return rows


def _figure(value: float | None, digits: int) -> str:
    """A number to read, with so many digits behind the point; a dash where it is not defined.

    >>> _figure(28.333333333, 2), _figure(-8.9e-16, 2), _figure(None, 2), _figure(1e99, 2)
    ('28.33', '0.00', '—', '1e+99')
    """
    if value is None:
        return "—"
    return f"{round(value, digits) + 0.0:.{digits}f}" if abs(value) < LONGEST_WRITTEN else f"{value:.{digits + 4}g}"


def _matrices(left: Matrix, right: Matrix) -> tuple[str, str]:
    """How far two matrices are apart.

    >>> _matrices([[90.0], [50.0, 80.0]], [[90.0], [55.0, 80.0]])
    ('2 tasks', '1 of 3 cells differ, most after task 2 on task 1: 50.00 and 55.00')
    """
    if len(left) != len(right):
        return f"{len(left)} tasks", f"{len(right)} tasks"
    cells = [
        (abs(b - a), i, j, a, b)
        for i, (above, below) in enumerate(zip(left, right, strict=True), start=1)
        for j, (a, b) in enumerate(zip(above, below, strict=True), start=1)
    ]
    apart = [cell for cell in cells if cell[0]]
    _, i, j, a, b = max(apart)
    there = " and ".join(_told_apart(_figure, a, b, digits=DIGITS))
    return f"{len(left)} tasks", f"{len(apart)} of {len(cells)} cells differ, most after task {i} on task {j}: {there}"


def _obstacles(one: Result, other: Result) -> list[str]:
    """Why the numbers of the two do not measure the same thing."""
    a, b = one.experiment, other.experiment
    found = []
    sums = [each.provenance.get("data_checksum") for each in (one, other)]
    if None in sums:
        found.append("a data checksum is missing")
    elif sums[0] != sums[1]:
        found.append(f"other data ({a.get('data')} and {b.get('data')}, by their checksums)")
    if a.get("columns") != b.get("columns"):
        found.append(f"evaluated among other columns ({a.get('columns')} and {b.get('columns')})")
    names = [name for name in STREAM if a.get(name) != b.get(name)]
    names += ["order of classes"] if one.classes != other.classes else []
    if names:
        found.append(f"another stream (by {', '.join(names)})")
    return found


def _cautions(one: Result, other: Result, configuration: list[Row]) -> list[str]:
    """What else could explain a difference."""
    a, b = one.experiment, other.experiment
    found = []
    if a.get("seed") != b.get("seed"):
        found.append("the seeds differ, so the difference is not paired and one of each says little")
    elif one.class_il != other.class_il:
        found.append("one seed says little: compare several with `odedm report`")
    if a["memory"].get("capacity") != b["memory"].get("capacity"):
        found.append("the memories hold other numbers of rows")
    kinds = {name.partition(".")[0] for name, _, _ in configuration} - {*STREAM, *IDLE, "columns", "data"}
    for owner, own in (("method", "options"), ("net", "net_options"), ("retrieval", "retrieval_options")):
        if owner in kinds:
            kinds.discard(own)  # they come with it
    if len(kinds) > 1:
        found.append(f"several things were changed at once ({', '.join(sorted(kinds))})")
    for name in ("precision", "device"):
        left, right = one.provenance.get(name), other.provenance.get(name)
        if left != right:
            found.append(f"{name}: {left} and {right}, which may change more than last digits")
    code = [name for name in ("odedm", "torch", "commit") if one.provenance.get(name) != other.provenance.get(name)]
    if code:
        found.append(f"other code ({', '.join(code)})")
    changed_code = [str(each.provenance.get("commit")).endswith("+") for each in (one, other)]
    if any(changed_code):
        found.append(f"{'both were' if all(changed_code) else 'one was'} made by code with uncommitted changes")
    return found
