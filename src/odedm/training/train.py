"""`odedm.train`: one run from plain arguments, names, classes and objects alike."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from dataclasses import fields
from typing import Any

from odedm.core.configuration import default_of
from odedm.core.device import enough_memory
from odedm.core.errors import UsageError, unknown
from odedm.data.opening import open_data
from odedm.stream.dataset import Dataset
from odedm.training.experiment import Experiment
from odedm.training.loop import Outcome, Run
from odedm.training.observation import Observation

KEYWORDS = [
    inspect.Parameter(
        own.name, inspect.Parameter.KEYWORD_ONLY, default=default_of(Experiment, own.name), annotation=own.type
    )
    for own in fields(Experiment)
    if own.name != "data"
]
"""An experiment's settings as keywords of `train`."""
OWN = ("evidence", "anytime", "callbacks", "head")
"""Keywords of `train` alone."""


def train(
    data: str | Dataset = "fashion-mini",
    *,
    evidence: bool = False,
    anytime: int = 0,
    callbacks: Sequence[Any] = (),
    head: str | None = None,
    **settings: Any,
) -> Outcome:
    """Train one method with one memory on one stream, from plain arguments.

    Args:
        data: a name, a path, or a `Dataset` (see `odedm.from_arrays`).
        evidence, anytime: what is looked at on the way (see `Observation`); they change no number of the run.
        callbacks: functions of the run, called after each task, or objects with `after_step(run)`, `after_task(run)`
            or `after_run(outcome)`; they run in this process.
        head: the name of the linear layer with which a net from outside ends, where it is not the last one called.
        settings: every setting of an `Experiment` by its name, with the same defaults: memory, method, options, … A
            name may be a class or an object instead: `method=Mine`, `net=nn.Sequential(…)`, `memory=MyPolicy`.

    Returns:
        The outcome: its result, the trained method, the memory as it ended.

    >>> from odedm import Reservoir
    >>> outcome = train("blobs", memory=Reservoir(capacity=20), method="er")
    >>> len(outcome.result.acc)
    5
    >>> from odedm.methods.er import ER
    >>> train("blobs", memory="reservoir", method=ER, optimizer="adamw").result.experiment["method"]
    'er'
    """
    if not isinstance(data, str | Dataset):
        raise UsageError(f"data must be a name or a Dataset (see odedm.from_arrays); {type(data).__name__} was given.")
    known = [each.name for each in KEYWORDS]
    for name in settings:
        if name not in known:
            raise unknown("keyword of train", name, [*known, *OWN])
    given = open_data(data) if isinstance(data, str) else data
    if head is not None:
        settings["net_options"] = {**settings.get("net_options", {}), "head": head}
    with enough_memory():
        return Run(Experiment(data=given.name, **settings), given, Observation(evidence, anytime), callbacks).finish()


def _keywords() -> inspect.Signature:
    """`train` as it is called: an experiment's settings are its keywords."""
    own = inspect.signature(train, eval_str=False)
    plain = [each for name, each in own.parameters.items() if name != "settings"]
    return own.replace(parameters=[*plain, *KEYWORDS])


train.__signature__ = _keywords()  # type: ignore[attr-defined]
