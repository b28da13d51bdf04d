"""Memories as configurations: what is kept, as frozen data that fills in its own defaults and builds itself.

Nothing here needs torch before something is resolved or built, so plans and help stay quick.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, ClassVar, Self

from odedm.core.choices import ANNOTATIONS, GAMMA_RULES, REPLAYS
from odedm.core.configuration import (
    Setting,
    check_settings,
    field_settings,
    from_dict,
    repr_without_defaults,
    setting_field,
    settings_of,
    to_dict,
)
from odedm.core.errors import UsageError, short_repr
from odedm.core.plugins import check_name
from odedm.core.registry import POLICIES
from odedm.core.validators import Choice, Float, Int, WordOr
from odedm.memory.build_context import BuildContext, StreamShape, check_policy_options, read_policy_options
from odedm.memory.paper_preset import AUXILIARY, REST, paper_selection
from odedm.memory.single_memory import POLICY_OPTIONS, ROWS, Native, NoMemory, Reservoir
from odedm.selection.flat_settings import FLAT, flattened, selection_from
from odedm.selection.prototype_settings import L2, Prototypes, Selection, as_selection, filled_in, selector

if TYPE_CHECKING:
    from odedm.memory.dual import AnyBuffer
    from odedm.selection.selector import PrototypeSelector

__all__ = [
    "KINDS",
    "ODEDM",
    "AnyMemory",
    "MemorySettings",
    "Native",
    "NoMemory",
    "Reservoir",
    "as_memory_config",
    "memory_from_dict",
    "memory_from_flat",
    "memory_to_dict",
    "prototype_selector",
]

DEFAULT_RHO = 0.25
"""The long-term share where neither rho nor k is given."""
FEW_ROWS = 5
"""Up to so many rows of the memory for each class, defaults are those for few rows (docs/consolidation.md)."""
BALANCED = "balanced-reservoir"
FEW_ROWS_SELECTION, USUAL_SELECTION = Prototypes(L2(), dac=None), Prototypes()
OF_TERM: dict[str, Any] = {"gamma": 1.0, "gamma_rule": "fixed"}
"""Settings of the auxiliary term, with what stands in files of a memory without one."""


@dataclass(frozen=True)
class ODEDM:
    """The dual memory: short-term rows by any policy, and long-term prototypes of finished tasks, in one budget.

    Args:
        capacity: rows in all (λ).
        rho: long-term share of them in the end (ρ), 0.25 unless k is given; rounded to whole rows a class, halves up.
        k: prototypes of each class; where both are given k counts and rho is its label. k=0 or rho=0 pins nothing.
        selection: how prototypes are chosen: `Prototypes(distance=…, dac=DAC(…))`, `Herding()` or `Random()`; the name
            of a distance stands for prototypes by it. Unless given `Prototypes()`, or the nearest rows by l2 where a
            class has `FEW_ROWS` rows of the memory or fewer, or nobody knows how many classes come.
        replay: how a method meets the long-term rows, a name in `odedm list replays`; "auto" is what suits the method
            (docs/consolidation.md), and the auxiliary term where gamma or gamma_rule is given.
        gamma: weight of the auxiliary cross-entropy term, 1 unless given; "union" has no such term.
        gamma_rule: "fixed", unless given, or "share": gamma times the long-term share of the rows stored now.
        candidates: among which rows prototypes are chosen: "task", all rows of the finished task as in the paper, or a
            number per class that counts inside λ. "task" in runs unless given; else see `DualMemory`.
        rows_per_prototype: rows that each prototype keeps.
        short_policy: how short-term rows are chosen, the method's own ("native") or a name in `odedm list policies`.
            "auto" is the method's own; where that is a plain reservoir and classes have few rows, or nobody knows how
            many come, it is "balanced-reservoir", as many rows of every class.
        annotate: when logits of long-term rows are taken, at the task's "end" or as they arrived in the "stream".
        policy_options: options of the short-term policy by name.

    >>> few = ODEDM(20, rho=0.5).resolve(StreamShape(tasks=4, classes_per_task=2), native="reservoir")
    >>> few.k, few.short_policy, few.selection
    (2, 'balanced-reservoir', Prototypes(distance=L2(), dac=None))
    """

    capacity: int = setting_field(**ROWS)
    rho: float | None = setting_field(
        Float(0, 1), None, "Long-term share of λ, ρ.", default_words=f"{DEFAULT_RHO} unless k is given"
    )
    k: int | None = setting_field(Int(0), None, "Prototypes per class.", default_words="by rho")
    selection: Selection | None = field(default=None, kw_only=True)
    replay: str = setting_field(
        Choice("replay mode", REPLAYS, also=("auto",)),
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
    candidates: str | int | None = setting_field(
        WordOr("task", Int(1)),
        None,
        "All rows of the task, or N per class inside λ.",
        default_words="task",
        metavar="task|N",
    )
    rows_per_prototype: int = setting_field(Int(1), 1, "Rows kept per prototype.")
    short_policy: str = setting_field(
        Choice("short-term policy", POLICIES, also=("auto", "native")),
        "auto",
        "How short-term rows are chosen; auto: by the method, balanced where classes have few rows.",
    )
    annotate: str = setting_field(Choice("time of annotation", ANNOTATIONS), "end", "When long-term logits are taken.")
    policy_options: Mapping[str, Any] = setting_field(**POLICY_OPTIONS)

    PANEL: ClassVar[str] = "ODEDM"
    name: ClassVar[str] = "odedm"

    def __post_init__(self) -> None:
        if self.selection is not None:
            object.__setattr__(self, "selection", as_selection(self.selection))
        check_settings(self)
        _check_weight(self)
        if self.annotate == "stream" and getattr(self.selection, "mixup", False):
            raise UsageError("annotate='stream' keeps the logits that rows had in the stream; mixup's means had none.")

    def __repr__(self) -> str:
        return repr_without_defaults(self, ("capacity",))

    @classmethod
    def paper(cls, capacity: int, rho: float = 0.25, *, distance: Any = "sinkhorn", **changes: Any) -> ODEDM:
        """Return the memory as this library reads the paper, whatever the defaults are, but for `changes`.

        DAC is the paper's for λ and ρ, and compares all rows of a cluster; `distance` is one of the paper's four.

        >>> ODEDM.paper(200, rho=0.5, k=13).selection.dac, ODEDM.paper(200, gamma=0.5).gamma
        (DAC(clusters=3, depth=2, distance=Sinkhorn(epsilon=0.05), sample=None), 0.5)
        """
        capacity = Int().validate("capacity", capacity)
        preset = {"selection": paper_selection(capacity, rho, distance), **AUXILIARY, **REST, "policy_options": {}}
        if changes.get("replay") == "union":
            preset |= dict.fromkeys(OF_TERM)
        return cls(capacity, rho, **{**preset, **changes})

    @classmethod
    def flat_settings(cls) -> dict[str, Setting]:
        """Return every setting by name, those of the selection among them."""
        settings = field_settings(cls)
        return {name: settings[name] for name in ("capacity", "rho", "k")} | FLAT | settings

    def flat(self) -> dict[str, Any]:
        """Return the values of `flat_settings`."""
        values = {name: getattr(self, name) for name in field_settings(ODEDM)} | flattened(self.selection)
        return {name: values[name] for name in settings_of(ODEDM)}

    @classmethod
    def from_flat(cls, **settings: Any) -> Self:
        """Return a memory of settings side by side, as a command line has them.

        >>> ODEDM.from_flat(capacity=50, distance="l2", dac=None)
        ODEDM(capacity=50, selection=Prototypes(distance=L2(), dac=None))
        """
        of_selection = {name: settings.pop(name) for name in FLAT if name in settings}
        return cls(**settings, selection=selection_from(of_selection))

    @property
    def keeps_stream_fields(self) -> bool:
        """Return whether the fields that rows had when they arrived must be kept until their task ends."""
        return self.annotate == "stream"

    def resolve(self, shape: StreamShape, native: str) -> ODEDM:
        """Return every default filled in: k from rho, the short-term policy by name, Sinkhorn's numbers; or refused.

        Where rho gives classes different numbers of prototypes, k stays None.
        """
        from odedm.memory.quotas import prototypes

        rho = DEFAULT_RHO if self.rho is None and self.k is None else self.rho
        few = self.for_rows_per_class(self.capacity / max(1, shape.classes), native)
        known = replace(
            few, rho=rho, candidates=self.candidates or "task", selection=filled_in(few.selection or USUAL_SELECTION)
        )
        resolved = replace(known, k=prototypes(known, shape))
        check_policy_options(known.short_policy, self.policy_options)
        resolved = replace(resolved, policy_options=read_policy_options(known.short_policy, self.policy_options))
        prototype_selector(resolved)  # refuses what cannot be chosen by, before anything runs
        return resolved

    def for_rows_per_class(self, rows: float | None, native: str) -> ODEDM:
        """Return short-term policy and selection filled in, for so many rows of a class; None where nobody knows.

        Where classes have few rows, a uniform sample of the stream leaves some of them without any. With k=0 or rho=0
        nothing is kept for good, and the memory is the method's own.
        """
        pins_nothing = self.k == 0 or (self.k is None and self.rho == 0)
        few = (rows is None or rows <= FEW_ROWS) and not pins_nothing
        policy = self.short_policy
        if policy == "auto":
            balanced = few and native == "reservoir" and not self.policy_options
            policy = BALANCED if balanced else native
        selection = self.selection or (FEW_ROWS_SELECTION if few else USUAL_SELECTION)
        return replace(self, short_policy=native if policy == "native" else policy, selection=selection)

    def build(self, context: BuildContext) -> AnyBuffer:
        """Return the live memory."""
        from odedm.memory.candidate_pool import ClassReservoirPool
        from odedm.memory.dual import DualBuffer
        from odedm.memory.quotas import FixedQuota, class_quotas

        pool = None
        if isinstance(self.candidates, int):
            fields = (*context.data_fields, *(context.method_fields if self.keeps_stream_fields else ()))
            classes, rng = context.shape.classes_per_task, context.rng("candidates")
            pool = ClassReservoirPool(self.candidates, fields, context.device, rng=rng, compartments=classes)
        room = self.capacity - (pool.reserved() if pool else 0)
        policy = "reservoir" if self.short_policy in ("auto", "native") else self.short_policy
        buffer = context.policy(policy, room, self.policy_options)
        quota = class_quotas(self, context.shape) if self.k is None and context.shape.task_classes else self.k or 0
        return DualBuffer(
            buffer,
            prototype_selector(replace(self, k=max(quota) if isinstance(quota, tuple) else quota)),
            pool,
            FixedQuota(quota, self.rows_per_prototype),
            rng=context.cpu_rng("consolidation"),
            timer=context.timer,
            in_place=True,
        )


MemorySettings = Reservoir | Native | ODEDM
"""Memories that keep rows."""
AnyMemory = MemorySettings | NoMemory
KINDS: dict[str, type[AnyMemory]] = {kind.name: kind for kind in (Reservoir, Native, ODEDM, NoMemory)}


def as_memory_config(memory: Any) -> AnyMemory:
    """Return the configuration that a user means; a policy, by its name or as a class, fills the whole memory.

    A number is the capacity of an ODEDM.

    >>> as_memory_config("reservoir"), as_memory_config("herded").policy, as_memory_config(50)
    (Reservoir(capacity=100), 'herded', ODEDM(capacity=50))
    """
    if isinstance(memory, AnyMemory):
        return memory
    if isinstance(memory, int) and not isinstance(memory, bool):
        return ODEDM(memory)
    if isinstance(memory, str):
        check_name("memory", memory, POLICIES, tuple(KINDS))
        return KINDS[memory]() if memory in KINDS else Native(policy=memory)
    if isinstance(memory, type):
        policy: Any = memory
        return next((kind() for kind in KINDS.values() if kind is policy), None) or Native(policy=policy)
    raise UsageError(
        f"memory must be a Reservoir, Native, ODEDM or NoMemory, e.g. ODEDM(capacity=200, rho=0.25), its name, a "
        f"number of rows for an ODEDM, or a subclass of odedm.Memory; {short_repr(memory)} was given."
    )


def memory_from_flat(kind: type[AnyMemory], settings: Mapping[str, Any]) -> AnyMemory:
    """Return a memory of a kind from as many settings side by side as were given."""
    make: Callable[..., AnyMemory] = getattr(kind, "from_flat", kind)
    return make(**settings)


def memory_to_dict(memory: AnyMemory) -> dict[str, Any]:
    """Return a memory as plain data; beside `union` stands the weight that it has had there ever since."""
    without_term = isinstance(memory, ODEDM) and memory.replay == "union"
    return {"name": memory.name, **to_dict(memory), **(OF_TERM if without_term else {})}


def memory_from_dict(plain: object) -> AnyMemory:
    """Return a memory from plain data of anyone's.

    >>> memory_from_dict({"name": "reservoir", "capacity": 5})
    Reservoir(capacity=5)
    """
    settings = dict(plain) if isinstance(plain, dict) else {}
    name = settings.pop("name", None)
    if not isinstance(name, str) or name not in KINDS:
        known, given = ", ".join(KINDS), str(name)[:60]
        raise UsageError(f"A stored experiment's memory must be one of {known}; {given!r} was found.")
    kind: Any = KINDS[name]
    return from_dict(kind, "memory", _without_idle_weight(kind, settings))  # type: ignore[no-any-return]


def _without_idle_weight(kind: Any, plain: dict[str, Any]) -> dict[str, Any]:
    """Return a stored memory's settings without a weight beside `union`, which nobody gave or which did nothing."""
    if plain.get("replay") != "union":
        return plain
    known = settings_of(kind)
    given = {name: value for name, value in plain.items() if name in OF_TERM and name in known}
    for name, value in given.items():
        if value is not None:
            known[name].validator.validate(name, value)  # what is none at all is refused as ever
    return {**plain, **dict.fromkeys(given)}


def _check_weight(memory: ODEDM) -> None:
    """Refuse a weight of the auxiliary term beside the mode that has none, whatever it is: it would do nothing."""
    for name in OF_TERM:
        weight = getattr(memory, name)
        if memory.replay == "union" and weight is not None:
            raise UsageError(
                f"{name} is for the auxiliary term, and the replay mode 'union' has none; {weight!r} was given. Leave "
                "it out, or take replay='auxiliary' or 'both'."
            )


@cache
def prototype_selector(memory: ODEDM) -> PrototypeSelector | None:
    """Return how a memory chooses prototypes, or None where it keeps none; made once for each configuration."""
    return selector(memory.selection or USUAL_SELECTION, memory.k, memory.rows_per_prototype) if memory.k else None
