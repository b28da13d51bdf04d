"""Tuning: every base method of a study with ODEDM and without, by equally many tries on held-out training rows.

A try is one configuration; its runs are ordinary runs with the settings `validation` and `first_tasks`, which resume,
pair and report as any others do. Test rows are never read, and seeds are others than those of the runs that follow.
"""

from __future__ import annotations

import random
import statistics
from collections import Counter
from collections.abc import Hashable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import zip_longest
from typing import Any

from odedm.core.errors import UsageError
from odedm.core.plain_data import flatten
from odedm.core.version import __version__
from odedm.execute.job import Job
from odedm.memory.settings import ODEDM
from odedm.results.folder import FinishedRun
from odedm.studies.grid import Grid, check_filters, matches_filters, nobody_has
from odedm.studies.spec import MOST_NAME, Study, ValidationSplit
from odedm.training.experiment import Experiment, content_key

ARMS = ("without", "with")
TRIALS, TUNED = "-trials", "-tuned"
"""What the names of the study of all tries and of the study of the choices end with."""
Tries = dict[str, dict[str, list[Grid]]]
"""By base method and arm, what is tried, each try a grid with one value of everything."""


@dataclass(frozen=True)
class TrialResult:
    """A configuration and what each of its runs scored on held-out rows, in per cent, by seed."""

    experiment: Experiment
    scores: Mapping[int, float]

    @property
    def mean(self) -> float:
        """Return the mean over seeds, by which is chosen."""
        return statistics.fmean(self.scores.values())

    @property
    def words(self) -> str:
        """Return what was tried, in words."""
        memory = self.experiment.memory
        share = [f"ρ={memory.rho:g}"] if isinstance(memory, ODEDM) and memory.rho is not None else []
        return ", ".join([*share, *(f"{name}={value}" for name, value in self.experiment.options.items())])

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON."""
        return {"mean": self.mean, "scores": [*self.scores.values()], "experiment": self.experiment.describe()}


@dataclass(frozen=True)
class TuningStudy:
    """The tries of a study, by base method: all that runs have in common but the method's options, memory and seed.

    Args:
        study: whose configurations are tried; its seeds are those of the runs that follow.
        split: which rows are held out, and with which seeds.
        tries: what is tried, equally many without and with ODEDM.
    """

    study: Study
    split: ValidationSplit
    tries: Tries

    @classmethod
    def of(cls, study: Study, tries: int | None = None, seed: int = 0) -> TuningStudy:
        """Return the tries of a study, drawn by the seed where an arm has more than `tries` or than the other has.

        >>> rates = {"options.er.lr": (0.03, 0.1)}
        >>> grid = Grid({"method": ("er",), "memory": ("native", "odedm"), "capacity": (50,), **rates})
        >>> tuning = TuningStudy.of(Study("mine", (grid,)))
        >>> {base: [len(grids) for grids in arms.values()] for base, arms in tuning.tries.items()}
        {'er on fashion-mini, λ=50': [2, 2]}
        """
        drawn = {base: _equal(base, arms, tries, seed) for base, arms in _combinations(study).items()}
        return cls(study, study.tune or ValidationSplit(), drawn)

    @property
    def trials(self) -> Study:
        """Return all tries as a study, whose runs are validated."""
        grids = tuple(self._validated(grid) for _, _, grid in self._flat())
        name = f"{self.study.name[: MOST_NAME - len(TRIALS)]}{TRIALS}"
        return Study(name, grids, self.split.seeds, "Tries, scored on held-out training rows.")

    def _validated(self, grid: Grid) -> Grid:
        tasks = {} if self.split.first_tasks is None else {"first_tasks": (self.split.first_tasks,)}
        return replace(grid, axes={**grid.axes, "validation": (self.split.validation,), **tasks})

    def _flat(self) -> list[tuple[str, str, Grid]]:
        """Return every try with its base method and arm: one base method after the other, the arms taking turns."""
        flat = []
        for base, arms in self.tries.items():
            turns = zip_longest(*([(base, arm, grid) for grid in grids] for arm, grids in arms.items()))
            flat += [entry for turn in turns for entry in turn if entry is not None]
        return flat

    def experiments(self) -> list[Experiment]:
        """Return the runs of all tries, base method by base method, so that those cut short have whole ones."""
        plans = [plan for _, _, grid in self._flat() for plan in self._validated(grid).experiments()]
        return [plan.with_seed(seed) for plan in plans for seed in self.split.seeds]

    def decided(
        self, jobs: Sequence[Job], done: Mapping[str, FinishedRun], failed: Mapping[str, str]
    ) -> tuple[dict[str, dict[str, list[tuple[TrialResult, Grid]]]], dict[str, int]]:
        """Return by base method and arm what was tried, the best first, and how many runs the undecided ones miss.

        A try that failed has had its chance. Where all tries of an arm failed nothing is decided, and nothing missing.

        Args:
            jobs: those of `experiments`, in its order.
            done: finished runs by key; `failed` has the sentences of those that failed.
        """
        by_base: dict[str, dict[str, list[tuple[TrialResult, Grid]]]] = {}
        left: Counter[str] = Counter()
        seeds = len(self.split.seeds)
        for place, (base, arm, grid) in enumerate(self._flat()):
            runs = jobs[place * seeds : (place + 1) * seeds]
            results = by_base.setdefault(base, {name: [] for name in ARMS})[arm]
            left[base] += sum(job.key not in done and job.key not in failed for job in runs)
            if all(job.key in done for job in runs):
                scores = {job.experiment.seed: done[job.key].result.acc_last for job in runs}
                results.append((TrialResult(runs[0].experiment, scores), grid))
        whole = {base: arms for base, arms in by_base.items() if not left[base] and all(arms.values())}
        for arms in whole.values():
            for results in arms.values():
                results.sort(key=lambda result: -result[0].mean)
        return whole, {base: left[base] for base in by_base if base not in whole}

    def as_study(self, decided: Mapping[str, Mapping[str, Sequence[tuple[TrialResult, Grid]]]]) -> Study:
        """Return the best of each arm of every base method, with the seeds that the study has for its runs."""
        best = tuple(results[0][1] for arms in decided.values() for results in arms.values())
        tasks = "" if self.split.first_tasks is None else f" of the first {self.split.first_tasks} tasks"
        return Study(
            f"{self.study.name[: MOST_NAME - len(TUNED)]}{TUNED}",
            best,
            self.study.seeds,
            "Each arm of every base method at the constants that it did best with on held-out rows.",
            chosen=f"on {self.split.validation:.0%} of the training rows{tasks}",
        )

    def to_dict(
        self, decided: Mapping[str, Mapping[str, Sequence[tuple[TrialResult, Grid]]]], left: Mapping[str, int]
    ) -> dict[str, Any]:
        """Return everything that was tried, ready for JSON: what the choices were made by, and which are missing."""
        from odedm.results.provenance import commit  # needs torch

        rows = []
        for base, arms in decided.items():
            plan = arms[ARMS[0]][0][0].experiment
            row: dict[str, Any] = {"base": base, "data": plan.data, "method": plan.method, "imbalance": plan.imbalance}
            row |= {"capacity": plan.memory.capacity, "tries": self.tries_of(base)}
            rows.append(row | {arm: [result.to_dict() for result, _ in results] for arm, results in arms.items()})
        split = {**vars(self.split), "seeds": [*self.split.seeds]}
        code = {"version": __version__, "commit": commit()}
        return {"study": self.study.name, "tune": split, "code": code, "tuned": rows, "undecided": dict(left)}

    def tries_of(self, base: str) -> int:
        """Return how many configurations each arm may try."""
        return max(map(len, self.tries[base].values()))


def _combinations(study: Study) -> Tries:
    """Return all that could be tried."""
    names: dict[str, str] = {}
    by_base: Tries = {}
    plans = [(plan, grid) for whole in study.grids for grid in whole.expand() for plan in grid.experiments()]
    check_filters(study.name, study.only, [plan for plan, _ in plans])
    for plan, grid in plans:
        if matches_filters(plan, study.only):
            base = names.setdefault(_common(plan), _name(plan, set(names.values())))
            by_base.setdefault(base, {arm: [] for arm in ARMS})[_arm(plan)].append(grid)
    if not by_base:
        raise nobody_has(study.name, study.only, [plan for plan, _ in plans])
    return by_base


def _common(plan: Experiment) -> str:
    """Return what both arms share, as one text."""
    return content_key({**plan.describe(), "memory": plan.memory.capacity, "options": {}, "seed": 0})


def _name(plan: Experiment, taken: set[str]) -> str:
    """Return a base method in words that no other has."""
    imbalance = "" if plan.imbalance == "standard" else f", {plan.imbalance}"
    name = f"{plan.method} on {plan.data}, λ={plan.memory.capacity}{imbalance}"
    return name if name not in taken else f"{name} ({len(taken)})"


def _arm(plan: Experiment) -> str:
    return ARMS[isinstance(plan.memory, ODEDM)]


def _equal(base: str, arms: Mapping[str, list[Grid]], tries: int | None, seed: int) -> dict[str, list[Grid]]:
    number = min(map(len, arms.values()))
    if not number:
        missing = next(arm for arm, grids in arms.items() if not grids)
        raise UsageError(f"{base}: the study has no run {missing} ODEDM, so there is nothing to compare; add a grid.")
    if tries is not None and tries > number:
        raise UsageError(f"{base}: {tries} tries were asked for, but one arm has only {number}; give more.")
    number = number if tries is None else tries
    return {
        arm: [grids[place] for place in balanced_draw([grid.axes for grid in grids], number, seed)]
        for arm, grids in arms.items()
    }


def balanced_draw(combinations: Sequence[Mapping[str, Hashable]], number: int, seed: int) -> list[int]:
    """Draw the places of `number` combinations by the seed, in their order; all if there are no more.

    One after another is taken that has the most values which none before it has, of these one whose values came least
    often, of these any. So of every product of lists each value comes where `number` is no less than the longest list.

    >>> both = [{"lr": lr, "rho": rho} for rho in (0.25, 0.5) for lr in (0.03, 0.1)]
    >>> drawn = [both[place] for place in balanced_draw(both, 2, seed=0)]
    >>> sorted(values["lr"] for values in drawn), sorted(values["rho"] for values in drawn)
    ([0.03, 0.1], [0.25, 0.5])
    """
    waiting = random.Random(seed).sample(range(len(combinations)), len(combinations))
    seen: Counter[tuple[str, Hashable]] = Counter()

    def repeats(place: int) -> tuple[int, int]:
        counts = [seen[value] for value in combinations[place].items()]
        return sum(map(bool, counts)), sum(counts)

    drawn: list[int] = []
    while waiting and len(drawn) < number:
        place = min(waiting, key=repeats)
        waiting.remove(place)
        drawn.append(place)
        seen.update(combinations[place].items())
    return sorted(drawn)


def differing(results: Sequence[TrialResult]) -> str:
    """Return what was chosen, of all that differs among the tries, of the memory too; all where there is one."""
    best, *others = (flatten(result.experiment.describe()) for result in results)
    settings = {name: value for name, value in best.items() if any(other.get(name) != value for other in others)}
    words = (f"{name.rpartition('.')[2]}={value}" for name, value in settings.items() if name != "seed")
    return ", ".join(words) or results[0].words


def rates_at_an_end(tried: Mapping[str, Sequence[TrialResult]]) -> list[str]:
    """Return a sentence for each arm whose best learning rate is at an end of several: others may lie beyond it."""
    sentences = []
    for arm, results in tried.items():
        rates = [float(result.experiment.options["lr"]) for result in results]
        for end, beyond in ((min(rates), "smaller"), (max(rates), "larger")):
            if rates[0] == end and min(rates) < max(rates):
                sentences.append(
                    f"The best learning rate {arm} ODEDM, {end:g}, is at the end of those tried: a {beyond} one may "
                    "be better. Give some, too, by --lr."
                )
    return sentences
