"""What each group of runs measured, and what changed against the same without ODEDM or against a group by name."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace

from odedm.core.errors import UsageError
from odedm.report.groups import BASELINES, Group, group
from odedm.report.statistics import Estimate, Paired, estimate, holm, paired
from odedm.results.comparison import STREAM
from odedm.results.folder import FinishedRun
from odedm.results.metrics import TITLES
from odedm.results.result import Result


@dataclass(frozen=True)
class Metric:
    """A column: the number's name in a result, what it is called and what it means."""

    key: str
    title: str
    meaning: str

    def of(self, run: FinishedRun) -> float | None:
        """The number of a run; None where its stream has no such number."""
        number: float | None = run.seconds if self.key == "seconds" else getattr(run.result, self.key)
        return number

    def by_seed(self, group: Group) -> dict[int, float]:
        """The number of each run of a group that has one."""
        found = {run.seed: self.of(run) for run in group.runs}
        return {seed: number for seed, number in found.items() if number is not None}


ACC_LAST = Metric("acc_last", TITLES["acc_last"], "accuracy over all tasks after the last one, in %")
ACC_MEAN = Metric("acc_mean", TITLES["acc_mean"], "mean over i of the accuracy after task i, in %")
TASK_IL = Metric("task_il_last", TITLES["task_il_last"], "ACC_T when the task is told at test time, in %")
FORGETTING = Metric("forgetting", TITLES["forgetting"], "best past accuracy minus the final one, in points")
TRANSFER = Metric("backward_transfer", TITLES["backward_transfer"], "final accuracy minus that right after learning")
SECONDS = Metric("seconds", TITLES["seconds"], "wall seconds per run, all phases")
GRADIENTS = Metric(
    "sample_gradients", TITLES["sample_gradients"], "rows passed forward and back for each row of the stream"
)
METRICS = (ACC_LAST, ACC_MEAN, TASK_IL, FORGETTING, TRANSFER, SECONDS, GRADIENTS)
NARROW = (ACC_LAST, ACC_MEAN, TASK_IL, FORGETTING)
"""Those of a narrow table: backward transfer all but repeats forgetting, and seconds are no result."""
COMPARED = (ACC_LAST, ACC_MEAN, TASK_IL)
"""The metrics whose differences are taken: those the paper prints."""
TOLD = (ACC_LAST, TASK_IL)
"""Of these, the ones that get a column and a sentence; the mean over tasks follows the final accuracy."""
PROBLEM = ("data", *STREAM, "class_order", "eval_classes", "class names")
"""Settings that make the problem: with another one a difference is no one's merit."""


@dataclass(frozen=True)
class Row:
    """A group, its means by metric where it has them, and its differences to its partner where they share a seed.

    `corrected` has the p of each difference after Holm, over all differences of the table in the same metric.
    """

    group: Group
    values: dict[str, Estimate]
    partner: Group | None
    differences: dict[str, Paired]
    corrected: dict[str, float] = field(default_factory=dict)


@dataclass(frozen=True)
class Table:
    """One row per group, and the group that all others are compared with, where one was named.

    `faults` has a sentence for each run that is damaged and in no row.
    """

    rows: tuple[Row, ...]
    baseline: Group | None = None
    faults: tuple[str, ...] = ()

    @property
    def groups(self) -> list[Group]:
        """The groups, in the order of the rows."""
        return [row.group for row in self.rows]

    @property
    def mixed(self) -> list[str]:
        """A sentence for each group whose runs were made by several versions of code from outside."""
        found = []
        for each in self.groups:
            marks = [run.result.code_hashes() for run in each.runs]
            settings = {setting for own in marks for setting in own}
            # where nothing is known of a run's code, it is taken for the same
            versions = max((len({own[key] for own in marks if key in own}) for key in settings), default=1)
            if versions > 1:
                found.append(
                    f"{each.label}: its {len(each.runs)} runs were made by {versions} versions of your code, so their "
                    "mean is that of none. Train them again with --overwrite, or by the study's command."
                )
        return found

    @property
    def compared(self) -> list[Row]:
        """The rows that have differences to show."""
        return [row for row in self.rows if row.differences]

    @property
    def changes(self) -> tuple[Metric, ...]:
        """The metrics that need a column for their differences."""
        return tuple(each for each in TOLD if any(each.key in row.differences for row in self.compared))

    @property
    def against(self) -> str:
        """What changes are taken against, in words."""
        return "the same runs without ODEDM" if self.baseline is None else self.baseline.label

    @property
    def tested(self) -> int:
        """How many comparisons the correction of each metric is over."""
        return sum(ACC_LAST.key in row.corrected for row in self.rows)

    @property
    def fewest(self) -> int | None:
        """The fewest seeds, above one, of a comparison; None where there is none."""
        seeds = [row.differences[ACC_LAST.key].estimate.n for row in self.compared]
        return min((n for n in seeds if n > 1), default=None)

    def title(self, metric: Metric) -> str:
        """The metric's heading: the final accuracy is ACC_5 where every group has five tasks, else ACC_T."""
        tasks = {row.group.tasks for row in self.rows}
        return f"ACC_{tasks.pop()}" if metric is ACC_LAST and len(tasks) == 1 else metric.title


def summarise(runs: Sequence[FinishedRun], baseline: str | None = None) -> Table:
    """One row per group, with differences to its partner over the seeds that both have.

    The partner is the same without ODEDM, or for every group the one that `baseline` names.
    """
    if not runs:
        raise UsageError("There are no runs to report: give the folder of at least one finished run.")
    groups = group(runs)
    if baseline is not None:
        named = named_group(groups, baseline)
        rows = [_row(each, None if each is named or other_problem(each, named) else named) for each in groups]
        return Table(_corrected(rows), named)
    plain: dict[str, Group] = {}
    for each in sorted((each for each in groups if each.plain), key=lambda each: BASELINES.index(each.memory)):
        plain.setdefault(each.same_but_memory, each)
    rows = [_row(each, None if each.plain else plain.get(each.same_but_memory)) for each in groups]
    return Table(_corrected(rows))


def left_out(results: Iterable[Result]) -> list[str]:
    """Why some results lack a number: it cannot be defined on their streams.

    >>> left_out([])
    []
    """
    found, said = list(results), []
    if any(each.task_il is None for each in found):
        said.append(
            "Task-IL accuracy is left out where tasks share classes: it is for classes that belong to one task each."
        )
    if any(each.forgetting is None for each in found):
        said.append("Forgetting and backward transfer are left out where there is a single task.")
    return said


def cost_told(table: Table) -> list[str]:
    """What the groups cost, where they do not all cost the same: seconds depend on the machine, this does not."""
    own = {row.group.label: row.values[GRADIENTS.key].mean for row in table.rows if GRADIENTS.key in row.values}
    if len({f"{each:.1f}" for each in own.values()}) < 2:
        return []
    listed = ", ".join(f"{label} {each:.1f}" for label, each in own.items())
    return [f"Rows passed forward and back for each row of the stream: {listed}."]


def named_group(groups: Sequence[Group], name: str) -> Group:
    """The group whose label has all words of a name; the dots between them may be left out."""
    words = _words(name)
    exact = [each for each in groups if _words(each.label) == words]
    found = exact or [each for each in groups if words and set(words) <= set(_words(each.label))]
    if len(found) == 1:
        return found[0]
    listed = ", ".join(f"'{each.label}'" for each in (found or groups)[:12])
    if found:
        raise UsageError(f"--baseline '{name}' fits {len(found)} groups; name one by more of its words: {listed}.")
    raise UsageError(f"No group of these runs is called '{name}', as --baseline says. There are: {listed}.")


def _words(label: str) -> list[str]:
    """The words of a label as one may type them.

    >>> _words("DER++ · ODEDM · λ=200")
    ['der++', 'odedm', 'λ=200']
    """
    return label.replace("·", " ").lower().split()


def other_problem(one: Group, other: Group) -> list[str]:
    """The settings by which two groups are not about the same problem, so that no difference says anything."""
    return [key for key in PROBLEM if one.settings.get(key) != other.settings.get(key)]


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
    numbers = {metric.key: metric.by_seed(group) for metric in METRICS}
    values = {key: estimate(own.values()) for key, own in numbers.items() if own}
    if baseline is None:
        return Row(group, values, None, {})
    pairs = {metric.key: paired(metric.by_seed(group), metric.by_seed(baseline)) for metric in COMPARED}
    return Row(group, values, baseline, {key: pair for key, pair in pairs.items() if pair is not None})
