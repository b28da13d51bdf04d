"""Compares two runs: what differs in their configuration, in what computed them, and in what came out."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from odedm.core.plain_data import ABSENT, dict_diff
from odedm.core.text import printable_value
from odedm.results.metrics import TITLES
from odedm.results.result import Result

STREAM = (
    *("tasks", "task_classes", "recurring", "domain", "imbalance", "factor", "limit", "blur", "noise"),
    *("validation", "first_tasks", "shuffle"),
)
"""What makes the stream: with another one the same task is another problem."""

Row = tuple[str, str, str]
"""The name of what differs, and its first and second value."""


@dataclass(frozen=True)
class Difference:
    """Rows that differ; `obstacles` make the two incomparable, `cautions` are to be kept in mind."""

    configuration: list[Row]
    origin: list[Row]
    outcome: list[Row]
    obstacles: list[str]
    cautions: list[str]

    @property
    def same_outcome(self) -> bool:
        """Return whether every number that came out is the same, times aside."""
        return not self.outcome

    def verdict(self) -> str:
        """Return one sentence on whether the two can be compared."""
        if self.obstacles:
            return f"Not comparable: {'; '.join(self.obstacles)}."
        start = "The same outcome" if self.same_outcome else "Comparable: the same data, stream and evaluation"
        return f"{start}. But {'; '.join(self.cautions)}." if self.cautions else f"{start}."

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        verdict = {"comparable": not self.obstacles, "same_outcome": self.same_outcome, "verdict": self.verdict()}
        return {**asdict(self), **verdict}


def compare(first: Result, second: Result) -> Difference:
    """Return what differs between two results, and whether they can be compared honestly."""
    configuration = _rows(first.experiment, second.experiment)
    origin = _rows(first.provenance | {"finished": None}, second.provenance | {"finished": None})
    cautions = _cautions(first, second)
    return Difference(configuration, origin, _outcome(first, second), _obstacles(first, second), cautions)


def _rows(first: Mapping[str, Any], second: Mapping[str, Any]) -> list[Row]:
    return [(name, *_texts(left, right)) for name, left, right in dict_diff(first, second)]


def _texts(left: Any, right: Any) -> tuple[str, str]:
    """Write two values that differ; fractions with as many digits as it takes to tell them apart.

    >>> _texts(0.1 + 0.2, 0.5), _texts(0.1 + 0.2, 0.3), _texts("er", ABSENT)
    (('0.3', '0.5'), ('0.30000000000000004', '0.3'), ('er', '—'))
    """
    texts = tuple(f"{value:.6g}" if isinstance(value, float) else _text(value) for value in (left, right))
    return (texts[0], texts[1]) if texts[0] != texts[1] else (_text(left), _text(right))


def _text(value: Any) -> str:
    return "—" if value is ABSENT else printable_value(value, 80)


def _outcome(first: Result, second: Result) -> list[Row]:
    rows = []
    for name in ("acc_last", "acc_mean", "task_il_last", "forgetting", "backward_transfer"):
        left, right = getattr(first, name), getattr(second, name)
        if left is not None and right is not None and left != right:
            texts = _texts(left, right)
            rows.append((TITLES[name], texts[0], f"{texts[1]} ({right - left:+.6g})"))
    for name in ("class_il", "task_il"):
        left, right = getattr(first, name), getattr(second, name)
        if left is not None and right is not None and left != right:
            rows.append((name, f"{len(left)} tasks", f"{len(right)} tasks, other accuracies"))
    if first.anytime and second.anytime and first.anytime != second.anytime:  # where only one looked nothing differs
        means = [math.fsum(value for _, value in pairs) / len(pairs) for pairs in (first.anytime, second.anytime)]
        rows.append(("mean accuracy at any time, %", *_texts(*means)))
    if first.class_counts != second.class_counts:
        rows.append(("rows in memory by class", "", "others"))
    return rows


def _obstacles(first: Result, second: Result) -> list[str]:
    """Return why the numbers of the two do not measure the same thing."""
    left, right = first.experiment, second.experiment
    obstacles = []
    checksums = [result.provenance.get("data_checksum") for result in (first, second)]
    if None in checksums:
        obstacles.append("a data checksum is missing")
    elif checksums[0] != checksums[1]:
        obstacles.append(f"other data ({left['data']} and {right['data']}, by their checksums)")
    if left.get("eval_classes") != right.get("eval_classes"):
        obstacles.append(f"evaluated among other classes ({left.get('eval_classes')} and {right.get('eval_classes')})")
    names = [name for name in STREAM if left.get(name) != right.get(name)]
    names += ["order of classes"] if first.classes != second.classes else []
    if names:
        obstacles.append(f"another stream (by {', '.join(names)})")
    return obstacles


def _cautions(first: Result, second: Result) -> list[str]:
    """Return what else could explain a difference."""
    cautions = []
    if first.experiment["seed"] != second.experiment["seed"]:
        cautions.append("the seeds differ, so the difference is not paired and one of each says little")
    elif first.class_il != second.class_il:
        cautions.append("one seed says little: compare several with `odedm report`")
    origins = first.provenance, second.provenance
    for name in ("precision", "device"):
        if origins[0].get(name) != origins[1].get(name):
            values = f"{origins[0].get(name)} and {origins[1].get(name)}"
            cautions.append(f"{name}: {values}, which may change more than last digits")
    code = [name for name in ("odedm", "torch", "commit") if origins[0].get(name) != origins[1].get(name)]
    if code:
        cautions.append(f"other code ({', '.join(code)})")
    if any(str(origin.get("commit")).endswith("+") for origin in origins):
        cautions.append("made by code with uncommitted changes")
    return cautions
