"""What settings take, in words: the bound that a value is beyond, names that can be typed, and code where it is legal."""

import numpy as np
import pytest

from odedm import Experiment, UsageError
from odedm.core.configuration import LARGEST, Whole


def test_a_number_beyond_counting_is_told_the_largest():
    with pytest.raises(UsageError, match=rf"^seed must be a whole number, 0 or more, up to {LARGEST}; {2**70} was"):
        Experiment(seed=2**70)
    for other in (-1, 0.5, True, "x", -(2**70)):
        with pytest.raises(UsageError, match="^seed must be a whole number, 0 or more; "):
            Experiment(seed=other)
    with pytest.raises(UsageError, match="^side must be a whole number, 1 or more, up to 9; "):
        Whole(1, 9).read("side", 2**70)
    assert Experiment(seed=np.int64(LARGEST)).seed == LARGEST
