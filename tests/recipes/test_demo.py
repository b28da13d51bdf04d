"""The demo's experiments."""

from __future__ import annotations

from odedm.recipes.demo import demo


def test_a_demo_that_is_stopped_has_whole_seeds():
    plans = demo(3)
    each = len(plans) // 3
    assert [plan.seed for plan in plans] == [0] * each + [1] * each + [2] * each
    assert [plan.with_seed(0) for plan in plans] == plans[:each] * 3
