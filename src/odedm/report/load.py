"""Reads what a report is about: finished runs."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from odedm.core.errors import UsageError
from odedm.core.text import LONGEST, printable
from odedm.execute.finished import key_of_result
from odedm.report.summary import Table, summarise
from odedm.report.unfinished import find_unfinished, is_under_way
from odedm.results.folder import FinishedRun, NoRuns, find_runs, load_runs
from odedm.results.packed import is_packed
from odedm.studies.merging import deduplicate, read_all

MOST_FAULTS = 3
"""Damaged runs that a warning names."""
REMEDY = "Make it again by the study's own command, or by its `odedm run` with --overwrite"

log = logging.getLogger(__name__)


def gather(paths: Sequence[Path], baseline: str | None = None) -> Table:
    """Return the runs at or below the paths as a table, which has no row where all of them are still under way."""
    begun = [path for path in paths if not is_under_way(path)]
    try:
        runs, faults = load_sound(begun) if begun else ([], [])
    except NoRuns:
        if not find_unfinished(paths) or not all(path.exists() for path in begun):
            raise
        return Table(())
    return replace(summarise(runs, baseline), faults=tuple(faults)) if runs else Table(())


def load(paths: Sequence[Path]) -> list[FinishedRun]:
    """Return every sound run at or below the folders and in the packed files.

    The same folder given twice counts once, and so does a run that is packed, too. A run that is damaged is left out
    with a warning; where no other is left it is an error.
    """
    runs, faults = load_sound(paths)
    for line in fault_lines(faults, len(runs)):
        log.warning("%s", printable(line, LONGEST))
    return runs


def load_sound(paths: Sequence[Path]) -> tuple[list[FinishedRun], list[str]]:
    """Return what `load` gives, and a sentence for each run that is damaged and left out."""
    packed = [path for path in paths if is_packed(path)]
    folders = [path for path in paths if not is_packed(path)]
    unique = {folder.resolve(): folder for folder in find_runs(folders)} if folders else {}
    runs, damaged = load_runs(unique.values())
    faults = list(damaged.values())
    if packed:
        all_runs = deduplicate([*runs, *read_all(packed).values()])
        loaded_keys = {key_of_result(run.result) for run in runs}
        runs += [run for key, run in all_runs.items() if key not in loaded_keys]
    if faults and not runs:
        raise UsageError(f"{faults[0]} {REMEDY}.")
    return runs, faults


def fault_lines(faults: Sequence[str], runs: int) -> list[str]:
    """Return the first damaged runs beside so many sound ones, how many they are, and what to do; nothing for none.

    >>> fault_lines(["The result 'a' cannot be used."], 19)[1][:43]
    '1 of 20 runs is damaged and left out. Make '
    """
    if not faults:
        return []
    count = f"{len(faults)} of {runs + len(faults)} runs {'is' if len(faults) == 1 else 'are'} damaged and left out"
    named = [f"Left out: {fault}" for fault in faults[:MOST_FAULTS]]
    return [*named, f"{count}. {REMEDY}. `odedm runs verify FOLDER` lists all that is wrong."]
