"""Checks for code from outside: whether a method, memory, distance or network does what runs rely on.

Each trains small networks on a synthetic stream for some seconds, and raises `CheckFailed` with a sentence.

>>> check_net("mlp", shape=(5,), classes=4)
"""

from odedm.testing.checks import check_distance, check_memory, check_method, check_net
from odedm.testing.contracts import CheckFailed

__all__ = ["CheckFailed", "check_distance", "check_memory", "check_method", "check_net"]
