"""No memory, as a configuration: what a method is worth without stored rows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

if TYPE_CHECKING:
    from odedm.memory.base import Memory
    from odedm.memory.site import Site, StreamShape


@dataclass(frozen=True)
class NoMemory:
    """No memory: the method trains on the stream alone, plain finetuning where it only replays.

    >>> NoMemory().capacity
    0
    """

    name: ClassVar[str] = "none"
    capacity: ClassVar[int] = 0
    replay: ClassVar[str] = "union"
    gamma: ClassVar[float] = 0.0
    keeps_stream_fields: ClassVar[bool] = False

    def resolve(self, shape: StreamShape, native: str) -> NoMemory:  # noqa: ARG002 - nothing depends on them
        """The same: there is nothing to fill in."""
        return self

    def build(self, site: Site) -> Memory:
        """A memory that stays empty."""
        return site.policy("reservoir", 0)
