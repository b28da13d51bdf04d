"""Changes what rows look like from task to task, where every task has all classes: domain-incremental streams."""

from __future__ import annotations

import torch
from torch import Tensor

from odedm.core.errors import UsageError
from odedm.core.rng import generator

QUARTERS = 4
"""Quarter turns until an image is as it was."""


def check_domain(domain: str | None, shape: tuple[int, ...], tasks: int) -> None:
    """Refuse a change that rows of this shape, or so many tasks, cannot have.

    >>> check_domain("rotated", (64,), 3)
    Traceback (most recent call last):
    odedm.UsageError: domain='rotated' turns square images; rows here have the shape (64,). Use 'permuted'.
    """
    if domain != "rotated":
        return
    if len(shape) != 3 or shape[1] != shape[2]:
        raise UsageError(f"domain='rotated' turns square images; rows here have the shape {shape}. Use 'permuted'.")
    if tasks > QUARTERS:
        raise UsageError(f"domain='rotated' has 4 quarter turns, so 4 tasks at most; {tasks} were asked for.")


def in_domain(image: Tensor, domain: str | None, task: int, seed: int) -> Tensor:
    """Return rows [n, ...] as they look in a task: their values at other places; the first task's as they are.

    >>> in_domain(torch.tensor([[[[1, 2], [3, 4]]]]), "rotated", 1, seed=0).tolist()
    [[[[2, 4], [1, 3]]]]
    """
    if task == 0 or domain in (None, "same"):
        return image
    if domain == "rotated":
        return torch.rot90(image, task, (2, 3)).contiguous()
    # pixels move with all their channels
    places = image[0, 0].numel() if image.dim() == 4 else image[0].numel()
    order = torch.randperm(places, generator=generator(seed, f"pixels of task {task}"))
    flat = image.flatten(2) if image.dim() == 4 else image
    return flat[..., order.to(image.device)].view_as(image)
