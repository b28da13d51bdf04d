"""Means, errors and pairing against numbers worked out by hand."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import numpy as np
import pytest

from odedm.report import statistics
from odedm.report.statistics import (
    bootstrap,
    estimate,
    holm,
    mean_interval,
    paired,
    sign_flip,
    smallest_p,
    student_quantile,
    student_tail,
)


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
    assert pair.better == 3


def test_pairing_goes_by_seed_not_by_position() -> None:
    pair = paired({2: 53.0, 0: 11.0}, {0: 10.0, 1: 999.0, 2: 50.0})
    assert pair is not None
    assert pair.by_seed == {0: 1.0, 2: 3.0}


def changed(*differences: float) -> statistics.Paired:
    pair = paired(dict(enumerate(differences)), dict.fromkeys(range(len(differences)), 0.0))
    assert pair is not None
    return pair


def test_standard_deviation_by_hand() -> None:
    assert estimate([2.0, 4.0, 6.0, 8.0]).sd == pytest.approx(math.sqrt(20.0 / 3.0))
    assert estimate([2.0]).sd is None


def test_clear_needs_five_seeds_and_an_interval_without_zero() -> None:
    assert not changed(1.0, 1.1, 0.9, 1.0).clear
    assert changed(1.0, 1.1, 0.9, 1.0, 1.2).clear
    assert changed(-1.0, -1.1, -0.9, -1.0, -1.2).clear
    assert not changed(5.0, 1.1, -0.9, 1.0, 1.2).clear
    assert not changed(0.0, 0.0, 0.0, 0.0, 0.0).clear


def every_resample(values: list[float], tail: float) -> tuple[float, float]:
    """The slow way: all n^n resamples in order, the first and last that leave `tail` of them out."""
    means = sorted(sum(draw) / len(values) for draw in itertools.product(values, repeat=len(values)))
    skip = math.ceil(tail * len(means)) - 1
    return means[skip], means[-1 - skip]


@pytest.mark.parametrize("values", [[1.0, 5.0, 2.0, -3.0], [0.5, 0.25, 4.0, 8.0, -1.0], [3.0, 1.0, 4.0, 1.0, 5.0, 9.0]])
def test_bootstrap_equals_all_resamples(values: list[float]) -> None:
    assert bootstrap(values) == pytest.approx(every_resample(values, statistics._tail(len(values), 0.95)))


@pytest.mark.parametrize("level", [0.3, 0.5, 0.8])
def test_both_ends_of_a_skewed_interval_equal_all_resamples(level: float) -> None:
    values = [0.0, 0.5, 1.0, 3.0, 20.0]
    assert bootstrap(values, level) == pytest.approx(every_resample(values, statistics._tail(5, level)))


def test_bootstrap_of_three_values_is_their_range_and_of_one_there_is_none() -> None:
    assert bootstrap([4.0, 1.0, 2.0]) == pytest.approx((1.0, 4.0))
    assert bootstrap([4.0]) is None


def test_many_values_are_drawn_the_same_each_time_and_reach_the_normal_interval() -> None:
    values = np.random.default_rng(0).normal(3.0, 2.0, 400).tolist()
    low, high = bootstrap(values) or (0.0, 0.0)
    assert (low, high) == bootstrap(values)
    value = estimate(values)
    assert value.error is not None
    assert low == pytest.approx(value.mean - 1.966 * value.error, abs=0.1 * value.error)
    assert high == pytest.approx(value.mean + 1.966 * value.error, abs=0.1 * value.error)


@pytest.mark.slow
def test_the_interval_holds_the_truth_about_as_often_as_it_says() -> None:
    # A plain percentile interval over five normal values holds their mean in about 83 of 100 cases.
    draws = np.random.default_rng(1).normal(size=(2000, 5))
    hits = sum(low <= 0.0 <= high for low, high in (bootstrap(row.tolist()) or (1.0, 1.0) for row in draws))
    assert 0.905 < hits / len(draws) < 0.965


@pytest.mark.parametrize(("n", "resampled"), [(2, 50), (3, 75), (4, 87)])
def test_over_few_seeds_the_interval_holds_as_it_says_and_a_bootstrap_would_not(n: int, resampled: int) -> None:
    draws = np.random.default_rng(n).normal(size=(2000, n)).tolist()

    def held(interval: Callable[[list[float]], tuple[float, float] | None]) -> float:
        intervals = [interval(row) or (1.0, 1.0) for row in draws]
        return 100 * sum(low <= 0.0 <= high for low, high in intervals) / len(draws)

    assert held(mean_interval) == pytest.approx(95, abs=1.5)
    assert held(bootstrap) == pytest.approx(resampled, abs=2.5), "so it is not used there"


def test_an_interval_is_students_below_five_values_and_the_bootstraps_from_there_on() -> None:
    assert mean_interval([1.0, 2.0, 4.0, 9.0]) == pytest.approx((-1.66, 9.66), abs=0.01)  # 4 ± 3.182 · 1.780
    five = [1.0, 2.0, 4.0, 9.0, 3.0]
    assert mean_interval(five) == bootstrap(five) == changed(*five).interval
    assert mean_interval([4.0]) is None


def every_flip(values: list[float]) -> float:
    observed = abs(sum(values))
    signs = itertools.product((1, -1), repeat=len(values))
    sums = [abs(sum(sign * value for sign, value in zip(row, values, strict=True))) for row in signs]
    return sum(total >= observed - 1e-9 for total in sums) / len(sums)


@pytest.mark.parametrize(
    "values", [[1.0, 2.0, 4.0], [3.0, -1.0, 2.0, 2.0], [0.1, 0.2, 0.3, -0.6], [0.0, 0.0], [1.0] * 9]
)
def test_sign_flip_equals_all_signs(values: list[float]) -> None:
    assert sign_flip(values) == pytest.approx(every_flip(values))


def test_sign_flip_by_hand() -> None:
    # Sums of ±1 ±2 ±3: 6, 4, 2, 0, 0, −2, −4, −6. The observed −1 + 2 + 3 = 4 is reached by 6, 4, −4, −6.
    assert sign_flip([-1.0, 2.0, 3.0]) == 0.5
    assert sign_flip([1.0]) is None
    assert sign_flip([1.4, 4.0, 2.8, 0.2]) == 0.125  # added in this order they fall short of 8.4 by a last bit


def test_agreeing_seeds_give_the_smallest_p() -> None:
    for n in (2, 3, 5, 10, 20):
        assert sign_flip([1.0 + i for i in range(n)]) == pytest.approx(smallest_p(n)) == pytest.approx(2 / 2**n)


def test_many_signs_are_drawn_and_never_give_zero() -> None:
    assert sign_flip([1.0 + i for i in range(30)]) == 1 / 100_000
    values = np.random.default_rng(3).normal(0.3, 1.0, 24).tolist()
    value = estimate(values)
    assert value.error is not None
    assert sign_flip(values) == pytest.approx(student_tail(abs(value.mean) / value.error, 23), abs=0.02)


def test_holm_by_hand() -> None:
    # Sorted .01 .02 .03 .04: 4 × .01, 3 × .02, 2 × .03, then never less than the one before.
    assert holm([0.03, 0.01, 0.04, 0.02]) == pytest.approx([0.06, 0.04, 0.06, 0.06])
    assert holm([0.5, 0.9]) == [1.0, 1.0]
    assert holm([0.2]) == [0.2]
    assert holm([]) == []


def test_student_against_known_values() -> None:
    assert student_tail(2.0, 1) == pytest.approx(1.0 - 2.0 * math.atan(2.0) / math.pi)  # Cauchy
    assert student_tail(2.0, 100_000) == pytest.approx(math.erfc(math.sqrt(2.0)), abs=1e-4)
    assert [student_quantile(0.95, f) for f in (2, 9, 30)] == pytest.approx([4.3027, 2.2622, 2.0423], abs=1e-4)
