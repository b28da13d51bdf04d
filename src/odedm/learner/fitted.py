"""What a learner holds once rows have come, and what it can be asked at any time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from odedm.core.accel.device import enough_memory
from odedm.core.array_inputs import Array
from odedm.core.errors import UsageError, short_repr
from odedm.core.row_schema import RowSchema
from odedm.core.rows import MemoryPart, int_tensor
from odedm.core.validators import Choice
from odedm.learner.arrivals import Arrivals
from odedm.learner.endless_memory import LearnerEvent, candidate_rows
from odedm.learner.estimator import Classifier, Estimator, NotYetFit, labelled_rows
from odedm.learner.fit_stream import FitsStreams
from odedm.learner.label_encoder import LabelEncoder
from odedm.learner.online_engine import OnlineEngine
from odedm.learner.turns import Turns
from odedm.memory.changing import OnChange
from odedm.memory.open_stream import pins
from odedm.training.evaluation import in_chunks
from odedm.training.export import export
from odedm.training.memory_bytes import bytes_held
from odedm.training.numerics import deterministic_numerics

KEPT_EVENTS = 100
CANDIDATES = "candidates"
CROWDED = "no room for candidates"
RESTLESS = "nothing rests"


@dataclass
class Fitted:
    """All that the rows so far have made of a learner.

    Args:
        engine: network, method and memory.
        schema: what its rows are.
        labels: the classes so far.
        arrivals: when rows of each class came.
        events: the last things that happened to the memory.
        warned: whether it was said that there is no long-term room.
    """

    engine: OnlineEngine
    schema: RowSchema
    labels: LabelEncoder
    arrivals: Arrivals = field(default_factory=Arrivals)
    events: deque[LearnerEvent] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS))
    warned: bool = False
    warnings: list[str] = field(default_factory=list)
    """What is to be said when the call under way has done all it does."""

    def __post_init__(self) -> None:
        self.join(self.labels)

    def join(self, labels: LabelEncoder) -> None:
        """Take labels with more classes, of which no row has come, and give them outputs."""
        if self.engine.classes < len(labels.classes):
            self.engine.grow(len(labels.classes))
        self.labels = labels
        self.arrivals.join(len(labels.classes))

    def learn(self, image: Tensor, numbers: list[int]) -> None:
        """Make the updates on a batch of rows of these classes, and let the memory see it."""
        engine, arrivals = self.engine, self.arrivals
        updates = arrivals.updates_due(numbers) if engine.config.paced else engine.plan.updates
        label, first, done = int_tensor(numbers), arrivals.rows, arrivals.batches
        crowded = engine.learn(image, label, numbers, first=first, done=done, updates=updates)
        arrivals.count(numbers)
        self._check_loss()
        if crowded:  # once of each class
            noted = {label for event in self.events if event.what == CROWDED for label in event.labels}
            self._note(CROWDED, [number for number in crowded if self.labels.classes[number] not in noted])

    def _check_loss(self) -> None:
        """Refuse to go on where training has diverged."""
        loss = float(self.engine.method.last_loss)
        if not math.isfinite(loss):
            raise UsageError(
                f"After {self.arrivals.rows} rows the loss is {loss}: training diverged. Go on from the last file that "
                f"was saved, with a lower learning rate lr, which is {self.engine.method.lr:g}, or scale the rows."
            )

    def consolidate(self, numbers: list[int], on_change: OnChange = None) -> list[Any]:
        """Keep prototypes of some classes for good; return the labels of which there are some.

        `on_change` is called when they are chosen, before anything is changed.
        """
        outcome = self.engine.pin(numbers, on_change)
        if on_change:  # where nothing is ever pinned it was not called
            on_change()
        for number in numbers:
            self.arrivals.waiting.pop(number, None)
        self._note("pinned", outcome.pinned)
        self._note("refused", outcome.refused)
        self._note("without rows", outcome.missing)
        if outcome.refused and not self.warned:
            self.warned = True
            memory = self.engine.memory
            self.warnings.append(
                f"There is no long-term room for {short_repr(self.labels.classes[outcome.refused[0]])}: of "
                f"{memory.capacity} rows, prototypes of {memory.pinned_classes()} classes take all that may be "
                "long-term. Such classes are learned and stay in the short-term part; raise the capacity, lower k or "
                "raise rho, or release classes. Said once; see events."
            )
        return [self.labels.classes[number] for number in outcome.pinned]

    def note_restless(self, patience: int) -> None:
        """Say that prototypes are wanted, and patience alone will hardly bring any."""
        if not pins(self.engine.config.memory) or self.engine.memory.size(MemoryPart.LONG):
            return
        self.events.append(LearnerEvent(self.arrivals.rows, RESTLESS, ()))
        self.warnings.append(
            f"In {self.arrivals.rows} rows no class was away for {patience} rows (patience), so there are no "
            "prototypes yet. Where classes never rest for so long give every=… rows, lower patience, or call "
            "consolidate(); where none are wanted give memory=Reservoir(…). Said once."
        )

    def _note(self, what: str, numbers: list[int]) -> None:
        """Keep an event, where it is of any class."""
        if numbers:
            labels = tuple(self.labels.classes[number] for number in numbers)
            self.events.append(LearnerEvent(self.arrivals.rows, what, labels))

    def numbers_of(self, labels: Any) -> list[int]:
        """Return the numbers of classes that a user names, one or many."""
        single = isinstance(labels, str | bytes) or not isinstance(labels, Iterable)
        listed = list(dict.fromkeys([labels] if single else list(labels)))
        for label in listed:
            if self.labels.number(label) < 0:
                raise UsageError(
                    f"There is no class {short_repr(label)}; the labels so far are "
                    f"{short_repr(list(self.labels.classes), 200)}."
                )
        return [self.labels.number(label) for label in listed]


class FittedLearner(Estimator, Classifier, FitsStreams):
    """The side of a learner that reads and changes nothing."""

    threads: int
    _turns: Turns
    _fitted: Fitted | None
    _broken: str
    """Why it is of no use any more; nothing where it is sound."""
    _pace: tuple[Any, ...] = ()
    """The settings that may change on the way, as they were last checked."""

    def _begin(self) -> None:
        """Have learned nothing, with locks of its own."""
        self._turns, self._fitted, self._broken = Turns(), None, ""

    @enough_memory()
    def _score_rows(self, x: Any) -> tuple[Tensor, LabelEncoder]:
        known = self._fitted
        rows = known.schema.read_inputs(x, copy=False) if known is not None else None
        with self._numerics(known, gradients=False), self._turns.locked():
            fitted = self._ready()
            if rows is None or fitted is not known:  # another thread has begun anew
                rows = fitted.schema.read_inputs(x, copy=False)
            if fitted.engine.device.type != "cpu":
                rows = rows.to(fitted.engine.device)
            scores = in_chunks(fitted.engine.predictor(), rows)
            if scores.shape[1] > len(fitted.labels.classes):
                scores = scores[:, : len(fitted.labels.classes)]
            if not fitted.arrivals.all_seen:
                unseen = torch.tensor(fitted.arrivals.last_seen, device=scores.device) < 0
                scores = scores.masked_fill(unseen, -math.inf)
            return scores, fitted.labels

    def export(self, path: Any) -> Path:
        """Write what predicts as one file for other runtimes: scaling, network and label names.

        The file takes raw rows as the learner does, of the shape and type of the first ones (images [n, c, h, w]), and
        gives scores [n, C]; `labels`, JSON in its metadata (ONNX) or extra files (pt2), names their columns.

        Args:
            path: one that ends with ".onnx" (`pip install 'odedm[onnx]'`) or ".pt2", of `torch.export`.

        Returns:
            The path.
        """
        with self._turns.locked(), self._numerics(self._fitted, gradients=False):
            fitted = self._ready()
            known = len(fitted.labels.classes)
            unseen = torch.tensor(fitted.arrivals.last_seen) < 0
            column = fitted.schema.columns[0]
            return export(fitted.engine.view, column, fitted.labels.classes, path, unseen[:known])

    @property
    def model(self) -> nn.Module:
        """The network that predicts, of inputs as scaling gives them: its average where one is kept."""
        with self._turns.locked():
            method = self._ready().engine.method
            return method.net if method.ema is None else method.ema.net

    def rows(self, part: str = "all") -> dict[str, Any]:
        """Return what the memory holds.

        Args:
            part: "short", "long", "all" for both, or "candidates", which belong to neither.

        Returns:
            x, the rows as they came, float32, images of bytes uint8; y, their labels; prototype, which of its class a
            row is, -1 of rows that are none; index, which row of the stream it was, from 0.
        """
        with self._turns.locked():
            fitted = self._ready()
            memory = fitted.engine.memory
            rows = candidate_rows(memory) if part == CANDIDATES else memory.rows(_part(part))
        return labelled_rows(rows, fitted.labels)

    def size(self, part: str = "all") -> int:
        """Return how many rows a part of the memory holds.

        Args:
            part: "short", "long", "all" for both, or "candidates", which belong to neither. All are inside λ, where
                each class that has candidates takes as many rows as it may have, used or not.

        Returns:
            The number; 0 before anything was learned.
        """
        memory_part = None if part == CANDIDATES else _part(part)
        with self._turns.locked():
            if self._fitted is None:
                return 0
            memory = self._fitted.engine.memory
            return len(candidate_rows(memory)["label"]) if memory_part is None else memory.size(memory_part)

    @property
    def classes_(self) -> Array:
        """The labels so far, sorted: the columns of `predict_proba`. Those of classes that join stand among them."""
        with self._turns.locked():
            return self._ready().labels.sorted_classes()

    @property
    def bytes(self) -> dict[str, int]:
        """What it keeps of its stream: bytes of the memory's "rows", and of what the "method" holds beside its network.

        A memory has all its bytes from the start.
        """
        with self._turns.locked():
            engine = self._ready().engine
            return bytes_held(engine.memory, engine.method)

    @property
    def events(self) -> tuple[LearnerEvent, ...]:
        """The last hundred things that happened to the memory, oldest first; `LearnerEvent` says which there are."""
        with self._turns.locked():
            return tuple(self._fitted.events) if self._fitted is not None else ()

    @property
    def n_features_in_(self) -> int:
        """How many numbers a row has."""
        with self._turns.locked():
            return math.prod(self._ready().schema.shape)

    @property
    def feature_names_in_(self) -> Array:
        """The columns of the first frame."""
        with self._turns.locked():
            names = self._ready().schema.feature_names
        if names is None:
            raise AttributeError("The first rows were no frame, so features have no names.")
        return np.array(names, dtype=object)

    @property
    def rows_seen_(self) -> int:
        """How many rows were learned, by all calls together."""
        return self._fitted.arrivals.rows if self._fitted is not None else 0

    @property
    def loss_(self) -> float:
        """The loss of the last update, on new and replayed rows."""
        with self._turns.locked():
            return float(self._ready().engine.method.last_loss)

    def _ready(self) -> Fitted:
        """Return what rows have made of it, or refuse in a sentence."""
        self._check_sound()
        if self._fitted is None or not self._fitted.arrivals.rows:
            raise NotYetFit("This learner has learned nothing yet: call partial_fit(x, y) first.")
        return self._fitted

    def _check_sound(self) -> None:
        if self._broken or self._turns.torn:
            why = self._broken or "this process was forked in the midst of it"
            raise UsageError(
                f"This learner stopped in the middle of an update and is of no use any more ({why}). Load the "
                "last file that was saved."
            )

    def _is_fit(self) -> bool:
        return self._fitted is not None and self._fitted.arrivals.rows > 0

    def _numerics(self, fitted: Fitted | None, *, gradients: bool = True) -> AbstractContextManager[None]:
        """Return a block that computes the same whatever the caller has set."""
        precision = fitted.engine.plan.precision if fitted is not None else "fp32"
        return deterministic_numerics(self.threads, precision, gradients=gradients)


def _part(name: str) -> MemoryPart:
    parts = Choice("part of the memory", {part.value: part for part in MemoryPart}, also=(CANDIDATES,))
    return MemoryPart(parts.validate("part", name))
