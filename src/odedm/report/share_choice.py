"""Which of several long-term shares ρ would be reported, and by what it was chosen."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from odedm.report.groups import Group
from odedm.report.summary import ACC_LAST, Row, Table
from odedm.report.wording import canonical

SHARE = ("memory.rho", "memory.k")
TUNED = (*SHARE, "memory.dac")
"""What the paper sets together with ρ."""


@dataclass(frozen=True)
class Choice:
    """One row out of several that differ in ρ alone; `how` says what it was chosen on."""

    row: Row
    tried: int
    how: Literal["test", "held-out"]

    @property
    def label(self) -> str:
        """What was chosen, from how many, on what."""
        parts = [
            part for part in self.row.group.label.split(" · ") if not part.startswith(("ρ=", "k=", "DAC ", "no DAC"))
        ]
        share = _share(self.row.group)
        chosen = (
            f"best of {self.tried} ρ ({share}), chosen on the test set"
            if self.how == "test"
            else f"{share}, chosen on held-out training rows"
        )
        return " · ".join([*parts, chosen])


def choices(table: Table) -> list[Choice]:
    """For each set of rows that differ in ρ alone: the best on the test set, as the paper does, and an honest one.

    The second needs runs that scored training rows held out of training; see `Run.selection`.
    """
    found = []
    for rows in families(table):
        found.append(Choice(max(rows, key=_by_test), len(rows), "test"))
        if all(run.selection is not None for row in rows for run in row.group.runs):
            found.append(Choice(max(rows, key=_by_held_out), len(rows), "held-out"))
    return found


def caveats(table: Table) -> list[str]:
    """What a reader must know about the best of several ρ."""
    found = choices(table)
    if not found:
        return []
    said = (
        "A best ρ chosen on the test set, as in the paper's first table, is the largest of several noisy numbers: it "
        "is too good by construction, so it has no interval and no p."
    )
    if any(choice.how == "held-out" for choice in found):
        return [said]
    return [f"{said} These runs scored no held-out training rows, so no choice without the test set can be shown."]


def families(table: Table) -> list[list[Row]]:
    """Rows with ODEDM that differ in ρ alone, at least two of them; DAC may go along, as it does in the paper."""
    found: list[list[Row]] = []
    for rows in _split(table.rows, TUNED):
        if len({_share(row.group) for row in rows}) == len(rows):
            found.append(rows)
        else:  # several settings of DAC for one ρ: that is a sweep of its own
            found += _split(rows, SHARE)
    return [rows for rows in found if len(rows) > 1 and len({_share(row.group) for row in rows}) == len(rows)]


def _split(rows: Sequence[Row], free: Sequence[str]) -> list[list[Row]]:
    """Rows with ODEDM by everything but the free settings."""
    found: dict[str, list[Row]] = {}
    for row in rows:
        if row.group.memory == "odedm":
            key = canonical({name: value for name, value in row.group.settings.items() if name not in free})
            found.setdefault(key, []).append(row)
    return list(found.values())


def _share(group: Group) -> str:
    rho = group.settings.get("memory.rho")
    return f"k={group.settings.get('memory.k')}" if rho is None else f"ρ={rho:g}"


def _by_test(row: Row) -> float:
    return row.values[ACC_LAST.key].mean


def _by_held_out(row: Row) -> float:
    scores = [run.selection for run in row.group.runs if run.selection is not None]
    return sum(scores) / len(scores)
