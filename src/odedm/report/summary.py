"""What each group of runs measured, and what its memory changed against the same runs without ODEDM."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from odedm.core.errors import UsageError
from odedm.report.groups import BASELINES, Group, group
from odedm.report.statistics import FEWEST, Estimate, Paired, estimate, holm, paired, smallest_p
from odedm.report.wording import between, number, probability
from odedm.results.folder import FinishedRun


@dataclass(frozen=True)
class Metric:
    """A column: the number's name in a result, what it is called and what it means."""

    key: str
    title: str
    meaning: str

    def of(self, run: FinishedRun) -> float:
        """The number of a run."""
        number: float = run.seconds if self.key == "seconds" else getattr(run.result, self.key)
        return number

    def by_seed(self, group: Group) -> dict[int, float]:
        """The number of each run of a group."""
        return {run.seed: self.of(run) for run in group.runs}


ACC_LAST = Metric("acc_last", "ACC_T", "accuracy over all tasks after the last one, in %")
ACC_MEAN = Metric("acc_mean", "mean ACC", "mean over i of the accuracy after task i, in %")
TASK_IL = Metric("task_il_last", "Task-IL", "ACC_T when the task is told at test time, in %")
FORGETTING = Metric("forgetting", "Forgetting", "best past accuracy minus the final one, in points")
TRANSFER = Metric("backward_transfer", "BWT", "final accuracy minus that right after learning")
SECONDS = Metric("seconds", "Seconds", "wall seconds per run, all phases")
METRICS = (ACC_LAST, ACC_MEAN, TASK_IL, FORGETTING, TRANSFER, SECONDS)
NARROW = (ACC_LAST, ACC_MEAN, TASK_IL, FORGETTING)
"""Those of a narrow table: backward transfer all but repeats forgetting, and seconds are no result."""
COMPARED = (ACC_LAST, ACC_MEAN, TASK_IL)
"""The metrics whose differences are taken: those the paper prints."""
TOLD = (ACC_LAST, TASK_IL)
"""Of these, the ones that get a column and a sentence; the mean over tasks follows the final accuracy."""
ALARM = 0.05
"""The corrected p above which a change among many comparisons may well be chance."""


@dataclass(frozen=True)
class Row:
    """A group, its means by metric, and its differences to the partner without ODEDM where they share a seed.

    `corrected` has the p of each difference after Holm, over all differences of the table in the same metric.
    """

    group: Group
    values: dict[str, Estimate]
    partner: Group | None
    differences: dict[str, Paired]
    corrected: dict[str, float] = field(default_factory=dict)


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
        return TOLD if self.compared else ()

    @property
    def tested(self) -> int:
        """How many comparisons the correction of each metric is over."""
        return sum(ACC_LAST.key in row.corrected for row in self.rows)

    def title(self, metric: Metric) -> str:
        """The metric's heading: the final accuracy is ACC_5 where every group has five tasks, else ACC_T."""
        tasks = {row.group.tasks for row in self.rows}
        return f"ACC_{tasks.pop()}" if metric is ACC_LAST and len(tasks) == 1 else metric.title


def summarise(runs: Sequence[FinishedRun]) -> Table:
    """One row per group, with differences to its partner without ODEDM over the seeds that both have."""
    if not runs:
        raise UsageError("There are no runs to report: give the folder of at least one finished run.")
    groups = group(runs)
    baselines: dict[str, Group] = {}
    for each in sorted((each for each in groups if each.plain), key=lambda each: BASELINES.index(each.memory)):
        baselines.setdefault(each.same_but_memory, each)
    return Table(_corrected([_row(each, baselines.get(each.same_but_memory)) for each in groups]))


def _corrected(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows with Holm's correction over the table, metric by metric: each metric is a question of its own."""
    found: list[dict[str, float]] = [{} for _ in rows]
    for metric in COMPARED:
        raw = {i: row.differences[metric.key].p for i, row in enumerate(rows) if metric.key in row.differences}
        known = {i: p for i, p in raw.items() if p is not None}
        for i, p in zip(known, holm(list(known.values())), strict=True):
            found[i][metric.key] = p
    return tuple(replace(row, corrected=own) for row, own in zip(rows, found, strict=True))


def _row(group: Group, baseline: Group | None) -> Row:
    values = {metric.key: estimate(metric.by_seed(group).values()) for metric in METRICS}
    if baseline is None or group.plain:
        return Row(group, values, None, {})
    pairs = {metric.key: paired(metric.by_seed(group), metric.by_seed(baseline)) for metric in COMPARED}
    return Row(group, values, baseline, {key: pair for key, pair in pairs.items() if pair is not None})


def verdicts(table: Table) -> list[str]:
    """All there is to say under the table: a sentence for each comparison, what could not be compared, the doubt."""
    told = [verdict(table, row, metric) for row in table.compared for metric in TOLD]
    return [*told, *gaps(table), *doubt(table)]


def verdict(table: Table, row: Row, metric: Metric) -> str:
    """One sentence on what the memory changed; the row must have that difference."""
    pair, group = row.differences[metric.key], row.group
    what = f"points of ACC_{group.tasks}" if metric is ACC_LAST else "points of Task-IL accuracy"
    mean, n = number(pair.estimate.mean, sign=True), pair.estimate.n
    change = f"{_subject(group.member)} changed {_subject(group.family)} by {mean} {what}"
    if pair.interval is None:
        return f"{change} on one seed, which cannot tell a change from chance."
    corrected = row.corrected[metric.key]
    chance = probability(corrected, "Holm's p" if table.tested > 1 else "p")
    change = f"{change} {between(pair.interval)} over {n} seeds (better in {pair.better} of {n}, {chance})"
    if n < FEWEST:
        return f"{change}: too few seeds to tell a change from chance."
    if not pair.clear:
        return f"{change}: not distinguishable from zero at this number of seeds."
    if corrected > ALARM and smallest_p(n) < (pair.p or 0.0) <= ALARM:
        return f"{change}: among {table.tested} comparisons that may be chance."
    return f"{change}."


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
    """What the fewest seeds of a comparison, above one, can show at best; nothing where they can show enough.

    p counts choices of signs, so n seeds that all agree still give 2 / 2^n, and Holm multiplies that.
    """
    seeds = [row.differences[ACC_LAST.key].estimate.n for row in table.compared]
    fewest = min((n for n in seeds if n > 1), default=None)
    if fewest is None:
        return []
    said, least, most = [], smallest_p(fewest), max(seeds)
    if least > ALARM:
        said.append(
            f"Where {fewest} seeds all agree, p is {probability(least, '')}, its smallest value at that number: "
            f"chance alone does that {number(100 * least, 0)} times in 100. From 6 seeds on p can fall below {ALARM}."
        )
    floor = min(1.0, table.tested * smallest_p(most))
    if floor > ALARM and table.tested > 1:
        words = f"With {most} seeds and {table.tested} comparisons Holm's p cannot fall below {probability(floor, '')}"
        said.append(f"{words}, however large the changes: the intervals say more.")
    return said


def _subject(label: str) -> str:
    """A label inside a sentence.

    >>> _subject("DER++ · λ=200 · k=3"), _subject("ODEDM")
    ('DER++ (λ=200, k=3)', 'ODEDM')
    """
    name, *details = label.split(" · ")
    return f"{name} ({', '.join(details)})" if details else name
