"""A learner as plain data and tensors, and as one file; what comes back is believed only after a look at it."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from odedm.core.errors import InvalidFileError, UsageError, require, short_repr
from odedm.core.files import write_for_user
from odedm.core.row_schema import RowSchema
from odedm.core.tensor_archive import read_archive, write_archive
from odedm.learner.arrivals import Arrivals
from odedm.learner.config import LearnerConfig, plain
from odedm.learner.endless_memory import LearnerEvent
from odedm.learner.fitted import KEPT_EVENTS, Fitted
from odedm.learner.learner_net import named_net
from odedm.learner.online_engine import OnlineEngine
from odedm.learner.saved_parts import (
    MOST_CLASSES,
    check_again,
    check_size,
    label_encoder,
    refusing,
    row_schema,
    transform_of,
    without_weights,
)
from odedm.memory.candidate_pool import ClassReservoirPool
from odedm.memory.live_state import stored
from odedm.memory.settings import memory_from_dict, memory_to_dict
from odedm.stream.augment import Transform
from odedm.training.model_file import STATE, check_finite, engine_state, restore_engine, with_prefix

if TYPE_CHECKING:
    from odedm.learner.online_learner import Learner

SCHEMA = "odedm.learner/8"
OBJECTS = ("method", "net", "trigger")
"""Parameters that may be code, which no file holds."""
TITLES = {"method": "a class", "net": "your own", "trigger": "a function"}


def capture(learner: Learner) -> dict[str, Any]:
    """Return a copy of the whole state: a head of plain values, and all tensors on the CPU."""
    fitted = learner._fitted
    assert fitted is not None
    engine, pool = fitted.engine, fitted.engine.memory.pool
    head, tensors = engine_state(engine, fitted.schema, fitted.labels.classes, engine.stored_parts())
    if isinstance(pool, ClassReservoirPool):
        tensors |= {name: column.detach().cpu().clone() for name, column in stored("candidates", pool.store).items()}
    head |= {
        "schema": SCHEMA,
        "parameters": _plain_parameters(learner),
        "device": engine.device.type,
        "outputs": engine.classes,
        "arrivals": fitted.arrivals.to_dict(),
        "warned": fitted.warned,
        "events": [[event.row, event.what, list(event.labels)] for event in fitted.events],
        "candidates": pool.classes() if pool else [],
    }
    return {"head": head, "tensors": tensors}


def _plain_parameters(learner: Learner) -> dict[str, Any]:
    """Return the parameters as JSON holds them; code is only said to be there."""
    fitted = learner._fitted
    assert fitted is not None
    values = {name: plain(value) for name, value in learner.get_params().items()}
    values |= {name: values[name] if isinstance(values[name], str) else None for name in ("method", "net")}
    values["trigger"] = values["trigger"] is not None
    values["scaling"] = "fixed" if isinstance(learner.scaling, Transform) else learner.scaling
    return values | {"memory": memory_to_dict(fitted.engine.plan.memory)}


def write(state: Mapping[str, Any], path: Path) -> Path:
    """Write one file in safetensors' format, the head as JSON in it, and a checksum over both."""
    try:
        check_finite(state["tensors"])
        json.dumps(state["head"], allow_nan=False)
    except InvalidFileError as error:
        raise UsageError(
            f"This learner cannot be saved: {error}, so training diverged. Go on from the last file that was saved, "
            "with a lower learning rate."
        ) from error
    except (TypeError, ValueError) as error:
        raise UsageError(f"This learner cannot be saved: of its settings, {error}.") from error
    return write_for_user("learner", path, lambda given: write_archive(given, state["head"], state["tensors"]))


def read(path: Path) -> dict[str, Any]:
    """Return the state in a file of anyone's; the tensors are plain numbers, whatever else it is."""
    head, tensors = read_archive(path, SCHEMA, "learner", "Learner.save")
    if not isinstance(head.get("parameters"), dict):
        raise UsageError(f"'{path}' is no learner that can be loaded: its head is not a learner's.")
    return {"head": head, "tensors": tensors}


def parameters(kind: type[Learner], state: Mapping[str, Any], given: Mapping[str, Any]) -> dict[str, Any]:
    """Return the parameters of the learner that a state is of; what no file holds is taken from what was given."""
    values = dict(state["head"]["parameters"])
    for name in given:
        if name not in (*OBJECTS, "device", "threads"):
            raise UsageError(
                f"{name} cannot be given to load: the file has it. net, method, trigger, device and threads can be."
            )
    for name in ("method", "net"):
        check_again(name, values.get(name), given.get(name), TITLES[name], "Learner.load")
    if values.get("trigger"):
        check_again("trigger", None, given.get("trigger"), TITLES["trigger"], "Learner.load")
    with refusing("The saved learner"):
        require(set(values) == set(kind._names()), "its parameters are not those of a learner")
        if values["scaling"] == "fixed":
            values["scaling"] = transform_of(state["head"], state["tensors"])
        values["memory"] = memory_from_dict(values["memory"])
    return values | {"trigger": None} | {name: value for name, value in given.items() if value is not None}


def restored(learner: Learner, state: Mapping[str, Any]) -> Fitted:
    """Return what a state has made of a learner with these parameters."""
    head, tensors = state["head"], dict(state["tensors"])
    with refusing("The saved learner"):
        config, schema, labels = LearnerConfig.of(learner.get_params()), row_schema(head["rows"]), head["labels"]
        config = replace(config, net_options=without_weights(config.net_options))
        encoder, classes = label_encoder(labels), len(labels)
        outputs, arrivals = head["outputs"], Arrivals.from_dict(head["arrivals"], classes)
        require(type(outputs) is int and classes <= outputs <= MOST_CLASSES, "it has more labels than outputs")
        device, saved = config.plan.device, short_repr(head["device"])
        require(device == head["device"], f"it was saved on {saved} and this is '{device}'; give device={saved}")
        engine = _engine(config, schema, outputs, tensors)
        restore_engine(engine, head, tensors, engine.stored_parts(), capacity=config.memory.capacity, classes=classes)
        generators = engine.replay.generators
        sound = isinstance(generators, dict) and all(isinstance(rng, torch.Generator) for rng in generators.values())
        require(sound, "its random generators are malformed")
        events = deque((_event(event) for event in head["events"]), maxlen=KEPT_EVENTS)
        return Fitted(engine, schema, encoder, arrivals, events, bool(head["warned"]))


def _engine(config: LearnerConfig, schema: RowSchema, outputs: int, tensors: Mapping[str, Tensor]) -> OnlineEngine:
    """Return an engine built anew, after what would take more room than the file has numbers is refused."""
    stored_rows = sum(len(tensors[name]) for name in ("host.priority", "candidates.priority") if name in tensors)
    capacity = config.memory.capacity
    require(stored_rows == capacity, f"its memory has {stored_rows} rows of {capacity}")
    net, options = config.net, config.net_options
    if isinstance(net, str):
        net, options = named_net(net, schema.shape, options)
    check_size(net, schema.shape, outputs, options, with_prefix(f"{STATE}method.net.", tensors))
    image = list(tensors["host.image"].shape[1:])
    require(image == list(schema.shape), f"'host.image' is {image} where {list(schema.shape)} is needed")
    engine = OnlineEngine(config, schema, outputs)
    if engine.classes < outputs:
        engine.grow(outputs)
    require(
        engine.classes == outputs,
        f"the net has {engine.classes} outputs and the saved one {outputs}; give one of {outputs} or fewer",
    )
    return engine


def _event(plain: Any) -> LearnerEvent:
    row, what, labels = plain
    require(type(row) is int and isinstance(what, str) and isinstance(labels, list), "its events are malformed")
    return LearnerEvent(row, what[:80], tuple(labels))
