"""Choices made without the test set: on training rows of the first tasks that are held out of training.

Test rows and test labels are never read here, and the seeds are others than those of the runs that are reported.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from odedm.execute.job import Work
from odedm.training.experiment import ODEDM
from odedm.training.hold_out import Selection

if TYPE_CHECKING:
    from odedm.results.result import Result


def trial_key(key: str, select: Selection) -> str:
    """The content hash of a trial, from that of the run it stands for."""
    return hashlib.blake2b(f"trial {key} {select.tasks} {select.share!r}".encode(), digest_size=12).hexdigest()


def trials_of(works: Sequence[Work], select: Selection) -> dict[str, list[Work]]:
    """For each configuration (by `configuration`) the trials that score it, one for each seed of the selection."""
    from odedm.study.identity import content_key

    found: dict[str, list[Work]] = {}
    for work in works:
        mark = configuration(work)
        if mark in found:
            continue
        plans = [work.experiment.with_seed(seed) for seed in select.seeds]
        found[mark] = [
            replace(
                work,
                key=trial_key(content_key(plan, work.checksum), select),
                experiment=plan,
                overwrite=False,
                kind="trial",
                select=select,
            )
            for plan in plans
        ]
    return found


def configuration(work: Work) -> str:
    """What work has in common that differs by seed alone."""
    return work.experiment.slug()


def families(works: Sequence[Work]) -> list[Work]:
    """The runs with ODEDM that differ from others in ρ alone; DAC may go along with ρ, as it does in the paper."""
    found: list[Work] = []
    for own in _split(works, with_dac=False):
        whole = [own] if _one_each(own) else _split(own, with_dac=True)  # several DAC for one ρ: a sweep of its own
        found += [work for part in whole if _one_each(part) and len(_shares(part)) > 1 for work in part]
    return found


def _split(works: Sequence[Work], *, with_dac: bool) -> list[list[Work]]:
    found: dict[str, list[Work]] = {}
    for work in works:
        memory = work.experiment.memory
        if isinstance(memory, ODEDM):
            same = replace(memory, rho=0.0, k=0, dac=memory.dac if with_dac else None)
            found.setdefault(replace(work.experiment, memory=same).slug(), []).append(work)
    return list(found.values())


def _shares(works: Sequence[Work]) -> dict[tuple[Any, Any], set[str]]:
    """The configurations of each share."""
    found: dict[tuple[Any, Any], set[str]] = {}
    for work in works:
        memory = work.experiment.memory
        if isinstance(memory, ODEDM):
            found.setdefault((memory.rho, memory.k), set()).add(configuration(work))
    return found


def _one_each(works: Sequence[Work]) -> bool:
    return all(len(own) == 1 for own in _shares(works).values())


def held_out_score(result: Result, select: Selection, scores: Mapping[str, float]) -> float | None:
    """What a finished run's configuration scored on held-out rows, mean over trials; None unless all are done."""
    from odedm.study.identity import key_of_result

    keys = [trial_key(key_of_result(result, seed), select) for seed in select.seeds]
    return statistics.fmean(scores[key] for key in keys) if all(key in scores for key in keys) else None
