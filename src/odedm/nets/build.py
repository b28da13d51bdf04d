"""Builds a network from its name, its options and the shape of its input."""

from __future__ import annotations

import inspect
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import torch

from odedm.core.errors import unknown_name_error
from odedm.core.options import cast_like
from odedm.core.plugins import check_name
from odedm.core.registry import NETS
from odedm.core.rng import derive_seed
from odedm.core.validators import is_scalar
from odedm.nets.base import Net, start_training
from odedm.nets.wrap import NetFactory

TINY = 16
"""The side below which `auto` takes the net that averages over places: two strides would leave hardly any of them."""
LARGE = 128
"""The side from which `auto` takes the vision transformer: there ResNet-18, whose stem keeps the size, costs too much.

At 224×224 it makes 27 billion multiplications for an image, ViT-Tiny/16 1.2 billion."""

_one_at_a_time = threading.Lock()
"""Layers draw their weights from torch's one global generator, and runs may be built in several threads."""


def pick(name: str, shape: tuple[int, ...]) -> str:
    """Return the name of the net that `auto` stands for, by the input's shape.

    >>> [pick("auto", shape) for shape in ((16,), (1, 28, 28), (3, 32, 32), (3, 64, 64), (3, 224, 224))]
    ['mlp', 'plain-cnn', 'resnet18', 'resnet18', 'vit']
    """
    if name != "auto":
        return check_name("net", name, NETS, ("auto",))
    if len(shape) == 1:
        return "mlp"
    side = min(shape[1:])
    if side < 32:
        return "cnn" if side < TINY else "plain-cnn"
    return "resnet18" if side < LARGE else "vit"


def options(name: str) -> dict[str, Any]:
    """Return a net's options and their defaults.

    >>> options("resnet18")
    {'width': 64}
    """
    keywords = inspect.signature(NETS[check_name("net", name, NETS)].load()).parameters.values()
    return {parameter.name: parameter.default for parameter in keywords if is_scalar(parameter.default)}


def configure(name: str, shape: tuple[int, ...], classes: int, settings: Mapping[str, Any]) -> dict[str, Any]:
    """Return all options of a net, those of `settings` in their own type; refuse what does not fit it or the input.

    Nothing is computed or allocated for it: the net is built on the device "meta".

    >>> configure("vit", (3, 224, 224), 10, {"depth": "6"})
    {'patch': 16, 'depth': 6, 'width': 192, 'heads': 3, 'weights': ''}
    """
    values = options(name)
    for key, value in settings.items():
        if key not in values:
            raise unknown_name_error(f"option of the net '{name}'", key, values)
        values[key] = cast_like(f"The net option {key} of '{name}'", value, values[key])
    build_on_meta(name, shape, classes, values)
    return values


def build_on_meta(name: str, shape: tuple[int, ...], classes: int, options: Mapping[str, Any]) -> Net:
    """Build the net on the device "meta", where nothing is computed or allocated."""
    make, items = NETS[name].load(), tuple(options.items())
    # a cache must not keep a user's module alive, which a factory holds
    build = _on_meta.__wrapped__ if isinstance(make, NetFactory) else _on_meta
    return build(make, shape, classes, items)


@lru_cache(maxsize=64)
def _on_meta(make: Any, shape: tuple[int, ...], classes: int, options: tuple[tuple[str, Any], ...]) -> Net:
    with torch.device("meta"):
        net: Net = make(shape, classes, **dict(options))
    return net


def build(
    name: str, shape: tuple[int, ...], classes: int, *, seed: int, options: Mapping[str, Any] | None = None
) -> Net:
    """Make a freshly initialised net; the seed alone decides its weights, whatever was drawn before.

    Options are taken as `configure` gives them.
    """
    name = pick(name, shape)
    with initialising(seed):
        net: Net = NETS[name].load()(shape, classes, **(options or {}))
    return start_training(net)


@contextmanager
def initialising(seed: int) -> Iterator[None]:
    """Let layers draw their weights by this seed alone inside the block; the caller's generator stays as it was."""
    with _one_at_a_time, torch.random.fork_rng(devices=[]):
        # not torch.manual_seed, which would seed every GPU of the caller as well
        torch.default_generator.manual_seed(derive_seed(seed, "init"))
        yield
