"""Choose rows that stand for a whole set: reduce, centre, take the nearest distinct rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
from torch import Tensor

from odedm.core.accel.device import enough_memory
from odedm.core.array_inputs import as_array
from odedm.core.errors import UsageError, choose
from odedm.core.rng import generator
from odedm.core.validators import Int, Pair, Validator, refused, validate_params
from odedm.selection.dac import Dac
from odedm.selection.distance import DISTANCES, Distance
from odedm.selection.nearest import Chosen, greedy_nearest, nearest
from odedm.selection.row_selector import ROW_SELECTORS, RowSelector
from odedm.selection.selector import PrototypeSelector, all_finite

__all__ = ["Chosen", "greedy_nearest", "nearest", "select"]

ORDINARY = (2.0**-30, 2.0**40)
"""Between these the largest value of rows can be squared, summed and divided by without a loss, in float32 too."""


class Shape(Validator):
    """The sizes of a picture."""

    expected = "three whole numbers (c, h, w), 1 or more"

    def convert(self, value: Any) -> tuple[int, ...]:
        """Return a tuple of plain ints."""
        sizes = tuple(Int(1).convert(size) for size in value)
        if len(sizes) != 3:
            raise ValueError
        return sizes


@enough_memory()
@validate_params(k=Int(1), rows_per_prototype=Int(1), seed=Int(), image_shape=Shape())
def select(
    x: Any,
    *,
    k: int,
    distance: str | Distance | RowSelector = "sinkhorn",
    dac: Dac | tuple[int, int] | None = None,
    rows_per_prototype: int = 1,
    seed: int = 0,
    image_shape: tuple[int, ...] | None = None,
) -> Any:
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
    known: dict[str, Distance | RowSelector] = {**DISTANCES, **ROW_SELECTORS}
    measure = choose("distance", distance, known) if isinstance(distance, str) else distance
    if not isinstance(measure, RowSelector) and not hasattr(measure, "fit"):
        raise refused("distance", f"one of {', '.join(known)}, or an object like those", distance)
    reducer = dac if isinstance(dac, Dac) else None
    if dac is not None and reducer is None:
        clusters, depth = Pair().validate("dac", dac)
        reducer = Dac(clusters, depth)
    if isinstance(measure, RowSelector) and reducer is not None:
        raise UsageError(f"dac goes before clusters, and {type(measure).__name__} makes none; leave dac out.")
    selector = PrototypeSelector(k, measure, reducer, rows_per_prototype)
    rows = selector.choose([points], [generator(seed, "select")], image_shape=image_shape)[0].rows.row
    return rows if isinstance(x, Tensor) else rows.numpy()


def _points(x: Any, image_shape: tuple[int, ...] | None) -> Tensor:
    """Return the rows as finite float points [n, d]."""
    if not isinstance(x, Tensor):
        x = as_array(x, "x")
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
    low, high = points.aminmax()
    largest = max(-float(low), float(high))
    if largest and not ORDINARY[0] <= largest <= ORDINARY[1]:
        raise UsageError(
            f"The largest value of x is {largest:.3g}, which cannot be squared without loss. Multiply x, and whatever "
            "size distance or dac have in them, so that it is near 1."
        )
    return points
