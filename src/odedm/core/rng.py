"""Generators by purpose, derived from the run's seed, so that changing one part shifts no other, and their state."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from typing import Any

import numpy as np
import torch
from torch import nn

from odedm.core.stored_names import is_ours

AnyGenerator = torch.Generator | np.random.Generator


def derive_seed(seed: int, purpose: str) -> int:
    """Return a well-mixed 63-bit seed for one purpose of one run.

    >>> derive_seed(0, "order") == derive_seed(0, "order"), derive_seed(0, "order") == derive_seed(0, "memory")
    (True, False)
    """
    digest = hashlib.blake2b(f"{seed}/{purpose}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "little") >> 1


def generator(seed: int, purpose: str, device: torch.device | str = "cpu") -> torch.Generator:
    """Return the generator of one purpose, on the device where its draws are used.

    >>> a, b = generator(1, "order"), generator(1, "order")
    >>> bool(torch.rand(3, generator=a).equal(torch.rand(3, generator=b)))
    True
    """
    return torch.Generator(device=device).manual_seed(derive_seed(seed, purpose))


def generators_of(owner: Any, seen: dict[int, Any] | None = None) -> Iterator[AnyGenerator]:
    """Yield the generators that an object holds, torch's and numpy's, at any depth, each once.

    >>> class Mine:
    ...     def __init__(self):
    ...         self.parts = [{"noise": torch.Generator()}]
    >>> len(list(generators_of(Mine())))
    1
    """
    seen = {} if seen is None else seen
    if id(owner) in seen:
        return
    seen[id(owner)] = owner  # an id is a name only while its object lives
    if isinstance(owner, AnyGenerator):
        yield owner
    for value in _inside(owner):
        yield from generators_of(value, seen)


def _inside(owner: Any) -> Iterator[Any]:
    if isinstance(owner, list | tuple | set | frozenset):
        yield from owner
    elif isinstance(owner, dict):
        yield from owner.values()
    elif isinstance(owner, nn.Module):
        for module in owner.modules():
            if type(module).__module__.partition(".")[0] != "torch":
                yield from (value for name, value in vars(module).items() if not name.startswith("_"))
    elif is_ours(owner):
        yield from vars(owner).values() if hasattr(owner, "__dict__") else ()


def state_of(generator: AnyGenerator) -> Any:
    """Return where a generator stands."""
    return generator.get_state() if isinstance(generator, torch.Generator) else generator.bit_generator.state


def set_state(generator: AnyGenerator, state: Any) -> None:
    """Let a generator stand where it stood; a step that is recorded is not disturbed where it stands there already."""
    if not isinstance(generator, torch.Generator):
        generator.bit_generator.state = state
    elif not generator.get_state().equal(state):
        generator.set_state(state)
