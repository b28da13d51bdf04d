"""Networks from outside: a plain `nn.Module`, cut at its last linear layer into features and a head."""

from __future__ import annotations

import copy
import inspect
from collections.abc import Mapping
from typing import Any, NamedTuple, final

import torch
from torch import Tensor, nn

from odedm.core.errors import UsageError, describe_error, short_repr, unknown_name_error
from odedm.core.stored_names import stored
from odedm.core.validators import is_scalar
from odedm.nets.base import Net, evaluating
from odedm.nets.weights_file import read_weights

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

    def backbone(self, x: Tensor) -> Tensor:
        """Compute what enters the head [n, d].

        A single row has no deviation: where torch's BatchNorm1d would refuse it, running statistics take its place.
        """
        norms = []
        if x.shape[0] == 1 and self.training:
            norms = [module for module in self.body.modules() if type(module) is nn.BatchNorm1d and module.training]
        try:
            for norm in norms:
                norm.training = False
            features: Tensor = self.body(x)
            return features
        finally:
            for norm in norms:
                norm.training = True


class LayerCall(NamedTuple):
    """One call of a linear layer: its name, what entered it and what left it."""

    name: str
    features: Tensor
    outputs: Tensor


def wrap(module: nn.Module, shape: tuple[int, ...], classes: int | None, head: str = "") -> Net:
    """Make a `Net` of any module; the module itself is taken, not a copy, and left whole where it is refused.

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
    weight = next(module.parameters(), torch.empty(0))
    size = torch.Size((2, *shape)).numel()
    x = torch.linspace(-1, 1, size, device=weight.device, dtype=weight.dtype).view(2, *shape)
    call, logits = _find_head(module, title, x, head)
    layer = module.get_submodule(call.name)
    assert isinstance(layer, nn.Linear)
    if classes is not None and layer.out_features != classes:
        raise UsageError(
            f"The layer '{call.name}' of the net {title} has {layer.out_features} outputs and the stream {classes} "
            f"classes: give it {classes}, e.g. nn.Linear({layer.in_features}, {classes}), or name the last layer by "
            f"{HEAD}."
        )
    if call.features.dim() != 2:
        raise UsageError(
            f"What enters the layer '{call.name}' of the net {title} has the shape {list(call.features.shape)} for two "
            f"rows; features must be one vector a row. Name another layer by {HEAD}, or write a subclass of odedm.Net."
        )
    parent, _, attribute = call.name.rpartition(".")
    if attribute:
        setattr(module.get_submodule(parent), attribute, nn.Identity())
    net = WrappedNet(module if attribute else nn.Flatten(), layer)
    if logits.shape != call.outputs.shape or not (x.is_meta or _computes(net, x, logits)):
        if attribute:
            setattr(module.get_submodule(parent), attribute, layer)
        raise UsageError(
            f"Something follows the layer '{call.name}' in the net {title}: its outputs are not the net's own. Let the "
            "net give the layer's plain outputs, without a softmax; or, where it calls another linear layer after the "
            f"one whose outputs are the logits, name the one of the logits by {HEAD}."
        )
    net.training = module.training
    return net


def _find_head(module: nn.Module, title: str, x: Tensor, head: str) -> tuple[LayerCall, Tensor]:
    """Return the last call of the head, the last linear layer unless named, and the module's logits of inputs x."""
    layers = {name: layer for name, layer in module.named_modules() if isinstance(layer, nn.Linear)}
    if not layers:
        raise UsageError(
            f"The net {title} has no linear layer (nn.Linear), and what enters the last one are its features: end it "
            "with one, or write a subclass of odedm.Net, which says itself what its features are."
        )
    if head and head not in layers:
        raise unknown_name_error(f"linear layer of the net {title}", head, layers)
    names = {layer: name for name, layer in layers.items() if name == head or not head}
    calls: list[LayerCall] = []

    def note(layer: nn.Linear, inputs: tuple[Tensor, ...], outputs: Tensor) -> None:
        calls.append(LayerCall(names[layer], inputs[0], outputs))

    hooks = [layer.register_forward_hook(note) for layer in names]
    try:
        with evaluating(module):
            logits = module(x)
    except Exception as error:  # a module of anyone's may raise what it likes
        raise UsageError(
            f"The net {title} does not take rows of the shape {list(x.shape[1:])}: {describe_error(error)}."
        ) from error
    finally:
        for hook in hooks:
            hook.remove()
    if not isinstance(logits, Tensor):
        raise UsageError(f"The net {title} must give a tensor of logits; it gave a {type(logits).__name__}.")
    if not calls:
        which = f"'{head}'" if head else "of which it has some"
        raise UsageError(
            f"The net {title} does not call its linear layer, {which}: name the one it ends with by {HEAD}."
        )
    return calls[-1], logits


def _computes(net: Net, x: Tensor, logits: Tensor) -> bool:
    """Return whether the net as it was cut computes what it did; one cut at the wrong layer may not even run."""
    try:
        with evaluating(net):
            return torch.equal(net(x), logits)
    except Exception:  # a module of anyone's may raise what it likes
        return False


FINISHING = ("head", "weights", "freeze")
"""Options of every net from outside: the name of the last layer, a file of weights, what is frozen."""


def finished(
    module: nn.Module,
    shape: tuple[int, ...],
    classes: int | None,
    *,
    head: str = "",
    weights: str = "",
    freeze: str = "",
) -> Net:
    """Make a `Net` of a module with the weights of a safetensors file, if one is named, and parts of it frozen.

    The file has the module's own names; where its last layer is missing or for other classes, the fresh one stays.
    `freeze` is "all", which is all but the head, or the name of the last layer that is frozen.
    """
    if weights:
        layers = [name for name, layer in module.named_modules() if isinstance(layer, nn.Linear)]
        read_weights(module, weights, head=head or (layers[-1] if layers else "head"))
    net = wrap(module, shape, classes, head)
    if freeze:
        freeze_layers(net, freeze)
    return net


def freeze_layers(net: Net, last: str) -> None:
    """Freeze all but the head ("all"), or all layers up to one by its name, in evaluation mode for good.

    >>> net = wrap(nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3)), (4,), 3)
    >>> freeze_layers(net, "1")
    >>> [name for name, weight in net.named_parameters() if weight.requires_grad], net.body[1].training
    (['head.weight', 'head.bias'], False)
    """
    prefix = "body." if isinstance(net, WrappedNet) else ""
    head = set(net.head.modules())
    layers = {name: module for name, module in net.named_modules() if module not in head}
    names = [name.removeprefix(prefix) for name in layers if name not in ("", "body")]
    if last != "all" and last not in names:
        raise unknown_name_error("layer that can be frozen", last, ["all", *names])
    listed = list(layers)
    below = [place for place, name in enumerate(listed) if f"{name}.".startswith(f"{prefix}{last}.")]
    count = len(listed) if last == "all" else 1 + below[-1]
    net.train()
    for name in listed[:count]:
        for weight in layers[name].parameters(recurse=False):
            weight.requires_grad_(requires_grad=False)
        if name and not any(other.startswith(f"{name}.") for other in listed[count:]):
            layers[name].training = False


class NetFactory:
    """Makes nets of an `nn.Module`, by copying it, or of a class or function of modules, by calling it.

    A class or function gets `shape` and `classes`, if it has parameters of these names, or the number of classes as
    `num_classes`, and options of its own by name.
    """

    def __init__(self, source: Any) -> None:
        self.source = source
        is_module = isinstance(source, nn.Module)
        self.title = type(source).__name__ if is_module else getattr(source, "__name__", "net")
        self.parameters = {} if is_module else dict(inspect.signature(source).parameters)
        options = [
            parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY)
            for name, parameter in self.parameters.items()
            if is_scalar(parameter.default) and name not in OUTPUTS
        ]
        options += [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default="")
            for name in FINISHING
            if name not in self.parameters
        ]
        self.__signature__ = inspect.Signature(options)

    def __call__(self, shape: tuple[int, ...], classes: int, **options: Any) -> Net:
        """Make a net for inputs of a shape and so many classes."""
        finishing = {name: options.pop(name, "") for name in FINISHING if name not in self.parameters}
        if torch.get_default_device().type == "meta":
            try:
                return finished(self.make(shape, classes, options).to("meta"), shape, classes, **finishing)
            except Exception:  # not every module can be planned without being computed
                with torch.device("cpu"):
                    return finished(self.make(shape, classes, options), shape, classes, **finishing)
        return finished(self.make(shape, classes, options), shape, classes, **finishing)

    def make(self, shape: tuple[int, ...], classes: int, options: Mapping[str, Any]) -> nn.Module:
        """Make the module itself: a copy, or what the class or function gives."""
        if isinstance(self.source, nn.Module):
            return copy.deepcopy(self.source)
        keywords: dict[str, Any] = {"shape": shape} if "shape" in self.parameters else {}
        outputs = next((name for name in OUTPUTS if name in self.parameters), None)
        keywords |= options if outputs is None else {outputs: classes, **options}
        try:
            module = self.source(**keywords)
        except UsageError:
            raise
        except Exception as error:  # a class of anyone's may raise what it likes
            raise UsageError(
                f"The net {self.title} cannot be made with {short_repr(keywords)}: {describe_error(error)}."
            ) from error
        if not isinstance(module, nn.Module):
            raise UsageError(f"The net {self.title} must give an nn.Module; it gave a {type(module).__name__}.")
        return module


def net_factory(source: Any) -> Any:
    """Return what makes nets of a user's source: a subclass of `Net` by itself, anything else wrapped."""
    if isinstance(source, type) and issubclass(source, Net):
        return source
    if isinstance(source, type) and not issubclass(source, nn.Module):
        raise UsageError(
            f"A net must be an nn.Module, a class of one or a function that makes one; {short_repr(source)} was given."
        )
    return NetFactory(source)
