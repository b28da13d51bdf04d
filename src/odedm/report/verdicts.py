"""What is said beside a table: a headline, the mark of each change, and warnings before believing it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from odedm.report.columns import ACC_LAST, GRADIENTS, Metric
from odedm.report.groups import Group, other_problem
from odedm.report.statistics import FEWEST, smallest_p
from odedm.report.summary import Row, Table
from odedm.report.wording import format_p, number

ALARM = 0.05
"""The corrected p above which a change may well be chance, whatever its interval."""
MOST_NAMED = 4
"""Groups that a warning lists."""
SIGNS = {"up": "▲", "down": "▼", "weak-up": "△", "weak-down": "▽", "open": "○"}
"""The marks: full where the interval and p agree that there is a change, hollow where the interval alone says so."""
COUNTED = {"up": "{} better", "down": "{} worse", "weak-up": "{} better by the interval but not {}"}
COUNTED |= {"weak-down": "{} worse by the interval but not {}", "open": "{} open"}


def significance(row: Row, metric: Metric) -> str:
    """Return how a change is marked, a key of `SIGNS`: weakly where p is above 0.05 all the same."""
    pair = row.differences[metric.key]
    if not pair.clear:
        return "open"
    sign = "up" if pair.estimate.mean > 0 else "down"
    return f"weak-{sign}" if row.corrected[metric.key] > ALARM else sign


def headline(table: Table) -> list[str]:
    """Return which group is best, and how many comparisons the seeds can tell apart, in a sentence each."""
    sentences = []
    if len(table.rows) > 1 and not any(other_problem(table.groups[0], group) for group in table.groups):
        best = max(table.rows, key=lambda row: row.values[ACC_LAST.key].mean)
        value, cost = best.values[ACC_LAST.key], best.values.get(GRADIENTS.key)
        spread = "" if value.sd is None else f", sd {number(value.sd)} over {value.n} seeds"
        at = f", at {number(cost.mean)} gradients per row" if table.costs_differ and cost else ""
        sentences.append(f"The best final accuracy is {number(value.mean)} %, by {best.label}{at}{spread}.")
    rows = [row for row in table.compared if ACC_LAST.key in row.differences]
    if rows:
        means = sorted(row.differences[ACC_LAST.key].estimate.mean for row in rows)
        marks = Counter(significance(row, ACC_LAST) for row in rows)
        by_p = "after Holm's correction" if table.tested > 1 else "by p"
        counts = ", ".join(words.format(marks[mark], by_p) for mark, words in COUNTED.items() if marks[mark])
        changes = " to ".join(dict.fromkeys(number(mean, sign=True) for mean in (means[0], means[-1])))
        what = f"{len(rows)} comparisons" if len(rows) > 1 else "One comparison"
        sentences.append(f"{what} with {table.against}: {counts}; {changes} points of {table.title(ACC_LAST)}.")
    return sentences


def warnings(table: Table) -> list[str]:
    """Return what to know before believing a change: no partner, uneven or few seeds, ρ chosen on test rows."""
    return [*_unpaired(table), *_uneven(table), *_few(table), *_chosen(table)] if table.rows else []


def _unpaired(table: Table) -> list[str]:
    hint = "`odedm report --baseline NAME` compares all with one group."
    if not table.compared and table.baseline is None:
        return [f"Nothing to compare: no two groups differ by the memory alone and share a seed. {hint}"]
    named = table.baseline_name
    alone = [row.group for row in table.rows if not row.differences and (named or not row.group.plain)]
    alone = [group for group in alone if not group.bound and group is not table.baseline]
    if not alone or (named and table.baseline is None):
        return []
    if named:
        return [f"Not compared, as another problem or without a common seed: {_listed(alone)}."]
    return [f"No runs without ODEDM share all other settings, and a seed, with {_listed(alone)}. {hint}"]


def _listed(groups: Sequence[Group]) -> str:
    more = f" and {len(groups) - MOST_NAMED} more" if len(groups) > MOST_NAMED else ""
    return ", ".join(group.label for group in groups[:MOST_NAMED]) + more


def _uneven(table: Table) -> list[str]:
    uneven = [
        row.group for row in table.compared if row.partner and {*row.seeds} != {run.seed for run in row.partner.runs}
    ]
    if not uneven:
        return []
    sentence = f"Seeds are not the same on both sides: {_listed(uneven)}."
    return [f"{sentence} A change is over the seeds that both have, so it is not the difference of the two means."]


def _few(table: Table) -> list[str]:
    """Return what so few seeds can show at best: n that all agree give p = 2 / 2^n, and Holm multiplies that."""
    seeds = [row.differences[ACC_LAST.key].estimate.n for row in table.compared]
    if not any(n > 1 for n in seeds):
        return []
    if any(1 < n < FEWEST for n in seeds):
        return [f"Changes over fewer than {FEWEST} seeds have Student's t interval, and none of them is called clear."]
    floor = min(1.0, table.tested * smallest_p(max(seeds)))
    if floor <= ALARM:
        return []
    comparisons = f" and {table.tested} comparisons Holm's" if table.tested > 1 else ""
    return [f"With {max(seeds)} seeds{comparisons} p cannot fall below {format_p(floor, '')}."]


def _chosen(table: Table) -> list[str]:
    if not any(row.kind == "test" for row in table.lines):
        return []
    return ["A best ρ chosen on the test set is too good by construction, so it has no interval and no p."]
