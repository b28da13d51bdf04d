"""GSS: experience replay from rows whose gradients differ; which rows are kept is the memory's affair."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from odedm.methods.er import ER


@dataclass(kw_only=True, eq=False)
class GSS(ER):
    """Steps are those of ER; rows are kept by the policy "gss", with the options of that policy."""

    native: ClassVar[str] = "gss"
    spare_networks: ClassVar[float] = 40
    """Ten reference gradients, and the gradients of some dozens of single rows."""
