"""What is said beside a table: a headline, the mark of each change, and notes on what to take with care."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from odedm.report.groups import Group
from odedm.report.model import model
from odedm.report.statistics import FEWEST, smallest_p
from odedm.report.summary import ACC_LAST, GRADIENTS, Metric, Row, Table, other_problem
from odedm.report.wording import format_p, number
from odedm.results.result import Result

ALARM = 0.05
"""The corrected p above which a change may well be chance, whatever its interval."""
MOST_NAMED = 4
"""Groups that a note lists."""
SIGNS = {"up": "▲", "down": "▼", "weak-up": "△", "weak-down": "▽", "open": "○"}
"""The marks: full where the interval and p agree that there is a change, hollow where the interval alone says so."""


def significance(row: Row, metric: Metric) -> str:
    """Return how a change is marked, a key of `SIGNS`: weakly where where p is above 0.05 all the same."""
    pair = row.differences[metric.key]
    if not pair.clear:
        return "open"
    sign = "up" if pair.estimate.mean > 0 else "down"
    return f"weak-{sign}" if row.corrected[metric.key] > ALARM else sign


def headline(table: Table) -> list[str]:
    """Return which group is best, and how many comparisons the seeds can tell apart, in a sentence each."""
    if not table.rows:
        return []
    sentences, first = [], table.groups[0]
    if len(table.rows) > 1 and not any(other_problem(first, group) for group in table.groups):
        best = max(table.rows, key=lambda row: row.values[ACC_LAST.key].mean)
        value, cost = best.values[ACC_LAST.key], best.values.get(GRADIENTS.key)
        spread = "" if value.sd is None else f", sd {number(value.sd)} over {value.n} seeds"
        at = f", at {number(cost.mean)} gradients per row" if table.costs_differ and cost else ""
        sentences.append(f"The best final accuracy is {number(value.mean)} %, by {best.group.label}{at}{spread}.")
    rows = [row for row in table.compared if ACC_LAST.key in row.differences]
    pairs = [row.differences[ACC_LAST.key] for row in rows]
    if pairs:
        means = sorted(pair.estimate.mean for pair in pairs)
        by_p = "after Holm's correction" if table.tested > 1 else "by p"
        counts = _counted([significance(row, ACC_LAST) for row in rows], by_p)
        changes = " to ".join(dict.fromkeys(number(mean, sign=True) for mean in (means[0], means[-1])))
        what = f"{len(pairs)} comparisons" if len(pairs) > 1 else "One comparison"
        few = f" (fewer than {FEWEST} seeds)" if all(pair.estimate.n < FEWEST for pair in pairs) else ""
        sentences.append(f"{what} with {table.against}: {counts}{few}; {changes} points of {table.title(ACC_LAST)}.")
    return sentences


def _counted(marks: Sequence[str], by_p: str) -> str:
    """How many comparisons are better, worse and open, those that only the interval is for by themselves.

    >>> _counted(["up", "weak-up", "weak-down", "open", "open"], "by p")
    '1 better, 1 better and 1 worse by the interval but not by p, 2 open'
    """

    def count(words: dict[str, str]) -> list[str]:
        return [f"{marks.count(mark)} {word}" for mark, word in words.items() if mark in marks]

    weak = " and ".join(count({"weak-up": "better", "weak-down": "worse"}))
    by_interval = [f"{weak} by the interval but not {by_p}"] if weak else []
    return ", ".join([*count({"up": "better", "down": "worse"}), *by_interval, *count({"open": "open"})])


def notes(table: Table) -> list[str]:
    """Return what to know before believing a change: no partner, uneven or few seeds, other modes, ρ by test rows.

    Behind it stands why numbers are missing.
    """
    found = [*_unpaired(table), *_uneven(table), *_few(table), *_modes(table), *_chosen(table)]
    return [*found, *undefined_numbers(run.result for group in table.groups for run in group.runs)]


def undefined_numbers(results: Iterable[Result]) -> list[str]:
    """Return why some results lack a number: it cannot be defined on their streams.

    >>> undefined_numbers([])
    []
    """
    given, sentences = list(results), []
    if any(result.task_il is None for result in given):
        sentences.append(
            "Task-IL accuracy is left out where tasks share classes: it is for classes that belong to one task each."
        )
    if any(result.forgetting is None for result in given):
        sentences.append("Forgetting and backward transfer are left out where there is a single task.")
    return sentences


def _unpaired(table: Table) -> list[str]:
    """Which groups have no change, and why."""
    sentences = [
        f"{row.group.label} and {row.partner.label} have no seed in common, so they are not compared."
        for row in table.rows
        if row.partner is not None and not row.differences
    ][:MOST_NAMED]
    baseline = table.baseline
    if baseline is not None:
        other = [group for group in table.groups if other_problem(group, baseline)]
        return [*sentences, *([f"Not compared, as another problem: {_listed(other)}."] if other else [])]
    lonely = [row.group for row in table.rows if row.partner is None and not row.group.plain and not row.group.bound]
    hint = "`odedm report --baseline NAME` compares all with one group."
    if not table.compared and not sentences:
        return [f"Nothing to compare: no two groups differ by the memory alone. {hint}"]
    if lonely and table.compared and not table.baseline_name:
        sentences.append(f"No runs without ODEDM share all other settings with {_listed(lonely)}. {hint}")
    return sentences


def _listed(groups: Sequence[Group]) -> str:
    more = f" and {len(groups) - MOST_NAMED} more" if len(groups) > MOST_NAMED else ""
    return ", ".join(group.label for group in groups[:MOST_NAMED]) + more


def _uneven(table: Table) -> list[str]:
    """Where one of two groups has seeds that the other lacks."""
    uneven = []
    for row in table.compared:
        shared = row.differences[ACC_LAST.key].estimate.n
        if row.partner is not None and {len(row.group.runs), len(row.partner.runs)} != {shared}:
            uneven.append(row.group)
    if not uneven:
        return []
    sentence = f"Seeds are not the same on both sides: {_listed(uneven)}."
    return [f"{sentence} A change is over the seeds that both have, so it is not the difference of the two means."]


def _few(table: Table) -> list[str]:
    """What so few seeds can show at best: n that all agree give p = 2 / 2^n, and Holm multiplies that."""
    if table.fewest is None:
        return []
    if table.fewest < FEWEST:
        return [f"Fewer than {FEWEST} seeds: intervals are Student's t, and no change is called clear."]
    most = max(row.differences[ACC_LAST.key].estimate.n for row in table.compared)
    floor = min(1.0, table.tested * smallest_p(most))
    if floor <= ALARM:
        return []
    comparisons = f" and {table.tested} comparisons Holm's" if table.tested > 1 else ""
    return [f"With {most} seeds{comparisons} p cannot fall below {format_p(floor, '')}: the intervals say more."]


def _modes(table: Table) -> list[str]:
    """In what the runs differ besides method and memory: replay modes and gradients per row."""
    sentences, modes = [], table.replay_modes
    if len(modes) > 1:
        listed = "; ".join(f"{mode} ({', '.join(methods)})" for mode, methods in modes.items())
        sentences.append(f"Runs with ODEDM differ in replay mode: {listed}. Between modes a difference is not ODEDM's.")
    costly = [row for row in table.compared if row.differs_in]
    if costly and table.baseline is None:
        sentences.append(
            f"In {len(costly)} of {len(table.compared)} comparisons the two sides differ in gradients per row, too, so "
            "the change is not ODEDM's alone."
        )
    elif table.costs_differ:
        sentences.append("Groups differ in gradients per row of the stream, which more of help by themselves.")
    return sentences


def _chosen(table: Table) -> list[str]:
    """That the best of several ρ on test rows is the largest of several noisy numbers."""
    if not any(line.kind == "test" for line in model(table).lines):
        return []
    return ["A best ρ chosen on the test set is too good by construction, so it has no interval and no p."]
