"""Many contests at once: every host of a study tuned with ODEDM and without, by equal means, as one list of trials.

`tuning` has one contest; here a study holds many, so that a machine with room for many runs is kept busy by all of
them together.
"""

from __future__ import annotations

import hashlib
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from odedm.core.errors import UsageError
from odedm.execute.job import Job
from odedm.execute.planning import PlannedJobs
from odedm.memory.settings import ODEDM
from odedm.study.balanced_draw import balanced_draw
from odedm.study.grid import Grid, matches_filters, nobody_has
from odedm.study.held_out_trials import check_first_tasks
from odedm.study.reuse import Code
from odedm.study.study import MOST_NAME, Study
from odedm.study.study_runner import StudyRunner
from odedm.study.trials import configuration, trials_of
from odedm.study.tuning import SIDES, Contest, Tried
from odedm.training.experiment import Experiment, content_key
from odedm.training.hold_out import Selection

TUNED = "-tuned"
"""What the name of a study of choices ends with."""
SYMBOLS = {"rho": "ρ"}
Tries = dict[str, dict[str, list[Grid]]]
"""By host and side, what is tried, each try a grid with one value of everything."""


def candidates_of(study: Study, tries: int | None = None, seed: int = 0) -> Tries:
    """The tries of every host of a study, equally many without and with ODEDM.

    Where a side has more, they are drawn by the seed, so that each value comes if the number allows it. A host is all
    that runs have in common but for the method's options, the memory and the seed: data, method, λ and every other
    setting.

    >>> rates = {"er": {"lr": (0.03, 0.1)}}
    >>> grid = Grid({"method": ("er",), "memory": ("plain", "odedm"), "capacity": (50,)}, rates)
    >>> {host: [len(own) for own in sides.values()] for host, sides in candidates_of(Study("mine", (grid,))).items()}
    {'er on fashion-mini, λ=50': [2, 2]}
    """
    return {host: _equal(host, sides, tries, seed) for host, sides in _combinations(study).items()}


def _combinations(study: Study) -> Tries:
    """All that could be tried."""
    names: dict[str, str] = {}
    found: Tries = {}
    for grid in (one for every in study.grids for one in every.expand()):
        (plan,) = grid.experiments()
        if not matches_filters(plan, study.only):
            continue
        host = names.setdefault(_common(plan), _name(plan, set(names.values())))
        found.setdefault(host, {side: [] for side in SIDES})[_side(plan)].append(grid)
    if not found:
        raise nobody_has(study.name, study.only, (plan for grid in study.grids for plan in grid.experiments()))
    return found


def _common(plan: Experiment) -> str:
    """What both sides of a contest share, as one text."""
    return content_key({**plan.describe(), "memory": plan.memory.capacity, "options": {}, "seed": 0})


def _name(plan: Experiment, taken: set[str]) -> str:
    """A host in words that no other has."""
    imbalance = "" if plan.imbalance == "standard" else f", {plan.imbalance}"
    name = f"{plan.method} on {plan.data}, λ={plan.memory.capacity}{imbalance}"
    return name if name not in taken else f"{name} ({len(taken)})"


def _side(plan: Experiment) -> str:
    return SIDES[isinstance(plan.memory, ODEDM)]


def _equal(host: str, sides: Mapping[str, list[Grid]], tries: int | None, seed: int) -> dict[str, list[Grid]]:
    number = min(map(len, sides.values()))
    if not number:
        missing = next(side for side, own in sides.items() if not own)
        raise UsageError(f"{host}: the study has no run {missing} ODEDM, so there is nothing to compare; add a grid.")
    if tries is not None and tries > number:
        raise UsageError(f"{host}: {tries} tries were asked for, but one side has only {number}; give more.")
    number = number if tries is None else tries
    return {
        side: [own[place] for place in balanced_draw([_values(grid) for grid in own], number, seed)]
        for side, own in sides.items()
    }


def _values(grid: Grid) -> dict[str, str]:
    """What a grid has one value of, by its whole name, in words."""
    return {name: str(value) for name, (value,) in grid.lists().items()}


def _not_tried(every: Tries, drawn: Tries) -> dict[str, dict[str, list[str]]]:
    """By host and side the combinations that were not drawn, in words; sides of which all were are left out."""
    found: dict[str, dict[str, list[str]]] = {}
    for host, sides in every.items():
        for side, own in sides.items():
            taken = {id(grid) for grid in drawn[host][side]}
            left = [grid for grid in own if id(grid) not in taken]
            if left:
                found.setdefault(host, {})[side] = _words(left, own)
    return found


def _words(some: Sequence[Grid], every: Sequence[Grid]) -> list[str]:
    """Some grids by the values in which all of them differ."""
    values = {item for grid in every for item in _values(grid).items()}
    often = Counter(name for name, _ in values)
    found = ({name: own for name, own in _values(grid).items() if often[name] > 1} for grid in some)
    return [", ".join(f"{SYMBOLS.get(name, name.rpartition('.')[2])}={own[name]}" for name in own) for own in found]


@dataclass(frozen=True)
class Contests:
    """The contests of a study's hosts: their trials, and the grid behind each try by the trial's configuration."""

    study: Study
    select: Selection
    hosts: Mapping[str, Contest]
    grids: Mapping[str, Grid]
    not_tried: Mapping[str, Mapping[str, Sequence[str]]] = field(default_factory=dict)
    """By host and side the combinations that were not drawn, in words."""

    @property
    def tuned_name(self) -> str:
        """What the study of choices is called; a long name is cut, so that it is a legal one still."""
        return f"{self.study.name[: MOST_NAME - len(TUNED)]}{TUNED}"

    @property
    def key(self) -> str:
        """A short hash of the trials, which tells a choice among these from one among others."""
        keys = sorted(trial.key for trial in self.to_do({}))
        return hashlib.blake2b(" ".join(keys).encode(), digest_size=4).hexdigest()

    @property
    def trials(self) -> int:
        """How many trials there are in all."""
        return len(self.to_do({}))

    def to_do(self, scores: Mapping[str, float]) -> list[Job]:
        """The trials without a score, host by host, so that of contests cut short the first ones are whole."""
        return [trial for own in self.hosts.values() for trial in own.to_do(scores)]

    def undecided(self, scores: Mapping[str, float], failed: Mapping[str, str]) -> dict[str, int]:
        """Hosts without a choice yet, with the trials that are missing; a try that failed has had its chance.

        A host of which all tries failed on one side has no choice either, and none missing.
        """
        found = {}
        for host, own in self.hosts.items():
            left = [each for each in own.to_do(scores) if each.key not in failed]
            if left or not all(own.tried(scores).values()):
                found[host] = len(left)
        return found

    def tried(self, scores: Mapping[str, float], failed: Mapping[str, str]) -> dict[str, dict[str, list[Tried]]]:
        """By host and side what was tried, the best first; hosts that are undecided are left out."""
        undecided = self.undecided(scores, failed)
        return {host: own.tried(scores) for host, own in self.hosts.items() if host not in undecided}

    def as_study(self, tried: Mapping[str, Mapping[str, Sequence[Tried]]]) -> Study:
        """The best of each side of every decided host, with the seeds that the study has for its runs."""
        best = [own[0].experiment.slug() for sides in tried.values() for own in sides.values()]
        about = "Each side of every host at the constants that it did best with on held-out rows."
        return Study(self.tuned_name, tuple(self.grids[slug] for slug in best), self.study.seeds, about)

    def to_dict(self, scores: Mapping[str, float], failed: Mapping[str, str]) -> dict[str, Any]:
        """Everything that was tried, ready for JSON: what the choices were made by, and which are missing."""
        decided = []
        for host, sides in self.tried(scores, failed).items():
            plan = sides[SIDES[0]][0].experiment
            common = {"data": plan.data, "method": plan.method, "imbalance": plan.imbalance}
            size = {"capacity": plan.memory.capacity, "tries": self.hosts[host].tries}
            own = {side: [each.to_dict() for each in tried] for side, tried in sides.items()}
            decided.append({"host": host, **common, **size, **own})
        return {
            "study": self.study.name,
            "select": asdict(self.select),
            "code": Code.here()._asdict(),
            "contests": decided,
            "undecided": self.undecided(scores, failed),
        }


def contests(
    study: Study, select: Selection, runner: StudyRunner, tries: int | None = None, *, lenient: bool = False
) -> tuple[Contests, PlannedJobs]:
    """The contests of a study, and the jobs that their trials are the trials of; `lenient` as of `plan_jobs`."""
    every = _combinations(study)
    sides = {host: _equal(host, own, tries, seed=0) for host, own in every.items()}
    flat = [(host, side, grid) for host, own in sides.items() for side, grids in own.items() for grid in grids]
    planned = runner.jobs([plan for _, _, grid in flat for plan in grid.experiments()], lenient=lenient)
    if len(planned.jobs) < len(flat):
        raise UsageError(f"Two tries of the study '{study.name}' are the same run; give each once.")
    check_first_tasks(planned.jobs, planned, select)
    jobs: dict[str, dict[str, list[Job]]] = {host: {side: [] for side in SIDES} for host in sides}
    grids = {}
    for (host, side, grid), job in zip(flat, planned.jobs, strict=True):
        jobs[host][side].append(job)
        grids[configuration(job)] = grid
    hosts = {host: Contest({side: trials_of(each, select) for side, each in own.items()}) for host, own in jobs.items()}
    return Contests(study, select, hosts, grids, _not_tried(every, sides)), planned
