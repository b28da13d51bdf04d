"""What a learner holds once rows have come, and what it can be asked at any time."""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from odedm.core.array_inputs import Array
from odedm.core.errors import UsageError, short_repr
from odedm.core.row_schema import RowSchema
from odedm.core.rows import MemoryPart
from odedm.core.validators import Choice
from odedm.learner.classifier import Classifier
from odedm.learner.endless_memory import LearnerEvent, candidate_rows
from odedm.learner.estimator import Estimator, NotYetFit
from odedm.learner.label_encoder import LabelEncoder
from odedm.learner.online_engine import OnlineEngine
from odedm.learner.turns import Turns
from odedm.memory.live_parts import pins
from odedm.training.evaluation import in_chunks
from odedm.training.numerics import deterministic_numerics

KEPT_EVENTS = 100
CANDIDATES = "candidates"
CROWDED = "no room for candidates"
RESTLESS = "nothing rests"
INTERRUPTED = "it was interrupted"


@dataclass
class Fitted:
    """All that the rows so far have made of a learner.

    Args:
        engine: network, method and memory.
        schema: what its rows are.
        labels: the classes so far.
        rows: how many have come.
        batches: in how many batches.
        last_seen: how many rows had come when each class was last seen; -1 of classes that were only announced.
        new_rows: rows of each class since it was consolidated.
        events: the last things that happened to the memory.
        warned: whether it was said that there is no long-term room.
    """

    engine: OnlineEngine
    schema: RowSchema
    labels: LabelEncoder
    rows: int = 0
    last_seen: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    new_rows: NDArray[np.int64] = field(default_factory=lambda: np.zeros(0, np.int64))
    events: deque[LearnerEvent] = field(default_factory=lambda: deque(maxlen=KEPT_EVENTS))
    warned: bool = False
    batches: int = 0
    all_seen: bool = False
    """Whether no class was only announced."""
    warnings: list[str] = field(default_factory=list)
    """What is to be said when the call under way has done all it does."""

    def __post_init__(self) -> None:
        self.join(self.labels)

    def join(self, labels: LabelEncoder) -> None:
        """Take labels with more classes, of which no row has come, and give them outputs."""
        if self.engine.classes < len(labels.classes):
            self.engine.grow(len(labels.classes))
        joining = len(labels.classes) - len(self.new_rows)
        self.labels = labels
        self.last_seen = np.concatenate([self.last_seen, np.full(joining, -1)])
        self.new_rows = np.concatenate([self.new_rows, np.zeros(joining, np.int64)])
        self.all_seen = bool((self.last_seen >= 0).all())

    def count(self, numbers: NDArray[np.int64]) -> None:
        """Count rows of these classes [n]."""
        self.rows += len(numbers)
        self.batches += 1
        self.new_rows += np.bincount(numbers, minlength=len(self.new_rows))
        self.last_seen[numbers] = self.rows
        if not self.all_seen:
            self.all_seen = bool((self.last_seen >= 0).all())

    def fresh(self, rested: int = 0) -> list[int]:
        """Return the classes with rows since they were consolidated, of which none came among the last `rested`."""
        is_due = self.new_rows > 0
        if rested:
            is_due &= self.rows - self.last_seen >= rested
        return np.flatnonzero(is_due).tolist()

    def is_full_round(self, before: int, every: int | None) -> bool:
        """Return whether all classes are due after every so many rows, and now; `before` rows had come earlier."""
        return every is not None and self.rows // every > before // every

    def due(self, before: int, every: int | None, patience: int | None) -> list[int]:
        """Return the classes that are due by the number of rows."""
        if self.is_full_round(before, every):
            return self.fresh()
        return self.fresh(rested=patience) if patience else []

    def note(self, what: str, numbers: list[int], *, always: bool = False) -> None:
        """Keep an event, where it is of any class."""
        if numbers or always:
            labels = tuple(self.labels.classes[number] for number in numbers)
            self.events.append(LearnerEvent(self.rows, what, labels))

    def note_crowded(self, numbers: list[int]) -> None:
        """Keep which classes found no room for candidates, once of each."""
        told = {label for event in self.events if event.what == CROWDED for label in event.labels}
        self.note(CROWDED, [number for number in numbers if self.labels.classes[number] not in told])

    def note_restless(self, patience: int) -> None:
        """Say that prototypes are wanted, and patience alone will hardly bring any."""
        if not pins(self.engine.plan.memory) or self.engine.memory.size(MemoryPart.LONG):
            return
        self.note(RESTLESS, [], always=True)
        self.warnings.append(
            f"In {self.rows} rows no class was away for {patience} rows (patience), so there are no prototypes yet. "
            "Where classes never rest for so long give every=… rows, lower patience, or call consolidate(); where none "
            "are wanted give memory=Reservoir(…). Said once."
        )

    def consolidate(self, numbers: list[int]) -> list[Any]:
        """Keep prototypes of some classes for good; return the labels of which there are some."""
        outcome = self.engine.pin(numbers)
        self.new_rows[numbers] = 0
        self.note("pinned", outcome.pinned)
        self.note("refused", outcome.refused)
        self.note("without rows", outcome.missing)
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

    def check_loss(self) -> None:
        """Refuse to go on where training has diverged."""
        loss = float(self.engine.method.last_loss)
        if not math.isfinite(loss):
            raise UsageError(
                f"After {self.rows} rows the loss is {loss}: training diverged. Go on from the last file that was "
                f"saved, with a lower learning rate lr, which is {self.engine.method.lr:g}, or scale the rows."
            )

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


class Changing:
    """A block that changes a learner: until it is over, whatever ends it leaves the learner broken, and it says so."""

    def __init__(self, learner: FittedLearner) -> None:
        self._learner = learner

    def __enter__(self) -> None:
        self._learner._broken = INTERRUPTED

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _traceback: object) -> None:
        self._learner._broken = "" if kind is None else str(error) or kind.__name__


class FittedLearner(Estimator, Classifier):
    """The side of a learner that reads and changes nothing."""

    threads: int
    _turns: Turns
    _fitted: Fitted | None
    _broken: str
    """Why it is of no use any more; nothing where it is sound."""
    _pace: tuple[Any, ...] = ()
    """The settings that may change on the way, as they were last checked."""

    def _forget(self) -> None:
        self._fitted, self._broken = None, ""

    def _score_rows(self, x: Any) -> tuple[Tensor, LabelEncoder]:
        known = self._fitted
        rows = known.schema.read_inputs(x, copy=False) if known is not None else None
        with self._numerics(known, gradients=False), self._turns.locked():
            fitted = self._ready()
            if rows is None or fitted is not known:  # another thread has begun anew
                rows = fitted.schema.read_inputs(x, copy=False)
            if fitted.engine.config.device.type != "cpu":
                rows = rows.to(fitted.engine.config.device)
            scores = in_chunks(fitted.engine.predictor(), rows)
            if scores.shape[1] > len(fitted.labels.classes):
                scores = scores[:, : len(fitted.labels.classes)]
            if not fitted.all_seen:
                unseen = torch.from_numpy(fitted.last_seen < 0).to(scores.device)
                scores = scores.masked_fill(unseen, -math.inf)
            return scores, fitted.labels

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
        labels = fitted.labels.inverse_transform(rows["label"].cpu().numpy())
        return {"x": rows["image"].cpu().numpy(), "y": labels} | {
            name: rows[name].cpu().numpy() for name in ("prototype", "index")
        }

    def size(self, part: str = "all") -> int:
        """Return how many rows a part of the memory holds.

        Args:
            part: "short", "long", "all" for both, or "candidates", which belong to neither. All are inside λ, where
                each class that has candidates takes as many rows as it may have, used or not.

        Returns:
            The number; 0 before anything was learned.
        """
        wanted = None if part == CANDIDATES else _part(part)
        with self._turns.locked():
            if self._fitted is None:
                return 0
            memory = self._fitted.engine.memory
            return len(candidate_rows(memory)["label"]) if wanted is None else memory.size(wanted)

    @property
    def classes_(self) -> Array:
        """The labels so far, sorted: the columns of `predict_proba`. Those of classes that join stand among them."""
        with self._turns.locked():
            return self._ready().labels.sorted_classes()

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
        return self._fitted.rows if self._fitted is not None else 0

    @property
    def loss_(self) -> float:
        """The loss of the last update, on new and replayed rows."""
        with self._turns.locked():
            return float(self._ready().engine.method.last_loss)

    def _ready(self) -> Fitted:
        """Return what rows have made of it, or refuse in a sentence."""
        self._check_sound()
        if self._fitted is None or not self._fitted.rows:
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
        return self._fitted is not None and self._fitted.rows > 0

    def _numerics(self, fitted: Fitted | None, *, gradients: bool = True) -> AbstractContextManager[None]:
        """Return a block that computes the same whatever the caller has set."""
        precision = fitted.engine.config.precision if fitted is not None else "fp32"
        return deterministic_numerics(self.threads, precision, gradients=gradients)


def _part(name: str) -> MemoryPart:
    parts = Choice("part of the memory", {part.value: part for part in MemoryPart}, also=(CANDIDATES,))
    return MemoryPart(parts.validate("part", name))
