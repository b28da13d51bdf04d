"""GSS: experience replay from rows whose gradients differ; which rows are kept is the memory's affair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from odedm.core.stored_names import stored
from odedm.methods.base import Load
from odedm.methods.er import ER
from odedm.methods.row_gradients import CHUNK, ENTRIES

FLOAT = 4
"""Bytes of a weight."""


@stored("method/gss")
@dataclass(kw_only=True, eq=False)
class GSS(ER):
    """Steps are those of ER; rows are kept by the policy "gss", with the options of that policy."""

    native: ClassVar[str] = "gss"
    reading: ClassVar[str] = "auxiliary"

    @classmethod
    def networks_at_once(cls, load: Load) -> float:
        """Reference gradients, and those of single rows, of which the pass needs two to three times as much."""
        rows = ENTRIES.get(load.device, ENTRIES["cpu"]) * FLOAT // max(1, load.weights)
        return 12 + 3 * max(1, min(CHUNK, rows))
