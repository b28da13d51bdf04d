"""What each group of runs measured, what changed against the same without ODEDM or a group by name, and the paper's."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from statistics import fmean
from typing import Literal

from odedm.core.errors import UsageError
from odedm.core.plain_data import dict_diff
from odedm.core.registry import REFERENCE
from odedm.core.text import counted, printable
from odedm.report.columns import ACC_LAST, CHANGES, COMPARED, GRADIENTS, METRICS, NARROW, Metric
from odedm.report.groups import BASELINES, PROBLEM, Group, group_runs, other_problem, sweeps
from odedm.report.labels import belongs_to_memory, method_name, setting_phrase
from odedm.report.published_number import Comparison
from odedm.report.statistics import Estimate, Paired, estimate, holm, paired
from odedm.report.wording import canonical
from odedm.results.folder import FinishedRun

Kind = Literal["runs", "test", "validation"]
"""What a row of a table is: runs, or the best of several ρ on the test set or on training rows held out."""


SAME_COST = 0.05
"""Gradients per row up to which two runs cost the same."""


@dataclass(frozen=True)
class Row:
    """A group, its means by metric where it has them, and its differences to its partner where they share a seed.

    `corrected` has the p of each difference after Holm, over all differences of the table in the same metric, `paper`
    the paper's numbers beside ours. A row of another `kind` than runs repeats the best of `tried` rows by ρ.
    """

    group: Group
    values: dict[str, Estimate]
    partner: Group | None
    differences: dict[str, Paired]
    corrected: dict[str, float] = field(default_factory=dict)
    paper: dict[str, Comparison] = field(default_factory=dict)
    kind: Kind = "runs"
    tried: int = 0

    @property
    def label(self) -> str:
        """The group's label, or what was chosen, from how many, on what."""
        if self.kind == "runs":
            return self.group.label
        parts = self.group.label.split(" · ")
        named = [part for part in parts if not part.startswith(("ρ=", "k=", "DAC ", "no DAC"))]
        best = f"best of {self.tried} ρ ({share(self.group)}), chosen on the test set"
        return " · ".join([*named, best if self.kind == "test" else f"{share(self.group)}, chosen on validation rows"])

    @property
    def seeds(self) -> list[int]:
        """The seeds behind every number of the row."""
        return [run.seed for run in self.group.runs]

    def interval(self, metric: Metric) -> tuple[float, float] | None:
        """Return the interval of a change; none of a best on the test set, which chance would not have chosen."""
        change = self.differences.get(metric.key)
        return change.interval if change and self.kind != "test" else None

    def is_clear(self, metric: Metric) -> bool:
        """Return whether a change is one that the seeds can tell from chance."""
        change = self.differences.get(metric.key)
        return change is not None and change.clear and self.kind != "test"

    @property
    def differs_in(self) -> list[str]:
        """What besides the memory differs between the two sides of a change, which else is the memory's."""
        if self.partner is None or not self.differences:
            return []
        differing = [key for key, _, _ in dict_diff(self.group.settings, self.partner.settings)]
        names = [key for key in differing if not belongs_to_memory(key)]
        if not self.group.plain and not self.partner.plain and "memory.replay" in differing:
            names.append("replay mode")
        costs = [fmean(numbers) for side in (self.group, self.partner) if (numbers := GRADIENTS.by_seed(side).values())]
        if len(costs) == 2 and abs(costs[0] - costs[1]) > SAME_COST:
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

    @cached_property
    def lines(self) -> list[Row]:
        """The rows, and after the last of several that differ in ρ alone the choice among them."""
        lines = list(self.rows)
        for choice in choices(self):
            family = [i for i, row in enumerate(lines) if row.group.same_but_memory == choice.group.same_but_memory]
            lines.insert(max(family) + 1, choice)
        return lines

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
    def printed(self) -> tuple[Metric, ...]:
        """The metrics that the paper has a number for in any line."""
        return tuple(metric for metric in COMPARED if any(metric.key in row.paper for row in self.lines))

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
    named = groups_named(groups, baseline) if baseline is not None else []
    plain: dict[str, Group] = {}
    for group in sorted((group for group in groups if group.plain), key=lambda group: BASELINES.index(group.memory)):
        plain.setdefault(group.same_but_memory, group)
    rows = []
    for group in groups:
        if baseline is not None:
            partner = _partner_by_name(group, named)
        else:
            partner = None if group.plain else plain.get(group.same_but_memory)
        rows.append(_row(group, None if partner is group else partner))
    return Table(_corrected(rows), named[0] if len(named) == 1 else None, (), baseline or "")


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

    The dots between words may be left out; a memory without ODEDM has the word plain, too.
    """
    words = _words(name)
    exact = [group for group in groups if _words(group.label) == words]
    plain = {"plain"}
    fitting = exact or [g for g in groups if words and {*words} <= {*_words(g.label), *(plain if g.plain else ())}]
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
    """Return the named group, of several that of the same method and capacity; None where it is another problem."""
    for partner in named:
        same = all(partner.settings.get(key) == group.settings.get(key) for key in ("method", "memory.capacity"))
        if (len(named) == 1 or same) and not other_problem(group, partner):
            return partner
    return None


def _words(label: str) -> list[str]:
    """Return the words of a label as one may type them.

    >>> _words("DER++ · ODEDM · λ=200")
    ['der++', 'odedm', 'λ=200']
    """
    return label.replace("·", " ").lower().split()


def choices(table: Table) -> list[Row]:
    """Return of each set of rows that differ in ρ alone the best on the test set, as in the paper, and an honest one.

    The second needs the same runs with the setting `validation`, which take the place of the test rows. A choice
    repeats its runs, so it adds no test of its own; the best stands beside the paper's best.
    """
    chosen = []
    row_of = {id(row.group): row for row in table.rows}
    validated = {_but_validation(row.group): _accuracy(row) for row in table.rows if _is_validated(row.group)}
    for groups in sweeps([group for group in table.groups if group.memory == "odedm"], "memory.rho", share):
        rows = [row_of[id(group)] for group in groups]
        if len(groups) == 1 or len(set(map(share, groups))) < len(groups):
            continue
        best = max(rows, key=_accuracy)
        if _is_validated(groups[0]):
            chosen.append(replace(best, paper={}, kind="validation", tried=len(rows)))
            continue
        paper = _paper_numbers(best.group, best.values, best=True)
        chosen.append(replace(best, corrected={}, paper=paper, kind="test", tried=len(rows)))
        scores = [validated.get(_but_validation(row.group)) for row in rows]
        known = [(score, row) for score, row in zip(scores, rows, strict=True) if score is not None]
        if len(known) == len(rows):
            _, honest = max(known, key=lambda pair: pair[0])
            chosen.append(replace(honest, paper={}, kind="validation", tried=len(rows)))
    return chosen


def _accuracy(row: Row) -> float:
    return row.values[ACC_LAST.key].mean


def _is_validated(group: Group) -> bool:
    return group.settings.get("validation") is not None


def _but_validation(group: Group) -> str:
    """Return what runs that are tested on other rows, maybe after fewer tasks, share, as one comparable text."""
    other = ("validation", "first_tasks", "tasks", "class names")
    return canonical({key: value for key, value in group.settings.items() if key not in other})


def share(group: Group) -> str:
    """Return a group's ρ as it stands in a label, or its k where it has none."""
    rho = group.settings.get("memory.rho")
    return f"ρ={rho:g}" if isinstance(rho, int | float) else f"k={group.settings.get('memory.k')}"


def _corrected(rows: Sequence[Row]) -> tuple[Row, ...]:
    """Return the rows with Holm's correction over the table, metric by metric: each metric is a question of its own."""
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
    pairs = {m.key: paired(numbers[m.key], m.by_seed(partner)) for m in COMPARED} if partner else {}
    changes = {key: pair for key, pair in pairs.items() if pair is not None}
    return Row(group, values, partner, changes, paper=_paper_numbers(group, values))


def _paper_numbers(group: Group, values: dict[str, Estimate], *, best: bool = False) -> dict[str, Comparison]:
    """Ours beside the paper's, by metric, where it has a number for these runs."""
    reference = REFERENCE.load()
    same = not reference.deviations(group.settings)
    printed = {m.key: reference.value(m.key, group.settings, tasks=group.tasks, best=best) for m in COMPARED}
    return {key: Comparison(values[key], paper, same) for key, paper in printed.items() if paper and key in values}
