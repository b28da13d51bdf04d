"""Memories as configurations: what is kept, as frozen data that fills in its own defaults and builds itself.

Nothing here needs torch before something is resolved or built, so plans and help stay quick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar

from odedm.core.configuration import check_settings, from_dict, repr_without_defaults, setting_field, to_dict
from odedm.core.errors import UsageError
from odedm.core.registry import (
    ANNOTATIONS,
    DISTANCES,
    GAMMA_RULES,
    GROUNDS,
    POLICIES,
    REPLAYS,
    SPACES,
    WITHOUT_CLUSTERS,
)
from odedm.core.validators import Bool, Choice, Float, Int, NamedValues, Pair, WordOr
from odedm.memory.choice_settings import OF_DISTANCE, ClusterDistance, check_choice, stored_weight, unstored_weight
from odedm.memory.no_memory import NoMemory
from odedm.memory.paper_reading import paper_dac, paper_reading
from odedm.memory.site import Site, StreamShape, check_policy_options, read_policy_options

if TYPE_CHECKING:
    from odedm.memory.base import Memory
    from odedm.selection.selector import PrototypeSelector

DEFAULT_RHO = 0.25
"""The long-term share where neither rho nor k is given."""

ROWS: Any = {"validator": Int(0), "default": 100, "help": "Rows in all, λ.", "panel": "Memory"}
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
class Reservoir:
    """A plain reservoir: a uniform sample of the whole stream.

    Args:
        capacity: rows in all (λ).

    >>> Reservoir(200)
    Reservoir(capacity=200)
    """

    capacity: int = setting_field(**ROWS)

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
    replay: ClassVar[str] = "union"
    gamma: ClassVar[float] = 0.0
    keeps_stream_fields: ClassVar[bool] = False

    def __post_init__(self) -> None:
        check_settings(self)

    def __repr__(self) -> str:
        return repr_without_defaults(self, ("capacity",))

    def resolve(self, shape: StreamShape, native: str) -> Native | Reservoir:  # noqa: ARG002 - of any shape
        """The policy by its name; where that is the reservoir, the plain reservoir: one memory has one description."""
        policy = self.policy or native
        check_policy_options(policy, self.policy_options)
        if policy == "reservoir":
            return Reservoir(self.capacity)
        return replace(self, policy=policy, policy_options=read_policy_options(policy, self.policy_options))

    def build(self, site: Site) -> Memory:
        """The live memory."""
        return site.policy(self.policy or "reservoir", self.capacity, self.policy_options)


@dataclass(frozen=True)
class ODEDM:
    """The dual memory: short-term rows by any policy, and long-term prototypes of finished tasks, in one budget.

    Args:
        capacity: rows in all (λ).
        rho: long-term share of them in the end (ρ), 0.25 unless k is given; rounded to whole rows a class, halves up.
        k: prototypes of each class; where both are given k counts and rho is its label. k=0 or rho=0 pins nothing.
        replay: how a method meets the long-term rows, a name in `odedm list replays`; "auto" is what suits the method
            (docs/consolidation.md), and the auxiliary term where gamma or gamma_rule is given.
        gamma: weight of the auxiliary cross-entropy term, 1 unless given; "union" has no such term.
        gamma_rule: "fixed", unless given, or "share": gamma times the long-term share of the rows stored now.
        distance: by which rows are nearest to a prototype, a name in `odedm list distances`; "random" keeps any rows,
            "herding" those whose mean is near that of their class.
        dac: a pair (clusters, depth) for divide-and-conquer, or None for all candidates; "random" and "herding" need
            none.
        space: where rows are points, the network's "features" or "pixels".
        candidates: "task", all rows of the finished task as in the paper, or a number per class that counts inside λ.
        rows_per_prototype: rows that each prototype keeps.
        mixup: keep mean images of clusters instead of rows (an ablation).
        screen: converge only so many pairs for each prototype; None converges what can decide.
        short_policy: how short-term rows are chosen, the method's own ("native") or a name in `odedm list policies`.
        annotate: when logits of long-term rows are taken, at the task's "end" or as they arrived in the "stream".
        dac_distance: between the clusters of divide-and-conquer, a name in `odedm list distances`.
        epsilon: Sinkhorn's ε between those clusters, relative to their mean cost; 0.05 unless given.
        pair_epsilon: the same between a row and a prototype; 0.1 unless given.
        ground: Sinkhorn's ground cost, a name in `odedm list grounds`; "auto" unless given.
        bandwidth: of MMD's kernel; the median distance of a class's rows unless given.
        policy_options: options of the short-term policy by name.

    >>> ODEDM(20, rho=0.5).resolve(StreamShape(tasks=4, classes_per_task=2), native="reservoir").k
    2
    """

    capacity: int = setting_field(**ROWS)
    rho: float | None = setting_field(
        Float(0, 1), None, "Long-term share of λ, ρ.", default_words=f"{DEFAULT_RHO} unless k is given"
    )
    k: int | None = setting_field(Int(0), None, "Prototypes per class.", default_words="by rho")
    replay: str = setting_field(
        Choice("replay reading", REPLAYS, also=("auto",)),
        "auto",
        "How the method meets long-term rows; auto: by the method, auxiliary where gamma or its rule is given.",
    )
    gamma: float | None = setting_field(Float(0), None, "Weight of the auxiliary term.", default_words="1")
    gamma_rule: str | None = setting_field(
        Choice("rule for gamma", GAMMA_RULES),
        None,
        "What that weight goes by.",
        default_words="fixed",
    )
    distance: str = setting_field(Choice("distance", DISTANCES), "sinkhorn", "Of rows to prototypes.")
    dac: tuple[int, int] | None = setting_field(
        Pair(),
        (3, 4),
        "Divide and conquer before k-means: clusters, depth.",
        optional=True,
        metavar="K,DEPTH|none",
    )
    space: str = setting_field(Choice("space", SPACES), "features", "Where rows are points.")
    candidates: str | int = setting_field(
        WordOr("task", Int(1)), "task", "All rows of the task, or N per class inside λ.", metavar="task|N"
    )
    rows_per_prototype: int = setting_field(Int(1), 1, "Rows kept per prototype.")
    mixup: bool = setting_field(Bool(), False, "Keep cluster means instead of rows (ablation).")
    screen: int | None = setting_field(
        Int(1), None, "Converge only this many pairs per prototype.", default_words="all"
    )
    short_policy: str = setting_field(
        Choice("short-term policy", POLICIES, also=("native",)), "native", "How short-term rows are chosen."
    )
    annotate: str = setting_field(Choice("time of annotation", ANNOTATIONS), "end", "When long-term logits are taken.")
    dac_distance: str = setting_field(ClusterDistance("distance", DISTANCES), "sinkhorn", "Between clusters in --dac.")
    epsilon: float | None = setting_field(Float(0), None, "Sinkhorn's ε between clusters.", default_words="0.05")
    pair_epsilon: float | None = setting_field(
        Float(0), None, "Sinkhorn's ε between rows and prototypes.", default_words="0.1"
    )
    ground: str | None = setting_field(
        Choice("ground cost", GROUNDS), None, "Sinkhorn's ground cost.", default_words="auto"
    )
    bandwidth: float | None = setting_field(Float(0), None, "Of MMD's kernel.", default_words="the median distance")
    policy_options: Mapping[str, Any] = setting_field(**POLICY_OPTIONS)

    PANEL: ClassVar[str] = "ODEDM"
    name: ClassVar[str] = "odedm"

    def __post_init__(self) -> None:
        check_settings(self)
        check_choice(self)

    def __repr__(self) -> str:
        return repr_without_defaults(self, ("capacity",))

    @classmethod
    def paper(cls, capacity: int, rho: float = 0.25, **changes: Any) -> ODEDM:
        """The memory as this library reads the paper, whatever the defaults are; `changes` are settings beside that.

        DAC is the paper's for λ and ρ.

        >>> ODEDM.paper(200, rho=0.5, k=13).dac, ODEDM.paper(200, gamma=0.5).gamma
        ((3, 2), 0.5)
        """
        own: dict[str, Any] = {"dac": paper_dac(capacity, rho), "policy_options": {}, "k": None}
        known = {name: changes[name] for name in ("distance", "replay") if name in changes}
        return cls(capacity, rho, **{**paper_reading(**known), **own, **changes})

    @property
    def keeps_stream_fields(self) -> bool:
        """Whether the fields that rows had when they arrived must be kept until their task ends."""
        return self.annotate == "stream"

    def resolve(self, shape: StreamShape, native: str) -> ODEDM:
        """Every default filled in: k from rho, the short-term policy by name, Sinkhorn's numbers; or refused.

        Where rho gives classes different numbers of prototypes, k stays None.
        """
        from odedm.memory.prototype_quotas import prototypes

        rho = DEFAULT_RHO if self.rho is None and self.k is None else self.rho
        known = replace(self, rho=rho, short_policy=native if self.short_policy == "native" else self.short_policy)
        found = replace(known, k=prototypes(known, shape))
        if self.distance == "sinkhorn":
            filled = _distance(self.distance, found, "epsilon", *OF_DISTANCE)
            names = [name for name in ("epsilon", *OF_DISTANCE) if hasattr(filled, name)]
            found = replace(found, **{name: getattr(filled, name) for name in names})
        elif self.distance in WITHOUT_CLUSTERS:
            found = replace(found, dac=None)  # one choice has one description
        check_policy_options(found.short_policy, self.policy_options)
        found = replace(found, policy_options=read_policy_options(found.short_policy, self.policy_options))
        consolidator(found)  # refuses what cannot be chosen by, before anything runs
        return found

    def build(self, site: Site) -> Memory:
        """The live memory."""
        from odedm.memory.candidate_pool import ClassReservoirPool
        from odedm.memory.dual import DualBuffer
        from odedm.memory.prototype_quotas import FixedQuota, class_quotas

        pool = None
        if isinstance(self.candidates, int):
            columns = (*site.raw, *site.own) if self.keeps_stream_fields else site.raw
            classes, rng = site.shape.classes_per_task, site.rng("candidates")
            pool = ClassReservoirPool(self.candidates, columns, site.device, rng=rng, compartments=classes)
        room = self.capacity - (pool.reserved() if pool else 0)
        policy = "reservoir" if self.short_policy == "native" else self.short_policy
        buffer = site.policy(policy, room, self.policy_options)
        quota = class_quotas(self, site.shape) if self.k is None and site.shape.task_classes else self.k or 0
        return DualBuffer(
            buffer,
            consolidator(replace(self, k=max(quota) if isinstance(quota, tuple) else quota)),
            pool,
            FixedQuota(quota, self.rows_per_prototype),
            rng=site.cpu_rng("consolidation"),
            timer=site.timer,
            in_place=True,
        )


MemorySettings = Reservoir | Native | ODEDM
"""Memories that keep rows."""
AnyMemory = MemorySettings | NoMemory
KINDS: dict[str, type[AnyMemory]] = {kind.name: kind for kind in (Reservoir, Native, ODEDM, NoMemory)}


def memory_to_dict(memory: AnyMemory) -> dict[str, Any]:
    """A memory as plain data."""
    return {"name": memory.name, **stored_weight(to_dict(memory))}


def memory_from_dict(plain: object) -> AnyMemory:
    """A memory from plain data of anyone's.

    >>> memory_from_dict({"name": "reservoir", "capacity": 5})
    Reservoir(capacity=5)
    """
    own = dict(plain) if isinstance(plain, dict) else {}
    name = own.pop("name", None)
    if not isinstance(name, str) or name not in KINDS:
        known, given = ", ".join(KINDS), str(name)[:60]
        raise UsageError(f"A stored experiment's memory must be one of {known}; {given!r} was found.")
    kind: Callable[..., AnyMemory] = KINDS[name]
    return from_dict(kind, "memory", unstored_weight(kind, own))


@cache
def consolidator(memory: ODEDM) -> PrototypeSelector | None:
    """How a memory chooses prototypes, or None where it keeps none; made once for each configuration."""
    if not memory.k:
        return None
    from odedm.selection.dac import Dac
    from odedm.selection.selector import PrototypeSelector

    clusters = _distance(memory.dac_distance, memory, "epsilon")
    return PrototypeSelector(
        k=memory.k,
        distance=_distance(memory.distance, memory, *OF_DISTANCE),
        dac=Dac(*memory.dac, clusters, sample=None) if memory.dac else None,  # exact, as the recorded runs are
        rows_per_prototype=memory.rows_per_prototype,
        space=memory.space,
        mixup=memory.mixup,
    )


def _distance(name: str, memory: ODEDM, *settings: str) -> Any:
    """A distance by name, with those of the memory's settings that are given and that it has."""
    kind = DISTANCES[name].load()
    if not isinstance(kind, type):  # an object from outside, which has its numbers
        return kind
    given = {each: getattr(memory, each) for each in settings if getattr(memory, each) is not None}
    return kind(**{each: value for each, value in given.items() if each in getattr(kind, "__dataclass_fields__", ())})
