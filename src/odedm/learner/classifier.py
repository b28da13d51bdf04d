"""The face of whatever scores rows for classes with labels: a learner, and the trained model of a run."""

from __future__ import annotations

from typing import Any

import numpy as np
from torch import Tensor

from odedm.core.array_inputs import Array
from odedm.learner.label_encoder import LabelEncoder, read_labels


class Classifier:
    """Answers in labels, by scores."""

    def _score_rows(self, x: Any) -> tuple[Tensor, LabelEncoder]:
        """Return scores [n, C] of rows as users give them, and the labels of the columns."""
        raise NotImplementedError

    def predict(self, x: Any) -> Array:
        """Return the label of each row, among those that came so far.

        Args:
            x: rows like those that were learned, raw: they are scaled here.

        Returns:
            Labels [n], of the type that was given.
        """
        scores, labels = self._score_rows(x)
        return labels.inverse_transform(scores.argmax(1).cpu().numpy())

    def predict_proba(self, x: Any) -> Array:
        """Return how likely each class is for each row: the softmax of the method's scores.

        iCaRL's scores are minus squared distances to class means, and were never made to be probabilities.

        Args:
            x: rows as for `predict`.

        Returns:
            Probabilities [n, C] in the order of `classes_`; 0 of classes that were announced and never came.
        """
        scores, labels = self._score_rows(x)
        return scores.double().softmax(1).cpu().numpy()[:, labels.order]

    def score(self, x: Any, y: Any) -> float:
        """Return the share of rows whose label is predicted.

        Args:
            x: rows as for `predict`.
            y: their labels.

        Returns:
            A number from 0 to 1.
        """
        scores, labels = self._score_rows(x)
        kind, values = read_labels(y, len(scores))
        labels.check_kind(kind, values)  # labels of another type would all be wrong
        numbers = np.array([labels.number(value) for value in values])
        return float(np.mean(scores.argmax(1).cpu().numpy() == numbers))
