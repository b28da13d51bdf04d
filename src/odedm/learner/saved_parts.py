"""Checks of what is in a saved file, which may be anyone's: labels, rows, transform, parts that are code."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor

from odedm.core.errors import InvalidFileError, UsageError, require, short_repr
from odedm.core.row_schema import RowSchema
from odedm.core.rows import ColumnSpec
from odedm.learner.label_encoder import LabelEncoder, read_labels
from odedm.nets.build import build_on_meta, configure, pick
from odedm.stream.augment import Transform
from odedm.training.model_file import TRANSFORM

MOST_CLASSES = 1 << 24
TYPES = {"uint8": torch.uint8, "float32": torch.float32}
ERRORS = (KeyError, TypeError, ValueError, IndexError, AttributeError, RuntimeError, ArithmeticError)
"""What a file of anyone's may raise."""


@contextmanager
def refusing(what: str) -> Iterator[None]:
    """Make of every error inside the block one that says what cannot be used."""
    try:
        yield
    except InvalidFileError as error:
        raise UsageError(f"{what} cannot be used: {error}.") from error
    except UsageError:
        raise
    except ERRORS as error:
        raise UsageError(f"{what} cannot be used: {short_repr(str(error), 200)}.") from error


def check_again(part: str, name: str | None, given: Any, title: str, loader: str) -> None:
    """Refuse a load that is not given what the file cannot hold, or is given what the file names.

    Args:
        part: "net", "method" or "trigger".
        name: that in the file; None where the part was code.
        given: what the caller gives in its place.
        title: what it was.
        loader: the function that is called.
    """
    if name is None and given is None:
        raise UsageError(
            f"The {part} was {title}, of a script or an object, which no file holds. Give it again: "
            f"{loader}(path, {part}=…)."
        )
    if name is not None and given is not None:
        raise UsageError(f"The file names its {part} ('{short_repr(name)}'); leave {part} out.")


def without_weights(options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a net's options without the file that it once began with: a saved model has all its weights itself.

    A path in a file would be another's word on what to read.
    """
    return {name: value for name, value in options.items() if name != "weights"}


def check_size(
    net: Any, shape: tuple[int, ...], outputs: int, options: Mapping[str, Any], tensors: Mapping[str, Tensor]
) -> None:
    """Refuse a network, by its name or of anyone's, of more weights than the file has numbers, before it is built."""
    held = sum(tensor.numel() for tensor in tensors.values())
    require(outputs <= held, f"it would have {outputs} outputs, and its network has {held} numbers")
    if isinstance(net, str):
        net = pick(net, shape)
        planned = build_on_meta(net, shape, outputs, configure(net, shape, outputs, options))
        needed = sum(weight.numel() for weight in planned.parameters())
        require(needed <= held, f"its network would have {needed} weights, and {held} are in the file")


def row_schema(plain: Any) -> RowSchema:
    """Return what the first rows were, as a file has it."""
    require(isinstance(plain, list) and len(plain) == 3, "its rows are not described")
    shape, dtype, names = plain
    require(isinstance(shape, list) and len(shape) in (1, 3), "its rows have no shape")
    require(all(type(side) is int and 1 <= side <= MOST_CLASSES for side in shape), "its rows have no shape")
    require(isinstance(dtype, str) and dtype in TYPES, "its rows have no type")
    named = names is None or (
        isinstance(names, list) and len(names) == math.prod(shape) and all(isinstance(name, str) for name in names)
    )
    require(named, "its features have no names")
    return RowSchema((ColumnSpec("image", tuple(shape), TYPES[dtype]),), names and tuple(names))


def label_encoder(values: Any) -> LabelEncoder:
    """Return the labels so far, as a file lists them."""
    require(isinstance(values, list), "its labels are not listed")
    try:
        kind, plain = read_labels(values, len(values))
    except UsageError as error:
        raise InvalidFileError("its labels are of no kind, or of mixed types") from error
    require(list(map(type, plain)) == list(map(type, values)), "its labels are of mixed types")
    labels = LabelEncoder().joined(kind, plain)
    require(len(labels.classes) == len(values), "a label is there twice")
    return labels


def transform_of(head: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> Transform:
    """Return the constants that scale rows, and the views."""
    views, constants = head["transform"], [tensors.get(f"{TRANSFORM}{name}") for name in ("shift", "scale")]
    sound = isinstance(views, list) and len(views) == 2 and type(views[0]) is int and 0 <= views[0] <= 1000
    require(sound and type(views[1]) is bool, "its crop and flip settings are malformed")
    for constant in constants:
        sound = constant is not None and constant.is_floating_point() and bool(constant.isfinite().all())
        require(sound, "the constants that scale its rows are not finite numbers")
    shift, scale = constants
    assert shift is not None
    assert scale is not None
    return Transform(shift, scale, views[0], views[1])
