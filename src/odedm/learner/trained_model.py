"""The trained model of a finished run, loaded again: it predicts in the user's labels."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from odedm.core.files import as_path
from odedm.core.rows import MemoryPart, Rows
from odedm.core.validators import Choice
from odedm.learner.classifier import Classifier
from odedm.learner.label_encoder import LabelEncoder
from odedm.learner.saved_model import SavedModel, find_model, read_model
from odedm.results.result import Result
from odedm.results.run_summary import summary_line
from odedm.training.experiment import Experiment
from odedm.training.numerics import deterministic_numerics


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
    return TrainedModel(read_model(find_model(as_path(path)), net=net, method=method, device=device, threads=threads))


class TrainedModel(Classifier):
    """A finished run's network with its method's way to predict, its memory and its result; `odedm.load` gives one."""

    def __init__(self, saved: SavedModel) -> None:
        self._saved = saved

    def features(self, x: Any) -> np.ndarray[Any, Any]:
        """What the network makes of each row before its last layer.

        Args:
            x: rows as for `predict`.

        Returns:
            Features [n, d].
        """
        return self._asked(self._saved.probe.embed, x).cpu().numpy()

    def _score_rows(self, x: Any) -> tuple[Tensor, LabelEncoder]:
        return self._asked(self._saved.probe.predict, x), self._saved.labels

    def _asked(self, question: Callable[[Tensor], Tensor], x: Any) -> Tensor:
        saved = self._saved
        rows = saved.schema.read_inputs(x).to(saved.device)
        with deterministic_numerics(saved.threads, saved.precision, gradients=False):
            return question(rows)

    @property
    def classes_(self) -> np.ndarray[Any, Any]:
        """The labels, sorted: the columns of `predict_proba`."""
        return self._saved.labels.sorted_classes()

    @property
    def class_names(self) -> dict[Any, str]:
        """The name of each class by its label, in order of arrival."""
        return dict(zip(self._saved.labels.classes, self._saved.result.classes, strict=True))

    @property
    def net(self) -> nn.Module:
        """The network."""
        return self._saved.probe.method.net

    @property
    def memory(self) -> Rows:
        """All columns of the memory's rows as tensors: short-term rows by arrival, then prototypes.

        `label` is the class's number in order of arrival; `prototype` is -1 in the short-term part.
        """
        return dict(self._saved.rows)

    def rows(self, part: str = "all") -> dict[str, Any]:
        """What the memory holds, as `Learner.rows` gives it.

        Args:
            part: "all", "short" or "long".

        Returns:
            x, the rows as they came, float32 or uint8; y, their labels; prototype, which of its class a row is, -1 in
            the short-term part; index, which row of the training data it was.
        """
        asked = Choice("part of the memory", {each.value: each for each in MemoryPart}).validate("part", part)
        rows = self._saved.rows
        pinned = rows["prototype"] >= 0
        taken = {"all": torch.ones_like(pinned), "short": ~pinned, "long": pinned}[asked]
        names = self._saved.labels.inverse_transform(rows["label"][taken].numpy())
        return {"x": rows["image"][taken].numpy(), "y": names} | {
            name: rows[name][taken].numpy() for name in ("prototype", "index")
        }

    @property
    def result(self) -> Result:
        """The run's result."""
        return self._saved.result

    @property
    def plan(self) -> Experiment:
        """The run's experiment; code from outside that it names must be known here."""
        return Experiment.from_dict(self._saved.result.experiment)

    def __repr__(self) -> str:
        return f"<TrainedModel of {summary_line([self.result])}>"
