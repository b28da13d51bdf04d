"""scikit-learn's side of a learner: parameters that can be read, set and cloned; scikit-learn itself is not needed."""

from __future__ import annotations

import inspect
from typing import Any, Self

from odedm.core.errors import UsageError, short_repr, unknown_name_error
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
        plain = {name: each.default for name, each in inspect.signature(type(self).__init__).parameters.items()}
        own = [
            f"{name}={short_repr(value)}" for name, value in self.get_params().items() if not _same(value, plain[name])
        ]
        return f"{type(self).__name__}({', '.join(own)})"

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
