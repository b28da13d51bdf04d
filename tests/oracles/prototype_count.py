"""Equation 2, F_k: how many prototypes each class of a task gets."""

from fractions import Fraction
from math import floor


def prototype_count(rho, capacity, tasks, classes):
    """F_k(ρ) = [ρ·λ / (n − 1) · 1 / |C_i|], the nearest whole number; halves go up, as Table 2 has 13 for 12.5.

    Exact: ρ is the decimal fraction that is written, not the float next to it.
    """
    quotient = Fraction(str(rho)) * capacity / (tasks - 1) / classes
    return floor(quotient + Fraction(1, 2))
