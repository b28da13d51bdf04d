"""Training views by a function from outside."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import torch
from torch import Tensor, nn

from odedm.core.errors import UsageError
from odedm.core.registry import TRANSFORMS
from odedm.core.stored_names import stored
from odedm.stream.augment import Transform


@stored("transform/own")
@dataclass(frozen=True)
class OwnViews(Transform):
    """Training views by a function from outside: of raw images [n, ...], and of a generator if it takes two."""

    name: str = ""
    view: Callable[..., Any] = lambda image: image

    def to(self, device: torch.device) -> OwnViews:
        """Return the same with its constants on the device."""
        return replace(self, shift=self.shift.to(device), scale=self.scale.to(device))

    def _view(self, image: Tensor, rng: torch.Generator) -> Tensor:
        view = self.view(image, rng) if _takes_two(self.view) else self.view(image)
        if not isinstance(view, Tensor) or view.shape != image.shape:
            got = list(view.shape) if isinstance(view, Tensor) else f"a {type(view).__name__}"
            raise UsageError(f"The transform '{self.name}' must give a tensor {list(image.shape)}; it gave {got}.")
        return view


def views_of(name: str, transform: Transform) -> Transform:
    """Return the transform of a data set with the training views of this name."""
    if name == "data":
        return transform
    if name == "none":
        return replace(transform, pad=0, flip=False)
    return OwnViews(transform.shift, transform.scale, transform.pad, transform.flip, name, TRANSFORMS[name].load())


def _takes_two(function: Callable[..., Any]) -> bool:
    """Return whether a function needs two arguments, or has a second one for a generator."""
    try:
        known = list(inspect.signature(function).parameters.values())
    except (TypeError, ValueError):
        return False
    if isinstance(function, nn.Module):
        known = list(inspect.signature(function.forward).parameters.values())
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    positional = [parameter for parameter in known if parameter.kind in by_place]
    needed = [parameter for parameter in positional if parameter.default is parameter.empty]
    return len(needed) == 2 or (len(positional) > 1 and positional[1].name in ("rng", "generator"))
