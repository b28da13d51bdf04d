"""What each group of runs measured, and what its memory changed against the same runs without ODEDM."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from odedm.errors import UsageError
from odedm.report.groups import BASELINES, Group, group
from odedm.report.runs import Run
from odedm.report.statistics import Estimate, Paired, chance_of_two_errors, estimate, paired
from odedm.report.wording import measured, number


@dataclass(frozen=True)
class Metric:
    """A column: where the number lies, what it is called and what it means."""

    key: str
    title: str
    meaning: str
    of: Callable[[Run], float]

    def by_seed(self, group: Group) -> dict[int, float]:
        """The number of each run of a group."""
        return {run.seed: self.of(run) for run in group.runs}


# fmt: off
ACC_LAST = Metric(
    "acc_last", "ACC_T", "accuracy over all tasks after the last one, in %", lambda run: run.result.acc_last)
ACC_MEAN = Metric(
    "acc_mean", "mean ACC", "mean over i of the accuracy after task i, in %", lambda run: run.result.acc_mean)
TASK_IL = Metric(
    "task_il_last", "Task-IL", "ACC_T when the task is told at test time, in %", lambda run: run.result.task_il_last)
FORGETTING = Metric(
    "forgetting", "Forgetting", "best past accuracy minus the final one, in points", lambda run: run.result.forgetting)
TRANSFER = Metric(
    "backward_transfer", "BWT", "final accuracy minus that right after learning",
    lambda run: run.result.backward_transfer)
SECONDS = Metric("seconds", "Seconds", "wall seconds per run, all phases", lambda run: run.seconds)
# fmt: on
METRICS = (ACC_LAST, ACC_MEAN, TASK_IL, FORGETTING, TRANSFER, SECONDS)
COMPARED = (ACC_LAST, TASK_IL)


@dataclass(frozen=True)
class Row:
    """A group, its means by metric, and its differences to the partner without ODEDM where they share a seed."""

    group: Group
    values: dict[str, Estimate]
    partner: Group | None
    differences: dict[str, Paired]


@dataclass(frozen=True)
class Table:
    """One row per group."""

    rows: tuple[Row, ...]

    @property
    def groups(self) -> list[Group]:
        """The groups, in the order of the rows."""
        return [row.group for row in self.rows]

    @property
    def compared(self) -> list[Row]:
        """The rows that have differences to show."""
        return [row for row in self.rows if row.differences]

    @property
    def changes(self) -> tuple[Metric, ...]:
        """The metrics that need a column for their differences."""
        return COMPARED if self.compared else ()

    def title(self, metric: Metric) -> str:
        """The metric's heading: the final accuracy is ACC_5 where every group has five tasks, else ACC_T."""
        tasks = {row.group.tasks for row in self.rows}
        return f"ACC_{tasks.pop()}" if metric is ACC_LAST and len(tasks) == 1 else metric.title


def summarise(runs: Sequence[Run]) -> Table:
    """One row per group, with differences to its partner without ODEDM over the seeds that both have."""
    if not runs:
        raise UsageError("There are no runs to report: give the folder of at least one finished run.")
    groups = group(runs)
    baselines: dict[str, Group] = {}
    for each in sorted((each for each in groups if each.memory in BASELINES), key=lambda g: BASELINES.index(g.memory)):
        baselines.setdefault(each.same_but_memory, each)
    return Table(tuple(_row(each, baselines.get(each.same_but_memory)) for each in groups))


def _row(group: Group, baseline: Group | None) -> Row:
    values = {metric.key: estimate(metric.by_seed(group).values()) for metric in METRICS}
    if baseline is None or group.memory in BASELINES:
        return Row(group, values, None, {})
    pairs = {metric.key: paired(metric.by_seed(group), metric.by_seed(baseline)) for metric in COMPARED}
    return Row(group, values, baseline, {key: pair for key, pair in pairs.items() if pair is not None})


def verdicts(table: Table) -> list[str]:
    """All there is to say under the table: a sentence for each comparison, what could not be compared, the doubt."""
    told = [verdict(row, metric) for row in table.compared for metric in COMPARED]
    return [*told, *gaps(table), *doubt(table)]


def verdict(row: Row, metric: Metric) -> str:
    """One sentence on what the memory changed; the row must have that difference."""
    pair, names = row.differences[metric.key], row.group.names
    what = f"points of ACC_{row.group.tasks}" if metric is ACC_LAST else "points of Task-IL accuracy"
    change = f"{_subject(names.member)} changed {_subject(names.family)} by {measured(pair.estimate, sign=True)} {what}"
    n = pair.estimate.n
    if n == 1:
        return f"{change} on one seed, which cannot tell a change from chance."
    change = f"{change} over {n} seeds (better in {pair.better} of {n})"
    return f"{change}." if pair.clear else f"{change}: not distinguishable from zero at this number of seeds."


def gaps(table: Table) -> list[str]:
    """Why there are no differences where one would look for them."""
    apart = [
        f"{row.group.label} and {row.partner.label} have no seed in common, so they cannot be compared by seed."
        for row in table.rows
        if row.partner is not None and not row.differences
    ]
    if apart or table.compared:
        return apart
    return [
        "Nothing to compare: no two groups differ by the memory alone. "
        "Run the same experiment with the reservoir and with ODEDM, on the same seeds."
    ]


def doubt(table: Table) -> list[str]:
    """How far the two standard errors behind a clear verdict can be trusted, at the smallest number of seeds above one.

    Few seeds estimate their own standard error badly, so chance passes that mark more often than in one case of twenty.
    """
    seeds = [row.differences[ACC_LAST.key].estimate.n for row in table.compared]
    fewest = min((n for n in seeds if n > 1), default=None)
    if fewest is None:
        return []
    often = number(100 * chance_of_two_errors(fewest), 0)
    return [f"By chance alone, a mean over {fewest} seeds passes two standard errors {often} times in 100."]


def _subject(label: str) -> str:
    """A label inside a sentence.

    >>> _subject("DER++ · λ=200 · k=3"), _subject("ODEDM")
    ('DER++ (λ=200, k=3)', 'ODEDM')
    """
    name, *details = label.split(" · ")
    return f"{name} ({', '.join(details)})" if details else name
