"""The paper's tables as it prints them, with our numbers beside: for a terminal, as CSV and as LaTeX."""

from __future__ import annotations

import csv
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Any

from rich.table import Table as RichTable
from rich.text import Text

from odedm.core.errors import UsageError
from odedm.core.plain_data import flatten
from odedm.core.registry import METHODS, normalize_name, title
from odedm.memory.paper_preset import paper_dac
from odedm.paper.items import CHANGED, changes_since
from odedm.paper.mini import small_capacity, small_stream
from odedm.paper.printed import CLASSES, EPOCHS, TASKS, numbers, share_of
from odedm.paper.printed import Cell as Place
from odedm.paper.protocol import constants, protocol_deviations
from odedm.report.model import Cell
from odedm.report.published_number import Published
from odedm.report.statistics import estimate
from odedm.report.tables import escape
from odedm.report.wording import csv_text, format_mean
from odedm.results.folder import FinishedRun
from odedm.selection.budget import prototypes_per_class

MARKS = {"reproduced": "=", "better": "+", "worse": "−", "not comparable": "~", None: ""}
METRIC_TITLES = {"acc_last": "final ACC", "acc_mean": "mean ACC", "task_il_last": "Task-IL"}
LEGEND = (
    "printed, below it ours: = reproduced, + better, − worse, ~ not comparable; a best of several ρ is the test set's"
)
BEST, NONE = "odedm-best", "none"
Start = tuple[str, str, str, str, str]
"""Data, setting, λ, method, and whether it is fitted to the memory."""
Key = tuple[Start, str, str]
"""What runs of one cell share: with their learning rate, where it is not the usual one, and the variant."""


@dataclass(frozen=True)
class Beside:
    """A printed number and ours, None where it was not run."""

    place: Place
    paper: Published
    ours: Cell | None
    runs: tuple[FinishedRun, ...] = ()
    rate: str = ""
    """Of a row at another learning rate than the usual one."""

    @property
    def lr(self) -> float | None:
        """Return the learning rate of our runs; the paper does not report its own."""
        lr = self.runs[0].result.experiment["options"].get("lr") if self.runs else None
        return None if lr is None else float(lr)

    @property
    def k(self) -> int | None:
        """Return the prototypes of a class in our runs; those that are printed where there are none."""
        digits = self.place[5].removeprefix("odedm-")
        k = self.runs[0].result.experiment["memory"].get("k") if self.runs else digits if digits.isdigit() else None
        return None if k is None else int(k)

    @property
    def block(self) -> tuple[str, str, str]:
        """Data, setting and metric: what has a table of its own."""
        return self.place[1], self.place[2], self.place[6]

    @property
    def row(self) -> tuple[str, str]:
        """Method and memory as the table names them."""
        data, capacity, variant = self.place[1], int(self.place[3]), self.place[5]
        return self.place[4], f"{variant_title(variant, data, capacity)} {self.rate}".strip()


def variant_title(variant: str, data: str, capacity: int) -> str:
    """How a row of a table names its memory; k by its ρ, so that the rows of all λ are the same.

    >>> variant_title("odedm-6", "cifar10", 200), variant_title("none", "cifar10", 200)
    ('ODEDM 25 %', 'without')
    >>> variant_title("odedm-rho25-K3-depth2", "cifar10", 200)
    'ODEDM 25 % K3 depth2'
    """
    rest = variant.removeprefix("odedm-")
    if variant == NONE:
        return "without"
    if rest.isdigit():
        return f"ODEDM {100 * share_of(int(rest), capacity, data):g} %"
    share, *more = rest.split("-")
    return " ".join(["ODEDM", share.replace("rho", "") + (" %" if share.startswith("rho") else ""), *more])


Planned = tuple[Mapping[str, Any], FinishedRun]
"""A run of ours with the settings of the paper's that it stands for, which are its own but for a run in miniature."""


def beside(
    tables: Sequence[str], data: Sequence[str], runs: Iterable[FinishedRun], stands_for: Iterable[Planned] = ()
) -> list[Beside]:
    """Return every printed number of some tables on some data, in the paper's order, with what our runs say of it.

    `runs` are what the paper ran; runs in `stands_for` come with the settings that they stand for.
    """
    ours: dict[Key, list[FinishedRun]] = {}
    small = list(stands_for)
    for settings, run in [*((run.result.experiment, run) for run in runs), *small]:
        for key in _keys(settings):
            ours.setdefault(key, []).append(run)
    names = {normalize_name(name) for name in data}
    cells = []
    for place, paper in numbers().items():
        if place[0] in tables and place[1] in names:
            _, dataset, setting, size, method, variant, metric = place
            start = (dataset, setting, size, method, "fit" if place[0] == "puridiver_fitting" else "")
            rates = sorted({key[1] for key in ours if key[0] == start and key[1]})
            for rate in ("", *rates):
                members = _best(start, rate, ours) if variant == BEST else ours.get((start, rate, variant), [])
                values = [float(getattr(run.result, metric)) for run in members]
                if values or not rate:
                    cell = Cell(estimate(values), paper=None if small else paper) if values else None
                    cells.append(Beside(place, paper, cell, tuple(members), rate))
    return cells


def _keys(settings: Mapping[str, Any]) -> list[Key]:
    """The cells that a run belongs to; none if it is not what the paper ran."""
    own = flatten(dict(settings))
    if protocol_deviations(own):
        return []
    data, method, capacity = str(own["data"]), str(own["method"]), int(own.get("memory.capacity", 0))
    fit = "fit" if own.get("options.fit") is True else ""
    epochs, setting = int(own.get("epochs", 1)), str(own["imbalance"])
    # a table of other methods has its own words for the standard setting
    names = ([setting] if epochs == 1 else []) + ([EPOCHS[epochs]] if setting == "standard" else [])
    rate, usual = own.get("options.lr"), constants(method, data, capacity).get("lr")
    at = "" if rate == usual else f"lr={rate}"
    starts = [(normalize_name(data), each, str(capacity), normalize_name(method), fit) for each in names]
    return [(start, at, variant) for start in starts for variant in _variants(own)]


def _variants(own: Mapping[str, Any]) -> list[str]:
    if own["memory.name"] != "odedm":
        return [NONE]
    k, rho, dac, distance = (own.get(f"memory.{name}") for name in ("k", "rho", "dac", "distance"))
    if rho is None or dac is None:
        return []
    share, usual = f"odedm-rho{round(100 * rho)}", list(dac) == list(paper_dac(int(own["memory.capacity"]), rho))
    found = [f"{share}-{distance}"] if usual else []
    if distance == "sinkhorn":
        found += [f"{share}-K{dac[0]}-depth{dac[1]}", *([f"odedm-{k}"] if usual else [])]
    return found


def _best(start: Start, rate: str, ours: Mapping[Key, list[FinishedRun]]) -> list[FinishedRun]:
    """The runs of the k with the largest final accuracy, as the paper chooses: on the test set."""
    tried = [
        runs
        for (own, at, variant), runs in ours.items()
        if (own, at) == (start, rate) and variant.removeprefix("odedm-").isdigit()
    ]
    return max(tried, key=lambda runs: estimate(run.result.acc_last for run in runs).mean, default=[])


TOO_FEW = "too few seeds"


def counted(cells: Sequence[Beside]) -> dict[str, int]:
    """How many printed numbers have which verdict, of those that were run; only verdicts that were given."""
    found = Counter(str(cell.ours.verdict or TOO_FEW) for cell in cells if cell.ours is not None)
    return {word: found[word] for word in (*filter(None, MARKS), TOO_FEW) if found[word]}


def finding(cells: Sequence[Beside]) -> str:
    """What became of the printed numbers, in a line."""
    words = ", ".join(f"{number} {word}" for word, number in counted(cells).items())
    return f"{words} of {len(cells)} printed" if words else "nothing run yet"


def marks(cells: Sequence[Beside]) -> str:
    """The same in signs, for a narrow column."""
    words = ", ".join(f"{number} {MARKS.get(word, '?')}" for word, number in counted(cells).items())
    return f"{words} of {len(cells)}" if words else "nothing run yet"


def accuracies(runs: Sequence[FinishedRun]) -> str:
    """Final accuracy with ODEDM and without at each λ, over all runs of a figure, in a line."""
    found: dict[int, dict[bool, list[float]]] = {}
    for run in runs:
        memory = run.result.experiment["memory"]
        found.setdefault(memory["capacity"], {}).setdefault(memory["name"] == "odedm", []).append(run.result.acc_last)
    said = []
    for capacity in sorted(found):
        sides = {with_: format_mean(estimate(own)) for with_, own in found[capacity].items()}
        words = [
            f"{sides[with_]} {word}" for with_, word in ((False, "without"), (True, "with ODEDM")) if with_ in sides
        ]
        said.append(f"λ={capacity}: {', '.join(words)}")
    return "; ".join(said) or "nothing run yet"


def blocks(cells: Sequence[Beside]) -> dict[tuple[str, str, str], list[Beside]]:
    """The numbers by data, setting and metric, each a table."""
    found: dict[tuple[str, str, str], list[Beside]] = {}
    for cell in cells:
        found.setdefault(cell.block, []).append(cell)
    return found


def to_rich(cells: Sequence[Beside]) -> list[RichTable]:
    """A table for each block: a row for each method and memory, a column for each λ."""
    views = []
    for (data, setting, metric), own in blocks(cells).items():
        sizes = _sizes(own)
        heading = f"{METRIC_TITLES.get(metric, metric)}, {data}, {setting}"
        view = RichTable("", "", *(f"λ={size}" for size in sizes), title=heading, title_justify="left")
        for (method, memory), row in _rows(own).items():
            words = ["\n".join(_words(row[size])) if size in row else "" for size in sizes]
            view.add_row(*map(Text, [method_title(method), memory, *words]))
        views.append(view)
    return views


def to_latex(cells: Sequence[Beside]) -> str:
    """The same tables with booktabs; ours stands in brackets."""
    found = []
    for (data, setting, metric), own in blocks(cells).items():
        sizes = _sizes(own)
        heads = " & ".join(["", "", *(rf"$\lambda={size}$" for size in sizes)])
        lines = [rf"\begin{{tabular}}{{ll{'r' * len(sizes)}}}", r"\toprule", rf"{heads} \\", r"\midrule"]
        for (method, memory), row in _rows(own).items():
            words = [" / ".join(_words(row[size])) if size in row else "" for size in sizes]
            shown = [escape(word).replace("±", r"$\pm$").replace("−", "$-$") for word in words]
            lines.append(" & ".join([escape(method_title(method)), escape(memory), *shown]) + r" \\")
        heading = escape(f"{METRIC_TITLES.get(metric, metric)}, {data}, {setting}")
        found.append("\n".join([f"% {heading}", *lines, r"\bottomrule", r"\end{tabular}"]))
    return "\n\n".join([f"% {LEGEND}", *found]) + "\n"


def to_csv(cells: Sequence[Beside]) -> str:
    """Every number in full precision."""
    head = ["table", "data", "setting", "capacity", "method", "variant", "metric", "lr"]
    head += ["printed", "printed_sd", "spread_over", "ours", "ours_error", "seeds", "gap", "allowed", "verdict"]
    head += ["changed_since"]
    rows = []
    for cell in cells:
        ours: list[object] = [None] * 6
        if cell.ours is not None and (value := cell.ours.value) is not None:
            ours = [value.mean, value.error, len(cell.runs), cell.ours.gap, cell.ours.allowed, cell.ours.verdict]
        older = "; ".join(changes_since(cell.runs))
        rows.append([*cell.place, cell.lr, cell.paper.mean, cell.paper.error, cell.paper.spread, *ours, older])
    return csv_text(head, rows)


def _sizes(cells: Sequence[Beside]) -> list[str]:
    return sorted({cell.place[3] for cell in cells}, key=int)


def _rows(cells: Sequence[Beside]) -> dict[tuple[str, str], dict[str, Beside]]:
    found: dict[tuple[str, str], dict[str, Beside]] = {}
    for cell in cells:
        found.setdefault(cell.row, {})[cell.place[3]] = cell
    return found


def _words(cell: Beside) -> list[str]:
    if cell.ours is None:
        return [format_mean(cell.paper), "–"]
    mark = MARKS[cell.ours.verdict] + (CHANGED if changes_since(cell.runs) else "")
    return [format_mean(cell.paper), f"{format_mean(cell.ours.value)} {mark}".strip()]


def method_title(name: str) -> str:
    """The title of a method by the name that the printed numbers have for it."""
    known = next((each for each in METHODS if normalize_name(each) == name), name)
    return title(METHODS, known)


@cache
def prototype_counts(*, small: bool = False) -> list[dict[str, str]]:
    """Return Table 2 as rows of words: λ, ρ and data, the k that is printed with its share, and the k of F_k.

    With `small` the last is for the λ, tasks and classes of the paper in miniature.

    >>> [row["ours"] for row in prototype_counts() if row["capacity"] == "200" and row["data"] == "cifar10"]
    ['6 (24%)', '13 (52%)', '19 (76%)']
    """
    text = files(__package__).joinpath("table2.csv").read_text(encoding="utf-8")
    rows = []
    for line in csv.DictReader(text.splitlines()):
        name, capacity = normalize_name(line["data"]), int(line["capacity"])
        tasks, classes = TASKS[name], CLASSES[name]
        if small:
            capacity, (tasks, classes) = small_capacity(capacity), small_stream(line["data"])
        try:
            k = prototypes_per_class(float(line["rho"]), capacity, tasks=tasks, classes=classes // tasks)
            ours = f"{k} ({100 * k * (tasks - 1) * (classes // tasks) / capacity:.0f}%)"
        except UsageError:  # rounds to no prototype at all
            ours = "-"
        printed = f"{line['k']} ({line['percent']}%)" if line["k"] else "-"
        rows.append({**line, "printed": printed, "ours": ours})
    return rows


def prototype_counts_to_rich() -> RichTable:
    """Return Table 2 for a terminal: a row for each λ and ρ, two columns for each data set."""
    names = list(dict.fromkeys(row["data"] for row in prototype_counts()))
    heads = [word for name in names for word in (name, "F_k")]
    title = "k of ODEDM and the long-term share, printed and by F_k"
    view = RichTable("λ", "ρ", *heads, title=title, title_justify="left", box=None, padding=(0, 1, 0, 0))
    for capacity, rho in dict.fromkeys((row["capacity"], row["rho"]) for row in prototype_counts()):
        members = [row for row in prototype_counts() if (row["capacity"], row["rho"]) == (capacity, rho)]
        view.add_row(capacity, f"{float(rho):.0%}", *(row[side] for row in members for side in ("printed", "ours")))
    return view
