"""Names for groups of runs that say only what is needed to tell the groups apart."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from odedm.core.registry import MEMORIES, METHODS, title
from odedm.core.text import printable
from odedm.report.wording import canonical

NAMED = ("method", "memory.name", "memory.policy")
"""What every label starts with."""
# Named in every label as soon as two groups differ in them; other settings only where they tell two groups apart.
LOUD = ("data", "setting", "memory.capacity")
QUIET = (
    "tasks",
    "blur",
    "noise",
    "memory.replay",
    "memory.k",
    "memory.rho",
    "memory.dac",
    "memory.distance",
    "memory.space",
    "memory.candidates",
    "memory.rows_per_prototype",
    "memory.mixup",
    "memory.gamma",
    "options.lr",
    "net",
)
SYMBOLS = {
    "memory.capacity": "λ",
    "memory.k": "k",
    "memory.rho": "ρ",
    "memory.rows_per_prototype": "rows",
    "memory.gamma": "γ",
    "options.alpha": "α",
    "options.beta": "β",
}
BARE = frozenset({"data", "setting", "memory.distance", "memory.space", "net"})

Settings = dict[str, Any]
"""A configuration without the seed, flat: {"method": "der", "options.lr": 0.03, …}."""


@dataclass(frozen=True)
class Label:
    """`family` names what a group has in common with its reservoir partner, `member` the memory, `whole` both."""

    family: str
    member: str
    whole: str


def method_name(settings: Settings) -> str:
    """The method as people write it.

    >>> method_name({"method": "derpp"}), method_name({})
    ('DER++', '?')
    """
    return printable(title(METHODS, str(settings.get("method", "?"))), 24)


def memory_name(settings: Settings) -> str:
    """The memory as people write it: a policy by its own name.

    >>> memory_name({"memory.name": "odedm"}), memory_name({"memory.name": "native", "memory.policy": "herded"})
    ('ODEDM', 'herded')
    """
    name = str(settings.get("memory.name", "none"))
    policy = settings.get("memory.policy") if name == "native" else None
    return printable(policy or title(MEMORIES, name), 24)


def belongs_to_memory(key: str) -> bool:
    """Whether a setting may differ between a run and its reservoir partner; not the capacity, they have the same room.

    >>> [belongs_to_memory(key) for key in ("memory.k", "memory.capacity", "options.lr")]
    [True, False, False]
    """
    return key.startswith("memory.") and key != "memory.capacity"


def labels(groups: Sequence[Settings]) -> list[Label]:
    """A label for each group of runs.

    >>> small = {"method": "der", "memory.name": "reservoir", "memory.capacity": 100, "net": "mlp"}
    >>> [label.whole for label in labels([small, small | {"memory.name": "odedm"}])]
    ['DER · reservoir', 'DER · ODEDM']
    >>> [label.whole for label in labels([small, small | {"memory.capacity": 200}])]
    ['DER · reservoir · λ=100', 'DER · reservoir · λ=200']
    """
    told = [[canonical(own.get(key)) for key in NAMED] for own in groups]
    named: list[list[str]] = [[] for _ in groups]
    rest = sorted({key for own in groups for key in own} - {*LOUD, *QUIET, *NAMED, "class names"})
    for key in (*LOUD, *QUIET, *rest, "class names"):
        values = [canonical(own.get(key)) for own in groups]
        if len(set(values)) == 1:
            continue
        for place, own in enumerate(groups):
            alike = {value for value, other in zip(values, told, strict=True) if other == told[place]}
            if key in own and (len(alike) > 1 or (key in LOUD and own[key] is not None)):
                named[place].append(key)
        told = [[*known, value] for known, value in zip(told, values, strict=True)]
    return [_label(own, keys) for own, keys in zip(groups, named, strict=True)]


def _label(own: Settings, keys: Sequence[str]) -> Label:
    family, member = [method_name(own)], [memory_name(own)]
    whole = [*family, *member]
    for key in keys:
        phrase = _phrase(key, own.get(key))
        (member if belongs_to_memory(key) else family).append(phrase)
        whole.append(phrase)
    return Label(*(" · ".join(parts) for parts in (family, member, whole)))


def _phrase(key: str, value: object) -> str:
    """A setting in a label.

    >>> _phrase("memory.capacity", 200), _phrase("memory.dac", [3, 4]), _phrase("memory.dac", None)
    ('λ=200', 'DAC 3×4', 'no DAC')
    >>> _phrase("memory.replay", "union"), _phrase("memory.mixup", True), _phrase("options.lr", 0.03)
    ('union replay', 'mixup', 'lr=0.03')
    """
    if key == "memory.dac":
        text = "DAC " + "×".join(str(part) for part in value) if isinstance(value, list) and value else "no DAC"
    elif key == "memory.replay":
        text = f"{value} replay" if value else "no replay"
    elif key == "class names":
        text = f"{len(value)} classes" if isinstance(value, list) else "other classes"
    elif isinstance(value, bool):
        text = ("" if value else "no ") + key.rpartition(".")[2]
    elif key in BARE:
        text = str(value)
    else:
        text = f"{SYMBOLS.get(key, key.rpartition('.')[2])}={value if isinstance(value, str) else canonical(value)}"
    return printable(text, 32)
