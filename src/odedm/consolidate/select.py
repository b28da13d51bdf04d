"""Choose rows that stand for a whole set: reduce, centre, take the nearest distinct rows."""

from __future__ import annotations

import math
from typing import Any, overload

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from odedm.consolidate.dac import Dac, kept_rows
from odedm.consolidate.direct_choice import DIRECT_CHOICES, DirectChoice
from odedm.consolidate.distance import DISTANCES, Distance
from odedm.consolidate.kmeans import Clusters, kmeans
from odedm.consolidate.nearest import Chosen, nearest_distinct
from odedm.core.errors import UsageError, choose
from odedm.core.given_arrays import array_of
from odedm.core.rng import generator
from odedm.core.validators import Int, Pair, Validator, refused, validate_params

__all__ = ["Chosen", "nearest", "nearest_distinct", "select"]

ORDINARY = (2.0**-30, 2.0**40)
"""Between these the largest value of rows can be squared, summed and divided by without a loss, in float32 too."""


def nearest(distance: Distance, x: Tensor, clusters: Clusters, per: int = 1) -> Chosen:
    """The `per` nearest distinct rows of `x` [n, d] for each of its clusters, by a fitted distance.

    A distance may have a `nearest` of its own that chooses the same with less work; else all distances are compared.

    >>> x = torch.tensor([[0.0], [1.0], [5.0]])
    >>> nearest(DISTANCES["l2"], x, Clusters(torch.tensor([0, 1, 1]), torch.tensor([[0.9], [1.1]]), 0.0)).row.tolist()
    [1, 0]
    """
    own = getattr(distance, "nearest", None)
    if own is None:
        return nearest_distinct(row_distances(distance, x, clusters), per)
    chosen: Chosen = own(x, clusters.centroid, per)
    return chosen


def row_distances(distance: Distance, x: Tensor, clusters: Clusters) -> Tensor:
    """Distances of rows to clusters [n, k]: to their points where the distance knows how, else to their centroids."""
    to_clusters = getattr(distance, "to_clusters", None)
    if to_clusters is None:
        return distance.pairs(x, clusters.centroid)
    far: Tensor = to_clusters(x, clusters.label, len(clusters.centroid))
    return far


def all_finite(x: Tensor) -> bool:
    """Whether no number is a NaN or an infinity: a sum shows any, and each is looked at only where it overflows.

    >>> all_finite(torch.tensor([3e38, 3e38])), all_finite(torch.tensor([torch.inf, -torch.inf]))
    (True, False)
    """
    return bool(x.sum().isfinite()) or bool(x.isfinite().all())


class Shape(Validator):
    """The sizes of a picture."""

    expected = "three whole numbers (c, h, w), 1 or more"

    def convert(self, value: Any) -> tuple[int, ...]:
        """A tuple of plain ints."""
        sizes = tuple(Int(1).convert(each) for each in value)
        if len(sizes) != 3:
            raise ValueError
        return sizes


@overload
def select(
    x: Tensor,
    *,
    k: int,
    distance: str | Distance | DirectChoice = ...,
    dac: Dac | tuple[int, int] | None = ...,
    rows_per_prototype: int = ...,
    seed: int = ...,
    image_shape: tuple[int, ...] | None = ...,
) -> Tensor: ...
@overload
def select(
    x: Any,
    *,
    k: int,
    distance: str | Distance | DirectChoice = ...,
    dac: Dac | tuple[int, int] | None = ...,
    rows_per_prototype: int = ...,
    seed: int = ...,
    image_shape: tuple[int, ...] | None = ...,
) -> NDArray[np.int64]: ...
@validate_params(k=Int(1), rows_per_prototype=Int(1), seed=Int(), image_shape=Shape())
def select(
    x: Any,
    *,
    k: int,
    distance: str | Distance | DirectChoice = "sinkhorn",
    dac: Dac | tuple[int, int] | None = None,
    rows_per_prototype: int = 1,
    seed: int = 0,
    image_shape: tuple[int, ...] | None = None,
) -> Tensor | NDArray[np.int64]:
    """Choose rows of an array that stand for all of them: k prototypes, by k-means and the nearest rows to its centres.

    Args:
        x: rows [n, ...] of any real type, an array, tensor, list of lists or frame; each row is flattened.
        k: how many prototypes.
        distance: a name in `odedm list distances`, or an object like those. "sinkhorn" reads rows as histograms, so
            rows that differ by a factor alone are the same to it; "l2" tells them apart. "random" and
            "herding" make no clusters.
        dac: a pair (clusters, depth) that narrows the rows down first, by optimal transport as in a run; or a `Dac`,
            which has a distance of its own; or None.
        rows_per_prototype: rows that each prototype keeps.
        image_shape: (c, h, w) where rows are images, so that "sinkhorn" moves mass between pixels.
        seed: the same seed gives the same rows.

    Returns:
        Indices of distinct rows [k · rows_per_prototype], ordered by prototype, a tensor where `x` is one, else an
        array. Of fewer distinct rows than asked for, as many as there are; "random" and "herding" take copies for
        rows of their own.

    >>> import numpy as np
    >>> select(np.array([[0.0, 1.0], [0.1, 1.0], [1.0, 0.1], [1.0, 0.0], [1.0, 0.2]]), k=2, distance="l2").tolist()
    [2, 0]
    """
    points = _points(x, image_shape)
    known: dict[str, Distance | DirectChoice] = {**DISTANCES, **DIRECT_CHOICES}
    measure = choose("distance", distance, known) if isinstance(distance, str) else distance
    if not isinstance(measure, DirectChoice) and not hasattr(measure, "prepare"):
        raise refused("distance", f"one of {', '.join(known)}, or an object like those", distance)
    reducer = dac if isinstance(dac, Dac) else None
    if dac is not None and reducer is None:
        clusters, depth = Pair().validate("dac", dac)
        reducer = Dac(clusters, depth)
    points = _tame(points, by_name=isinstance(distance, str) and not isinstance(dac, Dac))
    rng = generator(seed, "select")
    if isinstance(measure, DirectChoice):
        if reducer is not None:
            raise UsageError(f"dac goes before clusters, and {type(measure).__name__} makes none; leave dac out.")
        picked = measure.pick(points, k * rows_per_prototype, rng)
        return picked if isinstance(x, Tensor) else picked.numpy()
    fitted = measure.prepare(points, image_shape)
    keep = torch.arange(len(points), device=points.device)
    if reducer is not None:
        keep = reducer.reduce(points, smallest=k * rows_per_prototype, rng=rng)
    kept = kept_rows(points, keep)
    clusters = kmeans(kept, k, rng=rng)
    chosen = keep[nearest(fitted, kept, clusters, rows_per_prototype).row]
    return chosen if isinstance(x, Tensor) else chosen.numpy()


def _tame(points: Tensor, *, by_name: bool) -> Tensor:
    """Rows whose squares neither overflow nor vanish: ordinary ones as they are, others by a power of two, exactly.

    Choices that go by a name are the same at every scale. An object may have a size in it, such as MMD's bandwidth.

    >>> _tame(torch.tensor([[2.0**100, 2.0**98]]), by_name=True)
    tensor([[0.5000, 0.1250]])
    """
    low, high = points.aminmax()
    largest = max(-float(low), float(high))
    if largest == 0 or ORDINARY[0] <= largest <= ORDINARY[1]:
        return points
    if not by_name:
        raise UsageError(
            f"The largest value of x is {largest:.3g}, which cannot be squared without loss. Multiply x, and whatever "
            "size distance or dac have in them, so that it is near 1."
        )
    half, rest = divmod(-math.frexp(largest)[1], 2)
    return points * 2.0**half * 2.0 ** (half + rest)  # at once it would be beyond float32


def _points(x: Any, image_shape: tuple[int, ...] | None) -> Tensor:
    """The rows as finite float points [n, d]."""
    if not isinstance(x, Tensor):
        x = array_of(x, "x")
        if x.dtype.kind not in "biuf":
            raise UsageError(f"x must hold real numbers; an array of type {x.dtype} was given.")
        x = torch.from_numpy(np.ascontiguousarray(x).astype(np.float64 if x.dtype == np.float64 else np.float32))
    if x.dim() < 2 or x.is_complex():
        raise UsageError(f"x must be real with shape [n, d] or [n, ...]; {x.dtype} {list(x.shape)} was given.")
    if x.numel() == 0:
        raise UsageError(f"x has nothing to choose from: its shape is {list(x.shape)}, at least 1 row is needed.")
    if image_shape is not None and math.prod(image_shape) != math.prod(x.shape[1:]):
        raise UsageError(f"image_shape {image_shape} does not hold the {math.prod(x.shape[1:])} values of a row of x.")
    points: Tensor = x.detach().flatten(1)
    points = points if points.dtype == torch.float64 else points.float()
    if not all_finite(points):
        bad = int((~points.isfinite()).any(1).nonzero()[0])
        raise UsageError(f"x must be finite; row {bad} holds a NaN or an infinity. Remove or repair such rows.")
    return points
