"""One generator per purpose, all derived from the run's seed, so that changing one part shifts no other."""

from __future__ import annotations

import hashlib

import torch


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
