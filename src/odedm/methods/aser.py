"""ASER: experience replay of rows by their mean Shapley values, and a memory that keeps the worthiest."""

from __future__ import annotations

from typing import ClassVar

from odedm.core.stored_names import stored
from odedm.methods.er import ER


@stored("method/aser")
class ASER(ER):
    """Steps are those of ER; rows are drawn by the retrieval "aser" and kept by the policy "aser".

    It is the paper's ASER_μ, by means of Shapley values; the variant by the largest and the smallest is not here.
    """

    policy: ClassVar[str] = "aser"
    retrieval: ClassVar[str] = "aser"
