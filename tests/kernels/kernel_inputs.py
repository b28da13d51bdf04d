"""Inputs for kernels: seeded numbers, and tensors of large strides with NaN in between."""

import torch


def normal(*shape, seed=0):
    """Normal numbers that are the same in every run."""
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed))


def strided(x):
    """The same numbers in every second place of a larger tensor; what lies between is NaN, or a large integer."""
    between = float("nan") if x.is_floating_point() else torch.iinfo(x.dtype).max
    view = x.new_full([2 * size + 1 for size in x.shape], between)[tuple(slice(1, None, 2) for _ in x.shape)]
    return view.copy_(x)


def as_given(x):
    """The tensor itself, to be taken in turn with `strided`."""
    return x


LAYOUTS = {"dense": as_given, "strided": strided}
