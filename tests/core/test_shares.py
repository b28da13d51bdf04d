"""A held-out share is at least one row, never the whole class, and nothing is lost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from odedm.core.held_out_rows import hold_out


@given(st.permutations(range(30)), st.integers(2, 30), st.floats(0.001, 0.999))
def test_every_row_is_kept_or_held_out(order, size, share):
    rows = order[:size]
    kept, held = hold_out(rows, share)
    assert kept
    assert len(held) in {round(share * size), 1, size - 1}
    assert held == sorted(rows[: len(held)])
    assert sorted(kept + held) == sorted(rows)


@pytest.mark.parametrize("rows", [[], [4]])
def test_a_class_with_too_few_rows_has_none_to_spare(rows):
    assert hold_out(rows, 0.5) == (rows, [])
