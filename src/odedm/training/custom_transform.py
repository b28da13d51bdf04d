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
class CustomTransform(Transform):
    """Training views by a function from outside: of raw images [n, ...], and of a generator if it takes two."""

    name: str = ""
    view: Callable[..., Any] = lambda image: image

    def to(self, device: torch.device) -> CustomTransform:
        """Return the same with its constants on the device."""
        return replace(self, shift=self.shift.to(device), scale=self.scale.to(device))

    def _view(self, image: Tensor, rng: torch.Generator) -> Tensor:
        view = self.view(image, rng) if _takes_generator(self.view) else self.view(image)
        if not isinstance(view, Tensor) or view.shape != image.shape:
            given = list(view.shape) if isinstance(view, Tensor) else f"a {type(view).__name__}"
            raise UsageError(f"The transform '{self.name}' must give a tensor {list(image.shape)}; it gave {given}.")
        return view


def transform_by_name(name: str, transform: Transform) -> Transform:
    """Return the transform of a data set with the training views of this name."""
    if name == "data":
        return transform
    if name == "none":
        return replace(transform, pad=0, flip=False)
    constants = transform.shift, transform.scale, transform.pad, transform.flip, transform.limit
    return CustomTransform(*constants, name, TRANSFORMS[name].load())


def _takes_generator(function: Callable[..., Any]) -> bool:
    """Return whether a function needs a second argument, or has one that is named after a generator."""
    try:
        known = inspect.signature(function.forward if isinstance(function, nn.Module) else function).parameters.values()
    except (TypeError, ValueError):  # of code that is not Python's
        return False
    by_place = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    second = [parameter for parameter in known if parameter.kind in by_place][1:2]
    return any(parameter.default is parameter.empty or parameter.name in ("rng", "generator") for parameter in second)
