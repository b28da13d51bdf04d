"""What a study's trials on held-out training rows say about its runs, found from the runs' folders."""

from __future__ import annotations

import statistics
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odedm.core.errors import UsageError
from odedm.report.wording import canonical
from odedm.results.result import Result
from odedm.study.identity import PACE
from odedm.study.ledger import TOML, TRIALS, Ledger, lines
from odedm.study.study import read
from odedm.study.trials import held_out_score
from odedm.training.hold_out import Selection

ABOVE = 3
"""How far above a run its study's folder lies at most: STUDY/runs/<slug>/seed-N."""


def held_out_scores(results: Mapping[Path, Result]) -> dict[Path, float]:
    """The score of each run's configuration by the run's folder, for those whose study has scored it."""
    found: dict[Path, float] = {}
    studies: dict[Path, list[Path]] = {}
    for folder in results:
        study = study_of(folder, TRIALS)
        if study is not None:
            studies.setdefault(study, []).append(folder)
    for study, folders in studies.items():
        select = _selection(study)
        known = Ledger(study).scores() if select else {}
        means = {} if select else _by_configuration(study)
        for folder in folders:
            own = results[folder]
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
        if isinstance(plain, dict) and isinstance(score, int | float) and isinstance(plain.get("memory"), dict):
            memory = dict(plain["memory"])
            method = {"name": plain.get("method"), **(plain.get("options") or {})}
            moved = {"replay": memory.pop("replay", None), "gamma": memory.pop("gamma", None)}
            own = {**plain, "method": method, "memory": memory, **moved}
            seeds = scores.setdefault(_configuration(own), {})
            seeds.setdefault(plain.get("seed"), []).append(float(score))
    return {
        mark: statistics.fmean(own[0] for own in seeds.values())
        for mark, seeds in scores.items()
        if all(len(own) == 1 for own in seeds.values())
    }


def _configuration(plain: Mapping[str, Any]) -> str:
    """A configuration without its seed and what sets its pace, as one comparable text."""
    return canonical({k: v for k, v in plain.items() if k not in (*PACE, "classes", "options", "seed")})
