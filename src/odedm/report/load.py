"""Reads what a report is about: finished runs and their scores on held-out rows."""

from __future__ import annotations

import logging
import math
import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any

from odedm.core.errors import UsageError
from odedm.core.text import LONGEST, printable
from odedm.report.summary import Table, summarise
from odedm.report.unfinished import find_unfinished, is_under_way
from odedm.results.folder import FinishedRun, NoRuns, find_runs, load_runs
from odedm.results.packed import is_packed
from odedm.results.result import Result
from odedm.results.schema import is_numbers
from odedm.study.merging import deduplicate, read_all
from odedm.study.reuse import key_of_result
from odedm.study.run_store import TOML, TRIALS, RunStore, lines
from odedm.study.study import read
from odedm.study.trials import held_out_score
from odedm.training.experiment import content_key

ABOVE = 3
"""How far above a run its study's folder lies at most: STUDY/runs/<slug>/seed-N."""

MOST_FAULTS = 3
"""Damaged runs that a warning names."""

AGAIN = "by the study's own command, or by its `odedm run` with --overwrite"
"""How a damaged run is replaced: a study sees by itself that it is."""

log = logging.getLogger(__name__)


def gather(paths: Sequence[Path], baseline: str | None = None) -> Table:
    """The runs at or below the paths as a table, which has no row where all of them are still under way."""
    there = [path for path in paths if not is_under_way(path)]
    try:
        runs, faults = load_sound(there) if there else ([], [])
    except NoRuns:
        if not find_unfinished(paths) or not all(path.exists() for path in there):
            raise
        runs, faults = [], []
    if not runs:
        return Table(())
    return replace(summarise(runs, baseline), faults=tuple(faults))


def load(paths: Sequence[Path]) -> list[FinishedRun]:
    """Every sound run at or below the folders and in the packed files.

    The same folder given twice counts once, and so does a run that is packed, too. Runs of a study come with what their
    configuration scored on held-out training rows, where its trials are there. A run that is damaged is left out with a
    warning; where no other is left it is an error.
    """
    runs, faults = load_sound(paths)
    for line in told_faults(faults, len(runs)):
        log.warning("%s", printable(line, LONGEST))
    return runs


def load_sound(paths: Sequence[Path]) -> tuple[list[FinishedRun], list[str]]:
    """What `load` gives, and a sentence for each run that is damaged and left out."""
    packed = [path for path in paths if is_packed(path)]
    folders = [path for path in paths if not is_packed(path)]
    places = {folder.resolve(): folder for folder in find_runs(folders)} if folders else {}
    loaded, damaged = load_runs(places.values())
    runs, faults = with_scores(loaded), list(damaged.values())
    if packed:
        own = deduplicate([*runs, *read_all(packed).values()])
        here = {key_of_result(run.result) for run in runs}
        runs += [run for key, run in own.items() if key not in here]
    if faults and not runs:
        raise UsageError(f"{faults[0]} Make it again: {AGAIN}.")
    return runs, faults


def told_faults(faults: Sequence[str], runs: int) -> list[str]:
    """The first damaged runs beside so many sound ones, how many they are, and what to do; nothing for none.

    >>> told_faults(["The result 'a' cannot be used."], 19)[1][:42]
    '1 of 20 runs is damaged and left out. Make'
    """
    if not faults:
        return []
    many = f"{len(faults)} of {runs + len(faults)} runs {'is' if len(faults) == 1 else 'are'} damaged and left out"
    again = f"Make {'it' if len(faults) == 1 else 'them'} again: {AGAIN}"
    named = [f"Left out: {fault}" for fault in faults[:MOST_FAULTS]]
    return [*named, f"{many}. {again}. `odedm runs verify FOLDER` lists all that is wrong."]


def with_scores(runs: Iterable[FinishedRun], study: Path | None = None) -> list[FinishedRun]:
    """The runs with what their configuration scored in the trials of the study, or of the one that each lies in."""
    scores = cache(_scores)  # a study's trials are read once
    found = []
    for run in runs:
        place = study or study_of(run.folder.resolve(), TRIALS)
        found.append(run if place is None else replace(run, selection=scores(place)(run.result)))
    return found


def study_of(folder: Path, file: str) -> Path | None:
    """The nearest folder, this one or above it, that holds such a file of a study."""
    return next((each for each in [folder, *folder.parents[:ABOVE]] if (each / file).is_file()), None)


def _scores(study: Path) -> Callable[[Result], float | None]:
    """How a result finds what its configuration scored in the study's trials; None where not all are done.

    The study says how it chooses: trials with other rows held out may lie in the same file.
    """
    try:
        select = read(study / TOML).select
    except UsageError:
        select = None
    if select is not None:
        return partial(held_out_score, select=select, scores=RunStore(study).scores())
    means = {} if (study / TOML).is_file() else _by_configuration(lines(study / TRIALS))
    return lambda result: means.get(_configuration(result.experiment))


def _by_configuration(trials: Sequence[Mapping[str, Any]]) -> dict[str, float]:
    """Mean scores where trials lie without their study; a seed that was scored twice, on other rows, says nothing."""
    scores: dict[str, dict[Any, list[float]]] = {}
    for line in trials:
        plain, score = line.get("experiment"), line.get("score", math.nan)
        if isinstance(plain, dict) and is_numbers([score]):
            scores.setdefault(_configuration(plain), {}).setdefault(str(plain.get("seed")), []).append(float(score))
    return {
        mark: statistics.fmean(own[0] for own in seeds.values())
        for mark, seeds in scores.items()
        if all(len(own) == 1 for own in seeds.values())
    }


def _configuration(plain: Mapping[str, Any]) -> str:
    """What runs have in common that differ by seed alone."""
    return content_key({**plain, "seed": None})
