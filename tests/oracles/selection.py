"""Equation 6: each sub-memory M(c, h) takes the rows of its class that are nearest to its prototype."""

import numpy as np


def nearest_rows(cost, rows_per_prototype=1):
    """One prototype after the other takes its nearest rows by `cost` [n, k] that none before it has taken."""
    taken = []
    for column in cost.T:
        free = [row for row in np.argsort(column, kind="stable") if row not in taken]
        taken += [int(row) for row in free[:rows_per_prototype]]
    return taken


def price(cost, taken, rows_per_prototype=1):
    """By how much each row that was taken costs more than the best that was free for it, as factors, and the margin.

    The margin is the factor by which the second best free row costs more than the best: where it is clear, only one
    choice is right.
    """
    factors, margins = [], []
    for place, row in enumerate(taken):
        column = cost[:, place // rows_per_prototype]
        free = np.setdiff1d(np.arange(len(cost)), taken[:place])
        order = np.sort(column[free])
        factors.append(column[row] / order[0])
        margins.append(order[1] / order[0] if len(order) > 1 else np.inf)
    return np.array(factors), np.array(margins)
