"""Networks of other libraries by their names there, "timm:NAME" and "torchvision:NAME", and what images they take."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odedm.core.errors import UsageError, describe_error
from odedm.nets.base import Net
from odedm.nets.wrap import FINISHING, NetFactory

PRETRAINED = "pretrained"
"""What `weights` says instead of a file's path to let the library load its own, from its cache or the network."""
IMAGENET = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclass(frozen=True)
class Preprocessing:
    """How a pretrained network takes images: of this size where it has one, scaled from 0..1 by mean and deviation."""

    size: int | None = None
    mean: tuple[float, ...] = (0.0,)
    deviation: tuple[float, ...] = (1.0,)

    def __call__(self, image: Tensor) -> Tensor:
        """Return inputs of raw images [n, c, h, w]; grey ones get as many channels as there are means.

        >>> Preprocessing(4, *IMAGENET)(torch.zeros(2, 1, 8, 8, dtype=torch.uint8)).shape
        torch.Size([2, 3, 4, 4])
        """
        x = image.float() / 255 if image.dtype == torch.uint8 else image.float()
        if image.dim() != 4:
            return x
        if self.size is not None and image.shape[2:] != (self.size, self.size):
            x = F.interpolate(x, (self.size, self.size), mode="bicubic", antialias=True).clamp(x.min(), x.max())
        mean, deviation = (torch.tensor(values, device=x.device).view(1, -1, 1, 1) for values in self.constants)
        return (x - mean) / deviation

    @property
    def constants(self) -> tuple[tuple[float, ...], tuple[float, ...]]:
        """Return means and deviations by channel."""
        return self.mean, self.deviation


class LibraryNet(NetFactory):
    """Makes nets of another library: "timm:resnet18" or "torchvision:resnet18".

    `weights` is a safetensors file with the library's own names, or "pretrained", by which the library loads its own.
    """

    def __init__(self, name: str) -> None:
        self.library, _, self.model = name.partition(":")
        self.source, self.title, self.parameters = MAKERS[self.library], name, {}
        options = [inspect.Parameter(option, inspect.Parameter.KEYWORD_ONLY, default="") for option in FINISHING]
        self.__signature__ = inspect.Signature(options)

    def __call__(self, shape: tuple[int, ...], classes: int, **options: Any) -> Net:
        """Make a net for images of a shape and so many classes."""
        if options.get("weights") != PRETRAINED:
            return super().__call__(shape, classes, **options)
        planned = torch.get_default_device().type == "meta"  # which loads nothing
        return super().__call__(shape, classes, **{**options, "weights": "", "pretrained": not planned})

    def make(self, shape: tuple[int, ...], classes: int, options: Mapping[str, Any]) -> nn.Module:
        """Make the module with fresh weights, or the library's."""
        if len(shape) != 3:
            raise UsageError(f"The net '{self.title}' is for images; these rows are vectors of shape {list(shape)}.")
        return self._made(classes, in_chans=shape[0], **options)

    def _made(self, classes: int, **options: Any) -> nn.Module:
        try:
            module: nn.Module = self.source(self.model, classes, **options)
        except UsageError:
            raise
        except Exception as error:  # the library may raise what it likes
            raise UsageError(f"The net '{self.title}' cannot be made: {describe_error(error)}.") from error
        return module

    def preprocessing(self) -> Preprocessing:
        """Return how its published weights take images."""
        with torch.device("meta"):
            module = self._made(2)
        config = getattr(module, "pretrained_cfg", None) or {}
        size = config.get("input_size", (3, 224, 224))[-1]
        return Preprocessing(size, tuple(config.get("mean", IMAGENET[0])), tuple(config.get("std", IMAGENET[1])))


def _library(name: str) -> Any:
    try:
        return import_module(name)
    except Exception as error:  # torchvision may raise what it likes where it is of another torch
        raise UsageError(
            f"{name} cannot be imported ({describe_error(error)}): install it, e.g. pip install 'odedm[timm]', in the "
            "version for this torch."
        ) from error


def _timm(name: str, classes: int, *, in_chans: int = 3, pretrained: bool = False) -> Any:
    timm = _library("timm")
    if not timm.is_model(name):
        raise UsageError(f"timm has no model '{name}'; timm.list_models() has all.")
    return timm.create_model(name, pretrained=pretrained, num_classes=classes, in_chans=in_chans)


def _torchvision(name: str, classes: int, *, in_chans: int = 3, pretrained: bool = False) -> Any:
    models = _library("torchvision").models
    if name not in models.list_models():
        raise UsageError(f"torchvision has no model '{name}'; torchvision.models.list_models() has all.")
    if in_chans != 3:
        raise UsageError(f"Models of torchvision take colour images; these have {in_chans} channels.")
    if not pretrained:
        return models.get_model(name, weights=None, num_classes=classes)
    module = models.get_model(name, weights="DEFAULT")  # which has the classes it was trained for
    head, layer = [(name, layer) for name, layer in module.named_modules() if isinstance(layer, nn.Linear)][-1]
    parent, _, attribute = head.rpartition(".")
    setattr(module.get_submodule(parent), attribute, nn.Linear(layer.in_features, classes))
    return module


MAKERS: dict[str, Any] = {"timm": _timm, "torchvision": _torchvision}
"""Makes a model by the library, its name there and a number of classes."""
