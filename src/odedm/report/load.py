"""Reads what a report is about: finished runs, their scores on held-out rows, and timings of studies."""

from __future__ import annotations

import logging
import os
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from odedm.core.errors import UsageError
from odedm.report.summary import Table, summarise
from odedm.results.folder import FinishedRun, find
from odedm.study.dac_timing_plan import FILE as TIMINGS
from odedm.study.dac_timing_plan import Measured
from odedm.study.dac_timing_plan import load as load_timings
from odedm.study.ledger import TOML, TRIALS, Ledger, lines
from odedm.study.study import read
from odedm.study.trials import held_out_score
from odedm.training.experiment import content_key
from odedm.training.hold_out import Selection

ABOVE = 3
"""How far above a run its study's folder lies at most: STUDY/runs/<slug>/seed-N."""

log = logging.getLogger(__name__)


def gather(paths: Sequence[Path]) -> tuple[Table, list[Measured]]:
    """The runs at or below the paths as a table, and the timings there or in the study that a path belongs to.

    A study that measures times alone has no run, and its table no row; without timings no run is an error.
    """
    timed = find_timings(paths)
    bare = bool(timed) and all(path.exists() for path in paths) and not _any_run(paths)
    return (Table(()) if bare else summarise(load(paths))), timed


def load(folders: Sequence[Path]) -> list[FinishedRun]:
    """Every finished run at or below the folders; the same folder given twice counts once.

    Runs of a study come with what their configuration scored on held-out training rows, where its trials are there.
    """
    runs: dict[Path, FinishedRun] = {}
    for folder in find(folders):
        runs.setdefault(folder.resolve(), FinishedRun.load(folder))
    scores = held_out_scores(runs)
    return [replace(run, selection=scores.get(folder)) for folder, run in runs.items()]


def _any_run(paths: Sequence[Path]) -> bool:
    try:
        return bool(find(paths))
    except UsageError:
        return False


def held_out_scores(runs: Mapping[Path, FinishedRun]) -> dict[Path, float]:
    """The score of each run's configuration by the run's folder, for those whose study has scored it."""
    found: dict[Path, float] = {}
    studies: dict[Path, list[Path]] = {}
    for folder in runs:
        study = study_of(folder, TRIALS)
        if study is not None:
            studies.setdefault(study, []).append(folder)
    for study, folders in studies.items():
        select = _selection(study)
        known = Ledger(study).scores() if select else {}
        means = {} if select else _by_configuration(study)
        for folder in folders:
            own = runs[folder].result
            mean = held_out_score(own, select, known) if select else means.get(_configuration(own.experiment))
            if mean is not None:
                found[folder] = mean
    return found


def study_of(folder: Path, file: str) -> Path | None:
    """The nearest folder, this one or above it, that holds such a file of a study."""
    return next((each for each in [folder, *folder.parents[:ABOVE]] if (each / file).is_file()), None)


def _selection(study: Path) -> Selection | None:
    """How the study chooses; trials with other rows held out may lie in the same file."""
    try:
        return read(study / TOML).select
    except UsageError:
        return None


def _by_configuration(study: Path) -> dict[str, float]:
    """Mean scores where trials lie without their study; a seed that was scored twice, on other rows, says nothing."""
    if (study / TOML).is_file():
        return {}
    scores: dict[str, dict[Any, list[float]]] = {}
    for line in lines(study / TRIALS):
        plain, score = line.get("experiment"), line.get("score")
        if isinstance(plain, dict) and isinstance(score, int | float):
            scores.setdefault(_configuration(plain), {}).setdefault(str(plain.get("seed")), []).append(float(score))
    return {
        mark: statistics.fmean(own[0] for own in seeds.values())
        for mark, seeds in scores.items()
        if all(len(own) == 1 for own in seeds.values())
    }


def _configuration(plain: Mapping[str, Any]) -> str:
    """What runs have in common that differ by seed alone."""
    return content_key({**plain, "seed": None})


def find_timings(paths: Sequence[Path]) -> list[Measured]:
    """The timings of every study at, below or just above the paths, each once, by folder."""
    places: set[Path] = set()
    for path in paths:
        whole = path.resolve()
        study = study_of(whole, TOML)
        if study is not None and (study / TIMINGS).is_file():
            places.add(study)
        for folder, below, files in os.walk(whole):
            below[:] = [each for each in below if not each.startswith(".")]
            if TIMINGS in files and TOML in files:  # other programs have files of this name too
                places.add(Path(folder))
    found = [_timings(place) for place in sorted(places)]
    return [each for each in found if each is not None and each.timings]


def _timings(study: Path) -> Measured | None:
    """A study's timings; a warning where they are not sound, for everything else can be shown."""
    try:
        return load_timings(study)
    except UsageError as error:
        log.warning("%s", error)
        return None
