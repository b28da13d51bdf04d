"""`odedm.study`: many runs from Python, each once, and their results side by side."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from odedm.core.errors import UsageError, short_repr
from odedm.execute.backend import ExecutionConfig
from odedm.execute.run_callbacks import LogRuns, RunCallback
from odedm.report.notebook import Results
from odedm.studies.run_store import RunStore
from odedm.studies.runner import StudyRunner, deadline
from odedm.studies.spec import Study, read_to_run, study_from
from odedm.training.loggers import Logger, Loggers, table_row


def study(
    spec: Study | Mapping[str, Any] | str | Path,
    *,
    folder: str | Path | None = None,
    only: Sequence[str] = (),
    seeds: int | None = None,
    workers: int | None = None,
    device: str = "auto",
    threads: int = 1,
    budget: str | None = None,
    retry: bool = False,
    reuse: str = "plugins",
    loggers: Sequence[Logger] = (),
) -> Results:
    """Run every combination of some lists, each once, and give the results; called again it goes on where it stopped.

    Args:
        spec: what a study's TOML file holds, as a mapping or as the path of such a file: settings with a value or a
            list of values, `options` by method, `seeds`, and maybe several tables under `grid`.
        folder: where runs are written; `runs/NAME` unless given. `odedm report FOLDER` reads it, and `odedm study
            FOLDER/study.toml --out FOLDER` goes on with it.
        only: NAME=VALUE,VALUE texts: the others are left out.
        seeds: how many of its own.
        workers: runs side by side, in processes; as many as there are cores for unless given.
        device, threads: where each run computes.
        budget: a time such as "30m", after which what is under way is stored and nothing more started.
        retry: run again what failed before.
        reuse: by what made them finished runs count, a name of `odedm study --reuse`.
        loggers: who is told of every run.

    Returns:
        The finished runs. What failed is in `failures.jsonl` of the folder; where nothing could be finished the first
        failure is raised.

    >>> import tempfile
    >>> spec = {"data": "blobs", "method": "er", "memory": ["native", "odedm"], "capacity": 20, "seeds": 2}
    >>> with tempfile.TemporaryDirectory() as place:
    ...     results = study(spec, folder=place + "/mine", workers=1)
    >>> results
    Results: 4 runs in 2 groups
    """
    whole = _study(spec)
    plan = whole.with_seeds(seeds) if seeds is not None else whole
    plan = replace(plan, only=(*plan.only, *only))
    store = RunStore(Path(folder) if folder is not None else Path("runs") / whole.name)
    runner = StudyRunner(
        store, ExecutionConfig(workers=workers), device, threads, reuse, until=deadline(budget), retry=retry
    )
    planned = runner.plan(plan)
    log = Loggers(loggers)
    with store.opened(whole):
        callbacks: list[RunCallback] = [LogRuns(log)] if log else []
        try:
            status, summary = runner.run(runner.status(planned), planned, callbacks)
            log.on_table([table_row(run.folder.name, run.result) for run in status.done.values()])
        finally:
            log.close()
    if not status.done:
        reason = next(iter(status.failed.values()), None)
        raise UsageError(reason or f"The budget is spent: {len(summary.left)} runs are left. The same call goes on.")
    return Results.of(status.done.values())


def _study(spec: object) -> Study:
    if isinstance(spec, Study):
        return spec
    if isinstance(spec, str | Path):
        return read_to_run(Path(spec))
    if not isinstance(spec, Mapping):
        raise UsageError(f"A study is a mapping, or the path of a TOML file; {short_repr(spec)} was given.")
    try:
        plain = json.loads(json.dumps(dict(spec)))  # tuples are lists, as in a file
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"A study holds names, numbers and lists of these ({error}); give code of your own a name by "
            "odedm.register."
        ) from None
    return study_from(plain)
