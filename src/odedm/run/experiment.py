"""What is to be run, as frozen data: every choice of the library is a field here, and goes into the result."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from odedm.catalogue import CLASS_ORDERS, DISTANCES, METHODS, NETS, REPLAYS, SETTINGS, SPACES
from odedm.errors import UsageError, choose

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Reservoir:
    """A plain reservoir of `capacity` rows (λ)."""

    capacity: int

    name = "reservoir"

    def __post_init__(self) -> None:
        _at_least("The memory's capacity", self.capacity, 0)


@dataclass(frozen=True)
class Native:
    """`capacity` rows (λ) under the policy that the method was published with; for most methods the reservoir."""

    capacity: int

    name = "native"

    def __post_init__(self) -> None:
        _at_least("The memory's capacity", self.capacity, 0)


@dataclass(frozen=True)
class ODEDM:
    """The dual memory: `capacity` rows (λ), of which a share `rho` (ρ), or `k` rows per class, ends up long-term.

    Where both are given k counts and rho is its label; k=0 or rho=0 pins nothing: a plain reservoir by the same code
    path. `dac=(K, depth)` or None; `candidates` is "task" (all rows of the finished task, as in the paper) or a number
    of rows per class that counts inside λ. `short` says which policy fills the short-term part: the method's own
    ("native") or "reservoir".
    """

    capacity: int
    rho: float | None = None
    k: int | None = None
    replay: str = "auxiliary"
    gamma: float = 1.0
    distance: str = "sinkhorn"
    dac: tuple[int, int] | None = (3, 4)
    space: Literal["features", "pixels"] = "features"
    candidates: str | int = "task"
    rows_per_prototype: int = 1
    mixup: bool = False
    screen: int | None = None
    short: str = "native"

    name = "odedm"

    def __post_init__(self) -> None:
        _at_least("The memory's capacity", self.capacity, 0)
        if self.rho is not None and not 0 <= self.rho <= 1:
            raise UsageError(f"rho is the long-term share of the memory, between 0 and 1; {self.rho} was given.")
        if self.k is not None:
            _at_least("k, the number of prototypes per class,", self.k, 0)
        if self.rho is None and self.k is None:
            raise UsageError("The odedm memory needs rho, its long-term share, or k, its rows per class; give one.")
        choose("replay reading", self.replay, REPLAYS)
        choose("distance", self.distance, DISTANCES)
        choose("space", self.space, SPACES)
        choose("short-term policy", self.short, {"native": None, "reservoir": None})
        if isinstance(self.candidates, str) and self.candidates != "task":
            raise UsageError(f"candidates must be 'task' or a number of rows per class; {self.candidates!r} was given.")
        if isinstance(self.candidates, int):
            _at_least("The number of candidates per class", self.candidates, 1)
        _at_least("rows_per_prototype", self.rows_per_prototype, 1)
        if not 0 <= self.gamma < float("inf"):
            raise UsageError(f"gamma, the weight of the auxiliary term, must be 0 or more; {self.gamma} was given.")
        if self.screen is not None:
            _at_least("screen", self.screen, 1)
            if self.distance != "sinkhorn":
                raise UsageError(f"screen is for the sinkhorn distance, not for '{self.distance}'; leave it out.")


@dataclass(frozen=True)
class Experiment:
    """One run, whole: data, method, memory, and the seed from which every draw follows."""

    memory: Reservoir | Native | ODEDM
    method: str = "derpp"
    options: Mapping[str, Any] = field(default_factory=dict)
    data: str = "fashion-mini"
    tasks: int | None = None
    setting: str = "standard"
    factor: float | None = None
    class_order: str = "natural"
    net: str = "auto"
    batch: int = 32
    draw: int | None = None
    columns: str = "seen"
    seed: int = 0
    device: str = "auto"
    threads: int = 1

    def __post_init__(self) -> None:
        choose("method", self.method, METHODS)
        choose("setting", self.setting, SETTINGS)
        choose("class order", self.class_order, CLASS_ORDERS)
        choose("net", self.net, {**NETS, "auto": None})
        choose("device", self.device, dict.fromkeys(DEVICES))
        choose("evaluation columns", self.columns, {"seen": None, "all": None})
        if self.factor is not None and self.setting != "long-tail":
            raise UsageError(f"factor belongs to the setting 'long-tail'; the setting is '{self.setting}'.")
        _at_least("batch", self.batch, 1)
        _at_least("seed", self.seed, 0)
        _at_least("threads", self.threads, 1)
        if self.draw is not None:
            _at_least("draw", self.draw, 1)

    def with_seed(self, seed: int) -> Experiment:
        """The same run from another seed."""
        return replace(self, seed=seed)

    def describe(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        plain = asdict(self)
        plain["memory"] = {"name": self.memory.name, **asdict(self.memory)}
        plain["options"] = dict(self.options)
        data: dict[str, Any] = json.loads(json.dumps(plain))  # tuples become lists here, not first in the file
        return data

    def slug(self) -> str:
        """A folder name that says what is run, the same for every seed and different for every configuration.

        >>> Experiment(Reservoir(100)).slug().rsplit("-", 1)[0]
        'fashion-mini-derpp-reservoir-100'
        """
        same = json.dumps({**self.describe(), "seed": None}, sort_keys=True, default=str)
        mark = hashlib.blake2b(same.encode(), digest_size=4).hexdigest()
        return f"{self.data}-{self.method}-{self.memory.name}-{self.memory.capacity}-{mark}"


def _at_least(what: str, value: int, least: int) -> None:
    if value < least:
        raise UsageError(f"{what} must be {least} or more; {value} was given.")
