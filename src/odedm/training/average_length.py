"""How long a running average of the weights is, in the ways that people give it."""

from __future__ import annotations

from typing import Any

from odedm.core.validators import Float, Validator


class Length(Validator):
    """How long an average is: what is left of it after a batch, or over how many batches it goes.

    >>> Length().validate("weight_average", 0.98), Length().validate("weight_average", 50)
    (0.98, 50.0)
    """

    cli_type = float
    expected = "a number from 0 to 1 (how much of it is left after a batch) or from 2 on (over how many batches)"

    def convert(self, value: Any) -> float:
        """Return a plain float."""
        number = Float(0).convert(value)
        if 1 < number < 2:
            raise ValueError
        return number


def left_after_a_batch(length: float) -> float:
    """Return what is left of an average of this length.

    >>> left_after_a_batch(50), left_after_a_batch(0.9)
    (0.98, 0.9)
    """
    return length if length <= 1 else 1 - 1 / length


def few_digits(left: float) -> float:
    """For a description: three digits, and six for long averages, of which three would make others.

    >>> few_digits(0.9936), few_digits(1 - 1 / 5000)
    (0.994, 0.9998)
    """
    return round(left, 3 if left < 0.995 else 6)  # by three 5000 batches would be 1, the mean of all weights
