"""Replay draws: from which part of the memory a method reads stored rows, and the term on long-term rows."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

from odedm.core.rows import Part, Rows
from odedm.memory.base import Memory
from odedm.stream.augment import Transform


class MemoryReplay:
    """Draws from a memory as training views.

    The i-th draw of a step has generators of its own, for rows and for views: leaving one draw out, or adding the
    auxiliary term, shifts no other draw.
    """

    def __init__(
        self,
        memory: Memory,
        transform: Transform,
        *,
        reading: str,
        draw: int,
        gamma: float,
        rng: Callable[[str], torch.Generator],
    ) -> None:
        self.memory, self.transform, self.draw, self.gamma = memory, transform, draw, gamma
        self._source = Part.SHORT if reading == "auxiliary" else Part.ALL
        self._has_auxiliary = reading != "union" and gamma > 0  # without weight not even BatchNorm sees such rows
        self._rng = rng
        self._generators: dict[str, torch.Generator] = {}
        self._calls = 0
        self._most = draw

    def begin_step(self) -> None:
        """The next draw is the first of a step."""
        self._calls = 0

    def frozen(self) -> tuple[int, ...]:
        """The host's numbers that this replay's draws, and the memory's own work, depend on."""
        return self.memory.frozen(self._most)

    def __bool__(self) -> bool:
        return self.memory.size() > 0

    def __call__(self, n: int) -> Rows:
        """Up to n rows for the method's own terms."""
        self._calls += 1
        self._most = max(self._most, n)
        return self._read(n, self._part(), f"draw {self._calls}")

    def mixture(self) -> Rows:
        """Every raw row that the method's own terms may read: what is shuffled into a task where a method asks so."""
        return self.memory.rows(self._part())

    def _part(self) -> Part:
        # with rho=1 the short-term part ends up empty: the method's own terms then read the long-term rows
        return self._source if self.memory.size(self._source) else Part.ALL

    def auxiliary(self) -> Rows | None:
        """As many long-term rows as a replay draw, or None where there are none or the reading has no such term."""
        if not self._has_auxiliary or self.memory.size(Part.LONG) == 0:
            return None
        return self._read(self.draw, Part.LONG, "auxiliary draw")

    def rows(self) -> Rows:
        """Every stored row, raw."""
        return self.memory.rows()

    def plain(self, image: Tensor) -> Tensor:
        """Inputs of raw images as they are."""
        return self.transform.normalise(image)

    def weak(self, image: Tensor) -> Tensor:
        """Inputs of a fresh training view."""
        return self.transform.augment(image, self._generator("weak views"))

    def strong(self, image: Tensor) -> Tensor:
        """Inputs of a fresh view under the strong augmentation."""
        return self.transform.strengthen(image, self._generator("strong views"))

    def _read(self, n: int, part: Part, purpose: str) -> Rows:
        rows = self.memory.sample(n, part=part, rng=self._generator(f"{purpose}: rows"))
        rows["input"] = self.transform.augment(rows["image"], self._generator(f"{purpose}: view"))
        return rows

    def _generator(self, purpose: str) -> torch.Generator:
        if purpose not in self._generators:
            self._generators[purpose] = self._rng(purpose)
        return self._generators[purpose]
