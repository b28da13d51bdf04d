"""Weights from a safetensors file on disk: every name and every shape must fit, or the error says which does not."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable
from pathlib import Path

import torch
from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor, nn

from odedm.core.errors import UsageError

log = logging.getLogger(__name__)


def read_weights(
    net: nn.Module,
    path: str,
    *,
    renamed: Iterable[tuple[str, str]] = (),
    flattened: Collection[str] = (),
    head: str = "head",
) -> None:
    """Copy the file's tensors into the net, in the net's own precision.

    Names in the file are the net's own, or published ones that become them by the replacements in `renamed`. Those in
    `flattened` may have more dimensions in the file than here. The file must have every parameter and no other, save
    for the `head`: where that is missing or for another number of classes, the net keeps its fresh one. A net on the
    device "meta" is only checked.
    """
    weights: dict[str, Tensor] = {}
    for published, tensor in _load(path).items():
        name = rename(published, renamed)
        weights[name] = tensor.flatten(1) if name in flattened and tensor.dim() > 1 else tensor
    state = net.state_dict()
    last = [name for name in state if name.startswith(f"{head}.")]
    if any(name not in weights or weights[name].shape != state[name].shape for name in last):
        log.info("'%s' has no head for %s: it starts fresh.", path, tuple(state[f"{head}.weight"].shape))
        for name in last:
            state.pop(name)
            weights.pop(name, None)
    faults = [f"lacks {name}" for name in state if name not in weights]
    faults += [f"has {name}, which this net has not" for name in weights if name not in state]
    faults += [
        f"has {name} as {list(weights[name].shape)}, and here it is {list(state[name].shape)}"
        for name in state
        if name in weights and weights[name].shape != state[name].shape
    ]
    _refuse(faults, path, "Set the net's options, and the size of images, as they were when the file was written")
    with torch.no_grad():
        numbers = {name: weights[name].to(old.dtype) for name, old in state.items() if not old.is_meta}
        faults = [
            f"has NaN, infinite values, whole numbers or such beyond {tensor.dtype} in {name}"
            for name, tensor in numbers.items()
            if weights[name].is_floating_point() != tensor.is_floating_point() or not bool(tensor.isfinite().all())
        ]
        _refuse(faults, path, "Repair it")
        for name, tensor in numbers.items():
            state[name].copy_(tensor)


def rename(name: str, renamed: Iterable[tuple[str, str]]) -> str:
    """Return what a name in the file is called in the net.

    >>> rename("blocks.0.attn.proj.bias", [(".attn.proj.", ".attention.out_proj.")])
    'blocks.0.attention.out_proj.bias'
    """
    for published, replacement in renamed:
        name = name.replace(published, replacement)
    return name


def _load(path: str) -> dict[str, Tensor]:
    reason = "it is a folder" if Path(path).is_dir() else "there is no such file"
    try:
        if Path(path).is_file():  # a pipe would keep one waiting
            return load_file(path)
    except (OSError, SafetensorError) as error:
        reason = getattr(error, "strerror", None) or str(error).strip().rstrip(".")
    raise UsageError(f"Cannot read weights from '{path}': {reason}. Give a safetensors file.")


def _refuse(faults: list[str], path: str, advice: str) -> None:
    """Refuse a file with faults; the first three are named."""
    if faults:
        more = f", and {len(faults) - 3} more" if len(faults) > 3 else ""
        raise UsageError(
            f"The weights in '{path}' are not for this net: the file {', '.join(faults[:3])}{more}. {advice}, or take "
            "another file."
        )
