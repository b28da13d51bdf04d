"""Equations 4 and 5: the Sinkhorn distance f_α(a, b), the transport cost ⟨P, M⟩ of the entropic plan."""

import numpy as np

CONVERGED, MOST = 1e-6, 2_000
"""The L1 error of a plan's marginals at which scaling ends, and the most iterations: then no cost moves by 0.01 %."""


def cloud_distance(x, y, epsilon=0.05):
    """Between two clusters: uniform weights, M the squared Euclidean distances, ε a share of M's mean.

    By matrix scaling in the log domain, P = diag(exp f/ε) · exp(−M/ε) · diag(exp g/ε).
    """
    cost = ((x[:, None] - y[None]) ** 2).sum(2)
    if cost.mean() == 0:
        return 0.0
    scaled = -cost / (epsilon * cost.mean())
    a, b = np.full(len(x), 1 / len(x)), np.full(len(y), 1 / len(y))
    f, g = np.zeros(len(x)), np.zeros(len(y))
    for _ in range(MOST):
        f = np.log(a) - _log_sum_exp(scaled + g, 1)
        g = np.log(b) - _log_sum_exp(scaled + f[:, None], 0)
        plan = np.exp(f[:, None] + scaled + g)
        if np.abs(plan.sum(1) - a).sum() < CONVERGED:
            break
    return (plan * cost).sum()


def pair_distances(rows, centres, cost, epsilon=0.1):
    """Between every row and every centre, each read as a histogram over bins, M the ground cost of bins: [n, k].

    One centre at a time with all rows, by Sinkhorn's matrix scaling with K = exp(−M/ε), ε a share of M's mean.
    """
    kernel = np.exp(-cost / (epsilon * cost.mean()))
    result = np.empty((len(rows), len(centres)))
    for column, b in enumerate(centres):
        v = np.ones_like(rows)
        for _ in range(MOST):
            u = _divide(rows, v @ kernel.T)
            v = _divide(b, u @ kernel)
            if np.abs(u * (v @ kernel.T) - rows).sum(1).max() < CONVERGED:
                break
        result[:, column] = (u * (v @ (kernel * cost).T)).sum(1)
    return result


def histograms(x, candidates):
    """Rows as probability vectors over their dimensions: shifted to be non-negative if need be, each with sum 1.

    A row without any mass counts as uniform.
    """
    mass = np.maximum(x - np.minimum(candidates.min(0), 0), 0)
    total = mass.sum(1, keepdims=True)
    return np.where(total > 0, mass / np.where(total > 0, total, 1), 1 / x.shape[1])


def profile_cost(candidates):
    """M between dimensions: the mean squared distance of their standardised activations over a class's candidates.

    So mass moves cheaply between units that fire together: 2 − 2 r for a correlation r. A dimension that never changes
    has none and counts as uncorrelated with every other.
    """
    centred = candidates - candidates.mean(0)
    deviation = centred.std(0)
    alive = deviation > 1e-6 * np.abs(candidates).max(0)
    standard = np.where(alive, centred / np.where(alive, deviation, 1), 0)
    cost = np.maximum(2 - 2 * standard.T @ standard / len(candidates), 0)
    np.fill_diagonal(cost, 0)
    return cost


def grid_cost(height, width):
    """M between the pixels of an image: the squared distance of their positions."""
    place = np.array([(row, column) for row in range(height) for column in range(width)], dtype=np.float64)
    return ((place[:, None] - place[None]) ** 2).sum(2)


def _log_sum_exp(values, axis):
    most = values.max(axis, keepdims=True)
    return np.log(np.exp(values - most).sum(axis)) + most.squeeze(axis)


def _divide(mass, by):
    return np.where(mass > 0, mass / np.maximum(by, 1e-300), 0)
