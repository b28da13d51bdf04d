"""Networks from outside: a plain `nn.Module`, cut at its last linear layer into features and a head."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any, final

import torch
from torch import Tensor, nn

from odedm.core.errors import UsageError, describe_error, short_repr, unknown_name_error
from odedm.core.stored_names import stored
from odedm.core.validators import is_scalar
from odedm.nets.base import Net, evaluating

OUTPUTS = ("classes", "num_classes", "n_classes", "num_labels")
"""Keywords by which a class from outside is told how many outputs it has, the first that it knows."""

HEAD = "head= (of a Learner by net_options={'head': …})"
"""How a user names the layer that a net ends with."""


@stored("net/wrapped")
@final
class WrappedNet(Net):
    """A module whose last linear layer is the head; what enters that are the features.

    It is not recorded on a GPU: nobody knows whether it reads values back or draws from torch's own generator.
    """

    capturable = False

    def __init__(self, body: nn.Module, head: nn.Linear) -> None:
        super().__init__()
        self.classes = head.out_features
        self.body, self.head = body, head

    def trunk(self, x: Tensor) -> Tensor:
        """What enters the head [n, d]."""
        features: Tensor = self.body(x)
        return features


def wrap(module: nn.Module, shape: tuple[int, ...], classes: int | None, head: str = "") -> Net:
    """A network of ours made of any module; the module itself is taken, not a copy.

    Args:
        module: gives logits [n, classes] of inputs [n, *shape], and ends with a linear layer.
        shape: that of one input.
        classes: how many classes the stream has in all; None where that is not known yet.
        head: the name of the linear layer, e.g. "fc"; the one that is called last unless given.

    Returns:
        The same function, with features and head apart.

    >>> net = wrap(nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 3)), (4,), 3)
    >>> net.features(torch.zeros(2, 4)).shape, net(torch.zeros(2, 4)).shape
    (torch.Size([2, 8]), torch.Size([2, 3]))
    """
    if isinstance(module, Net):
        return module
    title = type(module).__name__
    layers = {name: each for name, each in module.named_modules() if isinstance(each, nn.Linear)}
    if not layers:
        raise UsageError(
            f"The net {title} has no linear layer (nn.Linear), and what enters the last one are its features: end it "
            "with one, or write a subclass of odedm.Net, which says itself what its features are."
        )
    if head and head not in layers:
        raise unknown_name_error(f"linear layer of the net {title}", head, layers)
    name, entering, leaving, logits, x = _traced(module, title, layers, shape, head)
    last = layers[name]
    if classes is not None and last.out_features != classes:
        raise UsageError(
            f"The layer '{name}' of the net {title} has {last.out_features} outputs and the stream {classes} classes: "
            f"give it {classes}, e.g. nn.Linear({last.in_features}, {classes}), or name the last layer by {HEAD}."
        )
    if entering.dim() != 2:
        raise UsageError(
            f"What enters the layer '{name}' of the net {title} has the shape {list(entering.shape)} for two rows; "
            f"features must be one vector a row. Name another layer by {HEAD}, or write a subclass of odedm.Net."
        )
    net = WrappedNet(_without(module, name), last)
    if logits.shape != leaving.shape or not (x.is_meta or _gives(net, x, logits)):
        raise UsageError(
            f"Something follows the layer '{name}' in the net {title}: its outputs are not the net's own. Let the net "
            "give the layer's plain outputs, without a softmax; or, where it calls another linear layer after the one "
            f"whose outputs are the logits, name the one of the logits by {HEAD}."
        )
    return net


def _gives(net: Net, x: Tensor, logits: Tensor) -> bool:
    """Whether the net as it was cut computes what it did; one that was cut at the wrong layer may not even run."""
    try:
        with evaluating(net):
            return torch.equal(net(x), logits)
    except Exception:  # a module of anyone's may raise what it likes
        return False


def _traced(
    module: nn.Module, title: str, layers: Mapping[str, nn.Linear], shape: tuple[int, ...], head: str
) -> tuple[str, Tensor, Tensor, Tensor, Tensor]:
    """The head's name, what enters and leaves it, the net's outputs and the two rows for which they were computed."""
    calls: list[tuple[str, Tensor, Tensor]] = []

    def noted(name: str) -> Callable[..., None]:
        return lambda _layer, given, result: calls.append((name, given[0], result))

    hooks = [layer.register_forward_hook(noted(name)) for name, layer in layers.items()]
    first = next(module.parameters())
    size = torch.Size((2, *shape)).numel()
    x = torch.linspace(-1, 1, size, device=first.device, dtype=first.dtype).view(2, *shape)
    try:
        with evaluating(module):
            logits = module(x)
    except Exception as error:  # a module of anyone's may raise what it likes
        raise UsageError(
            f"The net {title} does not take rows of the shape {list(shape)}: {describe_error(error)}."
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(logits, Tensor):
        raise UsageError(f"The net {title} must give a tensor of logits; it gave a {type(logits).__name__}.")
    calls = [call for call in calls if not head or call[0] == head]
    if not calls:
        which = f"'{head}'" if head else "of which it has some"
        raise UsageError(
            f"The net {title} does not call its linear layer, {which}: name the one it ends with by {HEAD}."
        )
    return (*calls[-1], logits, x)


def _without(module: nn.Module, name: str) -> nn.Module:
    """The module with nothing in the place of a layer."""
    if not name:
        return nn.Flatten()
    parent, _, own = name.rpartition(".")
    setattr(module.get_submodule(parent), own, nn.Identity())
    return module


class NetMaker:
    """Makes nets of an `nn.Module`, by copying it, or of a class or function of modules, by calling it.

    A class or function gets `shape` and `classes`, if it has parameters of these names, or the number of classes as
    `num_classes`, and options of its own by name.
    """

    def __init__(self, thing: Any) -> None:
        self.thing = thing
        self.title = type(thing).__name__ if isinstance(thing, nn.Module) else getattr(thing, "__name__", "net")
        plain = isinstance(thing, nn.Module)
        self.known = {} if plain else dict(inspect.signature(thing).parameters)
        own = [
            each.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for each in self.known.values()
            if each.default is not inspect.Parameter.empty and is_scalar(each.default) and each.name not in OUTPUTS
        ]
        head = inspect.Parameter("head", inspect.Parameter.KEYWORD_ONLY, default="")
        self.__signature__ = inspect.Signature([*own, *([] if "head" in self.known else [head])])

    def __call__(self, shape: tuple[int, ...], classes: int, *, head: str = "", **options: Any) -> Net:
        """A net for inputs of a shape and so many classes."""
        if "head" in self.known:
            options["head"], head = head, ""
        if torch.get_default_device().type != "meta":
            return wrap(self.made(shape, classes, options), shape, classes, head)
        try:
            return wrap(self.made(shape, classes, options).to("meta"), shape, classes, head)
        except Exception:  # not every module can be planned without being computed
            with torch.device("cpu"):
                return wrap(self.made(shape, classes, options), shape, classes, head)

    def made(self, shape: tuple[int, ...], classes: int, options: Mapping[str, Any]) -> nn.Module:
        """The module itself: a copy, or what the class or function gives."""
        if isinstance(self.thing, nn.Module):
            return copy.deepcopy(self.thing)
        given = {"shape": shape} if "shape" in self.known else {}
        outputs = next((each for each in OUTPUTS if each in self.known), None)
        told = given if outputs is None else {**given, outputs: classes}
        try:
            made = self.thing(**told, **options)
        except UsageError:
            raise
        except Exception as error:  # a class of anyone's may raise what it likes
            raise UsageError(
                f"The net {self.title} cannot be made with {short_repr({**told, **options})}: {describe_error(error)}."
            ) from error
        if not isinstance(made, nn.Module):
            raise UsageError(f"The net {self.title} must give an nn.Module; it gave a {type(made).__name__}.")
        return made


@lru_cache(maxsize=256)
def net_maker(thing: Any) -> Any:
    """What makes nets of a thing from outside: a subclass of `Net` by itself, anything else wrapped."""
    if isinstance(thing, type) and issubclass(thing, Net):
        return thing
    if isinstance(thing, type) and not issubclass(thing, nn.Module):
        raise UsageError(
            f"A net must be an nn.Module, a class of one or a function that makes one; {short_repr(thing)} was given."
        )
    return NetMaker(thing)
