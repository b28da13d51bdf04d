"""What a user may give as a memory: a configuration, its class or name, or a policy of one's own."""

from __future__ import annotations

from typing import Any

from odedm.core.errors import UsageError, short_repr
from odedm.core.plugins import check_name
from odedm.core.registry import POLICIES
from odedm.memory.settings import KINDS, ODEDM, AnyMemory, Native


def memory_of(given: Any) -> AnyMemory:
    """The configuration that a user means; a policy, by its name or as a class, is one that fills the whole memory.

    A number is the capacity of an ODEDM.

    >>> memory_of("reservoir"), memory_of("herded").policy, memory_of(50)
    (Reservoir(capacity=100), 'herded', ODEDM(capacity=50))
    """
    if isinstance(given, AnyMemory):
        return given
    if isinstance(given, int) and not isinstance(given, bool):
        return ODEDM(given)
    if isinstance(given, str):
        check_name("memory", given, POLICIES, tuple(KINDS))
        return KINDS[given]() if given in KINDS else Native(policy=given)
    if isinstance(given, type):
        own: Any = given
        return next((kind() for kind in KINDS.values() if kind is own), None) or Native(policy=own)
    raise UsageError(
        f"memory must be a Reservoir, Native, ODEDM or NoMemory, e.g. ODEDM(capacity=200, rho=0.25), its name, a "
        f"number of rows for an ODEDM, or a subclass of odedm.Memory; {short_repr(given)} was given."
    )
