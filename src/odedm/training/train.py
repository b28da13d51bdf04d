"""`odedm.train`: one run, or one for each of many seeds, from plain arguments, names, classes and objects alike."""

from __future__ import annotations

import inspect
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import fields
from itertools import islice
from typing import Any, overload

from odedm.core.accel.device import FOR_A_RUN, enough_memory
from odedm.core.configuration import default_of, settings_of
from odedm.core.errors import UsageError, short_repr, unknown_name_error
from odedm.core.options import with_keyword
from odedm.core.validators import Float, Int, NamedValues, refused
from odedm.data.opening import load_dataset
from odedm.memory.settings import ODEDM
from odedm.methods.hyperparameters import check_no_option
from odedm.selection.flat_settings import FLAT
from odedm.stream.dataset import Dataset
from odedm.training.experiment import MOST_SEEDS, Experiment
from odedm.training.loggers import Logger
from odedm.training.observation import Observation
from odedm.training.outcomes import Outcome, Outcomes
from odedm.training.progress_line import ProgressLine, wanted
from odedm.training.run import Run
from odedm.training.training_log import TrainingLog

KEYWORDS = [
    inspect.Parameter(
        field.name, inspect.Parameter.KEYWORD_ONLY, default=default_of(Experiment, field.name), annotation=field.type
    )
    for field in fields(Experiment)
    if field.name != "data"
]
"""An experiment's settings as keywords of `train`."""
OWN = ("seeds", "progress", "lr", "evidence", "anytime", "callbacks", "loggers", "head")
"""Keywords of `train` alone."""


@overload
def train(data: str | Dataset = ..., *, seeds: None = None, **settings: Any) -> Outcome: ...
@overload
def train(data: str | Dataset = ..., *, seeds: int | Iterable[int], **settings: Any) -> Outcomes: ...
def train(
    data: str | Dataset = "fashion-mini",
    *,
    seeds: int | Iterable[int] | None = None,
    progress: bool | None = None,
    lr: float | None = None,
    evidence: bool = False,
    anytime: int = 0,
    callbacks: Sequence[Any] = (),
    loggers: Sequence[Logger] = (),
    head: str | None = None,
    **settings: Any,
) -> Outcome | Outcomes:
    """Train one method with one memory on one stream, for one seed or many, from plain arguments.

    Args:
        data: a name, a path, or a `Dataset` (see `odedm.from_arrays`).
        seeds: how many, from `seed` on as with `odedm run --seeds`, or a list of them. They run one after the other in
            this process, so that objects may be given and every trained model is there; `odedm run` runs them side by
            side.
        progress: whether to show how far it is, on the error stream or in the notebook; unless given, where the error
            stream is a terminal.
        lr: the learning rate, short for options={"lr": …}.
        evidence, anytime: what is looked at on the way (see `Observation`); they change no number of the run.
        callbacks: functions of the run, called after each task, or objects with `after_step(run)`, `after_task(run)`
            or `after_run(outcome)`; they run in this process, and are told of every seed.
        loggers: who is told configuration, loss, learning rate and accuracies, e.g. `odedm.TensorBoard("runs/logs")`;
            see `odedm.Logger`.
        head: the name of the linear layer with which a net from outside ends, where it is not the last one called.
        settings: every setting of an `Experiment` by its name: memory, method, options, … The defaults are those of
            `odedm run`. A name may be a class or an object instead: `method=Mine`, `net=nn.Sequential(…)`,
            `memory=MyPolicy`. A memory's settings belong to it: `memory=ODEDM(100, rho=0.25)`.

    Returns:
        The outcome: its result, the trained method, the memory as it ended. With `seeds` an `Outcomes` of them.

    >>> from odedm import Reservoir
    >>> outcome = train("blobs", memory=Reservoir(capacity=20), method="er")
    >>> len(outcome.result.acc)
    5
    >>> from odedm.methods.er import ER
    >>> two = train("blobs", memory="reservoir", method=ER, optimizer="adamw", lr=0.01, seeds=[3, 5])
    >>> [row["seed"] for row in two.table()]
    [3, 5]
    """
    if not isinstance(data, str | Dataset):
        raise UsageError(f"data must be a name or a Dataset (see odedm.from_arrays); {type(data).__name__} was given.")
    known = [parameter.name for parameter in KEYWORDS]
    for name, value in settings.items():
        if name in settings_of(ODEDM) and name not in known:
            inner = "selection=odedm.Prototypes(…)" if name in FLAT else f"{name}={short_repr(value)}"
            raise UsageError(f"{name} belongs to the memory: memory=odedm.ODEDM({inner}), say.")
        if name not in known:
            check_no_option(settings.get("method", default_of(Experiment, "method")), name, value)
            raise unknown_name_error("keyword of train", name, [*known, *OWN])
    rate = None if lr is None else Float().validate("lr", lr)
    for table, name, value in (("options", "lr", rate), ("net_options", "head", head)):
        before = NamedValues().validate(table, settings.get(table, {}))
        settings[table] = with_keyword(table, before, name, value)
    chosen, shows = _seeds(seeds, settings), wanted(progress)
    given = load_dataset(data) if isinstance(data, str) else data
    plan, observation = Experiment(data=given.name, **settings), Observation(evidence, anytime)
    outcomes: list[Outcome] = []
    log = TrainingLog(loggers)
    with log, ProgressLine(len(chosen or [0]), hidden=not shows) as line:
        for seed in [plan.seed] if chosen is None else chosen:
            try:
                with enough_memory(FOR_A_RUN):
                    run = Run(plan.with_seed(seed), given, observation, callbacks)
                    outcomes.append(log.finish(run, line))
                    line.finished += 1
            except BaseException as error:
                if outcomes:
                    error.add_note(
                        f"This was seed {seed}, after {len(outcomes)} of {len(chosen or ())} were finished. To keep "
                        "those whatever follows, give a callback with after_run(outcome)."
                    )
                raise
    return outcomes[0] if chosen is None else Outcomes(outcomes)


def _seeds(given: Any, settings: Mapping[str, Any]) -> list[int] | None:
    """Return the seeds that were asked for; None where one outcome is wanted and no list.

    >>> _seeds(3, {"seed": 5}), _seeds([4, 0], {}), _seeds(None, {})
    ([5, 6, 7], [4, 0], None)
    """
    if given is None:
        return None
    if isinstance(given, str | Mapping) or not isinstance(given, Iterable):
        first = Int().validate("seed", settings.get("seed", 0))
        return list(range(first, first + Int(1, MOST_SEEDS).validate("seeds", given)))
    if "seed" in settings:
        raise UsageError("seed and a list of seeds were both given; leave out one of them.")
    seeds = [Int().validate("Each of seeds", seed) for seed in islice(given, MOST_SEEDS + 1)]
    if not 0 < len(set(seeds)) == len(seeds) <= MOST_SEEDS:
        raise refused("seeds", f"a number, or a list of at most {MOST_SEEDS} different seeds", seeds)
    return seeds


def _keywords() -> inspect.Signature:
    """`train` as it is called: an experiment's settings are its keywords."""
    signature = inspect.signature(train, eval_str=False)
    plain = [parameter for name, parameter in signature.parameters.items() if name != "settings"]
    return signature.replace(parameters=[*plain, *KEYWORDS])


train.__signature__ = _keywords()  # type: ignore[attr-defined]
