"""What to run next of the paper where a card is lent for minutes: steps in an order, most telling first."""

from __future__ import annotations

import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, replace
from importlib.resources import files

from odedm.paper.items import ITEMS, PaperProgress, progress, study_of
from odedm.results.folder import FinishedRun
from odedm.studies.spec import Study


@dataclass(frozen=True)
class Step:
    """A part of a table or figure: its data set, what of it, and how many seeds; all of them unless given."""

    about: str
    item: str
    data: str | None = None
    only: tuple[str, ...] = ()
    seeds: int | None = None

    def study(self) -> Study:
        """Return the step's part of its item's study.

        >>> len(STEPS[0].study().experiments())
        8
        """
        study = study_of(ITEMS[self.item], self.data)
        study = study if self.seeds is None else study.with_seeds(self.seeds)
        return replace(study, only=self.only)

    def progress(self, finished: Mapping[str, FinishedRun]) -> PaperProgress:
        """Return which of its runs are among the finished ones, by signature."""
        return progress(ITEMS[self.item], finished, self.study())


def read_steps(text: str) -> tuple[Step, ...]:
    """Return the steps of a TOML file."""
    tables = tomllib.loads(text)["step"]
    return tuple(Step(**{**table, "only": tuple(table.get("only", ()))}) for table in tables)


STEPS = read_steps(files(__package__).joinpath("next.toml").read_text(encoding="utf-8"))
