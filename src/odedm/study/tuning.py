"""Tunes by equal means: as many tries with ODEDM as without, scored on held-out training rows."""

from __future__ import annotations

import random
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from odedm.core.errors import UsageError
from odedm.execute.job import Job
from odedm.execute.planning import PlannedJobs
from odedm.memory.settings import ODEDM
from odedm.study.grid import Grid
from odedm.study.session import Session
from odedm.study.study import Study
from odedm.study.trials import trials_of
from odedm.training.experiment import Experiment
from odedm.training.hold_out import Selection

SIDES = ("without", "with")


def candidates(plain: Grid, dual: Grid, tries: int | None = None, seed: int = 0) -> dict[str, list[Experiment]]:
    """Equally many tries without and with ODEDM, drawn by the seed where one side has more to try.

    >>> rates = {"er": {"lr": (0.03, 0.1, 0.3)}}
    >>> few = Grid({"method": ("er",), "memory": ("plain",), "capacity": (50,)}, rates)
    >>> many = Grid({"method": ("er",), "memory": ("odedm",), "capacity": (50,), "rho": (0.25, 0.5)}, rates)
    >>> {side: len(plans) for side, plans in candidates(few, many).items()}
    {'without': 3, 'with': 3}
    """
    sides = dict(zip(SIDES, (plain.experiments(), dual.experiments()), strict=True))
    number = min(len(plans) for plans in sides.values())
    if tries is not None:
        if tries > number:
            raise UsageError(f"{tries} tries were asked for, but one side has only {number} combinations; give more.")
        number = tries
    return {side: _drawn(plans, number, seed) for side, plans in sides.items()}


def _drawn(plans: Sequence[Experiment], number: int, seed: int) -> list[Experiment]:
    return [plans[place] for place in sorted(random.Random(seed).sample(range(len(plans)), number))]


@dataclass(frozen=True)
class Tried:
    """A configuration and what each of its trials scored, in per cent."""

    experiment: Experiment
    scores: tuple[float, ...]

    @property
    def mean(self) -> float:
        """The mean over seeds, by which is chosen."""
        return statistics.fmean(self.scores)

    @property
    def words(self) -> str:
        """What was tried, in words."""
        memory = self.experiment.memory
        share = [f"ρ={memory.rho:g}"] if isinstance(memory, ODEDM) and memory.rho is not None else []
        return ", ".join([*share, *(f"{name}={value}" for name, value in self.experiment.options.items())])

    def to_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        return {"mean": self.mean, "scores": list(self.scores), "experiment": self.experiment.describe()}


@dataclass(frozen=True)
class Contest:
    """The trials of every candidate, side by side."""

    sides: Mapping[str, Mapping[str, Sequence[Job]]]

    @property
    def tries(self) -> int:
        """How many configurations each side may try."""
        return max(len(own) for own in self.sides.values())

    def to_do(self, scores: Mapping[str, float]) -> list[Job]:
        """The trials without a score, the sides taking turns, so that a contest cut short is cut on both."""
        piles = ([trial for own in side.values() for trial in own] for side in self.sides.values())
        turns = [trial for turn in zip_longest(*piles) for trial in turn if trial is not None]
        return [trial for trial in turns if trial.key not in scores]

    def tried(self, scores: Mapping[str, float]) -> dict[str, list[Tried]]:
        """Every candidate whose trials are all done, the best first; of equal ones the earlier."""
        found: dict[str, list[Tried]] = {}
        for side, own in self.sides.items():
            whole = [trials for trials in own.values() if all(trial.key in scores for trial in trials)]
            tried = [Tried(each[0].experiment, tuple(scores[trial.key] for trial in each)) for each in whole]
            found[side] = sorted(tried, key=lambda each: -each.mean)
        return found


def contest(
    sides: Mapping[str, Sequence[Experiment]], select: Selection, session: Session
) -> tuple[Contest, PlannedJobs]:
    """The trials that decide among the candidates, and the jobs that they are the trials of."""
    found: dict[str, dict[str, list[Job]]] = {}
    every = PlannedJobs([])
    for side, own in sides.items():
        planned = session.jobs(own)
        found[side] = trials_of(planned.jobs, select)
        every = PlannedJobs([*every.jobs, *planned.jobs], every.data | planned.data)
    return Contest(found), every


def as_study(tried: Mapping[str, Sequence[Tried]], grids: Mapping[str, Grid]) -> Study:
    """The best of each side as a study of its own, at that side's own choice of constants."""
    chosen = []
    for side, own in tried.items():
        plan, axes = own[0].experiment, dict(grids[side].axes)
        names = next(iter(grids[side].options.values()), {})
        if isinstance(plan.memory, ODEDM) and plan.memory.rho is not None:
            axes["rho"] = (plan.memory.rho,)
        chosen.append(Grid(axes, {plan.method: {name: (plan.options[name],) for name in names}}))
    return Study("tuned", tuple(chosen), about="Each side at the constants that it did best with on held-out rows.")
