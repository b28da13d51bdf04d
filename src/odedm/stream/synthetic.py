"""Makes up small data sets for tests and first tries: vectors in blobs, images of noisy colour patterns."""

from __future__ import annotations

import torch

from odedm.core.rng import generator
from odedm.core.validators import Int, validate_params
from odedm.stream.dataset import Dataset, from_arrays

MANY = Int(1, 100_000)


@validate_params(classes=MANY, per_class=MANY, dimensions=MANY, seed=Int())
def blobs(*, classes: int = 10, tasks: int = 5, per_class: int = 60, dimensions: int = 16, seed: int = 0) -> Dataset:
    """Return Gaussian blobs around well separated centres: float32 vectors [n, d].

    Args:
        classes, per_class: how many blobs, and how many rows of each, of which a fifth is for testing.
        tasks: into how many tasks the classes are split; it divides their number.
        dimensions: the d entries of a vector.
        seed: from which centres, rows and the test part follow.

    Returns:
        The data set.

    >>> data = blobs(per_class=10)
    >>> data.image.shape, data.test_image.shape, data.tasks
    (torch.Size([80, 16]), torch.Size([20, 16]), 5)
    """
    rng = generator(seed, "blobs")
    centre = 3.0 * torch.randn(classes, 1, dimensions, generator=rng, dtype=torch.float32)
    x = (centre + torch.randn(classes, per_class, dimensions, generator=rng, dtype=torch.float32)).flatten(0, 1)
    y = torch.arange(classes).repeat_interleave(per_class)
    return from_arrays(x.numpy(), y.numpy(), tasks=tasks, name="blobs", seed=seed)


@validate_params(classes=MANY, per_class=MANY, side=Int(1, 1000), seed=Int())
def shapes(*, classes: int = 6, tasks: int = 3, per_class: int = 40, side: int = 12, seed: int = 0) -> Dataset:
    """Return one smooth colour pattern per class under noise: uint8 images [n, 3, side, side].

    Args:
        classes, per_class: how many patterns, and how many images of each, of which a fifth is for testing.
        tasks: into how many tasks the classes are split; it divides their number.
        side: height and width in pixels.
        seed: from which patterns, noise and the test part follow.

    Returns:
        The data set; its training views are crops after padding by one pixel.

    >>> data = shapes(per_class=10)
    >>> data.image.shape, data.image.dtype
    (torch.Size([48, 3, 12, 12]), torch.uint8)
    """
    rng = generator(seed, "shapes")
    coarse = torch.rand(classes, 3, 3, 3, generator=rng, dtype=torch.float32)
    pattern = torch.nn.functional.interpolate(coarse, size=side, mode="bilinear")[:, None]
    noise = 0.15 * torch.randn(classes, per_class, 3, side, side, generator=rng, dtype=torch.float32)
    x = ((pattern + noise).clamp(0, 1) * 255).to(torch.uint8).flatten(0, 1)
    y = torch.arange(classes).repeat_interleave(per_class)
    return from_arrays(x.numpy(), y.numpy(), tasks=tasks, name="shapes", seed=seed, pad=1)
