"""What scikit-learn expects of a classifier: parameters that can be read, set and cloned, and answers in labels.

scikit-learn itself is not needed.
"""

from __future__ import annotations

import inspect
from typing import Any, Self

import numpy as np
from torch import Tensor

from odedm.core.array_inputs import Array
from odedm.core.errors import UsageError, short_repr, unknown_name_error
from odedm.core.rows import Rows
from odedm.learner.label_encoder import LabelEncoder, read_labels
from odedm.methods.hyperparameters import check_no_option

AT_ANY_TIME = ("patience", "every", "trigger", "batch", "threads")
"""Parameters that may change while a stream is under way."""


class NotYetFit(UsageError, AttributeError):
    """Something was asked of a learner that has learned nothing: to Python, an attribute that is not there."""


def _same(value: Any, other: Any) -> bool:
    """Whether a parameter has this value: the same object, or a name or number read from a file that is equal to it.

    >>> _same(float("0.9"), 0.9), _same(True, 1), _same([], [])
    (True, False, False)
    """
    return value is other or (type(value) is type(other) and isinstance(value, str | int | float) and value == other)


class Estimator:
    """Parameters are the constructor's keywords, kept under their names as they were given."""

    _estimator_type = "classifier"

    def __new__(cls, *places: Any, **given: Any) -> Self:
        """Say where a hyper-parameter of the method goes that was given as a keyword."""
        for name, value in given.items():
            if name not in cls._names():
                check_no_option(given.get("method", places[0] if places else "derpp"), name, value)
        return super().__new__(cls)

    @classmethod
    def _names(cls) -> list[str]:
        return [name for name in inspect.signature(cls.__init__).parameters if name != "self"]

    def get_params(self, deep: bool = True) -> dict[str, Any]:  # noqa: ARG002 - of scikit-learn; nothing is nested
        """The parameters by name.

        Args:
            deep: makes no difference; scikit-learn gives it.

        Returns:
            All of them, as they were given.
        """
        return {name: getattr(self, name) for name in self._names()}

    def set_params(self, **given: Any) -> Self:
        """Set parameters by name. Once rows were learned, only those that can change on the way; or clone it.

        Args:
            given: the new values.

        Returns:
            The learner.
        """
        for name, value in given.items():
            if name not in self._names():
                raise unknown_name_error("parameter of a learner", name, self._names())
            if self._is_fit() and name not in AT_ANY_TIME and not _same(value, getattr(self, name)):
                raise UsageError(
                    f"{name} cannot change after rows were learned; {', '.join(AT_ANY_TIME)} can. Make a new learner, "
                    "or sklearn.base.clone this one."
                )
        type(self)(**{**self.get_params(), **given})  # refuses what cannot be
        vars(self).update(given)
        return self

    def __repr__(self) -> str:
        plain = {
            name: parameter.default for name, parameter in inspect.signature(type(self).__init__).parameters.items()
        }
        changed = [
            f"{name}={short_repr(value)}" for name, value in self.get_params().items() if not _same(value, plain[name])
        ]
        return f"{type(self).__name__}({', '.join(changed)})"

    def _is_fit(self) -> bool:
        raise NotImplementedError

    def __sklearn_is_fitted__(self) -> bool:
        return self._is_fit()

    def __sklearn_tags__(self) -> Any:
        """What scikit-learn asks before it puts an estimator to use."""
        from sklearn.utils import ClassifierTags, InputTags, Tags, TargetTags

        return Tags(
            estimator_type="classifier",
            target_tags=TargetTags(required=True),
            classifier_tags=ClassifierTags(),
            input_tags=InputTags(two_d_array=True, three_d_array=True),
        )


def labelled_rows(rows: Rows, labels: LabelEncoder) -> dict[str, Any]:
    """Return rows of a memory as users get them: x, their labels y, prototype and index."""
    columns = {name: rows[name].cpu().numpy() for name in ("image", "label", "prototype", "index")}
    image, label = columns.pop("image"), columns.pop("label")
    return {"x": image, "y": labels.inverse_transform(label), **columns}


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
