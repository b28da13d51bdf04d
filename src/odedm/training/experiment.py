"""What is to be run, as frozen data: every choice of the library is a field here, and goes into the result."""

from __future__ import annotations

import hashlib
import json
import math
import operator
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any, Literal

from odedm.core.errors import UsageError, choose
from odedm.core.registry import CLASS_ORDERS, DISTANCES, METHODS, NETS, POLICIES, PRECISIONS, REPLAYS, SETTINGS, SPACES

DEVICES = ("auto", "cpu", "cuda")


@dataclass(frozen=True)
class Reservoir:
    """A plain reservoir of `capacity` rows (λ)."""

    capacity: int

    name = "reservoir"

    def __post_init__(self) -> None:
        _whole(self, "capacity", 0)


@dataclass(frozen=True)
class Native:
    """`capacity` rows (λ) under the policy that the method was published with; for most methods the reservoir.

    `policy` puts another one in its place, by its name in `odedm list policies`.
    """

    capacity: int
    policy: str | None = None

    name = "native"

    def __post_init__(self) -> None:
        _whole(self, "capacity", 0)
        if self.policy is not None:
            choose("memory policy", self.policy, POLICIES)


@dataclass(frozen=True)
class ODEDM:
    """The dual memory: `capacity` rows (λ), of which a share `rho` (ρ), or `k` rows per class, ends up long-term.

    Where both are given k counts and rho is its label; k=0 or rho=0 pins nothing: a plain reservoir by the same code
    path. `dac=(K, depth)` or None; `candidates` is "task" (all rows of the finished task, as in the paper) or a number
    of rows per class that counts inside λ. `short` says which policy fills the short-term part: the method's own
    ("native") or any by name. `annotate` says when the logits of long-term rows are taken: at the task's "end" by the
    network of then, or in the "stream" as they arrived, which keeps them for every candidate. `epsilon`,
    `pair_epsilon` and `ground` are those of the Sinkhorn distance.
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
    annotate: str = "end"
    epsilon: float | None = None
    pair_epsilon: float | None = None
    ground: str | None = None

    name = "odedm"

    def __post_init__(self) -> None:
        _whole(self, "capacity", 0)
        _number(self, "rho", optional=True)
        if self.rho is not None and not 0 <= self.rho <= 1:
            raise UsageError(f"rho is the long-term share of the memory, between 0 and 1; {self.rho} was given.")
        _whole(self, "k", 0, optional=True)
        if self.rho is None and self.k is None:
            raise UsageError("The odedm memory needs rho, its long-term share, or k, its rows per class; give one.")
        choose("replay reading", self.replay, REPLAYS)
        choose("distance", self.distance, DISTANCES)
        choose("space", self.space, SPACES)
        choose("short-term policy", self.short, {"native": None, **POLICIES})
        choose("time of annotation", self.annotate, {"end": None, "stream": None})
        if self.annotate == "stream" and self.mixup:
            raise UsageError("annotate='stream' keeps the logits that rows had in the stream; mixup's means had none.")
        if self.candidates != "task":
            _whole(self, "candidates", 1, legal="'task' or a number of rows per class, 1 or more")
        _whole(self, "rows_per_prototype", 1)
        _number(self, "gamma")
        if self.gamma < 0:
            raise UsageError(f"gamma, the weight of the auxiliary term, must be 0 or more; {self.gamma} was given.")
        if self.dac is not None:
            if not isinstance(self.dac, Sequence) or len(self.dac) != 2:
                raise UsageError(f"dac must be a pair (clusters, depth) or None; {self.dac!r} was given.")
            object.__setattr__(self, "dac", tuple(_as_whole("dac", each, 0, "two whole numbers") for each in self.dac))
        for name in ("epsilon", "pair_epsilon", "ground", "screen"):
            if getattr(self, name) is not None and self.distance != "sinkhorn":
                raise UsageError(f"{name} is for the sinkhorn distance, not for '{self.distance}'; leave it out.")
        _whole(self, "screen", 1, optional=True)
        _number(self, "epsilon", optional=True)
        _number(self, "pair_epsilon", optional=True)


@dataclass(frozen=True)
class Experiment:
    """One run, whole: data, method, memory, and the seed from which every draw follows.

    `precision` is "fp32", "tf32" or "bf16"; "auto" takes float32 on a CPU and bfloat16 on a GPU, TF32 there for methods
    that derive twice. `capture` lets a GPU replay steps as recorded graphs, which changes no number.
    """

    memory: Reservoir | Native | ODEDM
    method: str = "derpp"
    options: Mapping[str, Any] = field(default_factory=dict)
    data: str = "fashion-mini"
    tasks: int | None = None
    setting: str = "standard"
    factor: float | None = None
    blur: float = 0.0
    noise: float = 0.0
    class_order: str = "natural"
    net: str = "auto"
    net_options: Mapping[str, Any] = field(default_factory=dict)
    batch: int = 32
    draw: int | None = None
    columns: str = "seen"
    seed: int = 0
    device: str = "auto"
    threads: int = 1
    precision: str = "auto"
    capture: bool = True

    def __post_init__(self) -> None:
        for name in ("data", "method", "setting", "class_order", "net", "device", "columns", "precision"):
            if not isinstance(getattr(self, name), str):
                raise UsageError(f"{name} must be a name; {getattr(self, name)!r} was given.")
        choose("method", self.method, METHODS)
        choose("setting", self.setting, SETTINGS)
        choose("class order", self.class_order, CLASS_ORDERS)
        choose("net", self.net, {**NETS, "auto": None})
        choose("device", self.device, dict.fromkeys(DEVICES))
        choose("precision", self.precision, {"auto": None, **PRECISIONS})
        choose("evaluation columns", self.columns, {"seen": None, "all": None})
        if self.factor is not None and self.setting != "long-tail":
            raise UsageError(f"factor belongs to the setting 'long-tail'; the setting is '{self.setting}'.")
        if not isinstance(self.memory, Reservoir | Native | ODEDM):
            raise UsageError(
                f"memory must be a Reservoir, Native or ODEDM, e.g. ODEDM(capacity=200, rho=0.25); "
                f"{self.memory!r} was given."
            )
        for name, least in (("batch", 1), ("seed", 0), ("threads", 1)):
            _whole(self, name, least)
        for name in ("draw", "tasks"):
            _whole(self, name, 1, optional=True)
        _number(self, "factor", optional=True)
        for name in ("blur", "noise"):
            _number(self, name)

    def with_seed(self, seed: int) -> Experiment:
        """The same run from another seed."""
        return replace(self, seed=seed)

    def describe(self) -> dict[str, Any]:
        """Plain data, ready for JSON."""
        plain = asdict(self)
        plain["memory"] = {"name": self.memory.name, **asdict(self.memory)}
        plain["options"], plain["net_options"] = dict(self.options), dict(self.net_options)
        data: dict[str, Any] = json.loads(
            json.dumps(plain, default=str)
        )  # tuples become lists here, not first in the file
        return data

    @classmethod
    def from_dict(cls, plain: object) -> Experiment:
        """What `describe` gave, as an experiment again; it may come from a file of anyone's.

        >>> plan = Experiment(ODEDM(100, rho=0.25, dac=(3, 4)), options={"lr": 0.1})
        >>> Experiment.from_dict(plan.describe()) == plan
        True
        """
        values = _exactly("experiment", plain, cls)
        memory = values["memory"]
        kinds: dict[str, Any] = {kind.name: kind for kind in (Reservoir, Native, ODEDM)}
        name = memory.get("name") if isinstance(memory, Mapping) else None
        if not isinstance(name, str) or name not in kinds:
            raise UsageError(f"A stored experiment's memory must be one of {', '.join(kinds)}; {name!r} was found.")
        own = _exactly("memory", {key: value for key, value in memory.items() if key != "name"}, kinds[name])
        values["capture"] = True if values["capture"] is None else values["capture"]
        for key, value in values.items():
            if key in ("options", "net_options"):
                sound = isinstance(value, Mapping) and all(map(_is_scalar, [*value, *value.values()]))
            else:
                sound = key == "memory" or _is_scalar(value)
            if not sound:
                raise UsageError(f"A stored experiment's {key} cannot be {str(value)[:60]!r}.")
        for key, value in own.items():
            if not _is_scalar(value) and not (key == "dac" and isinstance(value, list) and all(map(_is_scalar, value))):
                raise UsageError(f"A stored memory's {key} cannot be {str(value)[:60]!r}.")
        try:
            return cls(**{**values, "memory": kinds[name](**own)})
        except UsageError:
            raise
        except (TypeError, AttributeError, ValueError, OverflowError) as error:
            raise UsageError(f"A stored experiment is not made as it should be: {error}.") from error

    def reported(self, classes: Sequence[str]) -> dict[str, Any]:
        """The resolved experiment as it goes into the result, with the class names in arrival order."""
        plain = self.describe()
        memory = plain["memory"]
        return plain | {
            "method": {"name": self.method, **plain.pop("options")},
            "replay": memory.pop("replay", None),
            "gamma": memory.pop("gamma", None),
            "classes": list(classes),
        }

    def slug(self) -> str:
        """A folder name that says what is run, the same for every seed and different for every configuration.

        >>> Experiment(Reservoir(100)).slug().rsplit("-", 1)[0]
        'fashion-mini-derpp-reservoir-100'
        """
        same = json.dumps({**self.describe(), "seed": None, "threads": None, "capture": None}, sort_keys=True)
        mark = hashlib.blake2b(same.encode(), digest_size=4).hexdigest()
        return f"{self.data}-{self.method}-{self.memory.name}-{self.memory.capacity}-{mark}"


def _is_scalar(value: object) -> bool:
    return value is None or isinstance(value, bool | int | float | str)


def _exactly(what: str, plain: object, kind: Any) -> dict[str, Any]:
    """A mapping with just the fields of a data class, or an error that names the first one too many or too few."""
    if not isinstance(plain, Mapping):
        raise UsageError(f"A stored {what} must be an object; a {type(plain).__name__} was found.")
    names = [each.name for each in fields(kind)]
    odd = [*(each for each in names if each not in plain), *(str(each)[:60] for each in plain if each not in names)]
    if odd:
        raise UsageError(
            f"A stored {what} has the fields {', '.join(names)}, no more and no less; '{odd[0]}' is "
            + ("missing." if odd[0] in names else "unknown.")
        )
    return dict(plain)


def _whole(plan: object, name: str, least: int, *, optional: bool = False, legal: str | None = None) -> None:
    """Make a field a plain int (numpy's are welcome), or refuse it; None passes where the field is optional."""
    value = getattr(plan, name)
    if value is not None or not optional:
        object.__setattr__(plan, name, _as_whole(name, value, least, legal or f"a whole number, {least} or more"))


def _as_whole(name: str, value: Any, least: int, legal: str) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise UsageError(f"{name} must be {legal}; {value!r} was given.") from None
    if number < least:
        raise UsageError(f"{name} must be {least} or more; {number} was given.")
    return number


def _number(plan: object, name: str, *, optional: bool = False) -> None:
    """Make a field a plain, finite float, or refuse it."""
    value = getattr(plan, name)
    if value is None and optional:
        return
    try:
        number = float(value)
    except (TypeError, ValueError):
        number = math.nan
    if isinstance(value, str) or not math.isfinite(number):
        raise UsageError(f"{name} must be a finite number; {value!r} was given.")
    object.__setattr__(plan, name, number)
