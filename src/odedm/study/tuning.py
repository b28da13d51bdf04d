"""A contest of two sides, without ODEDM and with it, that may try equally often, scored on held-out training rows."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from typing import Any

from odedm.execute.job import Job
from odedm.memory.settings import ODEDM
from odedm.training.experiment import Experiment

SIDES = ("without", "with")


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


def rates_at_an_end(tried: Mapping[str, Sequence[Tried]]) -> list[str]:
    """For each side whose best learning rate is the smallest or the largest of several: others may lie beyond it."""
    found = []
    for side, own in tried.items():
        rates = [float(each.experiment.options["lr"]) for each in own]
        for end, beyond in ((min(rates), "smaller"), (max(rates), "larger")):
            if rates[0] == end and min(rates) < max(rates):
                found.append(
                    f"The best learning rate {side} ODEDM, {end:g}, is at the end of those tried: a {beyond} one may "
                    "be better. Give some, too, by --lr."
                )
    return found
