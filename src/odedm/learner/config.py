"""A learner's settings: checked, with every default that does not depend on its rows."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch

from odedm.core.errors import UsageError, short_repr
from odedm.core.options import with_keyword
from odedm.core.registry import (
    DEVICES,
    METHODS,
    OPTIMIZERS,
    PRECISIONS,
    PREDICTIONS,
    RETRIEVALS,
    SCHEDULES,
    STREAM_LOSSES,
    VIEWS,
)
from odedm.core.validators import Choice, Device, Float, Int
from odedm.learner.endless_memory import settle_memory
from odedm.memory.settings import MemorySettings
from odedm.methods.base import Method
from odedm.methods.rotation_task import TURNED
from odedm.stream.augment import Transform
from odedm.training.average_length import Length, left_after_a_batch
from odedm.training.engine_config import EngineConfig, resolve_device
from odedm.training.tricks import Tricks

ENDING = ("linear", "cosine")
MOST_THREADS, MOST_UPDATES, MOST_DRAWN = 1024, 1000, 1 << 20
"""What no learner can make use of: files come from anyone."""


@dataclass(frozen=True)
class LearnerConfig:
    """What a learner is built from."""

    engine: EngineConfig
    policy: str
    net: Any
    net_options: Mapping[str, Any]
    scaling: Any

    @property
    def memory(self) -> MemorySettings:
        """The memory's settings."""
        return cast(MemorySettings, self.engine.memory)  # `settle_memory` takes no other

    @property
    def precision(self) -> str:
        """What it computes in."""
        return self.engine.precision

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.engine.device

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> LearnerConfig:
        """Return what a learner's parameters come to, or refuse them in a sentence."""
        name = given["method"]
        if isinstance(name, type) and issubclass(name, Method):
            kind: type[Method] = name
            title = kind.__name__
        else:
            entry = METHODS[Choice("method", METHODS).validate("method", name)]
            kind, title = entry.load(), entry.title or name
        if "no memory" in kind.requires:
            raise UsageError(
                f"{title} keeps no rows, and a learner does. Use another method, e.g. 'er'; "
                "with memory=0 that is finetuning on the stream."
            )
        if "borders" in kind.requires:
            requires = {name: entry.load().requires for name, entry in METHODS.items()}
            free = ", ".join(name for name, needs in requires.items() if not needs & {"borders", "no memory"})
            raise UsageError(
                f"{title} must be told where tasks begin and end, and a learner's stream has no borders. Use "
                f"one of {free}; or odedm.train, which has borders."
            )
        word = name if isinstance(name, str) else kind.__name__
        rate = None if given["lr"] is None else Float().validate("lr", given["lr"])
        settled, policy = settle_memory(given["memory"], kind.policy)
        scaling = given["scaling"]
        if not isinstance(scaling, Transform | None) and not (isinstance(scaling, str) and scaling == "auto"):
            raise UsageError(
                "scaling must be 'auto', None or a Transform such as a data set's `transform`; "
                f"{short_repr(scaling)} was given."
            )
        device = resolve_device(Device("device", DEVICES).validate("device", given["device"]))
        config = EngineConfig.resolve(
            kind,
            name=word,
            title=title,
            options=with_keyword("options", _table("options", given["options"]), "lr", rate),
            memory=settled,
            tricks=_tricks(given),
            optimizer=_name("optimizer", OPTIMIZERS, given),
            retrieval=_name("retrieval", RETRIEVALS, given),
            retrieval_options=_table("retrieval_options", given["retrieval_options"]),
            draw=Int(1, MOST_DRAWN).validate("draw", given["batch"] if given["draw"] is None else given["draw"]),
            seed=Int().validate("seed", given["seed"]),
            device=device,
            precision=Choice("precision", PRECISIONS, also=("auto",)).validate("precision", given["precision"]),
            optimizer_options=_table("optimizer_options", given["optimizer_options"]),
            schedule=_schedule(given),
            warmup=Int(0).validate("warmup", given["warmup"]),
            clip_norm=None if given["clip_norm"] is None else Float().validate("clip_norm", given["clip_norm"]),
        )
        return cls(config, policy, given["net"], _table("net_options", given["net_options"]), scaling)


def _table(name: str, given: Any) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(f"{name} must be a table of names and values; {short_repr(given)} was given.")
    return given or {}


def _schedule(given: Mapping[str, Any]) -> str:
    """Return the schedule's name; those that end with the stream are refused, for a learner's stream has no end."""
    name = _name("schedule", SCHEDULES, given)
    if name in ENDING:
        raise UsageError(
            f"The schedule '{name}' falls until the stream ends, and a learner's stream has no end. Give 'constant', "
            "with warmup=… if the rate should rise at first, or a function of the batch's number by its name."
        )
    return name


def _name(what: str, table: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """A part by its name, which a file can hold; code gets one by `odedm.register`."""
    if not isinstance(given[what], str):
        raise UsageError(
            f"A learner's {what} must be a name, one of {', '.join(table)}; {short_repr(given[what])} was given. "
            "odedm.register gives code of yours a name."
        )
    return Choice(what, table).validate(what, given[what])


def _tricks(given: Mapping[str, Any]) -> Tricks:
    """What was asked for beside method and memory; None is the method's own."""
    left, loss, way = given["weight_average"], given["stream_loss"], given["predict_by"]
    views = Choice("views", VIEWS).validate("views", given["views"])
    if TURNED.get(views):
        raise UsageError(
            f"The views '{views}' have outputs for each class from the start, and a learner's classes join on the way. "
            f"Give one of {', '.join(name for name in VIEWS if not TURNED.get(name))}."
        )
    return Tricks(
        Int(1, MOST_UPDATES).validate("updates", given["updates"]),
        None if loss is None else Choice("stream loss", STREAM_LOSSES).validate("stream_loss", loss),
        None if way is None else Choice("prediction", PREDICTIONS).validate("predict_by", way),
        None if left is None else left_after_a_batch(Length().validate("weight_average", left)),
        views,
    )
