"""Seeded point sets for the tests of this folder."""

import torch


def blobs(n, d=8, modes=4, seed=0, spread=0.3, dtype=torch.float32):
    rng = torch.Generator().manual_seed(seed)
    centre = torch.randn(modes, d, generator=rng, dtype=dtype) * 2
    which = torch.randint(modes, (n,), generator=rng)
    return centre[which] + spread * torch.randn(n, d, generator=rng, dtype=dtype)


def relu_features(n, d=32, seed=0, dtype=torch.float32):
    rng = torch.Generator().manual_seed(seed)
    latent = (
        torch.randn(n, 6, generator=rng, dtype=dtype)
        + 2 * torch.randn(3, 6, generator=rng, dtype=dtype)[torch.randint(3, (n,), generator=rng)]
    )
    return (latent @ torch.randn(6, d, generator=rng, dtype=dtype)).relu()


def network_features(n, d=128, seed=0):
    """As the last layer of a network gives them: many modes in many directions, so that transport converges fast."""
    rng = torch.Generator().manual_seed(seed)
    latent = torch.randn(n, 48, generator=rng) + 1.5 * torch.randn(12, 48, generator=rng)[torch.arange(n) % 12]
    mixed = latent @ torch.randn(48, d, generator=rng) / 48**0.5
    return (mixed + 0.3 * torch.randn(n, d, generator=rng) + 0.5).relu()


def rng(seed=0):
    return torch.Generator().manual_seed(seed)
