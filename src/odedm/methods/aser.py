"""ASER: experience replay of rows by their Shapley value, and a memory that keeps the worthiest."""

from __future__ import annotations

from dataclasses import dataclass
from typing import ClassVar

from odedm.core.stored_names import stored
from odedm.methods.er import ER


@stored("method/aser")
@dataclass(kw_only=True, eq=False)
class ASER(ER):
    """Steps are those of ER; rows are drawn by the retrieval "aser" and kept by the policy "aser"."""

    policy: ClassVar[str] = "aser"
    retrieval: ClassVar[str] = "aser"
