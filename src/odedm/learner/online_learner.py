"""The learner: rows come in batches for ever, it predicts at any time, and keeps prototypes of classes as they rest."""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

from odedm.core.errors import UsageError, short_repr
from odedm.core.files import as_path
from odedm.core.row_schema import RowSchema
from odedm.core.validators import Int
from odedm.learner import learner_state
from odedm.learner.answering import Answering
from odedm.learner.endless_memory import LearnerEvent
from odedm.learner.growth import check_growth
from odedm.learner.label_names import read_labels
from odedm.learner.online_parts import OnlineParts, Plan
from odedm.memory.live_parts import pins

CROWDED = "no room for candidates"
RESTLESS = "nothing rests"
SOON = 10
"""After so many times `patience` rows without one class that rested, a learner says so."""


class Learner(Answering):
    """A classifier for a stream without task borders: give it rows as they come, ask it when you like.

    `partial_fit`, `predict`, `predict_proba`, `score`, `get_params` and `set_params` are as in scikit-learn. Classes
    may join at any time and return at any time; time and memory per row stay flat.

    Args:
        method: a name in `odedm list methods` of one that needs no borders (er, der, derpp, fdr …), or a Method class.
        memory: an `ODEDM`, `Reservoir` or `Native`; a number n is ODEDM(n, candidates=n // 20). With rho, at most ρλ
            rows are long-term, shared equally by the classes consolidated so far; with k each class has k, until there
            is no room for more classes. Prototypes are chosen among short-term rows, or with candidates=N among N rows
            of each class that is not yet consolidated; all of it inside λ.
        net: a name in `odedm list nets`, "auto", an `nn.Module` of your own that ends with a linear layer, of which a
            copy is trained, or a class or function that makes one. Any number of outputs will do: the first label that
            comes has the first, and more are added as classes join.
        lr: the learning rate, short for options={"lr": …}.
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
        optimizer: a name in `odedm list optimizers`.
        retrieval: a name in `odedm list retrievals`: which stored rows a draw takes; `retrieval_options` are its own.
        updates: on each batch, with fresh views and draws.
        stream_loss: "asymmetric" or "adjusted": what the cross-entropy of new rows sets against them; None is the
            method's own.
        predict_by: "head" or "nearest-mean", the class means of stored rows' features; None is the method's own.
        weight_average: predict by a running average of the weights, of which so much is left after each batch, 0.95
            say, or over so many batches, 20 say; None is the last weights.
        views: of replayed rows: "crop", "strong" or "rotations". docs/how-to/ingredients.md has all five.
        seed: the same seed and the same batches give the same learner.
        device, threads, precision: where and how it computes, as for `odedm.train`.

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
        memory: Any = 200,
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
        retrieval: str = "uniform",
        retrieval_options: Any = None,
        updates: int = 1,
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
        self.weight_average, self.views, self.optimizer = weight_average, views, optimizer
        self.retrieval, self.retrieval_options = retrieval, retrieval_options
        self._check_pace()
        Plan.of(self.get_params())
        self._begin()

    def partial_fit(self, x: Any, y: Any, classes: Iterable[Any] | None = None) -> Learner:
        """Learn rows of the stream, each once, in steps of `batch` rows. What is refused changes nothing.

        Args:
            x: vectors [n, d] or images [n, h, w], [n, c, h, w] or [n, h, w, c]; arrays, tensors or a frame.
            y: their labels [n], text or numbers, of one type throughout.
            classes: labels that may come, where they are known; they get outputs now. Others may join all the same.

        Returns:
            The learner.
        """
        self._sound()
        self._check_pace()
        schema, rows = RowSchema.of_inputs(x) if self._schema is None else (self._schema, self._schema.read_inputs(x))
        kind, values = read_labels(y, len(rows))
        new = self._labels.new(kind, values)
        announced: list[Any] = []
        if classes is not None:
            if isinstance(classes, str) or not isinstance(classes, Iterable):
                raise UsageError(f"classes must be a list of labels that may come; {short_repr(classes)} was given.")
            listed = list(classes)
            other, announced = read_labels(listed, len(listed))
            if announced and other != kind:
                raise UsageError(f"classes are {other} and the labels {kind}; give both of one type.")
        if new or announced or self._parts is None:
            with self._numerics():
                self._join(schema, kind, [*announced, *values])
        with self._numerics():  # entered anew: only now is the precision of the first rows known
            label = torch.tensor(self._labels.numbers(values))
            batch = int(self.batch)  # torch takes no number of numpy's
            for start in range(0, len(rows), batch):
                self._step(rows[start : start + batch], label[start : start + batch])
        return self

    def fit(self, x: Any, y: Any) -> Learner:
        """Forget everything, then learn these rows once, in their order.

        Args:
            x: the rows.
            y: their labels.

        Returns:
            The learner.
        """
        Plan.of(self.get_params())
        self._begin()
        return self.partial_fit(x, y)

    def _join(self, schema: RowSchema, kind: str, values: list[Any]) -> None:
        """Outputs for labels that are new; the first rows build everything."""
        amount = len(self._labels.names) + len(self._labels.new(kind, values))
        parts = self._parts or OnlineParts(Plan.of(self.get_params()), schema, amount)
        if parts.classes < amount:
            check_growth(parts.method.net)  # refuses before anything has changed
            parts.grow(amount)
        self._parts, self._schema = parts, schema
        self._labels.join(kind, values)
        joining = amount - len(self._news)
        self._seen_at = torch.cat([self._seen_at, torch.full((joining,), -1)])
        self._news = torch.cat([self._news, torch.zeros(joining, dtype=torch.int64)])

    def _step(self, image: Tensor, label: Tensor) -> None:
        """The updates on a batch, then the classes that are due."""
        assert self._parts is not None
        try:
            crowded = self._parts.step(image, label, self._rows)
            before, self._rows = self._rows, self._rows + len(label)
            self._news += label.bincount(minlength=len(self._news))
            self._seen_at[label] = self._rows
            loss = float(self._parts.method.last_loss)
            if not math.isfinite(loss):
                raise UsageError(
                    f"After {self._rows} rows the loss is {loss}: training diverged. Go on from the last file "
                    f"that was saved, with a lower learning rate lr, which is "
                    f"{self._parts.method.lr:g}, or scale the rows."
                )
        except BaseException as error:
            self._broken = str(error) or type(error).__name__
            raise
        if crowded:
            said = {name for event in self._events if event.what == CROWDED for name in event.labels}
            self._note(CROWDED, [each for each in crowded if self._labels.names[each] not in said])
        due = self._due(before)
        if due:
            self._consolidate(due)
        elif self.patience and before < SOON * self.patience <= self._rows:
            self._say_restless(self.patience)

    def _say_restless(self, patience: int) -> None:
        """Prototypes are wanted, and patience alone will hardly bring any."""
        assert self._parts is not None
        if not pins(self._parts.plan.memory) or self.every or self.trigger or self.size("long"):
            return
        self._events.append(LearnerEvent(self._rows, RESTLESS, ()))
        warnings.warn(
            f"In {self._rows} rows no class was away for {patience} rows (patience), so there are no prototypes yet. "
            "Where classes never rest for so long give every=… rows, lower patience, or call consolidate(); where none "
            "are wanted give memory=Reservoir(…). Said once.",
            stacklevel=4,
        )

    def _due(self, before: int) -> list[int]:
        """The classes whose prototypes are to be chosen now."""
        if not (self.every or self.trigger or self.patience):
            return []
        fresh = self._news > 0
        if self.every and self._rows // self.every > before // self.every:
            return _numbers(fresh)
        if self.trigger is not None:
            said = self.trigger(self)
            due = _numbers(fresh & bool(said)) if isinstance(said, bool | np.bool_ | None) else self._known(said)
            if due:
                return due
        if self.patience:
            return _numbers(fresh & (self._rows - self._seen_at >= self.patience))
        return []

    def consolidate(self, labels: Iterable[Any] | None = None) -> list[Any]:
        """Keep prototypes of some classes for good, now.

        Args:
            labels: of the classes; unless given, all with rows since they were last consolidated.

        Returns:
            The labels of which prototypes were kept. For others `events` says why not.
        """
        self._ready()
        numbers = _numbers(self._news > 0) if labels is None else self._known(labels)
        with self._numerics():
            return self._consolidate(numbers)

    def _consolidate(self, classes: list[int]) -> list[Any]:
        assert self._parts is not None
        outcome = self._parts.consolidate(classes)
        self._news[classes] = 0
        for what, labels in (
            ("pinned", outcome.pinned),
            ("refused", outcome.refused),
            ("without rows", outcome.missing),
        ):
            self._note(what, labels)
        if outcome.refused and not self._warned:
            self._warned = True
            names = [self._labels.names[each] for each in outcome.refused]
            warnings.warn(
                f"There is no long-term room for {short_repr(names[0])}: of {self._parts.memory.capacity} "
                f"rows, prototypes of {self._parts.memory.pinned_classes()} classes take all that may be long-term. "
                "Such classes are learned and stay in the short-term part; raise the capacity, lower k or raise rho, "
                "or release classes. Said once; see events.",
                stacklevel=4,
            )
        return [self._labels.names[each] for each in outcome.pinned]

    def _note(self, what: str, classes: list[int]) -> None:
        if classes:
            self._events.append(LearnerEvent(self._rows, what, tuple(self._labels.names[each] for each in classes)))

    def release(self, labels: Iterable[Any]) -> int:
        """Forget the prototypes of some classes; their room goes back to the short-term part.

        Args:
            labels: of the classes.

        Returns:
            How many rows that were.
        """
        return self._ready().release(self._known(labels))

    def save(self, path: str | Path) -> Path:
        """Write everything to one safetensors file, whole or not at all.

        Args:
            path: where to; a file that is there is replaced, and folders on the way are made.

        Returns:
            The path.
        """
        self._ready()
        return learner_state.write(learner_state.capture(self, copies=False), as_path(path))

    @classmethod
    def load(cls, path: str | Path, **given: Any) -> Learner:
        """The learner that was saved, which goes on bit for bit; a file of anyone's can be read without harm.

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
        learner = cls(**learner_state.parameters(state, given))
        learner_state.restore(learner, state)
        return learner

    def __getstate__(self) -> dict[str, Any]:
        state = learner_state.capture(self) if self._parts is not None else None
        return {"parameters": self.get_params(), "state": state}

    def __setstate__(self, stored: dict[str, Any]) -> None:
        self.__dict__.update(learner_state.SINCE | stored["parameters"])
        self._begin()
        if stored["state"] is not None:
            learner_state.restore(self, stored["state"])

    def _check_pace(self) -> None:
        pace = self.batch, self.threads, self.patience, self.every, self.trigger
        if pace == self._pace:
            return
        for name, optional in {"batch": False, "threads": False, "patience": True, "every": True}.items():
            value = getattr(self, name)
            if value is not None or not optional:
                Int(1).validate(name, value)
        if self.trigger is not None and not callable(self.trigger):
            raise UsageError(f"trigger must be a function of the learner; {short_repr(self.trigger)} was given.")
        self._pace = pace


def _numbers(marked: Tensor) -> list[int]:
    numbers: list[int] = marked.nonzero().flatten().tolist()
    return numbers
