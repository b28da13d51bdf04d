"""Weights from a safetensors file on disk: every name and every shape must fit, or the error says which does not."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Mapping
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from odedm.core.errors import UsageError

log = logging.getLogger(__name__)
FLOATS = (torch.float64, torch.float32, torch.float16, torch.bfloat16)


def read_weights(
    net: nn.Module, path: str, *, renamed: Iterable[tuple[str, str]] = (), flattened: Collection[str] = ()
) -> None:
    """Copy the file's tensors into the net, in the net's own precision.

    Names in the file are the net's own, or published ones that become them by the replacements in `renamed`. Those in
    `flattened` may have more dimensions in the file than here. The file must have every parameter and no other, save
    for the head: where that is missing or for another number of classes, the net keeps its fresh one. A net on the
    device "meta" is only checked.
    """
    weights: dict[str, Tensor] = {}
    for published, tensor in _load(Path(path)).items():
        name = own_name(published, renamed)
        if name in weights:
            raise UsageError(f"The file '{path}' has two tensors for the same weights, one of them {published}.")
        weights[name] = tensor.flatten(1) if name in flattened and tensor.dim() > 1 else tensor
    state = net.state_dict()
    for name in _fitting(state, weights, path):
        if not state[name].is_meta:
            state[name].copy_(_numbers(weights[name], state[name].dtype, name, path))


def own_name(name: str, renamed: Iterable[tuple[str, str]]) -> str:
    """Return what a name in the file is called in the net.

    >>> own_name("blocks.0.attn.proj.bias", [(".attn.proj.", ".attention.out_proj.")])
    'blocks.0.attention.out_proj.bias'
    """
    for published, own in renamed:
        name = name.replace(published, own)
    return name


def _load(path: Path) -> dict[str, Tensor]:
    reason = "it is a folder" if path.is_dir() else "" if path.exists() else "there is no such file"
    if path.exists() and not (path.is_file() or path.is_dir()):  # a pipe would keep one waiting
        reason = "it is no regular file"
    try:
        if not reason:
            return load_file(path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error).strip().rstrip(".")
    raise UsageError(f"Cannot read weights from '{path}': {reason}. Give a safetensors file.")


def _fitting(state: Mapping[str, Tensor], weights: Mapping[str, Tensor], path: str) -> list[str]:
    """Return the names whose values are to be copied: all, or all but the head's."""
    body = [name for name in state if not name.startswith("head.")]
    head = [name for name in state if name.startswith("head.")]
    missing = [name for name in body if name not in weights]
    unknown = [name for name in weights if name not in state]
    for what, names in (("lacks", missing), ("has, beyond what this net has,", unknown)):
        if names:
            raise UsageError(
                f"The weights in '{path}' are not for this net: the file {what} {_first(names)}. "
                "Set the net's options (e.g. depth) as they were when the file was written, or take another file."
            )
    unlike = [name for name in body if weights[name].shape != state[name].shape]
    if unlike:
        shapes = [f"{name} is {list(weights[name].shape)} but {list(state[name].shape)} here" for name in unlike]
        raise UsageError(
            f"The weights in '{path}' have other shapes than this net: {_first(shapes)}. Positions follow from the "
            "image's size and the patch, the rest from width and channels: set them as they were for the file."
        )
    if any(name not in weights or weights[name].shape != state[name].shape for name in head):
        log.info("'%s' has no head for %s: it starts fresh.", path, tuple(state["head.weight"].shape))
        return body
    return body + head


def _numbers(tensor: Tensor, dtype: torch.dtype, name: str, path: str) -> Tensor:
    """Return a tensor in the net's precision; refuse what is no finite number in it."""
    if tensor.dtype not in FLOATS:
        raise UsageError(f"The file '{path}' has {tensor.dtype} in place of weights in {name}; take another file.")
    numbers = tensor.to(dtype)
    if not bool(numbers.isfinite().all()):
        raise UsageError(
            f"The file '{path}' has NaN, infinite values or such beyond {dtype} in {name}; take another file."
        )
    return numbers


def _first(words: list[str]) -> str:
    """Return the first of many words.

    >>> _first(["a", "b", "c", "d", "e"])
    'a, b, c and 2 more'
    """
    return ", ".join(words[:3]) + (f" and {len(words) - 3} more" if len(words) > 3 else "")
