"""Memories as configurations: what is kept, as frozen data that fills in its own defaults and builds itself.

Nothing here needs torch before something is resolved or built, so plans and help stay quick.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from odedm.core.configuration import (
    Flag,
    Number,
    OneOf,
    Pair,
    Whole,
    WholeOr,
    check_settings,
    described,
    from_plain,
    to_plain,
)
from odedm.core.errors import UsageError
from odedm.core.registry import ANNOTATIONS, DISTANCES, GROUNDS, POLICIES, REPLAYS, SPACES

if TYPE_CHECKING:
    from collections.abc import Callable

    import torch

    from odedm.consolidate.consolidator import Consolidator
    from odedm.core.rows import Field
    from odedm.core.timer import Timer
    from odedm.memory.base import Memory
    from odedm.memory.dual import Host

DEFAULT_RHO = 0.25
"""The long-term share where neither rho nor k is given."""
OF_SINKHORN = ("screen", "epsilon", "pair_epsilon", "ground")


@dataclass(frozen=True)
class StreamShape:
    """How many tasks a stream has, and how many classes each of them."""

    tasks: int
    classes_per_task: int


@dataclass(frozen=True)
class Site:
    """What a memory is built with: the columns of a row, where it lives, and where its draws come from.

    `raw` are the stream's columns, `own` those of the method; `rng` makes a generator on the device for a purpose,
    `cpu_rng` one on the CPU, where one seed gives one choice anywhere.
    """

    shape: StreamShape
    raw: tuple[Field, ...]
    own: tuple[Field, ...]
    device: torch.device
    rng: Callable[[str], torch.Generator]
    cpu_rng: Callable[[str], torch.Generator]
    timer: Timer

    def policy(self, name: str, capacity: int) -> Host:
        """A memory that fills its short-term part by a policy of this name."""
        host: Host = POLICIES[name].load()(capacity, (*self.raw, *self.own), self.device)
        return host


ROWS: Any = {"kind": Whole(0), "default": 100, "help": "Rows in all, λ.", "panel": "Memory"}
"""The setting that all memories share."""


@dataclass(frozen=True)
class Reservoir:
    """A plain reservoir: a uniform sample of the whole stream.

    Args:
        capacity: rows in all (λ).

    >>> Reservoir(200)
    Reservoir(capacity=200)
    """

    capacity: int = described(**ROWS)

    name: ClassVar[str] = "reservoir"
    replay: ClassVar[str] = "union"
    gamma: ClassVar[float] = 0.0
    keeps_stream_fields: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_settings(self)

    def resolve(self, shape: StreamShape, native: str) -> Reservoir:  # noqa: ARG002 - nothing depends on them
        """The same: there is nothing to fill in."""
        return self

    def build(self, site: Site) -> Memory:
        """The live memory."""
        return site.policy("reservoir", self.capacity)


@dataclass(frozen=True)
class Native:
    """The memory policy that the method was published with, which for most methods is the reservoir.

    Args:
        capacity: rows in all (λ).
        policy: another policy in its place, by its name in `odedm list policies`.

    >>> Native(200).resolve(StreamShape(tasks=5, classes_per_task=2), native="herded")
    Native(capacity=200, policy='herded')
    """

    capacity: int = described(**ROWS)
    policy: str | None = described(
        OneOf("memory policy", POLICIES), None, "Policy of 'native'.", panel="Memory", default_words="the method's own"
    )

    name: ClassVar[str] = "native"
    replay: ClassVar[str] = "union"
    gamma: ClassVar[float] = 0.0
    keeps_stream_fields: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_settings(self)

    def resolve(self, shape: StreamShape, native: str) -> Native | Reservoir:  # noqa: ARG002 - of any shape
        """The policy by its name; where that is the reservoir, the plain reservoir: one memory has one description."""
        policy = self.policy or native
        return Reservoir(self.capacity) if policy == "reservoir" else replace(self, policy=policy)

    def build(self, site: Site) -> Memory:
        """The live memory."""
        return site.policy(self.policy or "reservoir", self.capacity)


@dataclass(frozen=True)
class ODEDM:
    """The dual memory: short-term rows by any policy, and long-term prototypes of finished tasks, in one budget.

    Args:
        capacity: rows in all (λ).
        rho: long-term share of them in the end (ρ), 0.25 unless k is given.
        k: prototypes of each class; where both are given k counts and rho is its label. k=0 or rho=0 pins nothing.
        replay: how a method meets the long-term rows, a name in `odedm list replays`.
        gamma: weight of the auxiliary cross-entropy term.
        distance: by which rows are nearest to a prototype, a name in `odedm list distances`.
        dac: a pair (clusters, depth) for divide-and-conquer, or None for all candidates.
        space: where rows are points, the network's "features" or "pixels".
        candidates: "task", all rows of the finished task as in the paper, or a number per class that counts inside λ.
        rows_per_prototype: rows that each prototype keeps.
        mixup: keep mean images of clusters instead of rows (an ablation).
        screen: converge only so many pairs for each prototype; None converges what can decide.
        short_policy: how short-term rows are chosen, the method's own ("native") or a name in `odedm list policies`.
        annotate: when logits of long-term rows are taken, at the task's "end" or as they arrived in the "stream".
        epsilon: Sinkhorn's ε between clouds of rows, relative to their mean cost; 0.05 unless given.
        pair_epsilon: the same between a row and a prototype; 0.1 unless given.
        ground: Sinkhorn's ground cost, a name in `odedm list grounds`; "auto" unless given.

    >>> ODEDM(200, k=6).resolve(StreamShape(tasks=5, classes_per_task=2), native="reservoir").short_policy
    'reservoir'
    """

    capacity: int = described(**ROWS)
    rho: float | None = described(
        Number(0, 1), None, "Long-term share of λ, ρ.", default_words=f"{DEFAULT_RHO} unless k is given"
    )
    k: int | None = described(Whole(0), None, "Prototypes per class.", default_words="by rho")
    replay: str = described(OneOf("replay reading", REPLAYS), "auxiliary", "How the method meets long-term rows.")
    gamma: float = described(Number(0), 1.0, "Weight of the auxiliary term.")
    distance: str = described(OneOf("distance", DISTANCES), "sinkhorn", "Of rows to prototypes.")
    dac: tuple[int, int] | None = described(
        Pair(),
        (3, 4),
        "Divide and conquer before k-means: clusters, depth.",
        optional=True,
        metavar="K,DEPTH|none",
    )
    space: str = described(OneOf("space", SPACES), "features", "Where rows are points.")
    candidates: str | int = described(
        WholeOr("task"), "task", "All rows of the task, or N per class inside λ.", metavar="task|N"
    )
    rows_per_prototype: int = described(Whole(1), 1, "Rows kept per prototype.")
    mixup: bool = described(Flag(), False, "Keep cluster means instead of rows (ablation).")
    screen: int | None = described(Whole(1), None, "Converge only this many pairs per prototype.", default_words="all")
    short_policy: str = described(
        OneOf("short-term policy", POLICIES, also=("native",)), "native", "How short-term rows are chosen."
    )
    annotate: str = described(OneOf("time of annotation", ANNOTATIONS), "end", "When long-term logits are taken.")
    epsilon: float | None = described(Number(0), None, "Sinkhorn's ε between clouds.", default_words="0.05")
    pair_epsilon: float | None = described(
        Number(0), None, "Sinkhorn's ε between rows and prototypes.", default_words="0.1"
    )
    ground: str | None = described(OneOf("ground cost", GROUNDS), None, "Sinkhorn's ground cost.", default_words="auto")

    PANEL: ClassVar[str] = "ODEDM"
    name: ClassVar[str] = "odedm"

    def __post_init__(self) -> None:
        check_settings(self)
        if self.annotate == "stream" and self.mixup:
            raise UsageError("annotate='stream' keeps the logits that rows had in the stream; mixup's means had none.")
        for name in OF_SINKHORN:
            if getattr(self, name) is not None and self.distance != "sinkhorn":
                raise UsageError(f"{name} is for the sinkhorn distance, not for '{self.distance}'; leave it out.")

    @property
    def keeps_stream_fields(self) -> bool:
        """Whether the fields that rows had when they arrived must be kept until their task ends."""
        return self.annotate == "stream"

    def resolve(self, shape: StreamShape, native: str) -> ODEDM:
        """Every default filled in: k from rho, the short-term policy by name, Sinkhorn's numbers; or refused."""
        rho = DEFAULT_RHO if self.rho is None and self.k is None else self.rho
        known = replace(self, rho=rho, short_policy=native if self.short_policy == "native" else self.short_policy)
        found = replace(known, k=_prototypes(known, shape))
        if self.distance == "sinkhorn":
            distance = DISTANCES[self.distance].load()(**found._of_sinkhorn())
            found = replace(found, **{name: getattr(distance, name) for name in OF_SINKHORN})
        consolidator(found)  # refuses what cannot be chosen by, before anything runs
        return found

    def _of_sinkhorn(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in OF_SINKHORN if getattr(self, name) is not None}

    def build(self, site: Site) -> Memory:
        """The live memory."""
        from odedm.memory.dual import Candidates, DualMemory

        candidates = None
        if isinstance(self.candidates, int):
            columns = (*site.raw, *site.own) if self.keeps_stream_fields else site.raw
            classes, rng = site.shape.classes_per_task, site.rng("candidates")
            candidates = Candidates(self.candidates, classes, columns, site.device, rng=rng)
        room = self.capacity - (candidates.capacity if candidates else 0)
        host = site.policy("reservoir" if self.short_policy == "native" else self.short_policy, room)
        rng = site.cpu_rng("consolidation")
        return DualMemory(host, consolidator(self), rng=rng, timer=site.timer, candidates=candidates)


MemorySettings = Reservoir | Native | ODEDM
KINDS: dict[str, type[MemorySettings]] = {kind.name: kind for kind in (Reservoir, Native, ODEDM)}


def memory_to_plain(memory: MemorySettings) -> dict[str, Any]:
    """A memory as plain data."""
    return {"name": memory.name, **to_plain(memory)}


def memory_from_plain(plain: object) -> MemorySettings:
    """A memory from plain data of anyone's.

    >>> memory_from_plain({"name": "reservoir", "capacity": 5})
    Reservoir(capacity=5)
    """
    own = dict(plain) if isinstance(plain, dict) else {}
    name = own.pop("name", None)
    if not isinstance(name, str) or name not in KINDS:
        known, given = ", ".join(KINDS), str(name)[:60]
        raise UsageError(f"A stored experiment's memory must be one of {known}; {given!r} was found.")
    kind: Callable[..., MemorySettings] = KINDS[name]
    return from_plain(kind, "memory", own)


@cache
def consolidator(memory: ODEDM) -> Consolidator | None:
    """How a memory chooses prototypes, or None where it keeps none; made once for each configuration."""
    if not memory.k:
        return None
    from odedm.consolidate.consolidator import Consolidator
    from odedm.consolidate.dac import Dac

    return Consolidator(
        k=memory.k,
        distance=DISTANCES[memory.distance].load()(**memory._of_sinkhorn()),
        dac=Dac(*memory.dac) if memory.dac else None,
        rows_per_prototype=memory.rows_per_prototype,
        space=memory.space,
        mixup=memory.mixup,
    )


def _prototypes(memory: ODEDM, shape: StreamShape) -> int:
    """K worked out from rho where it is not given, if all pins fit into the capacity."""
    from odedm.consolidate.budget import check_budget, prototypes_per_class

    tasks, classes, per = shape.tasks, shape.classes_per_task, memory.rows_per_prototype
    bounded = memory.candidates if isinstance(memory.candidates, int) else 0
    reserved, k = bounded * classes, memory.k or 0
    if memory.k is None and memory.rho and tasks > 1 and memory.capacity:
        k = prototypes_per_class(memory.rho, memory.capacity, tasks=tasks, classes=classes, rows_per_prototype=per)
        # rounding up must not turn a legal share, rho=1 above all, into one that does not fit
        k = min(k, (memory.capacity - reserved) // ((tasks - 1) * classes * per)) or k
    if bounded and bounded < k * per:
        raise UsageError(
            f"{bounded} candidates per class cannot give {k} prototypes of {per} rows each; "
            f"give candidates={k * per} or more, or lower k or rho."
        )
    if reserved > memory.capacity:
        raise UsageError(
            f"{memory.candidates} candidates for each of {classes} classes need {reserved} rows, "
            f"but the memory has {memory.capacity}. Lower candidates or raise the capacity."
        )
    if k and tasks > 1:
        check_budget(k, memory.capacity, tasks=tasks, classes=classes, rows_per_prototype=per, reserved=reserved)
    return k
