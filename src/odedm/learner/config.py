"""A learner's settings: checked, with every default that does not depend on its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import numpy as np
import torch

from odedm.core.choices import VIEWS
from odedm.core.errors import UsageError, short_repr
from odedm.core.options import with_keyword
from odedm.core.registry import METHODS, OPTIMIZERS, RETRIEVALS, SCHEDULES
from odedm.core.validators import Choice, Float, Int, NamedValues, WordOr
from odedm.learner.endless_memory import settle_memory
from odedm.memory.settings import MemorySettings, Reservoir
from odedm.methods.base import Method
from odedm.methods.class_statistics import StatisticsMethod
from odedm.methods.rotation_task import TURNED
from odedm.stream.augment import Transform
from odedm.training.experiment import AverageLength, Experiment, OptimizerOptions
from odedm.training.preparation import resolve
from odedm.training.tricks import decay_of

ROWS = 200
"""The capacity of a learner's memory unless one is given."""
ENDING = ("linear", "cosine")
MOST_THREADS, MOST_UPDATES, MOST_DRAWN = 1024, 1000, 1 << 20
"""What no learner can make use of: files come from anyone."""
RATE = 0.06
"""The learning rate of plain SGD, where the method has none of its own."""
AUTO = "auto"
OF_EXPERIMENT = ("batch", "seed", "device", "precision", "stream_loss", "views", "clip_norm")
"""Parameters that are settings of an experiment as they are."""
TABLES = ("options", "net_options", "retrieval_options", "optimizer_options")
NAMES = {"optimizer": OPTIMIZERS, "retrieval": RETRIEVALS, "schedule": SCHEDULES}
"""Parameters that must be names, which a file can hold; `odedm.register` gives code one."""


@dataclass(frozen=True)
class LearnerConfig:
    """What a learner is built from: its engine's settings, and what is for learners alone."""

    plan: Experiment
    policy: str
    net: Any
    net_options: Mapping[str, Any]
    scaling: Any
    paced: bool
    """Whether the number of updates follows from the number of rows."""

    @property
    def memory(self) -> MemorySettings:
        """The memory's settings."""
        return cast(MemorySettings, self.plan.memory)  # `settle_memory` takes no other

    @classmethod
    def of(cls, parameters: Mapping[str, Any]) -> LearnerConfig:
        """Return what a learner's parameters come to, or refuse them."""
        entry = METHODS[Choice("method", METHODS).validate("method", parameters["method"])]
        method: type[Method] = entry.load()
        _check_method(method, entry.title or method.__name__)
        default = Reservoir(0) if "no memory" in method.requires else ROWS
        memory = default if parameters["memory"] is None else parameters["memory"]
        memory, policy = settle_memory(memory, method.policy)
        scaling = parameters["scaling"]
        if not isinstance(scaling, Transform | None) and not (isinstance(scaling, str) and scaling == "auto"):
            raise UsageError(
                "scaling must be 'auto', None or a Transform such as a data set's `transform`; "
                f"{short_repr(scaling)} was given."
            )
        if not method.scales_rows and isinstance(scaling, str):
            scaling = None
        tables = {name: _table(name, parameters[name]) for name in TABLES}
        updates = WordOr(AUTO, Int(1, MOST_UPDATES)).validate("updates", parameters["updates"])
        draw, average = parameters["draw"], parameters["weight_average"]
        names: dict[str, Any] = {name: _name(name, parameters[name]) for name in NAMES}
        plan = Experiment(
            memory,
            parameters["method"],
            with_keyword("options", tables["options"], "lr", _rate(method, parameters)),
            replay_batch=None if draw is None else Int(1, MOST_DRAWN).validate("draw", draw),
            warmup=Int(0).validate("warmup", parameters["warmup"]) or None,
            retrieval_options=tables["retrieval_options"],
            optimizer_options=tables["optimizer_options"] or None,
            updates=1 if updates == AUTO else updates,
            predict=parameters["predict_by"],
            weight_average=average and decay_of(AverageLength(0).validate("weight_average", average)),
            **{name: parameters[name] for name in OF_EXPERIMENT},
            **names,
        )
        if TURNED.get(plan.views):
            raise UsageError(
                f"The views '{plan.views}' have outputs for each class from the start, and a learner's classes join on "
                f"the way. Give one of {', '.join(name for name in VIEWS if not TURNED.get(name))}."
            )
        net = (
            method.default_net
            if isinstance(parameters["net"], str) and parameters["net"] == "auto"
            else parameters["net"]
        )
        paced = updates == AUTO and not issubclass(method, StatisticsMethod)  # those count each row once
        return cls(resolve(plan), policy, net, tables["net_options"], scaling, paced)


def _rate(method: type[Method], parameters: Mapping[str, Any]) -> float | None:
    """Return the learning rate that was given or that is a learner's default; None for the method's own."""
    if parameters["lr"] is not None:
        rate: float = Float().validate("lr", parameters["lr"])
        return rate
    is_own = method.lr != Method.lr or "lr" in (parameters["options"] or {}) or parameters["optimizer"] != "sgd"
    return None if is_own else RATE


def plain(value: Any) -> Any:
    """Return a value as JSON holds it: searches for parameters give numbers of numpy's, a device may be torch's."""
    if isinstance(value, Mapping):
        return {name: plain(entry) for name, entry in value.items()}
    if isinstance(value, torch.device):
        return value.type
    return value.item() if isinstance(value, np.generic) else value


def _table(name: str, values: Any) -> dict[str, Any]:
    validator = OptimizerOptions() if name == "optimizer_options" else NamedValues()
    table: dict[str, Any] = validator.validate(name, {} if values is None else plain(values))
    return table


def _check_method(method: type[Method], title: str) -> None:
    if "borders" in method.requires:
        requires = {name: entry.load().requires for name, entry in METHODS.items()}
        free = ", ".join(name for name, needs in requires.items() if "borders" not in needs)
        raise UsageError(
            f"{title} must be told where tasks begin and end, and a learner's stream has no borders. Use "
            f"one of {free}; or odedm.train, which has borders."
        )


def _name(parameter: str, value: Any) -> str:
    """Return the name of a part; of schedules not those that end with the stream, for a learner's has no end."""
    table = NAMES[parameter]
    if not isinstance(value, str):
        raise UsageError(
            f"A learner's {parameter} must be a name, one of {', '.join(table)}; {short_repr(value)} was given. "
            "odedm.register gives code of yours a name."
        )
    if parameter == "schedule" and value in ENDING:
        raise UsageError(
            f"The schedule '{value}' falls until the stream ends, and a learner's stream has no end. Give 'constant', "
            "with warmup=… if the rate should rise at first, or a function of the batch's number by its name."
        )
    return Choice(parameter, table).validate(parameter, value)
