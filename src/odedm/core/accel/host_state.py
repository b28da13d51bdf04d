"""What work of the host depends on as values of Python: a recording would freeze it."""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Sequence
from typing import Any, TypeVar

import torch
from torch import Tensor, nn

from odedm.core.stored_names import is_ours

Held = TypeVar("Held")


def host_state(owner: object, *, without: Sequence[str] = ()) -> Hashable:
    """Return all that a recording of work by an object would freeze: host values, and where its tensors lie.

    Args:
        owner: the object.
        without: names of attributes that no recording reads.

    >>> class Method:
    ...     rate = 1
    >>> one, two = Method(), Method()
    >>> one.state = two.state = torch.zeros(2)
    >>> host_state(one) == host_state(two)
    True
    >>> two.state = torch.zeros(2)
    >>> host_state(one) == host_state(two)
    False
    """
    return _held(owner, (), without)


def _held(owner: object, above: tuple[object, ...], without: Sequence[str] = ()) -> Hashable:
    """Return what the attributes of an object would freeze; one inside itself counts as the object that it is."""
    if any(owner is outer for outer in above):
        return _Same(owner)
    held = {name: value for name, value in vars(owner).items() if name not in without}
    return tuple((name, frozen(value, (*above, owner))) for name, value in sorted(held.items()))


def instances(kind: type[Held], owner: Any, seen: dict[int, Any] | None = None) -> Iterator[Held]:
    """Yield every object of a type that an object holds at any depth, once, but for those whose id is in `seen`.

    >>> class Memory:
    ...     parts = ()
    >>> memory = Memory()
    >>> memory.parts = [torch.zeros(1), {"rows": torch.zeros(2)}]
    >>> [len(tensor) for tensor in instances(Tensor, memory)]
    [1, 2]
    """
    seen = {} if seen is None else seen
    if id(owner) in seen:
        return
    seen[id(owner)] = owner  # an id is a name only while its object lives
    if isinstance(owner, kind):
        yield owner
        return
    if isinstance(owner, nn.Module):
        owner = owner.state_dict(keep_vars=True)
    elif is_ours(owner):
        owner = getattr(owner, "__dict__", {})
    parts = owner.values() if isinstance(owner, dict) else owner if isinstance(owner, list | tuple) else ()
    for part in list(parts):
        yield from instances(kind, part, seen)


class _Same:
    """Equal to the very same object only; holds on to it, so that no other can take its place in memory."""

    def __init__(self, value: object) -> None:
        self.value = value

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Same) and self.value is other.value

    def __hash__(self) -> int:
        return id(self.value)


def frozen(value: Any, above: tuple[object, ...] = ()) -> Hashable:
    """Return what a recording would freeze of a value; `above` are the objects that it is inside of."""
    if isinstance(value, Tensor):
        return (value.data_ptr(), tuple(value.shape), value.stride(), value.dtype, value.requires_grad)
    if isinstance(value, nn.Module):
        modes = tuple(module.training for module in value.modules())
        return (modes, *(frozen(tensor, above) for tensor in [*value.parameters(), *value.buffers()]))
    if isinstance(value, torch.optim.Optimizer):
        groups = [{key: setting for key, setting in group.items() if key != "params"} for group in value.param_groups]
        return (frozen(groups, above), frozen(list(value.state.values()), above))
    if isinstance(value, dict):
        value = list(value.items())
    if isinstance(value, list | tuple):
        return tuple(frozen(part, above) for part in value)
    if value is None or isinstance(value, int | float | str):
        return value
    # what belongs to a method and is none of the above, such as a net as a function, counts by what it holds
    methods_own = type(value).__module__.startswith("odedm.methods.") or (
        not type(value).__module__.startswith("odedm.") and is_ours(value)
    )
    return _held(value, above) if methods_own else _Same(value)
