"""Work in parts on a processor's threads, a part to a thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch

Item = TypeVar("Item")
Result = TypeVar("Result")


def thread_map(work: Callable[[Item], Result], parts: Sequence[Item]) -> list[Result]:
    """Do the parts on all of torch's threads, one part per thread instead of all threads on one part.

    For operations too small to be shared: threads would mostly wait for each other, on a busy machine for long. And
    what is computed does not depend on their number.

    >>> thread_map(lambda part: part + torch.get_num_threads(), [10, 20])
    [11, 21]
    """
    threads, gradients = torch.get_num_threads(), torch.is_grad_enabled()

    def alone(part: Item) -> Result:
        torch.set_num_threads(1)  # holds for the calling thread, as does the next
        with torch.set_grad_enabled(gradients):
            return work(part)

    if threads == 1:
        return [work(part) for part in parts]
    try:
        if len(parts) < 2:
            return [alone(part) for part in parts]
        with ThreadPoolExecutor(min(threads, len(parts))) as pool:
            return list(pool.map(alone, parts))
    finally:
        torch.set_num_threads(threads)  # also what threads started later begin with
