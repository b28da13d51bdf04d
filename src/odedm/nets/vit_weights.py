"""Weights from a safetensors file on disk: every name and every shape must fit, or the error says which does not."""

from __future__ import annotations

import logging
import math
from collections.abc import Collection, Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError, safe_open
from torch import nn

from odedm.core.errors import UsageError

log = logging.getLogger(__name__)


def read_weights(
    net: nn.Module, path: str, *, renamed: Iterable[tuple[str, str]] = (), flattened: Collection[str] = ()
) -> None:
    """Copy the file's tensors into the net, in the net's own precision.

    Names in the file are the net's own, or published ones that become them by the replacements in `renamed`. Those in
    `flattened` may have more dimensions in the file than here. The file must have every parameter and no other, save
    for the head: where that is missing or for another number of classes, the net keeps its fresh one. A net on the
    device "meta" is only checked.
    """
    if Path(path).exists() and not (Path(path).is_file() or Path(path).is_dir()):  # a pipe would keep one waiting
        raise UsageError(f"Cannot read weights from '{path}': it is no regular file. Give a safetensors file.")
    try:
        with safe_open(Path(path), framework="pt", device="cpu") as file:
            published = list(file.keys())
            names = {own_name(name, renamed): name for name in published}
            if len(names) < len(published):
                twice = [name for name in published if name not in names.values()]
                raise UsageError(f"The file '{path}' has two tensors for the same weights, one of them {_some(twice)}.")
            shapes = {own: tuple(file.get_slice(name).get_shape()) for own, name in names.items()}
            for own in shapes.keys() & set(flattened):
                shapes[own] = (*shapes[own][:1], math.prod(shapes[own][1:]))
            fitting = _fitting(net, shapes, path)
            for own, value in net.state_dict().items():
                if own in fitting and not value.is_meta:
                    given = _numbers(file.get_tensor(names[own]), value.dtype, names[own], path)
                    value.copy_(given.view(value.shape))
    except (OSError, SafetensorError) as error:
        raise UsageError(
            f"Cannot read weights from '{path}': {_reason(error, path)}. Give a safetensors file."
        ) from error


def own_name(name: str, renamed: Iterable[tuple[str, str]]) -> str:
    """What a name in the file is called in the net.

    >>> own_name("blocks.0.attn.proj.bias", [(".attn.proj.", ".attention.out_proj.")])
    'blocks.0.attention.out_proj.bias'
    """
    for published, here in renamed:
        name = name.replace(published, here)
    return name


def _fitting(net: nn.Module, shapes: dict[str, tuple[int, ...]], path: str) -> set[str]:
    """The names whose values are to be copied."""
    wanted = {name: tuple(value.shape) for name, value in net.state_dict().items()}
    head = {name for name in wanted if name.startswith("head.")}
    missing = [name for name in wanted if name not in shapes and name not in head]
    foreign = [name for name in shapes if name not in wanted]
    for what, names in (("lacks", missing), ("has, beyond what this net has,", foreign)):
        if names:
            raise UsageError(
                f"The weights in '{path}' are not for this net: the file {what} {_some(names)}. "
                "Set the net's options (e.g. depth) as they were when the file was written, or take another file."
            )
    unlike = [name for name in wanted if name not in head and shapes[name] != wanted[name]]
    if unlike:
        which = ", ".join(f"{name} is {list(shapes[name])} but {list(wanted[name])} here" for name in unlike[:3])
        more = f" and {len(unlike) - 3} more" if len(unlike) > 3 else ""
        raise UsageError(
            f"The weights in '{path}' have other shapes than this net: {which}{more}. Positions follow from the "
            "image's size and the patch, the rest from width and channels: set them as they were for the file."
        )
    if any(shapes.get(name) != wanted[name] for name in head):
        log.info("'%s' has no head for %s: it starts fresh.", path, wanted["head.weight"])
        return wanted.keys() - head
    return set(wanted)


def _numbers(value: torch.Tensor, dtype: torch.dtype, name: str, path: str) -> torch.Tensor:
    known = value.dtype in (torch.float64, torch.float32, torch.float16, torch.bfloat16)
    number = value.to(dtype) if known else value
    if not known or not bool(number.isfinite().all()):
        what = f"NaN, infinite values or such beyond {dtype}" if known else f"{value.dtype} in place of weights"
        raise UsageError(f"The file '{path}' has {what} in {name}; take another file.")
    return number


def _some(names: list[str]) -> str:
    """The first of many names.

    >>> _some(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


def _reason(error: Exception, path: str) -> str:
    if not Path(path).exists():
        return "there is no such file"
    if Path(path).is_dir():
        return "it is a folder"
    return getattr(error, "strerror", None) or str(error).strip().rstrip(".")
