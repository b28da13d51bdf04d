"""The trained model of a finished run, loaded again: it predicts in the user's labels.

A file may be anyone's, and nothing in it is imported. A network or method from outside is one that this process knows
by the name in the file, or that the caller gives as an object.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from odedm.core.choices import DEVICES
from odedm.core.errors import InvalidFileError, UsageError, require, short_repr
from odedm.core.files import as_path
from odedm.core.plugins import check_name
from odedm.core.registry import METHODS, NETS
from odedm.core.row_schema import RowSchema
from odedm.core.rows import ColumnSpec, MemoryPart, Rows
from odedm.core.tensor_archive import read_archive
from odedm.core.validators import Choice, Device, Int
from odedm.learner.estimator import Classifier, labelled_rows
from odedm.learner.label_encoder import LabelEncoder
from odedm.learner.online_engine import fixed
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
from odedm.memory.buffer import ORDER, PROTOTYPE
from odedm.memory.reservoir import ReservoirBuffer
from odedm.methods.hyperparameters import configure
from odedm.nets.build import build
from odedm.nets.build import configure as configure_net
from odedm.results.folder import MODEL_FILE, find_run
from odedm.results.result import Result
from odedm.results.run_summary import summary_line
from odedm.training.engine import Engine
from odedm.training.experiment import Experiment
from odedm.training.export import export
from odedm.training.model_file import MODEL_SCHEMA, STATE, restore_engine, with_prefix
from odedm.training.numerics import deterministic_numerics
from odedm.training.preparation import resolve_device, resolve_precision

OF_TRAINING: Mapping[str, Any] = {
    "memory": {"name": "none"},
    "transform": "data",
    "optimizer": "sgd",
    "optimizer_options": None,
    "schedule": None,
    "schedule_over": None,
    "warmup": None,
    "retrieval": "uniform",
    "retrieval_options": {},
}
"""Settings that change nothing for one who predicts, without code from outside."""


def load(
    path: str | Path, *, net: Any = None, method: Any = None, device: str = "auto", threads: int | None = None
) -> TrainedModel:
    """The trained model that `outcome.save` or `odedm run --keep-model` has written; a file of anyone's does no harm.

    Args:
        path: of the file, or of a run's folder that holds one.
        net: the network again, where it was passed as an object: its weights are overwritten by the file's.
        method: the method's class again, where it was one of a script or notebook.
        device: where to compute: "auto", "cpu" or "cuda". On the kind of device that trained it a model predicts what
            the run's own test did, bit for bit.
        threads: CPU threads; as many as the run had unless given.

    Returns:
        The model.

    >>> import tempfile, odedm
    >>> outcome = odedm.train("blobs", method="er", memory=odedm.ODEDM(40), batch=8)
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     model = load(outcome.save(f"{folder}/model.safetensors"))
    >>> len(model.classes_), len(model.memory["label"])
    (10, 40)
    >>> bool((model.predict(outcome.data.test_image) == outcome.predict(outcome.data.test_image)).all())
    True
    """
    return _read_model(_find_model(as_path(path)), net=net, method=method, device=device, threads=threads)


class TrainedModel(Classifier):
    """A finished run's network with its method's way to predict, its memory and its result; `odedm.load` gives one."""

    def __init__(self, result: Result, engine: Engine, schema: RowSchema, labels: LabelEncoder) -> None:
        self.result, self._engine, self._schema, self._labels = result, engine, schema, labels

    def features(self, x: Any) -> np.ndarray[Any, Any]:
        """What the network makes of each row before its last layer.

        Args:
            x: rows as for `predict`.

        Returns:
            Features [n, d].
        """
        return self._asked(self._engine.view.embed, x).cpu().numpy()

    def _score_rows(self, x: Any) -> tuple[Tensor, LabelEncoder]:
        return self._asked(self._engine.predict, x), self._labels

    def _asked(self, question: Callable[[Tensor], Tensor], x: Any) -> Tensor:
        engine = self._engine
        rows = self._schema.read_inputs(x).to(engine.device)
        with deterministic_numerics(engine.plan.threads, engine.plan.precision, gradients=False):
            return question(rows)

    def export(self, path: str | Path) -> Path:
        """Write what predicts as one file for other runtimes, ".onnx" or ".pt2", as `Learner.export` does."""
        plan, labels = self._engine.plan, self._labels.classes
        with deterministic_numerics(plan.threads, plan.precision, gradients=False):
            return export(self._engine.view, self._schema.columns[0], labels, path)

    @property
    def classes_(self) -> np.ndarray[Any, Any]:
        """The labels, sorted: the columns of `predict_proba`."""
        return self._labels.sorted_classes()

    @property
    def class_names(self) -> dict[Any, str]:
        """The name of each class by its label, in order of arrival."""
        return dict(zip(self._labels.classes, self.result.classes, strict=True))

    @property
    def net(self) -> nn.Module:
        """The network."""
        return self._engine.method.net

    @property
    def memory(self) -> Rows:
        """All columns of the memory's rows as tensors: short-term rows by arrival, then prototypes.

        `label` is the class's number in order of arrival; `prototype` is -1 in the short-term part.
        """
        buffer = self._engine.memory
        rows = {**buffer.rows(), "priority": buffer.store.priority[buffer.ordered_slots()]}
        return {name: column.cpu() for name, column in rows.items()}

    def rows(self, part: str = "all") -> dict[str, Any]:
        """What the memory holds, as `Learner.rows` gives it.

        Args:
            part: "all", "short" or "long".

        Returns:
            x, the rows as they came, float32 or uint8; y, their labels; prototype, which of its class a row is, -1 in
            the short-term part; index, which row of the training data it was.
        """
        name = Choice("part of the memory", {member.value: member for member in MemoryPart}).validate("part", part)
        return labelled_rows(self._engine.memory.rows(MemoryPart(name)), self._labels)

    @property
    def plan(self) -> Experiment:
        """The run's experiment; code from outside that it names must be known here."""
        return Experiment.from_dict(self.result.experiment)

    def __repr__(self) -> str:
        return f"<TrainedModel of {summary_line([self.result])}>"


def _find_model(path: Path) -> Path:
    """Return the model's file: the path itself, or the one in a run's folder, which may be the only one in another."""
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


def _read_model(path: Path, *, net: Any, method: Any, device: Any, threads: int | None) -> TrainedModel:
    """Return the model in a file of anyone's."""
    head, tensors = read_archive(path, MODEL_SCHEMA, "model", "outcome.save or --keep-model")
    where = resolve_device(Device("device", DEVICES).validate("device", device))
    threads = None if threads is None else Int(1).validate("threads", threads)
    with refusing(f"The model '{path}'"):
        result = Result.from_dict(head["result"], "the model's result")
        schema, labels, classes = row_schema(head["rows"]), label_encoder(head["labels"]), len(result.classes)
        require(len(labels.classes) == classes <= MOST_CLASSES, "it has not one label for each class")
        code = {"net": _name("net", result, net, NETS), "method": _name("method", result, method, METHODS)}
        plan = _plan(result, code, schema, where, threads)
        check_size(plan.net, schema.shape, classes, plan.net_options, with_prefix(f"{STATE}method.net.", tensors))
        with deterministic_numerics(plan.threads, plan.precision):
            engine = _engine(plan, head, tensors, schema, classes)
    return TrainedModel(result, engine, schema, labels)


def _name(part: str, result: Result, given: Any, table: Mapping[str, Any]) -> str:
    """Return the name of a part in this process: the file's, or that of what was given in the place of an object."""
    name = result.experiment[part]
    require(isinstance(name, str), f"its {part} has no name")
    objects = result.not_importable()
    is_code = part in objects and (part == "net" or name not in table or given is not None)
    check_again(part, None if is_code else name, given, short_repr(objects.get(part, "")), "odedm.load")
    return check_name(part, name, table) if given is None else Choice(part, table).validate(part, given)


def _plan(
    result: Result, code: Mapping[str, str], schema: RowSchema, device: torch.device, threads: int | None
) -> Experiment:
    """Return what the engine is built from: the run's experiment without what is for training alone."""
    plain = {**result.experiment, **OF_TRAINING, **code}
    require(isinstance(plain["net_options"], dict), "its options are no tables of names and values")
    options = without_weights(plain["net_options"])
    plain["net_options"] = configure_net(code["net"], schema.shape, len(result.classes), options)
    kind = METHODS[code["method"]].load()
    if plain["device"] != device.type:  # of another kind of device, which computes in its own way
        plain["precision"] = resolve_precision("auto", device, second_order="second order" in kind.requires)
    plain["device"] = device.type
    plain["threads"] = threads or min(Int(1).validate("threads", plain["threads"]), os.cpu_count() or 1)
    plan = Experiment.from_dict(plain)
    return replace(plan, options=configure(plan.method, kind, dict(plan.options)))


def _engine(
    plan: Experiment, head: Mapping[str, Any], tensors: dict[str, Tensor], schema: RowSchema, classes: int
) -> Engine:
    """Return the engine, whose memory holds the rows of the file."""
    device = torch.device(plan.device)
    numbers = [ColumnSpec(name, dtype=torch.int64) for name in ("label", "task", "index")]
    of_memory = {column.name for column in (*schema.columns, *numbers, PROTOTYPE, ORDER)} | {"priority"}
    others = [  # of the method and of the policy
        ColumnSpec(name, tuple(column.shape[1:]), column.dtype)
        for name, column in with_prefix("host.", tensors).items()
        if name not in of_memory
    ]

    def make_memory(_method_columns: tuple[ColumnSpec, ...]) -> ReservoirBuffer:
        return ReservoirBuffer(0, [*schema.columns, *numbers, *others], device)

    transform = fixed(transform_of(head, tensors), schema).to(device)
    net = build(plan.net, schema.shape, classes, seed=plan.seed, options=plan.net_options)
    engine = Engine(plan, net, transform, make_memory)
    restore_engine(engine, head, tensors, {}, capacity=len(tensors["host.priority"]), classes=classes, device=device)
    engine.method.net.eval()
    _check_prediction(engine, torch.zeros(1, *schema.shape, dtype=schema.dtype, device=device), classes)
    return engine


def _check_prediction(engine: Engine, row: Tensor, classes: int) -> None:
    """Predict a row: a state that does not fit shows itself here, not in the middle of someone's work."""
    try:
        scores = engine.predict(row)
        require(scores.shape == (1, classes) and scores.is_floating_point(), "its outputs are not one for each class")
    except UsageError:
        raise
    except Exception as error:  # a method of anyone's may raise what it likes
        raise InvalidFileError(f"it does not predict ({short_repr(str(error), 160)})") from error
