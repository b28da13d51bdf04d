"""Memories: which rows of the stream are kept, by a policy or as prototypes. Called, a live one for a loop of your own.

Args:
    configuration: `odedm.ODEDM`, `odedm.Reservoir` or `odedm.Native`; a number is the capacity of an `ODEDM`.
    seed: the same seed and the same rows give the same memory.
    device: where the rows are kept.

Returns:
    The live memory, an `odedm.DualMemory`.

>>> import odedm
>>> odedm.memory(odedm.ODEDM(200, k=6), seed=0)
<DualMemory of 200 rows, k=6: 0 short-term, 0 long-term>
"""

import sys
from types import ModuleType
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odedm.memory.live import DualMemory


class _CallableRoom(ModuleType):
    """This folder's own name is the public function's as well."""

    def __call__(self, configuration: Any, *, seed: int = 0, device: Any = "cpu") -> "DualMemory":
        from odedm.memory.live import DualMemory

        return DualMemory.of(configuration, seed=seed, device=device)


sys.modules[__name__].__class__ = _CallableRoom
