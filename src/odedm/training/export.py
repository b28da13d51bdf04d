"""Exports what predicts as one file for other runtimes: scaling, network and label names, by torch.export or ONNX."""

from __future__ import annotations

import copy
import json
import warnings
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any, ClassVar

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odedm.core.errors import UsageError, describe_error
from odedm.core.files import as_path, atomic_file, write_for_user
from odedm.core.rows import ColumnSpec
from odedm.methods.base import Method
from odedm.methods.class_statistics import StatisticsHead
from odedm.training.model_view import MethodView

LABELS, ROWS = "labels", "rows"
"""The name of the file's metadata that has the labels as JSON, and that of its input."""


class Predictor(nn.Module):
    """Gives scores [n, C] of raw rows, the columns in the order of the labels; -inf of a class that is never given.

    Args:
        view: of what is trained.
        unseen: classes that are never predicted [C], or None.
    """

    TRANSIENT: ClassVar[frozenset[str]] = frozenset()

    means: Tensor | None
    never: Tensor

    def __init__(self, view: MethodView, unseen: Tensor | None = None) -> None:
        super().__init__()
        method, means = view.method, view.class_means()
        kind = type(method)
        if kind.predict is not Method.predict or kind.embed is not Method.embed:
            raise UsageError(f"{kind.__name__} predicts by code of its own, which no other runtime has.")
        self.transform = view.transform.to(torch.device("cpu"))
        self.net = copy.deepcopy(method.net if method.ema is None else method.ema.net).eval().requires_grad_(False)
        if isinstance(self.net.head, StatisticsHead):
            self.net.head.keep_solution_alone()
        self.normalised = method.class_mean_options.get("normalised", True)
        never = torch.zeros(self.net.classes, dtype=torch.bool) if unseen is None else unseen
        known = len(never)  # a network may have more outputs than there are labels yet
        self.register_buffer("means", None if means is None else means[0][:known])
        self.register_buffer("never", never if means is None else never | ~means[1].cpu()[:known])

    def forward(self, rows: Tensor) -> Tensor:
        """Return scores [n, C] of raw rows."""
        x = self.transform.normalize(rows)
        if self.means is None:
            scores: Tensor = self.net(x)
        else:
            points = self.net.features(x)
            points = F.normalize(points) if self.normalised else points
            scores = -(points[:, None] - self.means).square().sum(-1)
        return scores[:, : len(self.never)].masked_fill(self.never, -torch.inf)


def export(
    view: MethodView, column: ColumnSpec, labels: Sequence[Any], path: Any, unseen: Tensor | None = None
) -> Path:
    """Write a file that maps raw rows to scores; `path` says by its end which: ".onnx" or ".pt2".

    Args:
        view: of what is trained.
        column: what rows are.
        labels: those of the columns, in their order.
        path: of the file, which is written whole or not at all.
        unseen: classes that are never predicted [C].
    """
    place = as_path(path)
    writers = {".onnx": _write_onnx, ".pt2": _write_pt2}
    if place.suffix not in writers:
        raise UsageError(f"A model is exported as .onnx or .pt2; '{path}' was given.")
    module = Predictor(view, unseen).cpu()
    example = torch.zeros(2, *column.shape, dtype=column.dtype)
    plain = [label.item() if hasattr(label, "item") else label for label in labels]
    try:
        with torch.no_grad():
            module(example)
            program = torch.export.export(
                module, (example,), dynamic_shapes=({0: torch.export.Dim("n")},), strict=False
            )
            write = partial(writers[place.suffix], program, json.dumps(plain))
            return write_for_user("model", place, partial(_whole, write))
    except UsageError:
        raise
    except OSError:
        raise
    except Exception as error:  # a network of anyone's may do what cannot be exported
        raise UsageError(f"This model cannot be exported: {describe_error(error)}.") from error


def _whole(write: Any, path: Path) -> None:
    with atomic_file(path) as file:
        write(file)


def _write_pt2(program: Any, labels: str, file: Path) -> None:
    with file.open("wb") as stream:
        torch.export.save(program, stream, extra_files={f"{LABELS}.json": labels})


def _write_onnx(program: Any, labels: str, file: Path) -> None:
    names: dict[str, Any] = {"input_names": [ROWS], "output_names": ["scores"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of torch about itself
        try:
            exported = torch.onnx.export(program, dynamo=True, verbose=False, **names)
        except ImportError as error:
            raise UsageError("ONNX files need onnx and onnxscript: pip install 'odedm[onnx]'.") from error
    assert exported is not None
    exported.model.metadata_props[LABELS] = labels
    exported.save(str(file), external_data=False)
