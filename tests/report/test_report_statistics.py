"""Means, errors and pairing against numbers worked out by hand."""

from __future__ import annotations

import math

import pytest

from odedm.report.statistics import chance_of_two_errors, estimate, paired


def test_mean_and_standard_error_by_hand() -> None:
    # Deviations −3, −1, 1, 3: variance 20 / 3, standard error √(20 / 3 / 4).
    value = estimate([2.0, 4.0, 6.0, 8.0])
    assert (value.mean, value.n) == (5.0, 4)
    assert value.error == pytest.approx(math.sqrt(5.0 / 3.0))


def test_one_seed_has_no_error_and_none_has_no_mean() -> None:
    assert estimate([7.0]).error is None
    with pytest.raises(ValueError, match="no values"):
        estimate([])


def test_pairing_removes_what_the_seed_does_to_both_sides() -> None:
    control = {0: 10.0, 1: 30.0, 2: 50.0}
    treated = {seed: value + change for (seed, value), change in zip(control.items(), (1.0, 2.0, 3.0), strict=True)}
    pair = paired(treated, control)
    assert pair is not None
    assert pair.estimate.mean == pytest.approx(2.0)
    assert pair.estimate.error == pytest.approx(1.0 / math.sqrt(3.0))  # unpaired it would be above 16
    assert pair.clear
    assert pair.better == 3


def test_pairing_goes_by_seed_not_by_position() -> None:
    pair = paired({2: 53.0, 0: 11.0}, {0: 10.0, 1: 999.0, 2: 50.0})
    assert pair is not None
    assert pair.by_seed == {0: 1.0, 2: 3.0}


def test_clear_begins_at_two_standard_errors() -> None:
    # Differences a ± 1 have mean a and standard error 1.
    def around(mean: float) -> bool:
        pair = paired({0: mean + 1.0, 1: mean - 1.0}, {0: 0.0, 1: 0.0})
        assert pair is not None
        return pair.clear

    assert (around(2.0), around(1.99), around(-2.0), around(-1.99)) == (True, False, True, False)


def test_no_difference_at_all_is_not_clear() -> None:
    pair = paired({0: 1.0, 1: 1.0}, {0: 1.0, 1: 1.0})
    assert pair is not None
    assert pair.estimate.error == 0.0
    assert not pair.clear


def test_chance_tends_to_the_normal_tail() -> None:
    assert chance_of_two_errors(2) == pytest.approx(1.0 - 2.0 * math.atan(2.0) / math.pi)  # Cauchy
    assert chance_of_two_errors(100_000) == pytest.approx(math.erfc(math.sqrt(2.0)), abs=1e-4)
