"""What the folders given to a report hold: finished runs, and timings of studies."""

from __future__ import annotations

import logging
import os
from collections.abc import Sequence
from pathlib import Path

from odedm.core.errors import UsageError
from odedm.report.load import load
from odedm.report.summary import Table, summarise
from odedm.report.trial_scores import study_of
from odedm.results.result import find
from odedm.study.dac_timing_plan import FILE as TIMINGS
from odedm.study.dac_timing_plan import Measured
from odedm.study.dac_timing_plan import load as load_timings
from odedm.study.ledger import TOML

log = logging.getLogger(__name__)


def gather(paths: Sequence[Path]) -> tuple[Table, list[Measured]]:
    """The runs at or below the paths as a table, and the timings there or in the study that a path belongs to.

    A study that measures times alone has no run, and its table no row; without timings no run is an error.
    """
    timed = find_timings(paths)
    bare = bool(timed) and all(path.exists() for path in paths) and not _any_run(paths)
    return (Table(()) if bare else summarise(load(paths))), timed


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


def _any_run(paths: Sequence[Path]) -> bool:
    try:
        return bool(find(paths))
    except UsageError:
        return False
