"""Brings finished runs together from folders and packed files: each once, and no two that contradict each other."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import chain
from pathlib import Path

from odedm.core.errors import UsageError
from odedm.execute.finished import key_of_result
from odedm.results.folder import FinishedRun
from odedm.results.packed import read_packed, to_line
from odedm.results.result import Result


def deduplicate(runs: Iterable[FinishedRun], *, by_code: bool = True) -> dict[str, FinishedRun]:
    """Return the runs by content hash; of the same run twice one is kept, the same one whatever the order.

    Without `by_code` runs by several versions of code from outside are the same, as in a report: one that does not say
    which version made it gives way to one that does, and two that say different ones are refused.
    """
    by_key: dict[str, FinishedRun] = {}
    for run in runs:
        key = key_of_result(run.result, by_code=by_code)
        other = by_key.setdefault(key, run)
        if other is run:
            continue
        _check_code(other, run)
        if not agree(other.result, run.result):
            raise UsageError(
                f"'{other.folder}' and '{run.folder}' are the same run (content hash {key}) with different results: "
                f"ACC {other.result.acc_last:.6g} ({_origin(other.result)}) and {run.result.acc_last:.6g} "
                f"({_origin(run.result)}). Only one can be right: leave one of the two out."
            )
        by_key[key] = min(other, run, key=_preference)
    return by_key


def read_all(paths: Sequence[Path]) -> dict[str, FinishedRun]:
    """Return every run of some packed files by content hash."""
    return deduplicate(chain.from_iterable(map(read_packed, paths)))


def agree(one: Result, other: Result) -> bool:
    """Return whether two results of one run say the same; how long it took, and who looked on, is no part of that."""
    both = one.anytime, other.anytime
    return (
        (one.class_il, one.task_il, one.class_counts, one.classes)
        == (other.class_il, other.task_il, other.class_counts, other.classes)
    ) and (None in both or both[0] == both[1])


def _check_code(one: FinishedRun, other: FinishedRun) -> None:
    """Refuse two results of one run that say that different code from outside made them."""
    hashes, other_hashes = one.result.code_hashes(), other.result.code_hashes()
    for setting in hashes:
        if hashes[setting] != other_hashes.get(setting, hashes[setting]):
            raise UsageError(
                f"'{one.folder}' and '{other.folder}' are the same run by two versions of the code of its {setting} "
                f"({hashes[setting][:12]} and {other_hashes[setting][:12]}), and a report of one file shows one: leave "
                "one of the two out, or pack the runs of each version into a file of their own."
            )


def _preference(run: FinishedRun) -> tuple[int, bool, str, str]:
    """Return a key that sorts first who says more of its code, then who measured more, then who was finished first."""
    result = run.result
    return -len(result.code_hashes()), result.anytime is None, str(result.provenance.get("finished")), to_line(result)


def _origin(result: Result) -> str:
    made = result.provenance
    return f"commit {str(made.get('commit'))[:12]}, {made.get('device')}"
