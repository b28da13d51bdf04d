"""Trials: runs on held-out training rows, by which a choice is made without the test set.

Test rows and test labels are never read here, and the seeds are others than those of the runs that are reported.
"""

from __future__ import annotations

import hashlib
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from odedm.execute.job import Job, RunOptions
from odedm.memory.settings import ODEDM
from odedm.selection.prototype_settings import Prototypes
from odedm.study.reuse import key_of_result
from odedm.training.experiment import content_key
from odedm.training.hold_out import Selection

if TYPE_CHECKING:
    from odedm.results.result import Result


def trial_key(key: str, select: Selection) -> str:
    """The content hash of a trial, from that of the run it stands for."""
    return hashlib.blake2b(f"trial {key} {select.tasks} {select.share!r}".encode(), digest_size=12).hexdigest()


def trials_of(jobs: Sequence[Job], select: Selection) -> dict[str, list[Job]]:
    """For each configuration (by `configuration`) the trials that score it, one for each seed of the selection."""
    found: dict[str, list[Job]] = {}
    for job in jobs:
        if configuration(job) in found:
            continue
        trials = []
        for seed in select.seeds:
            plan = job.experiment.with_seed(seed)
            key = trial_key(content_key(plan.describe(), job.checksum, plan.code_hashes()), select)
            trials.append(replace(job, key=key, experiment=plan, options=RunOptions(), select=select))
        found[configuration(job)] = trials
    return found


def configuration(job: Job) -> str:
    """What jobs have in common that differ by seed alone."""
    return job.experiment.slug()


def families(jobs: Sequence[Job]) -> list[Job]:
    """The runs with ODEDM that differ from others in ρ alone; DAC may go along with ρ, as it does in the paper."""
    found: list[Job] = []
    for own in _split(jobs, with_dac=False):
        whole = [own] if _one_each(own) else _split(own, with_dac=True)  # several DAC for one ρ: a sweep of its own
        found += [job for part in whole if _one_each(part) and len(_shares(part)) > 1 for job in part]
    return found


def _split(jobs: Sequence[Job], *, with_dac: bool) -> list[list[Job]]:
    found: dict[str, list[Job]] = {}
    for job in jobs:
        memory = job.experiment.memory
        if isinstance(memory, ODEDM):
            choice = memory.selection
            if isinstance(choice, Prototypes) and not with_dac:
                choice = replace(choice, dac=None)
            same = replace(memory, rho=0.0, k=0, selection=choice)
            found.setdefault(replace(job.experiment, memory=same).slug(), []).append(job)
    return list(found.values())


def _shares(jobs: Sequence[Job]) -> set[tuple[Any, Any]]:
    memories = (job.experiment.memory for job in jobs)
    return {(memory.rho, memory.k) for memory in memories if isinstance(memory, ODEDM)}


def _one_each(jobs: Sequence[Job]) -> bool:
    """Whether each share has one configuration."""
    return len({configuration(job) for job in jobs}) == len(_shares(jobs))


def held_out_score(result: Result, select: Selection, scores: Mapping[str, float]) -> float | None:
    """What a finished run's configuration scored on held-out rows, mean over trials; None unless all are done."""
    keys = [trial_key(key_of_result(result, seed), select) for seed in select.seeds]
    return statistics.fmean(scores[key] for key in keys) if all(key in scores for key in keys) else None
