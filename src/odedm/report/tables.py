"""Groups of runs that differ by seed alone, what they measured, and what the memory changed."""

from __future__ import annotations

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odedm.errors import UsageError
from odedm.report.statistics import Estimate, Paired, estimate, paired
from odedm.run.results import FILE, Result, find

if TYPE_CHECKING:
    from rich.table import Table as RichTable

METHODS = {
    "er": "ER",
    "der": "DER",
    "derpp": "DER++",
    "refresh": "DER++refresh",
    "fdr": "FDR",
    "icarl": "iCaRL",
    "puridiver": "PuriDivER",
    "vrmcl": "VR-MCL",
    "pocl": "POCL",
}
MEMORIES = {"odedm": "ODEDM"}
BASELINE = "reservoir"

# Device and threads set the pace and the rounding of a run, not what is tried, so seeds may be spread over machines.
SEED_ONLY = frozenset({"seed", "device", "threads", "classes"})
# What tells a run from its reservoir partner. The capacity stays: partners have the same room.
MEMORY_ONLY = frozenset({"replay", "gamma"})
# Named in every label as soon as two groups differ in them; other settings only where they tell two groups apart.
LOUD = ("data", "setting", "memory.capacity")
QUIET = (
    "tasks",
    "replay",
    "memory.k",
    "memory.rho",
    "memory.dac",
    "memory.distance",
    "memory.space",
    "memory.candidates",
    "memory.rows_per_prototype",
    "memory.mixup",
    "gamma",
    "method.lr",
    "net",
)
SYMBOLS = {
    "memory.capacity": "λ",
    "memory.k": "k",
    "memory.rho": "ρ",
    "memory.rows_per_prototype": "rows",
    "gamma": "γ",
    "method.alpha": "α",
    "method.beta": "β",
}
BARE = frozenset({"data", "setting", "memory.distance", "memory.space", "net"})


@dataclass(frozen=True)
class Run:
    """A finished run and the folder it lies in."""

    folder: Path
    result: Result

    @property
    def seed(self) -> int:
        """The seed that everything random of the run came from."""
        return int(self.result.experiment["seed"])

    @property
    def seconds(self) -> float:
        """Wall seconds, all phases together."""
        return math.fsum(self.result.seconds.values())


@dataclass(frozen=True)
class Group:
    """Runs that share everything but the seed, ordered by seed.

    `family` names what the group has in common with its reservoir partner, `member` the memory, `label` both.
    """

    runs: tuple[Run, ...]
    settings: dict[str, Any]
    family: str
    member: str
    label: str

    @property
    def memory(self) -> str:
        """The memory's name as configured."""
        return str(self.settings.get("memory.name", "none"))

    @property
    def tasks(self) -> int:
        """How many tasks each run went through."""
        return len(self.runs[0].result.acc)

    @property
    def classes(self) -> list[str]:
        """Class names in the label order of the first run."""
        return class_names(self.runs[0].result)

    @property
    def one_order(self) -> bool:
        """Whether every seed has the classes in the same order, so that classes belong to tasks."""
        return all(class_names(run.result) == self.classes for run in self.runs)

    @property
    def same_but_memory(self) -> str:
        """What a reservoir partner must share, as one comparable text."""
        keep = {
            key: value
            for key, value in self.settings.items()
            if key not in MEMORY_ONLY and (not key.startswith("memory.") or key == "memory.capacity")
        }
        return _text(keep)


@dataclass(frozen=True)
class Metric:
    """A column: where the number lies, what it is called and what it means."""

    key: str
    title: str
    meaning: str
    of: Callable[[Run], float]


METRICS = (
    Metric("acc_last", "ACC_T", "accuracy over all tasks after the last one, in %", lambda run: run.result.acc_last),
    Metric("acc_mean", "mean ACC", "mean over i of the accuracy after task i, in %", lambda run: run.result.acc_mean),
    Metric(
        "task_il_last", "Task-IL", "ACC_T when the task is told at test time, in %", lambda r: r.result.task_il_last
    ),
    Metric(
        "forgetting", "Forgetting", "best past accuracy minus the final one, in points", lambda r: r.result.forgetting
    ),
    Metric(
        "backward_transfer",
        "BWT",
        "final accuracy minus that right after learning",
        lambda r: r.result.backward_transfer,
    ),
    Metric("seconds", "Seconds", "wall seconds per run, all phases", lambda run: run.seconds),
)
COMPARED = ("acc_last", "task_il_last")


@dataclass(frozen=True)
class Row:
    """A group, its means, and its differences to the reservoir partner where it has one."""

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
    def last(self) -> str:
        """The final accuracy's name: ACC_5 where every group has five tasks, ACC_T where they differ."""
        tasks = {row.group.tasks for row in self.rows}
        return f"ACC_{tasks.pop()}" if len(tasks) == 1 else "ACC_T"

    def title(self, metric: Metric) -> str:
        """The metric's heading in this table."""
        return self.last if metric.key == "acc_last" else metric.title

    @property
    def compared(self) -> list[Row]:
        """The rows that have a difference to show."""
        return [row for row in self.rows if row.differences]


def clean(value: object, limit: int = 60) -> str:
    r"""A name from a file as one printable line of bounded length.

    >>> clean("T-shirt/top"), clean("a\x1b[31m\n"), clean("abcdef", 4)
    ('T-shirt/top', 'a�[31m�', 'abc…')
    """
    text = "".join(character if character.isprintable() else "�" for character in str(value))
    return text if len(text) <= limit else text[: limit - 1] + "…"


def number(value: float, digits: int = 1, *, sign: bool = False) -> str:
    """A number to read, with a real minus and no negative zero.

    >>> number(-3.14), number(-0.01), number(2, sign=True), number(0.04, sign=True)
    ('−3.1', '0.0', '+2.0', '0.0')
    """
    text = f"{value:+.{digits}f}" if sign else f"{value:.{digits}f}"
    return text.replace("-", "−") if float(text) else f"{0:.{digits}f}"


def measured(value: Estimate, *, sign: bool = False, joint: str = " ± ") -> str:
    """A mean with its standard error, or alone with one seed.

    >>> measured(Estimate(12.34, 1.16, 5), sign=True), measured(Estimate(12.34, None, 1))
    ('+12.3 ± 1.2', '12.3')
    """
    text = number(value.mean, sign=sign)
    return text if value.error is None else f"{text}{joint}{number(value.error)}"


def load(folders: Sequence[Path]) -> list[Run]:
    """Every finished run at or below the folders; the same folder given twice counts once."""
    runs: dict[Path, Run] = {}
    for folder in find(folders):
        run = Run(folder, Result.load(folder / FILE))
        _check(run)
        runs.setdefault(folder.resolve(), run)
    return list(runs.values())


def class_names(result: Result) -> list[str]:
    """The class names in label order; numbers where the result has no names.

    The count follows the census where the names are missing, so that figures by class still work.
    """
    names = result.experiment.get("classes")
    if isinstance(names, list) and names:
        return [clean(name) for name in names]
    counts = [len(part) for entry in result.census for part in entry.values()]
    return [str(label) for label in range(max(counts, default=0))]


def groups(runs: Sequence[Run]) -> list[Group]:
    """The runs by everything but the seed: by data, method and capacity, reservoir before the other memories.

    The same seed twice in a group is an error: counted twice it would make the standard error too small, and picking
    one of two would hide which one is reported.
    """
    found: dict[str, list[Run]] = {}
    for run in runs:
        found.setdefault(_text(_settings(run)), []).append(run)
    for members in found.values():
        members.sort(key=lambda run: run.seed)
        for first, second in pairwise(members):
            if first.seed == second.seed:
                raise UsageError(
                    f"Seed {first.seed} of one experiment was given twice: '{first.folder}' and '{second.folder}'. "
                    "Seeds are averaged and paired, so each may count once: leave one of the two folders out."
                )
    ordered = sorted(found.values(), key=lambda members: _place(_settings(members[0])))
    settings = [_settings(members[0]) for members in ordered]
    return [
        Group(tuple(members), own, *names)
        for members, own, names in zip(ordered, settings, _labels(settings), strict=True)
    ]


def summarise(runs: Sequence[Run]) -> Table:
    """One row per group, with differences to its reservoir partner over the seeds that both have."""
    if not runs:
        raise UsageError("There are no runs to report: give the folder of at least one finished run.")
    parts = groups(runs)
    partners = {group.same_but_memory: group for group in parts if group.memory == BASELINE}
    rows = []
    for group in parts:
        values = {metric.key: estimate(metric.of(run) for run in group.runs) for metric in METRICS}
        partner = partners.get(group.same_but_memory) if group.memory != BASELINE else None
        differences = {}
        if partner is not None:
            for metric in METRICS:
                pair = paired(_by_seed(group, metric), _by_seed(partner, metric)) if metric.key in COMPARED else None
                if pair is not None:
                    differences[metric.key] = pair
        rows.append(Row(group, values, partner, differences))
    return Table(tuple(rows))


def verdict(row: Row, key: str) -> str:
    """One sentence on what the memory changed in `acc_last` or `task_il_last`; the row must have that difference."""
    pair, group = row.differences[key], row.group
    what = f"points of ACC_{group.tasks}" if key == "acc_last" else "points of Task-IL accuracy"
    change = f"{_subject(group.member)} changed {_subject(group.family)} by {measured(pair.estimate, sign=True)} {what}"
    n = pair.estimate.n
    if n == 1:
        return f"{change} on one seed, which cannot tell a change from chance."
    change = f"{change} over {n} seeds (better in {pair.better} of {n})"
    return f"{change}." if pair.clear else f"{change}: not distinguishable from zero at this number of seeds."


def verdicts(table: Table) -> list[str]:
    """What the memory changed, a sentence for each comparison, or why there is none."""
    sentences = [verdict(row, key) for row in table.rows for key in COMPARED if key in row.differences]
    for row in table.rows:
        if row.partner is not None and not row.differences:
            sentences.append(
                f"{row.group.label} and {row.partner.label} have no seed in common, so they cannot be compared by seed."
            )
    if not sentences:
        sentences.append(
            "Nothing to compare: no two groups differ by the memory alone. "
            "Run the same experiment with the reservoir and with ODEDM, on the same seeds."
        )
    return sentences


def to_rich(table: Table) -> RichTable:
    """The table for a terminal of 100 columns, standard errors under the means."""
    from rich import box
    from rich.table import Table as RichTable
    from rich.text import Text

    def cell(value: Estimate, *, sign: bool = False, style: str = "") -> Text:
        text = Text(number(value.mean, sign=sign), style=style)
        return text if value.error is None else text.append(f"\n±{number(value.error)}", style="dim not bold")

    compared = bool(table.compared)
    view = RichTable(box=box.SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False, show_edge=False)
    view.add_column("Runs", overflow="fold", min_width=14, max_width=30)
    view.add_column("Seeds", justify="right", no_wrap=True)
    short = {"acc_mean": "mean\nACC", "forgetting": "Forget-\nting"}
    for metric in METRICS:
        view.add_column(short.get(metric.key, table.title(metric)), justify="right", no_wrap=True)
    for name in (table.last, "Task-IL") if compared else ():
        view.add_column(f"Change\n{name}", justify="right", no_wrap=True)
    for row in table.rows:
        cells = [Text(row.group.label), Text(str(len(row.group.runs)))]
        cells += [cell(row.values[metric.key]) for metric in METRICS]
        for key in COMPARED if compared else ():
            pair = row.differences.get(key)
            cells.append(cell(pair.estimate, sign=True, style="bold" if pair.clear else "") if pair else Text(""))
        view.add_row(*cells)
    return view


def to_markdown(table: Table) -> str:
    """The table as GitHub Markdown, mean ± standard error over seeds."""
    compared = bool(table.compared)
    head = ["Runs", "Seeds", *(table.title(metric) for metric in METRICS)]
    head += [f"Change in {table.last}", "Change in Task-IL"] if compared else []
    lines = [_bar(head), _bar(["---", *["---:"] * (len(head) - 1)])]
    for row in table.rows:
        cells = [_plain_markdown(row.group.label), str(len(row.group.runs))]
        cells += [measured(row.values[metric.key]) for metric in METRICS]
        for key in COMPARED if compared else ():
            cells.append(measured(row.differences[key].estimate, sign=True) if key in row.differences else "")
        lines.append(_bar(cells))
    return "\n".join(lines) + "\n"


def to_csv(table: Table) -> str:
    """The table in full precision; an empty cell means that there is no such number."""
    head = ["label", "data", "setting", "method", "memory", "capacity", "tasks", "seeds", "n"]
    for metric in METRICS:
        head += [metric.key, f"{metric.key}_error"]
    for key in COMPARED:
        head += [f"{key}_change", f"{key}_change_error", f"{key}_change_n", f"{key}_change_better"]
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    for row in table.rows:
        group, own = row.group, row.group.settings
        cells: list[object] = [group.label]
        names = ("data", "setting", "method.name", "memory.name", "memory.capacity")
        cells += [clean(own[key]) if key in own else "" for key in names]
        cells += [group.tasks, " ".join(str(run.seed) for run in group.runs), len(group.runs)]
        for metric in METRICS:
            value = row.values[metric.key]
            cells += [value.mean, "" if value.error is None else value.error]
        for key in COMPARED:
            pair = row.differences.get(key)
            if pair is None:
                cells += [""] * 4
            else:
                error = pair.estimate.error
                cells += [pair.estimate.mean, "" if error is None else error, pair.estimate.n, pair.better]
        writer.writerow(cells)
    return text.getvalue()


def _text(value: object) -> str:
    return json.dumps(value, sort_keys=True, ensure_ascii=False)


def _settings(run: Run) -> dict[str, Any]:
    """The configuration without the seed, flat: {"method.lr": 0.03, …}.

    The order of the classes may come from the seed, so only which classes there are counts.
    """
    flat: dict[str, Any] = {}
    for key, value in run.result.experiment.items():
        if key in SEED_ONLY:
            continue
        if isinstance(value, dict):
            flat.update({f"{key}.{name}": inner for name, inner in value.items()})
        elif key in {"method", "memory"}:
            flat[f"{key}.name"] = value
        else:
            flat[key] = value
    flat["tasks"] = len(run.result.acc)
    flat["class names"] = sorted(class_names(run.result))
    return flat


def _place(settings: dict[str, Any]) -> tuple[object, ...]:
    """Where a group stands in the table."""
    method, memory = str(settings.get("method.name")), str(settings.get("memory.name"))
    capacity = settings.get("memory.capacity")
    rank = list(METHODS).index(method) if method in METHODS else len(METHODS)
    return (
        str(settings.get("data")),
        str(settings.get("setting")),
        rank,
        method,
        settings["tasks"],
        float(capacity) if isinstance(capacity, int | float) else math.inf,
        _text({key: value for key, value in settings.items() if key.startswith("method.")}),
        memory != BASELINE,
        memory,
        _text(settings),
    )


def _labels(settings: Sequence[dict[str, Any]]) -> list[tuple[str, str, str]]:
    """For each group (family, member, label), naming only what is needed to tell the groups apart."""
    told = [[_text(own.get("method.name")), _text(own.get("memory.name"))] for own in settings]
    named: list[list[str]] = [[] for _ in settings]
    rest = sorted({key for own in settings for key in own} - {*LOUD, *QUIET, "class names"})
    for key in (*LOUD, *QUIET, *rest, "class names"):
        values = [_text(own.get(key)) for own in settings]
        if len(set(values)) == 1:
            continue
        for place, own in enumerate(settings):
            alike = {value for value, other in zip(values, told, strict=True) if other == told[place]}
            if key in own and (len(alike) > 1 or (key in LOUD and own[key] is not None)):
                named[place].append(key)
        told = [[*known, value] for known, value in zip(told, values, strict=True)]
    return [_name(own, keys) for own, keys in zip(settings, named, strict=True)]


def _name(own: dict[str, Any], keys: Sequence[str]) -> tuple[str, str, str]:
    method, memory = str(own.get("method.name", "?")), str(own.get("memory.name", "none"))
    family, member = [METHODS.get(method, clean(method, 24))], [MEMORIES.get(memory, clean(memory, 24))]
    details = []
    for key in keys:
        phrase = _phrase(key, own.get(key))
        inner = key in MEMORY_ONLY or (key.startswith("memory.") and key != "memory.capacity")
        (member if inner else family).append(phrase)
        details.append(phrase)
    return " · ".join(family), " · ".join(member), " · ".join([family[0], member[0], *details])


def _phrase(key: str, value: object) -> str:
    """A setting in a label.

    >>> _phrase("memory.capacity", 200), _phrase("memory.dac", [3, 4]), _phrase("memory.dac", None)
    ('λ=200', 'DAC 3×4', 'no DAC')
    >>> _phrase("replay", "union"), _phrase("memory.mixup", True), _phrase("method.lr", 0.03)
    ('union replay', 'mixup', 'lr=0.03')
    """
    if key == "memory.dac":
        text = "DAC " + "×".join(str(part) for part in value) if isinstance(value, list) and value else "no DAC"
    elif key == "replay":
        text = f"{value} replay" if value else "no replay"
    elif key == "class names":
        text = f"{len(value)} classes" if isinstance(value, list) else "other classes"
    elif isinstance(value, bool):
        text = ("" if value else "no ") + key.rpartition(".")[2]
    elif key in BARE:
        text = str(value)
    else:
        text = f"{SYMBOLS.get(key, key.rpartition('.')[2])}={value if isinstance(value, str) else _text(value)}"
    return clean(text, 32)


def _subject(label: str) -> str:
    """A label inside a sentence.

    >>> _subject("DER++ · λ=200 · k=3"), _subject("ODEDM")
    ('DER++ (λ=200, k=3)', 'ODEDM')
    """
    name, *details = label.split(" · ")
    return f"{name} ({', '.join(details)})" if details else name


def _by_seed(group: Group, metric: Metric) -> dict[int, float]:
    return {run.seed: metric.of(run) for run in group.runs}


def _bar(cells: Iterable[str]) -> str:
    return "| " + " | ".join(cells) + " |"


def _plain_markdown(text: str) -> str:
    r"""Text that Markdown shows as it is.

    >>> print(_plain_markdown("a|b <i> DER++"))
    a\|b \<i\> DER++
    """
    return "".join("\\" + character if character in "\\`*_{}[]<>|#!&~" else character for character in text)


def _check(run: Run) -> None:
    """Refuse a result whose numbers cannot be drawn, naming the file and what is wrong with it."""
    result, file = run.result, run.folder / FILE

    def refuse(what: str) -> UsageError:
        return UsageError(f"The result '{file}' cannot be reported: {what}. Run it again.")

    if not isinstance(result.experiment, dict):
        raise refuse("'experiment' is not an object")
    seed = result.experiment.get("seed")
    if not isinstance(seed, int) or isinstance(seed, bool):
        raise refuse(f"its seed is {seed!r}, not a whole number")
    if not _numbers(result.acc) or not result.acc or not _numbers(result.forgetting_rate):
        raise refuse("its accuracies by task are not finite numbers")
    for name, matrix in (("class_il", result.class_il), ("task_il", result.task_il)):
        lengths = [len(row) if _numbers(row) else -1 for row in matrix] if isinstance(matrix, list) else []
        if lengths != list(range(1, len(result.acc) + 1)):
            raise refuse(f"'{name}' is not a triangle of finite numbers with a row for each of {len(result.acc)} tasks")
    if len(result.forgetting_rate) != len(result.acc):
        raise refuse("'forgetting_rate' and 'acc' differ in length")
    single = [result.acc_last, result.acc_mean, result.task_il_last, result.forgetting, result.backward_transfer]
    if not _numbers(single):
        raise refuse("a summary number is not finite")
    if not isinstance(result.seconds, dict) or not _numbers(list(result.seconds.values())):
        raise refuse("'seconds' does not map phases to finite numbers")
    census = result.census
    sound = isinstance(census, list) and all(
        isinstance(entry, dict) and all(_numbers(part) for part in entry.values()) for entry in census
    )
    if not sound:
        raise refuse("'census' does not hold counts by part and class for each task")
    if not isinstance(result.provenance, dict):
        raise refuse("'provenance' is not an object")


def _numbers(values: object) -> bool:
    return isinstance(values, list) and all(
        isinstance(value, int | float) and not isinstance(value, bool) and math.isfinite(value) for value in values
    )
