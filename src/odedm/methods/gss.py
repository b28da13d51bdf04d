"""GSS: experience replay from rows whose gradients differ; which rows are kept is the memory's affair."""

from __future__ import annotations

from typing import ClassVar

from odedm.core.stored_names import stored
from odedm.methods.er import ER


@stored("method/gss")
class GSS(ER):
    """Steps are those of ER; rows are kept by the policy "gss", with the options of that policy."""

    policy: ClassVar[str] = "gss"
