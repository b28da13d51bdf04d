"""What each group of runs measured, and what changed against the same without ODEDM or against a group by name."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from odedm.core.errors import UsageError
from odedm.core.plain_data import dict_diff
from odedm.core.text import counted, printable
from odedm.report.groups import BASELINES, Group, group_runs
from odedm.report.labels import belongs_to_memory, method_name, setting_phrase
from odedm.report.statistics import Estimate, Paired, estimate, holm, paired
from odedm.report.wording import canonical
from odedm.results.comparison import STREAM
from odedm.results.folder import FinishedRun
from odedm.results.metrics import TITLES


@dataclass(frozen=True)
class Metric:
    """A column: the number's name in a result, what it is called and what it means."""

    key: str
    title: str
    meaning: str

    def of(self, run: FinishedRun) -> float | None:
        """Return the number of a run; None where its stream has no such number."""
        number: float | None = run.seconds if self.key == "seconds" else getattr(run.result, self.key)
        return number

    def by_seed(self, group: Group) -> dict[int, float]:
        """Return the number of each run of a group that has one."""
        numbers = {run.seed: self.of(run) for run in group.runs}
        return {seed: number for seed, number in numbers.items() if number is not None}


ACC_LAST = Metric("acc_last", TITLES["acc_last"], "accuracy over all tasks after the last one, in %")
ACC_MEAN = Metric("acc_mean", TITLES["acc_mean"], "mean over i of the accuracy after task i, in %")
TASK_IL = Metric(
    "task_il_last",
    TITLES["task_il_last"],
    "ACC_T when the task is told at test time, in %; there is none where tasks share classes",
)
FORGETTING = Metric(
    "forgetting", TITLES["forgetting"], "best past accuracy minus the final one, in points; there is none with one task"
)
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
CHANGES = (ACC_LAST, TASK_IL)
"""Of these, the ones that get a column; the mean over tasks follows the final accuracy."""
PROBLEM = ("data", *STREAM, "class_order", "eval_classes", "class names")
"""Settings that make the problem: with another one a difference is no one's merit."""
SAME_COST = 0.05
"""Gradients per row up to which two runs cost the same."""


def gradients_of(group: Group) -> float | None:
    """Return the mean gradients for each row of the stream; None where no run knows them."""
    numbers = GRADIENTS.by_seed(group)
    return fmean(numbers.values()) if numbers else None


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

    @property
    def differs_in(self) -> list[str]:
        """What besides the memory differs between the two sides of a change, which else is the memory's."""
        if self.partner is None or not self.differences:
            return []
        differing = [key for key, _, _ in dict_diff(self.group.settings, self.partner.settings)]
        names = [key for key in differing if not belongs_to_memory(key)]
        if not self.group.plain and not self.partner.plain and "memory.replay" in differing:
            names.append("replay mode")
        costs = gradients_of(self.group), gradients_of(self.partner)
        if costs[0] is not None and costs[1] is not None and abs(costs[0] - costs[1]) > SAME_COST:
            names.append(f"gradients per row ({costs[1]:.1f} and {costs[0]:.1f})")
        return names


@dataclass(frozen=True)
class Table:
    """One row per group, and what all others are compared with, where one was named.

    `baseline` is the one group of that name, and `baseline_name` the name where each method has a group of it. `faults`
    has a sentence for each run that is damaged and in no row.
    """

    rows: tuple[Row, ...]
    baseline: Group | None = None
    faults: tuple[str, ...] = ()
    baseline_name: str = ""

    @property
    def groups(self) -> list[Group]:
        """The groups, in the order of the rows."""
        return [row.group for row in self.rows]

    @property
    def mixed(self) -> list[str]:
        """A sentence for each group whose runs were made by several versions of code from outside."""
        sentences = []
        for group in self.groups:
            hashes = [run.result.code_hashes() for run in group.runs]
            settings = {setting for run_hashes in hashes for setting in run_hashes}
            # where nothing is known of a run's code, it is taken for the same
            versions = max((len({known[key] for known in hashes if key in known}) for key in settings), default=1)
            if versions > 1:
                sentences.append(
                    f"{group.label}: its {len(group.runs)} runs were made by {versions} versions of your code, so "
                    "their mean is that of none. Train them again with --overwrite, or by the study's command."
                )
        return sentences

    @property
    def compared(self) -> list[Row]:
        """The rows that have differences to show."""
        return [row for row in self.rows if row.differences]

    @property
    def changes(self) -> tuple[Metric, ...]:
        """The metrics that need a column for their differences."""
        return tuple(metric for metric in CHANGES if any(metric.key in row.differences for row in self.compared))

    @property
    def narrow(self) -> tuple[Metric, ...]:
        """The metrics of a narrow table: gradients per row are among them where groups differ in them."""
        return (*NARROW, GRADIENTS) if self.costs_differ else NARROW

    @property
    def costs_differ(self) -> bool:
        """Whether groups took different numbers of gradients for each row of the stream."""
        costs = [row.values[GRADIENTS.key].mean for row in self.rows if GRADIENTS.key in row.values]
        return bool(costs) and max(costs) - min(costs) > SAME_COST

    @property
    def replay_modes(self) -> dict[str, list[str]]:
        """The methods by the replay mode that they have with ODEDM."""
        modes: dict[str, list[str]] = {}
        for group in self.groups:
            mode = group.settings.get("memory.replay")
            method = method_name(group.settings)
            if mode and method not in modes.setdefault(str(mode), []):
                modes[str(mode)].append(method)
        return modes

    @property
    def against(self) -> str:
        """What changes are taken against, in words that say what else differs."""
        if self.baseline is not None:
            return self.baseline.label
        if self.baseline_name:
            return f"'{self.baseline_name}' of the same method"
        other = any(row.differs_in for row in self.compared)
        return "the same runs without ODEDM" + (" (other gradients per row)" if other else "")

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
        """Return the metric's heading: the final accuracy is ACC_5 where every group has five tasks, else ACC_T."""
        tasks = {row.group.tasks for row in self.rows}
        return f"ACC_{tasks.pop()}" if metric is ACC_LAST and len(tasks) == 1 else metric.title


def summarise(runs: Sequence[FinishedRun], baseline: str | None = None) -> Table:
    """Return one row per group, with differences to its partner over the seeds that both have.

    The partner is the same without ODEDM, or for every group the one that `baseline` names.
    """
    if not runs:
        raise UsageError("There are no runs to report: give the folder of at least one finished run.")
    groups = group_runs(runs)
    if baseline is not None:
        named = groups_named(groups, baseline)
        partners = [_partner_by_name(one, named) for one in groups]
        rows = [_row(one, None if partner is one else partner) for one, partner in zip(groups, partners, strict=True)]
        return Table(_corrected(rows), named[0] if len(named) == 1 else None, (), baseline)
    plain: dict[str, Group] = {}
    for one in sorted((one for one in groups if one.plain), key=lambda one: BASELINES.index(one.memory)):
        plain.setdefault(one.same_but_memory, one)
    rows = [_row(one, None if one.plain else plain.get(one.same_but_memory)) for one in groups]
    return Table(_corrected(rows))


def by_problem(table: Table) -> dict[str, Table]:
    """Return a table for each problem and capacity, by a heading; with a baseline where it has a group of that name.

    Names of groups are those within their table, and p is corrected over its comparisons.
    """
    keys = [key for key in PROBLEM if key not in ("data", "class names", "class_order")]
    varying = [key for key in keys if len({canonical(group.settings.get(key)) for group in table.groups}) > 1]
    runs: dict[str, list[FinishedRun]] = {}
    for group in table.groups:
        phrases = [
            counted(group.tasks, "task") if key == "tasks" else setting_phrase(key, group.settings.get(key))
            for key in varying
        ]
        heading = ", ".join([printable(group.settings["data"]), *phrases])
        heading += f", λ = {group.settings['memory.capacity']}" if "memory.capacity" in group.settings else ""
        runs.setdefault(heading, []).extend(group.runs)
    tables = {}
    for heading, members in sorted(runs.items()):
        has_baseline = table.baseline_name and groups_named(group_runs(members), table.baseline_name, missing_ok=True)
        tables[heading] = summarise(members, table.baseline_name if has_baseline else None)
    return tables


def groups_named(groups: Sequence[Group], name: str, *, missing_ok: bool = False) -> list[Group]:
    """Return the group whose label has all words of a name, or of each method and problem the one with fewest others.

    The dots between words may be left out.
    """
    words = _words(name)
    exact = [group for group in groups if _words(group.label) == words]
    fitting = exact or [group for group in groups if words and set(words) <= set(_words(group.label))]
    if not fitting and not missing_ok:
        labels = ", ".join(f"'{group.label}'" for group in groups[:12])
        raise UsageError(f"No group of these runs is called '{name}', as --baseline says. There are: {labels}.")
    named: dict[str, list[Group]] = {}
    for group in sorted(fitting, key=lambda group: len(_words(group.label))):
        place = canonical([group.settings.get(key) for key in ("method", "memory.capacity", *PROBLEM)])
        named.setdefault(place, []).append(group)
    for members in named.values():
        if len(members) > 1 and len(_words(members[0].label)) == len(_words(members[1].label)):
            labels = ", ".join(f"'{group.label}'" for group in members[:12])
            raise UsageError(
                f"--baseline '{name}' fits {len(members)} groups; name one by more of its words: {labels}."
            )
    return [members[0] for members in named.values()]


def _partner_by_name(group: Group, named: Sequence[Group]) -> Group | None:
    """The one named group, or of several that of the same method and capacity; None where it is another problem."""
    for partner in named:
        same = all(partner.settings.get(key) == group.settings.get(key) for key in ("method", "memory.capacity"))
        if (len(named) == 1 or same) and not other_problem(group, partner):
            return partner
    return None


def _words(label: str) -> list[str]:
    """The words of a label as one may type them.

    >>> _words("DER++ · ODEDM · λ=200")
    ['der++', 'odedm', 'λ=200']
    """
    return label.replace("·", " ").lower().split()


def other_problem(one: Group, other: Group) -> list[str]:
    """Return the settings by which two groups are not about the same problem, so that no difference says anything."""
    return [key for key in PROBLEM if one.settings.get(key) != other.settings.get(key)]


def _corrected(rows: Sequence[Row]) -> tuple[Row, ...]:
    """The rows with Holm's correction over the table, metric by metric: each metric is a question of its own."""
    corrected: list[dict[str, float]] = [{} for _ in rows]
    for metric in COMPARED:
        raw = {i: row.differences[metric.key].p for i, row in enumerate(rows) if metric.key in row.differences}
        known = {i: p for i, p in raw.items() if p is not None}
        for i, p in zip(known, holm(list(known.values())), strict=True):
            corrected[i][metric.key] = p
    return tuple(replace(row, corrected=by_metric) for row, by_metric in zip(rows, corrected, strict=True))


def _row(group: Group, partner: Group | None) -> Row:
    numbers = {metric.key: metric.by_seed(group) for metric in METRICS}
    values = {key: estimate(by_seed.values()) for key, by_seed in numbers.items() if by_seed}
    if partner is None:
        return Row(group, values, None, {})
    pairs = {metric.key: paired(metric.by_seed(group), metric.by_seed(partner)) for metric in COMPARED}
    return Row(group, values, partner, {key: pair for key, pair in pairs.items() if pair is not None})
