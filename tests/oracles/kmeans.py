"""F_centre of Section 3.2: k-means, started by k-means++."""

import numpy as np


def squared_distances(points, centres):
    """|x − c|² of every point and centre [n, k]."""
    return np.array([((points - centre) ** 2).sum(1) for centre in centres]).T


def inertia(points, centres):
    """What k-means makes small: the sum over all points of the squared distance to the nearest centre."""
    return squared_distances(points, centres).min(1).sum()


def lloyd(points, centres):
    """Lloyd's algorithm until no point changes its cluster: the labels [n] and the means [k, d].

    A cluster that loses all its points takes the point that is farthest from its centre.
    """
    centres, before = np.array(centres, dtype=np.float64), None
    while True:
        squares = squared_distances(points, centres)
        label = squares.argmin(1)
        for cluster in range(len(centres)):
            if not (label == cluster).any():
                label[squares.min(1).argmax()] = cluster
        if before is not None and (label == before).all():
            return label, centres
        centres = np.array([points[label == cluster].mean(0) for cluster in range(len(centres))])
        before = label


def plus_plus(points, k, rng):
    """k-means++: each next starting centre is a point drawn in proportion to its squared distance to those so far."""
    centres = [points[rng.integers(len(points))]]
    while len(centres) < k:
        squares = squared_distances(points, centres).min(1)
        centres.append(points[rng.choice(len(points), p=squares / squares.sum())])
    return np.array(centres)


def kmeans(points, k, rng, starts=1):
    """The best of some starts by inertia: labels [n] and means. As many clusters as distinct points, at most k."""
    k = min(k, len(np.unique(points, axis=0)))
    runs = [lloyd(points, plus_plus(points, k, rng)) for _ in range(starts)]
    return min(runs, key=lambda run: inertia(points, run[1]))
