"""Reads a kept model's file, which may be anyone's, and builds from it what predicts: network, method, transform.

Nothing in a file is imported. A network or method from outside is one that this process knows by the name in the file,
or that the caller gives as an object.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, fields
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from odedm.checkpoint.state_tree import State
from odedm.core.errors import InvalidFileError, UsageError, require, short_repr
from odedm.core.plugins import check_name
from odedm.core.registry import DEVICES, METHODS, NETS, PRECISIONS
from odedm.core.rng import generator
from odedm.core.row_schema import RowSchema
from odedm.core.rows import Rows
from odedm.core.tensor_archive import read_archive
from odedm.core.validators import Choice, Device, Int
from odedm.learner.label_encoder import LabelEncoder
from odedm.learner.online_engine import fixed
from odedm.learner.restore import MOST_CLASSES, stored_labels, stored_schema
from odedm.methods.base import Method
from odedm.methods.hyperparameters import configure
from odedm.nets.build import build, build_on_meta
from odedm.nets.build import configure as configure_net
from odedm.results.folder import MODEL_FILE, find_run
from odedm.results.result import Result
from odedm.stream.augment import Transform
from odedm.training.engine_config import resolve_device, resolve_precision
from odedm.training.model_file import MEMORY, MODEL_SCHEMA, STATE, VIEWS
from odedm.training.model_state import ModelState
from odedm.training.model_view import MethodView
from odedm.training.numerics import deterministic_numerics, set_precision
from odedm.training.tricks import Tricks, apply_tricks, by_nearest_mean

COLUMNS = ("image", "label", "index", "prototype", "order", "key")
"""What every stored row has, beside what its method keeps of it."""


@dataclass(frozen=True)
class SavedModel:
    """A file's content, checked and built."""

    result: Result
    schema: RowSchema
    labels: LabelEncoder
    probe: MethodView
    rows: Rows
    """The memory's rows, on the CPU."""
    seen: int
    net: str
    """The network's name in this process."""
    net_options: Mapping[str, Any]
    device: torch.device
    threads: int
    precision: str


def find_model(path: Path) -> Path:
    """The model's file: the path itself, or the one in a run's folder, which may be the only one in another."""
    if not path.is_dir():
        return path
    if not (path / MODEL_FILE).exists():
        path = find_run(path)
    if not (path / MODEL_FILE).exists():
        raise UsageError(
            f"There is no {MODEL_FILE} in '{path}': the run was made without its model. Make it again with "
            "`odedm run … --keep-model --overwrite`, in Python by outcome.save, or give another folder or file."
        )
    return path / MODEL_FILE


def read_model(path: Path, *, net: Any, method: Any, device: Any, threads: int | None) -> SavedModel:
    """The model in a file of anyone's, or a sentence on what is wrong with it."""
    head, tensors = read_archive(path, MODEL_SCHEMA, "model", "outcome.save or --keep-model")
    where = resolve_device(Device("device", DEVICES).validate("device", device))
    asked = None if threads is None else Int(1).validate("threads", threads)
    try:
        return _built(head, tensors, (net, method), where, asked)
    except InvalidFileError as error:
        raise UsageError(f"The model '{path}' cannot be used: {error}.") from error
    except UsageError:
        raise
    except (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError, ArithmeticError) as error:
        raise UsageError(f"The model '{path}' cannot be used: {short_repr(str(error), 200)}.") from error


def _built(
    head: dict[str, Any], tensors: dict[str, Tensor], given: tuple[Any, Any], device: torch.device, threads: int | None
) -> SavedModel:
    result = Result.from_dict(head["result"], "the model's result")
    plan, classes = result.experiment, len(result.classes)
    schema = stored_schema([head["shape"], head["dtype"], None])
    labels = stored_labels(head["labels"])
    require(len(labels.classes) == classes <= MOST_CLASSES, "it has not one label for each class")
    net, kind, net_options, options = _parts(result, schema, given, tensors)
    precision = Choice("precision", PRECISIONS).validate("precision", plan["precision"])
    if plan["device"] != device.type:  # of another kind of device, which computes in its own way
        precision = resolve_precision("auto", device, second_order="second order" in kind.requires)
    tricks = Tricks(**{field.name: plan[field.name] for field in fields(Tricks)})
    draw = Int(1, MOST_CLASSES).validate("replay_batch", plan["replay_batch"])
    threads = threads or min(Int(1).validate("threads", plan["threads"]), os.cpu_count() or 1)
    transform = _transform(head["views"], tensors, schema).to(device)
    rng = partial(generator, Int(0).validate("seed", plan["seed"]), device=device)
    with deterministic_numerics(threads, precision):
        network = build(net, schema.shape, classes, seed=plan["seed"], options=net_options)
        network = set_precision(network.to(device), precision, second_order="second order" in kind.requires)
        method: Method = kind(net=network, draw=draw, rng=rng, **options)
        apply_tricks(tricks, method)
        ModelState.put_back(method, State(_of(STATE, tensors), head["state"]))
        network.eval()
        rows = _rows(_of(MEMORY, tensors), schema, classes)
        stored = partial(_on, device, rows) if by_nearest_mean(plan.get("predict"), kind) else None
        probe = MethodView(method, transform, stored)
        _try(probe, schema, classes, device)
    seen = head["seen"]
    require(type(seen) is int and 0 <= seen < 1 << 53, "it does not say how many rows it has seen")
    return SavedModel(result, schema, labels, probe, rows, seen, net, net_options, device, threads, precision)


def _on(device: torch.device, rows: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name: rows[name].to(device) for name in ("image", "label", "index")}


def _of(prefix: str, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): each for name, each in tensors.items() if name.startswith(prefix)}


def _parts(
    result: Result, schema: RowSchema, given: tuple[Any, Any], tensors: Mapping[str, Tensor]
) -> tuple[str, type[Method], dict[str, Any], dict[str, Any]]:
    """The network's name and the method's class with the options of both."""
    plan = result.experiment
    net, method = _name("net", result, given[0], NETS), _name("method", result, given[1], METHODS)
    kind: type[Method] = METHODS[method].load()
    require(
        isinstance(plan["options"], dict) and isinstance(plan["net_options"], dict),
        "its options are no tables of names and values",
    )
    options = configure(method, kind, plan["options"])
    # a path to pretrained weights would be another's word on which file to read; the model has its own
    own = {name: value for name, value in plan["net_options"].items() if name != "weights"}
    net_options = configure_net(net, schema.shape, len(result.classes), own)
    planned = build_on_meta(net, schema.shape, len(result.classes), net_options)
    wanted = sum(weight.numel() for weight in planned.parameters())
    held = sum(each.numel() for name, each in _of(STATE, tensors).items() if name.startswith("net."))
    require(wanted <= held, f"its network would have {wanted} weights, and {held} are there")
    return net, kind, net_options, options


def _name(what: str, result: Result, given: Any, table: Mapping[str, Any]) -> str:
    """The name of a part in this process: the file's, or that of what was given in the place of an object."""
    name = result.experiment[what]
    objects = {setting: title for setting, title, importable in result.plugins() if not importable}
    require(isinstance(name, str), f"its {what} has no name")
    if given is None:
        if what in objects and (what == "net" or name not in table):
            raise UsageError(
                f"The model's {what} was {short_repr(objects[what])}, of a script or an object, which no file holds. "
                f"Give it again: odedm.load(path, {what}=…)."
            )
        return check_name(what, name, table)
    if what not in objects:
        raise UsageError(f"The file names its {what} ('{short_repr(name)}'); leave {what} out.")
    return Choice(what, table).validate(what, given)


def _transform(views: Any, tensors: Mapping[str, Tensor], schema: RowSchema) -> Transform:
    shift, scale = (tensors.get(f"{VIEWS}{name}") for name in ("shift", "scale"))
    fine = isinstance(views, list) and len(views) == 2 and type(views[0]) is int and 0 <= views[0] <= 1000
    require(fine and type(views[1]) is bool, "its crop and flip settings are malformed")
    require(shift is not None and scale is not None, "its constants are missing")
    assert shift is not None
    assert scale is not None
    for each in (shift, scale):
        require(
            each.dtype == torch.float32 and bool(each.isfinite().all()),
            "the constants that scale its rows are not finite numbers",
        )
    return fixed(Transform(shift, scale, views[0], views[1]), schema)


def _try(probe: MethodView, schema: RowSchema, classes: int, device: torch.device) -> None:
    """Predict a row of zeros: a state that does not fit shows itself here, not in the middle of someone's work."""
    try:
        scores = probe.predict(torch.zeros(1, *schema.shape, dtype=schema.dtype, device=device))
        require(scores.shape == (1, classes) and scores.is_floating_point(), "its outputs are not one for each class")
    except UsageError:
        raise
    except Exception as error:  # a method of anyone's may raise what it likes
        raise InvalidFileError(f"it does not predict ({short_repr(str(error), 160)})") from error


def _rows(rows: Rows, schema: RowSchema, classes: int) -> Rows:
    require(all(name in rows for name in COLUMNS), "its memory lacks a column")
    amount = len(rows["label"]) if rows["label"].dim() == 1 else -1
    require(all(each.dim() and len(each) == amount for each in rows.values()), "its memory's columns differ in length")
    whole = all(rows[name].dtype == torch.int64 and rows[name].dim() == 1 for name in COLUMNS[1:-1])
    image = tuple(rows["image"].shape[1:]) == schema.shape and rows["image"].dtype == schema.dtype
    require(whole and image and rows["key"].dtype == torch.float64, "its memory's columns are of another kind")
    fine = bool(((rows["label"] >= 0) & (rows["label"] < classes)).all())
    require(fine, "its memory has rows of no class")
    return rows
