"""The paper's printed numbers with ours beside, and what ours say of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from odedm.core.plain_data import flatten
from odedm.paper.items import changes_since
from odedm.paper.printed import BEST, NONE, Cell, Spot, numbers, share_of, spots
from odedm.paper.protocol import protocol_deviations
from odedm.report.published_number import TOO_FEW, Comparison, Published
from odedm.report.statistics import estimate
from odedm.report.wording import csv_text
from odedm.results.folder import FinishedRun

MARKS = {"reproduced": "=", "better": "+", "worse": "−", "not comparable": "~", None: ""}
METRIC_TITLES = {"acc_last": "final ACC", "acc_mean": "mean ACC", "task_il_last": "Task-IL"}

Planned = tuple[Mapping[str, Any], FinishedRun]
"""A run of ours with the settings of the paper's that it stands for, which are its own but for a run in miniature."""


@dataclass(frozen=True)
class PaperCell:
    """A printed number and ours, None where it was not run."""

    cell: Cell
    paper: Published
    ours: Comparison | None
    runs: tuple[FinishedRun, ...] = ()

    @property
    def lr(self) -> float | None:
        """Return the learning rate of our runs; the paper does not report its own."""
        lr = self.runs[0].result.experiment["options"].get("lr") if self.runs else None
        return None if lr is None else float(lr)

    @property
    def k(self) -> int | None:
        """Return the prototypes of a class in our runs; those that are printed where there are none."""
        digits = self.cell.variant.removeprefix("odedm-")
        k = self.runs[0].result.experiment["memory"].get("k") if self.runs else digits if digits.isdigit() else None
        return None if k is None else int(k)

    @property
    def memory(self) -> str:
        """How a row names the memory; k by its ρ, so that the rows of all λ are the same."""
        return variant_title(self.cell.variant, self.cell.data, int(self.cell.capacity))

    @property
    def heading(self) -> str:
        """Metric, data and setting: what has a table of its own."""
        return f"{METRIC_TITLES[self.cell.metric]}, {self.cell.data}, {self.cell.setting}"

    @property
    def changed(self) -> bool:
        """Whether runs are older than a change of their algorithm."""
        return bool(changes_since(self.runs))


def variant_title(variant: str, data: str, capacity: int) -> str:
    """Return how a row of a table names its memory.

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


def paper_cells(
    tables: Collection[str], data: Collection[str], runs: Iterable[FinishedRun], stands_for: Iterable[Planned] = ()
) -> list[PaperCell]:
    """Return every printed number of some tables on some data, in the paper's order, with what our runs say of it.

    `runs` are what the paper ran; runs in `stands_for` come with the settings that they stand for.
    """
    ours: dict[Spot, list[FinishedRun]] = {}
    small = list(stands_for)
    for settings, run in [*((run.result.experiment, run) for run in runs), *small]:
        flat = flatten(dict(settings))
        for spot in [] if protocol_deviations(flat) else spots(flat):
            ours.setdefault(spot, []).append(run)
    cells = []
    for cell, paper in numbers().items():
        if cell.table in tables and cell.data in data:
            spot, compared = Spot.of(cell), None
            members = _best(spot, ours) if cell.variant == BEST else ours.get(spot, [])
            if members:
                value = estimate(float(getattr(run.result, cell.metric)) for run in members)
                compared = Comparison(value, paper, same_protocol=not small)
            cells.append(PaperCell(cell, paper, compared, tuple(members)))
    return cells


def _best(spot: Spot, ours: Mapping[Spot, list[FinishedRun]]) -> list[FinishedRun]:
    """Return the runs of the k with the largest final accuracy, as the paper chooses: on the test set."""
    tried = [
        runs
        for other, runs in ours.items()
        if other._replace(variant=BEST) == spot and other.variant.removeprefix("odedm-").isdigit()
    ]
    return max(tried, key=lambda runs: estimate(run.result.acc_last for run in runs).mean, default=[])


def verdict_counts(cells: Iterable[PaperCell]) -> dict[str, int]:
    """Return how many printed numbers have which verdict, of those that were run; only verdicts that were given."""
    counts = Counter(str(cell.ours.verdict or TOO_FEW) for cell in cells if cell.ours is not None)
    return {word: counts[word] for word in (*filter(None, MARKS), TOO_FEW) if counts[word]}


def finding(cells: Sequence[PaperCell]) -> str:
    """Return what became of the printed numbers, in a line."""
    words = ", ".join(f"{number} {word}" for word, number in verdict_counts(cells).items())
    return f"{words} of {len(cells)} printed" if words else "nothing run yet"


def to_csv(cells: Iterable[PaperCell]) -> str:
    """Return every number in full precision."""
    head = [*Cell._fields, "lr", "printed", "printed_sd", "spread_over", "ours", "ours_error", "seeds", "gap"]
    head += ["allowed", "verdict", "changed_since"]
    rows = []
    for cell in cells:
        ours: list[object] = [None] * 6
        if cell.ours is not None:
            value = cell.ours.ours
            ours = [value.mean, value.error, len(cell.runs), cell.ours.gap, cell.ours.allowed, cell.ours.verdict]
        paper = [cell.paper.mean, cell.paper.error, cell.paper.spread]
        rows.append([*cell.cell, cell.lr, *paper, *ours, "; ".join(changes_since(cell.runs))])
    return csv_text(head, rows)
