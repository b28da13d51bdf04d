"""What a learner can be asked at any time: labels, probabilities, what its memory holds, what happened to it."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from contextlib import AbstractContextManager
from typing import Any

import numpy as np
import torch
from torch import Tensor

from odedm.core.errors import UsageError, short_repr
from odedm.core.row_schema import RowSchema
from odedm.core.rows import MemoryPart
from odedm.core.validators import Choice
from odedm.learner.endless_memory import LearnerEvent, candidate_rows
from odedm.learner.estimator import Estimator, NotYetFit
from odedm.learner.label_names import LabelNames, read_labels
from odedm.learner.online_parts import OnlineParts
from odedm.training.evaluation import in_chunks
from odedm.training.numerics import deterministic_numerics

KEPT_EVENTS = 100
CANDIDATES = "candidates"


class Answering(Estimator):
    """The side of a learner that reads and changes nothing."""

    threads: int
    _pace: tuple[Any, ...] = ()
    """The settings that may change on the way, as they were last checked."""

    def _begin(self) -> None:
        self._events: deque[LearnerEvent] = deque(maxlen=KEPT_EVENTS)
        self._parts: OnlineParts | None = None
        self._schema: RowSchema | None = None
        self._labels = LabelNames()
        self._rows, self._broken, self._warned = 0, "", False
        self._seen_at = torch.zeros(0, dtype=torch.int64)
        """How many rows had come when each class was last seen; -1 of classes that were only announced."""
        self._news = torch.zeros(0, dtype=torch.int64)
        """Rows of each class since it was consolidated."""

    def predict(self, x: Any) -> np.ndarray[Any, Any]:
        """The label of each row, among those that came so far.

        Args:
            x: rows like those that were learned.

        Returns:
            Labels [n], of the type that was given.
        """
        numbers = self._scores(x).argmax(1).cpu().numpy()
        return np.asarray(self._labels.array()[numbers])

    def predict_proba(self, x: Any) -> np.ndarray[Any, Any]:
        """How likely each class is for each row.

        Args:
            x: rows like those that were learned.

        Returns:
            Probabilities [n, C] in the order of `classes_`; 0 of classes that were announced and never came.
        """
        return self._scores(x).double().softmax(1).cpu().numpy()[:, self._labels.order()]

    def score(self, x: Any, y: Any) -> float:
        """The share of rows whose label is predicted.

        Args:
            x: rows like those that were learned.
            y: their labels.

        Returns:
            A number from 0 to 1.
        """
        guess = self.predict(x)
        _, values = read_labels(y, len(guess))
        return float(np.mean([one == other for one, other in zip(guess.tolist(), values, strict=True)]))

    def _scores(self, x: Any) -> Tensor:
        parts = self._ready()
        assert self._schema is not None
        rows = self._schema.read_inputs(x).to(parts.plan.device)
        with self._numerics(), torch.no_grad():
            scores = in_chunks(parts.predictor(), rows)[:, : len(self._labels.names)]
            unseen = self._seen_at < 0
            return scores.masked_fill(unseen.to(scores.device), -torch.inf) if unseen.any() else scores

    def rows(self, part: str = "all") -> dict[str, Any]:
        """What the memory holds.

        Args:
            part: "short", "long", "all" for both, or "candidates", which belong to neither.

        Returns:
            x, the rows as they came, float32, images of bytes uint8; y, their labels; prototype, which of its class a
            row is, -1 of rows that are none; index, which row of the stream it was, from 0.
        """
        memory = self._ready().memory
        found = candidate_rows(memory) if part == CANDIDATES else memory.rows(_part(part))
        names = self._labels.array()[found["label"].cpu().numpy()]
        return {"x": found["image"].cpu().numpy(), "y": names} | {
            name: found[name].cpu().numpy() for name in ("prototype", "index")
        }

    def size(self, part: str = "all") -> int:
        """How many rows a part of the memory holds.

        Args:
            part: "short", "long", "all" for both, or "candidates", which belong to neither. All are inside λ, where
                each class that has candidates takes as many rows as it may have, used or not.

        Returns:
            The number; 0 before anything was learned.
        """
        if part == CANDIDATES:
            return len(candidate_rows(self._parts.memory)["label"]) if self._parts else 0
        return self._parts.memory.size(_part(part)) if self._parts else 0

    @property
    def classes_(self) -> np.ndarray[Any, Any]:
        """The labels so far, sorted: the columns of `predict_proba`. Those of classes that join stand among them."""
        self._ready()
        return self._labels.array()[self._labels.order()]

    @property
    def events(self) -> tuple[LearnerEvent, ...]:
        """The last hundred things that happened to the memory, oldest first; `LearnerEvent` says which there are."""
        return tuple(self._events)

    @property
    def n_features_in_(self) -> int:
        """How many numbers a row has."""
        self._ready()
        assert self._schema is not None
        return math.prod(self._schema.shape)

    @property
    def feature_names_in_(self) -> np.ndarray[Any, Any]:
        """The columns of the first frame."""
        self._ready()
        if self._schema is None or self._schema.feature_names is None:
            raise AttributeError("The first rows were no frame, so features have no names.")
        return np.array(self._schema.feature_names, dtype=object)

    @property
    def rows_seen_(self) -> int:
        """How many rows were learned, by all calls together."""
        return self._rows

    @property
    def loss_(self) -> float:
        """The loss of the last update, on new and replayed rows."""
        return float(self._ready().method.last_loss)

    def _ready(self) -> OnlineParts:
        """The parts, where rows were learned."""
        self._sound()
        if self._parts is None or not self._rows:
            raise NotYetFit("This learner has learned nothing yet: call partial_fit(x, y) first.")
        return self._parts

    def _sound(self) -> None:
        if self._broken:
            raise UsageError(
                f"This learner stopped in the middle of an update and is of no use any more ({self._broken}). Load the "
                "last file that was saved."
            )

    def _is_fit(self) -> bool:
        return self._parts is not None and self._rows > 0

    def _numerics(self) -> AbstractContextManager[None]:
        """A block that computes the same whatever the caller has set."""
        return deterministic_numerics(self.threads, self._parts.plan.precision if self._parts else "fp32")

    def _known(self, labels: Any) -> list[int]:
        """The numbers of labels that a user names, one or many."""
        single = isinstance(labels, str | bytes) or not isinstance(labels, Iterable)
        listed = list(dict.fromkeys([labels] if single else list(labels)))
        for each in listed:
            if self._labels.number(each) < 0:
                raise UsageError(
                    f"There is no class {short_repr(each)}; the labels so far are "
                    f"{short_repr(self._labels.names, 200)}."
                )
        return [self._labels.number(each) for each in listed]


def _part(name: str) -> MemoryPart:
    parts = Choice("part of the memory", {part.value: part for part in MemoryPart}, also=(CANDIDATES,))
    found = parts.validate("part", name)
    return MemoryPart(found)
