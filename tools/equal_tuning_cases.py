"""What there is of equal tuning, host by host: the paper's numbers, our runs at its constants and at tuned rates."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from odedm.core.errors import UsageError, require
from odedm.core.registry import METHODS, title
from odedm.paper.items import SEED, run_signature
from odedm.paper.printed import published
from odedm.paper.protocol import constants
from odedm.report.published_number import Published
from odedm.report.statistics import Paired, estimate, paired
from odedm.report.wording import format_interval, format_mean, number
from odedm.results.result import Result
from odedm.results.schema import is_numbers
from odedm.studies.spec import Study, ValidationSplit
from odedm.studies.tuning import ARMS, TuningStudy
from odedm.training.experiment import Experiment

WITHOUT, WITH = ARMS


@dataclass
class Arms:
    """Final accuracies by seed, without ODEDM and with it, and the results behind them."""

    scores: dict[str, dict[int, float]] = field(default_factory=lambda: {side: {} for side in ARMS})
    results: list[Result] = field(default_factory=list)

    def change(self) -> Paired | None:
        """With minus without, by seed."""
        return paired(self.scores[WITH], self.scores[WITHOUT])

    def words(self) -> str:
        """Both sides and the change, as a cell."""
        if not self.results:
            return "–"
        both = [format_mean(estimate(own.values())) if own else "–" for own in self.scores.values()]
        found = self.change()
        return " → ".join(both) + ("" if found is None else f", {change_in_words(found)}")


@dataclass(frozen=True)
class Case:
    """A host on a data set: what the paper prints, and our runs at its constants and at tuned rates."""

    host: str
    data: str
    method: str
    capacity: int
    k: int | None
    printed: Mapping[str, Published | None]
    constants: Arms
    tuned: Arms
    tried: Mapping[str, Sequence[Mapping[str, Any]]]
    """By side every try with its held-out scores, the best first; none where nothing is decided."""

    @property
    def title(self) -> str:
        """The method's name."""
        return title(METHODS, self.method)

    @property
    def gain(self) -> float | None:
        """The printed one."""
        without, own = self.printed[WITHOUT], self.printed[WITH]
        return None if without is None or own is None else own.mean - without.mean

    def rate(self, side: str) -> float | None:
        """The learning rate that was chosen."""
        own = self.tried.get(side)
        return float(own[0]["experiment"]["options"]["lr"]) if own else None


def cases(study: Study, tuned: Mapping[str, Any], runs: Iterable[Result]) -> list[Case]:
    """Every host of the study, with what there is of it."""
    by_mark: dict[str, dict[int, Result]] = {}
    for result in runs:
        mark, _, seed = run_signature(result.experiment).rpartition(SEED)
        by_mark.setdefault(mark, {}).setdefault(int(seed), result)
    decided = {row["base"]: row for row in tuned.get("tuned", ())}
    found = []
    for base, arms in TuningStudy.of(study).tries.items():
        tried = {side: decided[base][side] for side in ARMS} if base in decided else {}
        plans = {side: [grid.experiments()[0].describe() for grid in own] for side, own in arms.items()}
        plans |= {side: [_whole(row["experiment"]) for row in rows] for side, rows in tried.items()}
        plan, dual = plans[WITHOUT][0], plans[WITH][0]
        place = {"data": plan["data"], "method": plan["method"], "capacity": plan["memory"]["capacity"]}
        k = dual["memory"].get("k")
        rate = constants(place["method"], place["data"], place["capacity"]).get("lr")
        usual, best = Arms(), Arms()
        for side in ARMS:
            for own in plans[side]:
                if own["options"].get("lr") == rate:
                    _fill(usual, side, by_mark, own, lambda seed: seed not in study.seeds)
            if tried:
                _fill(best, side, by_mark, plans[side][0], lambda seed: seed in study.seeds)
        printed = {
            WITHOUT: published("acc_last", memory="native", **place),
            WITH: published("acc_last", memory="odedm", k=k, **place),
        }
        found.append(Case(base, **place, k=k, printed=printed, constants=usual, tuned=best, tried=tried))
    return found


def _whole(experiment: Mapping[str, Any]) -> dict[str, Any]:
    """A try's configuration as the runs have it that follow."""
    return {name: value for name, value in experiment.items() if name not in ("validation", "first_tasks")}


def _fill(
    arms: Arms, side: str, by_mark: Mapping[str, Mapping[int, Result]], plan: Any, wanted: Callable[[int], bool]
) -> None:
    """Put the runs of a plan with the wanted seeds into a side."""
    mark = run_signature(plan).rpartition(SEED)[0]
    for seed, result in sorted(by_mark.get(mark, {}).items()):
        if wanted(seed):
            arms.scores[side][seed] = result.acc_last
            arms.results.append(result)


def read_tuned(path: Path) -> dict[str, Any]:
    """What `odedm tune` wrote about a study; it may come from anyone, so experiments are read as such."""
    try:
        plain = json.loads(path.read_text(encoding="utf-8"))
        require(
            all(isinstance(plain.get(name, {}), dict) for name in ("undecided", "code")),
            "'undecided' or 'code' is no table",
        )
        if "tune" in plain:
            plain["tune"] = asdict(ValidationSplit.from_table(plain["tune"]))
        for row in plain["tuned"]:
            require(isinstance(row["base"], str), "a base method has no name")
            for side in ARMS:
                require(row[side], f"'{row['base'][:80]}' has no try {side} ODEDM")
                for each in row[side]:
                    require(is_numbers([each["mean"]]) and is_numbers(each["scores"]), "a try has no scores")
                    each["experiment"] = Experiment.from_dict(each["experiment"]).describe()
                    require(is_numbers([each["experiment"]["options"]["lr"]]), "a try has no learning rate")
        require("tune" in plain or not plain["tuned"], "'tune' is missing")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UsageError(f"'{path}' is no tuned.json of `odedm tune` with a study: {error!r:.200}.") from error
    return dict(plain)


def change_in_words(change: Paired) -> str:
    """A change with its interval; bold where that leaves zero out.

    >>> change_in_words(paired({0: 3.0, 1: 4.0, 2: 3.5, 3: 2.0, 4: 5.0}, dict.fromkeys(range(5), 0.0)))
    '**+3.5 [2.4, 4.6]**'
    """
    interval = "" if change.interval is None else f" {format_interval(change.interval)}"
    words = f"{number(change.estimate.mean, sign=True)}{interval}"
    return f"**{words}**" if change.clear else words
