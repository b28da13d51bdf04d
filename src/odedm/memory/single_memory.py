"""Memories without a long-term part, as configurations: the reservoir, a method's own policy, none."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from odedm.core.configuration import check_settings, repr_without_defaults, setting_field
from odedm.core.registry import POLICIES
from odedm.core.validators import Choice, NamedValues, RowsOrBytes
from odedm.memory.build_context import BuildContext, StreamShape, check_policy_options, read_policy_options

if TYPE_CHECKING:
    from odedm.memory.dual import AnyBuffer

ROWS: Any = {
    "validator": RowsOrBytes(),
    "default": 100,
    "help": "Rows in all, λ, or bytes such as 500kB, in which as many rows are kept as fit.",
    "panel": "Memory",
    "metavar": "N|BYTES",
}
"""The setting that all memories share."""
POLICY_OPTIONS: Any = {
    "validator": NamedValues(),
    "default": dict,
    "help": "An option of the memory's policy, e.g. alpha=0.3 of purity.",
    "panel": "Memory",
    "metavar": "NAME=VALUE",
    "axis": False,
}


@dataclass(frozen=True)
class SingleMemory:
    """What memories without a long-term part share: draws from all rows, and no term beside the method's loss."""

    name: ClassVar[str]
    replay: ClassVar[str] = "union"
    gamma: ClassVar[float] = 0.0
    keeps_stream_fields: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_settings(self)

    def resolve(self, shape: StreamShape, native: str) -> Any:  # noqa: ARG002 - nothing depends on them
        """Return the same: there is nothing to fill in."""
        return self

    def build(self, context: BuildContext) -> AnyBuffer:
        """Return the live memory."""
        return context.policy(
            getattr(self, "policy", None) or "reservoir",
            getattr(self, "capacity", 0),
            getattr(self, "policy_options", None),
        )


@dataclass(frozen=True)
class NoMemory(SingleMemory):
    """No memory: the method trains on the stream alone, plain finetuning where it only replays.

    >>> NoMemory().capacity
    0
    """

    name: ClassVar[str] = "none"
    capacity: ClassVar[int] = 0


@dataclass(frozen=True)
class Reservoir(SingleMemory):
    """A plain reservoir: a uniform sample of the whole stream.

    Args:
        capacity: rows in all (λ).

    >>> Reservoir(200)
    Reservoir(capacity=200)
    """

    capacity: int = setting_field(**ROWS)

    name: ClassVar[str] = "reservoir"


@dataclass(frozen=True)
class Native(SingleMemory):
    """The memory policy that the method was published with, which for most methods is the reservoir.

    Args:
        capacity: rows in all (λ).
        policy: another policy in its place, by its name in `odedm list policies`.
        policy_options: its options by name.

    >>> Native(200).resolve(StreamShape(tasks=5, classes_per_task=2), native="herded").policy
    'herded'
    """

    capacity: int = setting_field(**ROWS)
    policy: str | None = setting_field(
        Choice("memory policy", POLICIES), None, "Policy of 'native'.", panel="Memory", default_words="the method's own"
    )
    policy_options: Mapping[str, Any] = setting_field(**POLICY_OPTIONS)

    name: ClassVar[str] = "native"

    def __repr__(self) -> str:
        return repr_without_defaults(self, ("capacity",))

    def resolve(self, shape: StreamShape, native: str) -> Native | Reservoir:  # noqa: ARG002 - of any shape
        """Return the policy by its name, the reservoir as `Reservoir`: one memory has one description."""
        policy = self.policy or native
        check_policy_options(policy, self.policy_options)
        if policy == "reservoir":
            return Reservoir(self.capacity)
        return replace(self, policy=policy, policy_options=read_policy_options(policy, self.policy_options))
