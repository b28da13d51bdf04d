"""How prototypes are chosen, as frozen settings: by a distance after divide-and-conquer, or without clusters.

Each class has its own numbers and no others, so that nothing can be given that does nothing. Commands, studies and
files have the same settings side by side, under the names of `FLAT`. Nothing here needs torch before `selector`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, ClassVar

from odedm.core.choices import GROUNDS, SPACES
from odedm.core.configuration import check_settings, repr_without_defaults, setting_field
from odedm.core.errors import UsageError
from odedm.core.registry import DISTANCES, WITHOUT_CLUSTERS
from odedm.core.validators import Bool, Choice, Float, Int, Pair, Validator, refused

if TYPE_CHECKING:
    from odedm.selection.selector import PrototypeSelector


@dataclass(frozen=True)
class L2:
    """Compare rows by Euclidean distance, the length of their difference."""

    name: ClassVar[str] = "l2"


@dataclass(frozen=True)
class L1:
    """Compare rows by the sum of absolute differences."""

    name: ClassVar[str] = "l1"


@dataclass(frozen=True)
class MMD:
    """Compare a row with a cluster by maximum mean discrepancy, with a Gaussian kernel.

    Args:
        bandwidth: the kernel's; the median distance of a class's rows unless given.
    """

    bandwidth: float | None = setting_field(
        Float(0), None, "Of MMD's kernel.", default_words="the median distance", panel="ODEDM"
    )

    name: ClassVar[str] = "mmd"

    def __post_init__(self) -> None:
        check_settings(self)


@dataclass(frozen=True)
class Sinkhorn:
    """Compare rows by entropic optimal transport, as histograms over their dimensions.

    Args:
        epsilon: ε relative to the mean cost; 0.1 between rows and prototypes, 0.05 between the clusters of DAC.
        ground: the ground cost, a name in `odedm list grounds`; "auto" unless given.
        screen: converge only so many pairs for each prototype; None converges what can decide.
    """

    epsilon: float | None = setting_field(
        Float(0), None, "Sinkhorn's ε between rows and prototypes.", default_words="0.1", panel="ODEDM"
    )
    ground: str | None = setting_field(
        Choice("ground cost", GROUNDS), None, "Sinkhorn's ground cost.", default_words="auto", panel="ODEDM"
    )
    screen: int | None = setting_field(
        Int(1), None, "Converge only this many pairs per prototype.", default_words="all", panel="ODEDM"
    )

    name: ClassVar[str] = "sinkhorn"

    def __post_init__(self) -> None:
        check_settings(self)

    def __repr__(self) -> str:
        return repr_without_defaults(self)


SINKHORN = Sinkhorn()
DistanceSettings = L1 | L2 | MMD | Sinkhorn
BY_NAME: dict[str, type[DistanceSettings]] = {kind.name: kind for kind in (L1, L2, MMD, Sinkhorn)}


def name_of(distance: DistanceSettings | str) -> str:
    """Return the name of a distance."""
    return distance if isinstance(distance, str) else distance.name


def numbers_of(distance: DistanceSettings | str) -> dict[str, Any]:
    """Return the numbers of a distance that were given, by name."""
    return {name: value for name, value in vars(distance).items() if value is not None} if _is_ours(distance) else {}


def _is_ours(distance: Any) -> bool:
    return isinstance(distance, DistanceSettings)


@dataclass(frozen=True)
class OneDistance(Choice):
    """A distance: its settings, its name, or code from outside, which is known by its name.

    >>> OneDistance("distance", DISTANCES).validate("distance", "mmd")
    MMD(bandwidth=None)
    """

    @property
    def names(self) -> list[str]:
        """Return all legal names: any but those that stand for a choice without clusters."""
        return [name for name in super().names if name not in WITHOUT_CLUSTERS]

    def validate(self, name: str, value: Any) -> Any:
        """Return the settings of a distance, or the name of one from outside."""
        if isinstance(value, DistanceSettings):
            return value
        if isinstance(value, type) and value in BY_NAME.values():
            return value()
        chosen = super().validate(name, value)
        if chosen in WITHOUT_CLUSTERS:
            raise UsageError(f"{name} compares clusters, and '{chosen}' makes none; it must be {self.expected}.")
        return BY_NAME[chosen]() if chosen in BY_NAME else chosen


@dataclass(frozen=True)
class DistanceName(OneDistance):
    """The name of a distance that compares clusters."""

    def validate(self, name: str, value: Any) -> str:
        """Return the name alone."""
        return name_of(super().validate(name, value))


@dataclass(frozen=True)
class RowsOrNone(Validator):
    """A number of rows, or none for all of them; "none" on the command line.

    >>> RowsOrNone().validate("sample", "none"), RowsOrNone().validate("sample", "20")
    (None, 20)
    """

    expected = f"{Int(1).expected}, or none"

    def convert(self, value: Any) -> int | None:
        """Return a plain int, or None."""
        if value is None or value == "none":
            return None
        return Int(1).convert(int(value) if isinstance(value, str) else value)


@dataclass(frozen=True)
class DAC:
    """Divide-and-conquer: narrow a class's rows down to the clusters that are nearest to each other.

    Args:
        clusters: K, of each step.
        depth: how many steps at most.
        distance: between clusters; `Sinkhorn` has no other number than epsilon here, and `MMD` none.
        sample: cluster so many rows for each cluster, and compare clusters by so many rows of each, drawn by the seed;
            None: all rows, as in the paper.

    >>> DAC(3, 4, distance="l2")
    DAC(clusters=3, depth=4, distance=L2())
    """

    clusters: int = 3
    depth: int = 4
    distance: DistanceSettings | str = setting_field(
        OneDistance("distance", DISTANCES), SINKHORN, "Between clusters in --dac.", panel="ODEDM"
    )
    sample: int | None = setting_field(
        RowsOrNone(),
        256,
        "Rows by which a cluster is made and compared in --dac, or none for all.",
        optional=True,
        panel="ODEDM",
        metavar="N|none",
    )

    def __post_init__(self) -> None:
        pair = Pair().validate("dac", (self.clusters, self.depth))
        object.__setattr__(self, "clusters", pair[0])
        object.__setattr__(self, "depth", pair[1])
        check_settings(self)
        kind = name_of(self.distance)
        for name, value in numbers_of(self.distance).items():
            if (kind, name) != ("sinkhorn", "epsilon"):
                raise UsageError(
                    f"{name} of '{kind}' is for rows and prototypes, not for the clusters of divide-and-conquer; "
                    f"{value!r} was given. Leave it out there."
                )

    def __repr__(self) -> str:
        return repr_without_defaults(self, ("clusters", "depth"))


@dataclass(frozen=True)
class Prototypes:
    """The nearest rows to the centres of a class's clusters, as in the paper.

    Args:
        distance: by which rows are nearest to a prototype: `L1`, `L2`, `MMD` or `Sinkhorn` with its numbers, a name in
            `odedm list distances`, or a distance of your own.
        dac: divide-and-conquer before k-means, or None for all candidates.
        space: where rows are points, the network's "features" or "pixels".
        mixup: keep mean images of clusters instead of rows (an ablation).

    >>> Prototypes("l2", dac=None)
    Prototypes(distance=L2(), dac=None)
    """

    distance: DistanceSettings | str = setting_field(OneDistance("distance", DISTANCES), SINKHORN, "…")
    dac: DAC | None = DAC()
    space: str = setting_field(Choice("space", SPACES), "features", "Where rows are points.", panel="ODEDM")
    mixup: bool = setting_field(Bool(), False, "Keep cluster means instead of rows (ablation).", panel="ODEDM")

    def __post_init__(self) -> None:
        dac: Any = self.dac
        if isinstance(dac, tuple | list) and len(dac) == 2:
            dac = DAC(*dac)
        if not isinstance(dac, DAC | None):
            raise refused("dac", "a DAC(clusters, depth), a pair of these, or None", dac)
        object.__setattr__(self, "dac", dac)
        check_settings(self)

    def __repr__(self) -> str:
        return repr_without_defaults(self)


@dataclass(frozen=True)
class Herding:
    """Rows whose mean is near that of their class, chosen one after the other (iCaRL); no clusters are made.

    Args:
        space: where rows are points, the network's "features" or "pixels".
    """

    space: str = setting_field(Choice("space", SPACES), "features", "Where rows are points.", panel="ODEDM")

    name: ClassVar[str] = "herding"

    def __post_init__(self) -> None:
        check_settings(self)

    def __repr__(self) -> str:
        return repr_without_defaults(self)


@dataclass(frozen=True)
class Random:
    """Any rows, each equally likely: the control for every other choice."""

    name: ClassVar[str] = "random"


Selection = Prototypes | Herding | Random
ROW_SELECTORS: dict[str, type[Herding | Random]] = {kind.name: kind for kind in (Herding, Random)}


def as_selection(value: Any) -> Selection:
    """Return the selection that a user means; a distance stands for prototypes by it.

    >>> as_selection("random"), as_selection("l2")
    (Random(), Prototypes(distance=L2()))
    """
    if isinstance(value, type) and value in (Prototypes, Herding, Random):
        return value()
    if isinstance(value, Selection):
        return value
    if isinstance(value, str) and value in ROW_SELECTORS:
        return ROW_SELECTORS[value]()
    if isinstance(value, str | DistanceSettings | type) or hasattr(value, "fit"):
        return Prototypes(value)
    legal = "Prototypes(…), Herding(…) or Random(), a distance such as L2(), or a name in `odedm list distances`"
    raise refused("selection", legal, value)


def filled_in(selection: Selection) -> Selection:
    """Return the selection with Sinkhorn's numbers where none were given."""
    if not isinstance(selection, Prototypes):
        return selection
    distance, dac = selection.distance, selection.dac
    if isinstance(distance, Sinkhorn):
        epsilon = 0.1 if distance.epsilon is None else distance.epsilon
        distance = replace(distance, epsilon=epsilon, ground=distance.ground or "auto")
    if dac and dac.distance == Sinkhorn():
        dac = replace(dac, distance=Sinkhorn(0.05))
    return replace(selection, distance=distance, dac=dac)


def selector(selection: Selection, k: int, rows_per_prototype: int) -> PrototypeSelector:
    """Return what chooses k prototypes of each class."""
    from odedm.selection.dac import Dac
    from odedm.selection.selector import PrototypeSelector

    if not isinstance(selection, Prototypes):
        space = selection.space if isinstance(selection, Herding) else "features"
        rows = DISTANCES[selection.name].load()()
        return PrototypeSelector(k, rows, None, rows_per_prototype, space)
    numbers = numbers_of(selection.distance)
    if isinstance(selection.distance, Sinkhorn) and "epsilon" in numbers:
        numbers["pair_epsilon"] = numbers.pop("epsilon")
    dac, reduce = selection.dac, None
    if dac:
        reduce = Dac(dac.clusters, dac.depth, _made(dac.distance, numbers_of(dac.distance)), sample=dac.sample)
    measure = _made(selection.distance, numbers)
    return PrototypeSelector(k, measure, reduce, rows_per_prototype, selection.space, selection.mixup)


def _made(distance: DistanceSettings | str, numbers: Mapping[str, Any]) -> Any:
    """Make a distance with its numbers; an object from outside has its own."""
    kind = DISTANCES[name_of(distance)].load()
    return kind(**numbers) if isinstance(kind, type) else kind
