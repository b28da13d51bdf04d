"""Test-then-train: every batch of a stream is predicted first and learned after, at once or when its labels come."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from torch import Tensor

from odedm.core.errors import UsageError, short_repr
from odedm.core.validators import Int


class Learns(Protocol):
    """What can be tested: `odedm.Learner`, and any estimator of scikit-learn with these two.

    Those of scikit-learn want all labels with the first rows, `prequential(…, classes=[…])`.
    """

    def predict(self, x: Any) -> Any:
        """Labels [n] of rows [n, …]."""
        ...

    def partial_fit(self, x: Any, y: Any) -> Any:
        """Learn rows with labels."""
        ...


@dataclass
class Prequential:
    """How a learner did on a stream: every row was predicted before it was learned.

    Args:
        window: rows of a window.
        delay: how many rows later labels came.
        rows, right: rows that were predicted, and how many of them rightly.
        unanswered: rows before anything was learned, which are in no accuracy.
        seconds: for predicting and learning all of it.
        windows: of each window, the rows that had come at its end, how many were predicted, how many rightly.
    """

    window: int
    delay: int = 0
    rows: int = 0
    right: int = 0
    unanswered: int = 0
    seconds: float = 0.0
    windows: list[tuple[int, int, int]] = field(default_factory=list)

    @property
    def accuracy(self) -> float:
        """Return the share of the predicted rows that were right, as `score` does; not a number where none was."""
        return self.right / self.rows if self.rows else float("nan")

    @property
    def by_window(self) -> list[tuple[int, float]]:
        """Return how many rows had come at each window's end, and the accuracy in it."""
        return [(end, right / rows) for end, rows, right in self.windows if rows]

    def count(self, right: np.ndarray[Any, Any]) -> None:
        """Rows [n] that were predicted, rightly or not, in the order they came."""
        while len(right):
            if not self.windows or self.windows[-1][1] >= self.window:
                self.windows.append((self.windows[-1][0] if self.windows else self.unanswered, 0, 0))
            end, rows, good = self.windows[-1]
            part, right = right[: self.window - rows], right[self.window - rows :]
            self.windows[-1] = (end + len(part), rows + len(part), good + int(part.sum()))
            self.rows, self.right = self.rows + len(part), self.right + int(part.sum())

    def __repr__(self) -> str:
        late = f", labels {self.delay} rows late" if self.delay else ""
        untrained = f", {self.unanswered} before anything was learned" if self.unanswered else ""
        return f"<Prequential{late}: {self.accuracy:.2%} of {self.rows} rows in {self.seconds:.1f} s{untrained}>"

    def plot(self, axes: Any = None) -> Any:
        """Draw the accuracy by window, and of all rows so far.

        Args:
            axes: matplotlib's axes to draw into; a new figure's unless given.

        Returns:
            The axes.
        """
        try:
            from matplotlib.figure import Figure
        except ImportError:
            raise UsageError("A plot needs matplotlib: pip install 'odedm[plot]'.") from None
        axes = Figure(figsize=(6.4, 3.2), layout="constrained").subplots() if axes is None else axes
        ends = [end for end, _ in self.by_window]
        counted = np.cumsum([[rows, right] for _, rows, right in self.windows if rows], axis=0).reshape(-1, 2)
        axes.plot(ends, [100 * value for _, value in self.by_window], color="#0072b2", label=f"each {self.window} rows")
        axes.plot(ends, 100 * counted[:, 1] / counted[:, 0].clip(1), color="#6b7280", label="so far")
        axes.set(xlabel="rows", ylabel="accuracy before learning, %", ylim=(0, 100))
        axes.legend(frameon=False)
        return axes


def prequential(
    learner: Learns,
    stream: Iterable[tuple[Any, Any]],
    *,
    window: int = 1000,
    delay: int = 0,
    classes: Sequence[Any] | None = None,
) -> Prequential:
    """Test a learner on a stream as it learns it: each batch is predicted, then learned.

    Args:
        learner: an `odedm.Learner`, or anything with predict and partial_fit.
        stream: batches (x, y), from any iterable; one at a time is held, and those whose labels have yet to come.
        window: rows of a window of the accuracy.
        delay: labels come so many rows later: a batch is learned when as many rows after it have been predicted, the
            last ones when the stream is over.
        classes: all labels that may come, given to `partial_fit` with the first rows; most estimators of scikit-learn
            need them, a Learner does not.

    Returns:
        The accuracy in all and by window, with `plot()`.

    >>> from odedm import Learner, blobs
    >>> data = blobs()
    >>> batches = zip(data.image.split(32), data.label.split(32))
    >>> result = prequential(Learner("er", memory=40), batches, window=200)
    >>> result.unanswered, result.rows, len(result.windows)
    (32, 448, 3)
    """
    if isinstance(learner, type) or not all(hasattr(learner, name) for name in ("predict", "partial_fit")):
        raise UsageError(
            "learner must be an odedm.Learner, or an object with predict and partial_fit; "
            f"{short_repr(learner)} was given. Write prequential(odedm.Learner('er'), [(x, y)]), say."
        )
    result = Prequential(Int(1).validate("window", window), Int(0).validate("delay", delay))
    waiting: deque[tuple[Any, Any, int]] = deque()
    came, started = 0, time.perf_counter()
    learn = _teaching(learner, classes)
    try:
        batches = iter(stream)
    except TypeError:
        raise UsageError(f"stream must be an iterable of batches (x, y); {short_repr(stream)} was given.") from None
    for number, batch in enumerate(batches):
        if not isinstance(batch, tuple | list) or len(batch) != 2 or not hasattr(batch[1], "__len__"):
            raise UsageError(f"Batch {number} of the stream is no pair (x, y): {short_repr(batch)} was given.")
        x, y = batch
        amount = len(y)
        if hasattr(learner, "classes_"):
            result.count(_equal(learner.predict(x), y))
        else:
            result.unanswered += amount
        came += amount
        waiting.append((x, y, came))
        while waiting and came - waiting[0][2] >= delay:
            learn(*waiting.popleft()[:2])
    for x, y, _ in waiting:
        learn(x, y)
    result.seconds = time.perf_counter() - started
    return result


def _teaching(learner: Any, classes: Sequence[Any] | None) -> Callable[[Any, Any], None]:
    """The learner's `partial_fit`; the first call, and no other, gets the labels that may come, where there are any."""
    with_first = {} if classes is None else {"classes": classes}

    def learn(x: Any, y: Any) -> None:
        learner.partial_fit(x, y, **with_first)
        with_first.clear()

    return learn


def _equal(guess: Any, y: Any) -> np.ndarray[Any, Any]:
    """Which labels [n] are as they were predicted; of another type they are not."""
    true = y.detach().cpu().tolist() if isinstance(y, Tensor) else np.asarray(y).tolist()
    return np.array([one == other for one, other in zip(np.asarray(guess).tolist(), true, strict=True)], dtype=bool)
