"""What the package chooses under `ODEDM.paper`, and on the way to it, as its public interface shows it.

A distance of one's own is asked for the clusters of divide-and-conquer and for rows and centres, so it sees them all.
The draws of k-means do not depend on the distance, so what it sees holds for the paper's distance with the same seed.
"""

from dataclasses import dataclass, field
from itertools import count

import numpy as np
import torch

import odedm
from odedm.selection.flat_settings import beside
from oracles.sinkhorn import cloud_distance

_numbers = count()


@dataclass
class Watched:
    """What was seen of one class: its candidates, the pairs of clusters compared, and the rows kept with centres."""

    candidates: np.ndarray
    compared: list = field(default_factory=list)
    kept: np.ndarray | None = None
    centres: np.ndarray | None = None


class Watching:
    """A distance that keeps what it is asked for: clusters by the oracle's distance, rows and centres by L2."""

    def __init__(self):
        self.classes = []

    def fit(self, candidates, image_shape):
        self.classes.append(Watched(_double(candidates)))
        return _Fitted(self.classes[-1])

    def pairwise(self, x, y):
        raise AssertionError("fit was not called")

    between_sets = pairwise


class _Fitted:
    def __init__(self, seen):
        self.seen = seen

    def fit(self, candidates, image_shape):
        return self

    def between_sets(self, x, y):
        x, y = _double(x), _double(y)
        self.seen.compared.append((x, y))
        return torch.tensor(cloud_distance(x, y))

    def pairwise(self, x, y):
        self.seen.kept, self.seen.centres = _double(x), _double(y)
        return torch.cdist(x, y)


def paper_with(capacity, rho, **changes):
    """`ODEDM.paper` with other settings, given side by side."""
    flat = odedm.ODEDM.paper(capacity, rho).flat()
    return odedm.ODEDM.from_flat(**{**beside(flat, changes), **changes})


def watch(capacity, rho, *, clusters=False, **settings):
    """`ODEDM.paper` with such a distance of rows to centres, and what it sees of each class.

    With `clusters` the distance between clusters is another such one, whose comparisons are seen as well.
    """
    name, rows, parts = f"watching-{next(_numbers)}", Watching(), Watching()
    odedm.register("distances", name, rows)
    odedm.register("distances", f"{name}-clusters", parts)
    own = {"distance": name, "dac_distance": f"{name}-clusters"} if clusters else {"distance": name}
    return paper_with(capacity, rho, **own, **settings), rows.classes, parts.classes


def long_term(settings, points, labels=None, seed=0):
    """The numbers of the rows that a memory with these settings keeps for good, in its order."""
    labels = np.zeros(len(points), dtype=np.int64) if labels is None else labels
    memory = odedm.DualMemory.from_config(settings, seed=seed)
    memory.add(points, labels, number=np.arange(len(points)))
    memory.end_task(embed=lambda rows: rows)
    return memory.rows("long")["number"].tolist()


def numbers_of(points, rows):
    """Which of `points` these `rows` are; each is there once."""
    place = {point.tobytes(): number for number, point in enumerate(points)}
    assert len(place) == len(points)
    return [place[row.tobytes()] for row in rows]


def partitions(points, compared):
    """Step 1 of Algorithm 2 as the package did it, told from the pairs of clusters [(x, y), …] that were compared.

    A function as `divide_and_conquer` wants it: each round's labels for the rows that are left.
    """
    pairs = iter([tuple(tuple(numbers_of(points, part)) for part in pair) for pair in compared])

    def partition(left, amount):
        parts, seen = {}, 0
        while sum(map(len, parts)) < len(left):
            seen += 1
            parts.update(dict.fromkeys(next(pairs)))
        assert 2 <= len(parts) <= amount
        for _ in range(len(parts) * (len(parts) - 1) // 2 - seen):
            next(pairs)
        cluster = {number: place for place, part in enumerate(parts) for number in part}
        rows = numbers_of(points, left)
        assert sorted(rows) == sorted(cluster), "the package went on with other rows"
        return np.array([cluster[number] for number in rows])

    return partition


def _double(x):
    return x.detach().cpu().double().numpy().copy()
