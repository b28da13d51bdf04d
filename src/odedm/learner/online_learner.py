"""The learner: rows come in batches for ever, it predicts at any time, and keeps prototypes of classes as they rest."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from torch import Tensor

from odedm.core.accel.device import enough_memory
from odedm.core.errors import UsageError, short_repr
from odedm.core.files import as_path
from odedm.core.row_schema import RowSchema
from odedm.core.tensor_archive import packed, unpacked
from odedm.core.validators import Int
from odedm.learner import learner_state
from odedm.learner.config import MOST_THREADS, LearnerConfig
from odedm.learner.fitted import Fitted, FittedLearner
from odedm.learner.from_model import continued
from odedm.learner.label_encoder import LabelEncoder, read_announced, read_labels
from odedm.learner.learner_net import check_growth
from odedm.learner.online_engine import OnlineEngine
from odedm.memory.changing import Changing, OnChange

if TYPE_CHECKING:
    from odedm.learner.trained_model import TrainedModel

SOON = 10
"""After so many times `patience` rows without one class that rested, a learner says so."""


class Learner(FittedLearner):
    """A classifier for a stream without task borders: give it rows as they come, ask it when you like.

    `partial_fit`, `predict`, `predict_proba`, `score`, `get_params` and `set_params` are as in scikit-learn. Classes
    may join at any time and return at any time; time and memory per row stay flat.

    Args:
        method: a name in `odedm list methods` of one that needs no borders (er, der, derpp, fdr …), or a Method class.
        memory: an `ODEDM`, `Reservoir` or `Native`; a number n is an ODEDM, which by default has as many short-term
            rows of every class and the nearest rows by l2 as prototypes. 200 is taken unless given, none by a method
            that keeps no rows (ncm, slda, ranpac). With rho, at most ρλ rows are long-term, shared equally by the
            classes consolidated so far; with k each class has k, until there is no room for more classes. Prototypes
            are chosen among short-term rows, or with candidates=N among N rows of each class that is not yet
            consolidated; all of it inside λ.
        net: a name in `odedm list nets`, "auto", an `nn.Module` of your own that ends with a linear layer, of which a
            copy is trained, or a class or function that makes one. Any number of outputs will do: the first label that
            comes has the first, and more are added as classes join.
        lr: the learning rate, short for options={"lr": …}; the method's own unless given, or 0.06 where that is 0.03
            and the optimizer is "sgd".
        options: the method's hyper-parameters by name, {"alpha": 0.2} say; pages of methods list them.
        net_options: the net's own keywords by name, {"width": 100} of "mlp" say; {"head": "fc"} names the linear layer
            with which a net from outside ends, where it is not the last one called.
        scaling: how rows become inputs: "auto" by the means and deviations of all rows so far, None as they are
            (bytes of images divided by 255), or the `transform` of an odedm data set.
        patience: consolidate a class that was not seen for so many rows; None never for that.
        every: consolidate all classes with new rows after every so many rows; None never for that.
        trigger: called with the learner after each step; where it says true all classes with new rows are
            consolidated, where it gives labels those.
        batch: rows of one update. A call with more makes several, one with fewer makes one of what there is.
        draw: replayed rows per draw, as many as `batch` unless given.
        optimizer, optimizer_options: a name in `odedm list optimizers`, and its own options.
        schedule, warmup, clip_norm: of the learning rate, "constant" or a function of the batch's number by its name,
            for a stream has no end to fall to; batches in which it rises; the norm to which gradients are cut.
        retrieval: a name in `odedm list retrievals`: which stored rows a draw takes; `retrieval_options` are its own.
        updates: on each batch, with fresh views and draws. "auto": by rows, however calls cut them: one for each of the
            first 500 rows and of the first 50 of every class, then fewer and fewer, down to one for 8 rows; a batch
            has at least one.
        stream_loss: "asymmetric" or "adjusted": what the cross-entropy of new rows sets against them; None is the
            method's own.
        predict_by: "head" or "nearest-mean", the class means of stored rows' features; None is the method's own.
        weight_average: predict by a running average of the weights, of which so much is left after each batch, 0.95
            say, or over so many batches, 20 say; None is the last weights.
        views: of replayed rows: "crop", "strong" or "rotations". docs/how-to/ingredients.md has all five.
        seed: the same seed and the same batches give the same learner.
        device, threads, precision: where and how it computes, as for `odedm.train`.

    Any number of threads may ask and save a learner while one thread learns.

    >>> from odedm import blobs
    >>> data = blobs()
    >>> names = np.array(["ant", "bee", "cat", "dog", "elk", "fox", "gnu", "hen", "ibis", "jay"])[data.label]
    >>> learner = Learner("er", memory=40, patience=100)
    >>> for start in range(0, len(names), 32):
    ...     _ = learner.partial_fit(data.image[start : start + 32], names[start : start + 32])
    >>> learner.predict(data.image[:2]).shape, len(learner.classes_)
    ((2,), 10)
    """

    def __init__(
        self,
        method: Any = "derpp",
        *,
        memory: Any = None,
        net: Any = "auto",
        lr: float | None = None,
        options: Any = None,
        net_options: Any = None,
        scaling: Any = "auto",
        patience: int | None = 500,
        every: int | None = None,
        trigger: Callable[[Learner], Any] | None = None,
        batch: int = 32,
        draw: int | None = None,
        optimizer: str = "sgd",
        optimizer_options: Any = None,
        schedule: str = "constant",
        warmup: int = 0,
        clip_norm: float | None = None,
        retrieval: str = "uniform",
        retrieval_options: Any = None,
        updates: int | str = "auto",
        stream_loss: str | None = None,
        predict_by: str | None = None,
        weight_average: float | None = None,
        views: str = "crop",
        seed: int = 0,
        device: Any = "auto",
        threads: int = 1,
        precision: str = "auto",
    ) -> None:
        self.method, self.memory, self.net, self.options, self.net_options = method, memory, net, options, net_options
        self.lr, self.scaling, self.patience, self.every, self.trigger = lr, scaling, patience, every, trigger
        self.batch, self.draw, self.seed, self.device, self.threads = batch, draw, seed, device, threads
        self.precision, self.updates, self.stream_loss, self.predict_by = precision, updates, stream_loss, predict_by
        self.weight_average, self.views = weight_average, views
        self.retrieval, self.retrieval_options = retrieval, retrieval_options
        self.optimizer, self.optimizer_options = optimizer, optimizer_options
        self.schedule, self.warmup, self.clip_norm = schedule, warmup, clip_norm
        self._check_pace()
        LearnerConfig.of(self.get_params())
        self._begin()

    def partial_fit(self, x: Any, y: Any, classes: Iterable[Any] | None = None) -> Learner:
        """Learn rows of the stream, each once, in steps of `batch` rows. What is refused changes nothing.

        An interrupt between two steps leaves what was learned before it; one in the midst of a step makes the learner
        refuse everything but `fit`, for nobody knows what it has learned.

        Args:
            x: vectors [n, d] or images [n, h, w], [n, c, h, w] or [n, h, w, c]; arrays, tensors or a frame.
            y: their labels [n], text or numbers, of one type throughout.
            classes: labels that may come, where they are known; they get outputs now. Others may join all the same.

        Returns:
            The learner.
        """
        with enough_memory(), self._turns.writing():
            self._check_sound()
            self._teach(self._fitted, x, y, classes)
        self._give_warnings()
        return self

    def fit(self, x: Any, y: Any) -> Learner:
        """Forget everything, then learn these rows once, in their order.

        Args:
            x: the rows.
            y: their labels.

        Returns:
            The learner.
        """
        with enough_memory(), self._turns.writing():
            self._teach(None, x, y)
            self._turns.torn = False
        self._give_warnings()
        return self

    def _teach(self, fitted: Fitted | None, x: Any, y: Any, classes: Iterable[Any] | None = None) -> None:
        """Let rows be learned on top of what there is, or from the start."""
        self._check_pace()
        if fitted is None:
            schema, rows = RowSchema.of_inputs(x)
        else:  # no copy: the memory makes its own of what it keeps, and the network gets views
            schema, rows = fitted.schema, fitted.schema.read_inputs(x, copy=False)
        kind, values = read_labels(y, len(rows))
        announced = [] if classes is None else read_announced(classes, kind)
        if fitted is None:
            with self._numerics(None):
                fitted = self._built(schema, LabelEncoder().joined(kind, [*announced, *values]))
        labels = fitted.labels
        if not labels.knows(kind, [*announced, *values]):
            labels = labels.joined(kind, [*announced, *values])
        if fitted.engine.classes < len(labels.classes):
            check_growth(fitted.engine.method.net)  # refuses before anything has changed
        with self._numerics(fitted):  # only now is the precision of the first rows known
            numbers, batch = labels.transform(values), int(self.batch)  # torch takes no number of numpy's
            for start in range(0, len(values), batch):
                part = slice(start, start + batch)
                self._learn(fitted, labels, rows[part] if len(values) > batch else rows, numbers[part])

    def _built(self, schema: RowSchema, labels: LabelEncoder) -> Fitted:
        """Return what the first rows make of it, before one of them is learned."""
        engine = OnlineEngine(LearnerConfig.of(self.get_params()), schema, len(labels.classes))
        if engine.classes < len(labels.classes):
            check_growth(engine.method.net)
            engine.grow(len(labels.classes))
        return Fitted(engine, schema, labels)

    def _learn(self, fitted: Fitted, labels: LabelEncoder, image: Tensor, numbers: list[int]) -> None:
        """Let new classes join, make the updates on a batch, and consolidate the classes that are due."""
        before = fitted.arrivals.rows
        with self._turns.locked(), Changing(self):
            self._fitted = fitted  # of the first rows not before now: what ends before leaves nothing
            if labels is not fitted.labels:
                fitted.join(labels)
            fitted.learn(image, numbers)
            if self.trigger is None:
                self._consolidate_due(fitted, before, [])
        if self.trigger is not None:  # it is told of this update, and may ask the learner by other threads
            triggered = self._triggered(fitted)
            with self._turns.locked(), Changing(self, later=True) as changing:
                self._consolidate_due(fitted, before, triggered, changing.begin)

    def _triggered(self, fitted: Fitted) -> list[int]:
        """Return the classes for which the trigger says that they are due."""
        assert self.trigger is not None
        answer = self.trigger(self)
        if isinstance(answer, bool | np.bool_ | None):
            return fitted.arrivals.fresh() if answer else []
        return fitted.numbers_of(answer)

    def _consolidate_due(self, fitted: Fitted, before: int, triggered: list[int], on_change: OnChange = None) -> None:
        """Consolidate all classes in their round, else those that are triggered, else those that rest."""
        arrivals = fitted.arrivals
        due = [] if arrivals.is_full_round(before, self.every) else triggered
        due = due or arrivals.due(before, self.every, self.patience)
        if due:
            fitted.consolidate(due, on_change)
        elif self.patience and not (self.every or self.trigger) and before < SOON * self.patience <= arrivals.rows:
            fitted.note_restless(self.patience)

    def consolidate(self, labels: Iterable[Any] | None = None) -> list[Any]:
        """Keep prototypes of some classes for good, now.

        Args:
            labels: of the classes; unless given, all with rows since they were last consolidated.

        Returns:
            The labels of which prototypes were kept. For others `events` says why not.
        """
        with enough_memory(), self._turns.writing(), self._numerics(self._fitted), self._turns.locked():
            fitted = self._ready()
            numbers = fitted.arrivals.fresh() if labels is None else fitted.numbers_of(labels)
            with Changing(self, later=True) as changing:
                pinned = fitted.consolidate(numbers, changing.begin)
        self._give_warnings()
        return pinned

    def release(self, labels: Iterable[Any]) -> int:
        """Forget the prototypes of some classes; their room goes back to the short-term part.

        Args:
            labels: of the classes.

        Returns:
            How many rows that were.
        """
        with self._turns.writing(), self._turns.locked():
            fitted = self._ready()
            numbers = fitted.numbers_of(labels)
            with Changing(self):
                return fitted.engine.release(numbers)

    def _give_warnings(self) -> None:
        """Warn at the caller's line, when nothing can be torn by a warning that is an error."""
        fitted = self._fitted
        while fitted is not None and fitted.warnings:
            warnings.warn(fitted.warnings.pop(0), stacklevel=3)

    def save(self, path: str | Path) -> Path:
        """Write everything to one safetensors file, whole or not at all.

        Args:
            path: where to; a file that is there is replaced, and folders on the way are made.

        Returns:
            The path, as given.
        """
        with enough_memory(), self._turns.locked():
            self._ready()
            state = learner_state.capture(self)
        return learner_state.write(state, as_path(path))

    @classmethod
    @enough_memory()
    def load(cls, path: str | Path, **given: Any) -> Learner:
        """Return the learner that was saved, which goes on bit for bit; a file of anyone's can be read without harm.

        Layers that draw from torch's own generator, such as dropout, draw anew.

        Args:
            path: of the file.
            given: what no file can hold must be given again: `net` where it was an object, a class or a function, built
                as before (its weights are overwritten), `method` where it was a class, `trigger` where there was one.
                `threads` may be another than before, and `device`, which is of the kind it was saved on.

        Returns:
            The learner.
        """
        state = learner_state.read(as_path(path))
        learner = cls(**learner_state.parameters(cls, state, given))
        with learner._numerics(None):  # whatever ends it, the caller's settings of torch are put back
            learner._fitted = learner_state.restored(learner, state)
        return learner

    @classmethod
    def from_model(
        cls, model: TrainedModel, *, patience: int | None = 500, every: int | None = None, trigger: Any = None
    ) -> Learner:
        """Return a learner that goes on with a run's model: rows come by `partial_fit`, without borders.

        Carried on are the weights, the memory's rows and priorities, all that the method keeps, labels and scaling;
        optimizer, retrieval and tricks are the run's. Momentum and the memory's draws begin anew, so this is no
        resumed run (`odedm resume` is). With rho the long-term share is shared by all classes as they come. Methods and
        memories that need borders, views that know all classes and a transform of one's own are refused.

        Args:
            model: what `odedm.load` gave; it stays as it is.
            patience, every, trigger: when classes are consolidated, as for a learner from scratch.
        """
        return continued(cls, model, {"patience": patience, "every": every, "trigger": trigger})

    def __getstate__(self) -> dict[str, Any]:
        with self._turns.locked():
            state = packed(learner_state.capture(self)) if self._fitted is not None else None
            return {"parameters": self.get_params(), "state": state}

    def __setstate__(self, stored: dict[str, Any]) -> None:
        vars(self).update(stored["parameters"])
        self._begin()
        if stored["state"] is not None:
            self._fitted = learner_state.restored(self, unpacked(stored["state"]))

    def _check_pace(self) -> None:
        pace = self.batch, self.threads, self.patience, self.every, self.trigger
        if pace == self._pace:
            return
        Int(1, MOST_THREADS).validate("threads", self.threads)
        for name, optional in {"batch": False, "patience": True, "every": True}.items():
            value = getattr(self, name)
            if value is not None or not optional:
                Int(1).validate(name, value)
        if self.trigger is not None and not callable(self.trigger):
            raise UsageError(f"trigger must be a function of the learner; {short_repr(self.trigger)} was given.")
        self._pace = pace
