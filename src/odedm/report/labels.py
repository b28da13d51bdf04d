"""Names of groups of runs: method, memory, and every setting in which two groups of a table differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

from odedm.core.registry import MEMORIES, METHODS, title
from odedm.core.text import printable
from odedm.report.wording import canonical
from odedm.results.comparison import OPTIONS_OF
from odedm.selection.flat_settings import OF_DAC

Settings = dict[str, Any]
"""A configuration without the seed, flat: {"method": "der", "options.lr": 0.03, …}."""

SHAPE = ("task_classes", "recurring", "domain")
FIRST = ("data", "imbalance", "epochs", "memory.capacity", "tasks", *SHAPE, "limit", "blur", "noise")
OF_MEMORY = ("replay", "rho", "k", "dac", "distance", "space", "candidates", "rows_per_prototype", "mixup", "gamma")
ORDER = (*FIRST, *(f"memory.{name}" for name in OF_MEMORY), "options.lr", "net")
"""How settings follow each other in a name; the others come behind, by their names."""
ALWAYS_NAMED = ("method", "memory.name", "memory.policy")
"""What every name starts with."""
LEADERS = {
    "tasks": ("data", *SHAPE),
    "class names": ("data", "tasks"),
    "net": ("data",),
    "replay_batch": ("batch",),
    "retrieval": ("method",),
    "precision": ("method", "device"),
    "memory.k": ("data", "tasks", *SHAPE, "memory.capacity", "memory.candidates", "memory.rows_per_prototype"),
    **{f"memory.{name}": ("memory.distance",) for name in ("dac", "pair_epsilon", "ground", "bandwidth", "screen")},
    **{f"memory.{name}": ("memory.distance", "memory.dac") for name in OF_DAC},
}
"""Settings that follow others unless somebody says otherwise: not named where the others, which are, decide them.

k does so where ρ was given, among runs that share it; where k itself was given it follows nothing."""
SYMBOLS = {
    "memory.capacity": "λ",
    "memory.rho": "ρ",
    "memory.rows_per_prototype": "rows",
    "memory.gamma": "γ",
    "options.alpha": "α",
    "options.beta": "β",
}
BARE = frozenset(
    {"data", "imbalance", "domain", "memory.distance", "memory.space", "net", "stream_loss", "predict", "views"}
)
OF_HOST = ("memory.short_policy", "memory.replay", "memory.gamma_rule")
"""Settings of ODEDM that go by the method: they differ between methods without anybody's choice."""
UNSAID: dict[str, tuple[object, ...]] = {
    "updates": (1,),
    "views": ("crop",),
    "weight_average": (None, 0.0),
    "memory.gamma_rule": ("fixed",),
}
"""What goes without saying: a run has an ingredient, or it is not named; an average of 0.0 is none."""


def belongs_to_memory(key: str) -> bool:
    """Whether a setting may differ between a run and its reservoir partner; not the capacity, they have the same room.

    >>> [belongs_to_memory(key) for key in ("memory.k", "memory.capacity", "options.lr")]
    [True, False, False]
    """
    return key.startswith("memory.") and key != "memory.capacity"


def title_key(key: str) -> str:
    """Under which key settings hold how people write the value of another one, which is code from outside."""
    return f"{key} (title)"


def method_name(settings: Settings) -> str:
    """The method as people write it.

    >>> method_name({"method": "derpp"}), method_name({"method": "mine", "method (title)": "Mine"})
    ('DER++', 'Mine')
    >>> method_name({"method": "joint"})
    'Joint (bound)'
    """
    bound = " (bound)" if getattr(METHODS.get(settings["method"]), "bound", False) else ""
    return printable(settings.get(title_key("method")) or title(METHODS, settings["method"]), 24) + bound


def memory_name(settings: Settings) -> str:
    """The memory as people write it: a policy by its own name.

    >>> memory_name({"memory.name": "odedm"}), memory_name({"memory.name": "native", "memory.policy": "herded"})
    ('ODEDM', 'herded')
    """
    name = settings["memory.name"]
    policy = settings.get(title_key("memory.policy")) or settings.get("memory.policy") if name == "native" else None
    return printable(policy or title(MEMORIES, name), 24)


def group_names(groups: Sequence[Settings]) -> list[tuple[str, str, str]]:
    """Family, member and label of each group, no two labels alike.

    >>> one = {"method": "der", "memory.name": "odedm", "memory.capacity": 100, "memory.k": 3}
    >>> group_names([one, one | {"memory.capacity": 200, "memory.k": 6}])[0]
    ('DER · λ=100', 'ODEDM · k=3', 'DER · ODEDM · λ=100 · k=3')
    """
    found = [_names(own, keys) for own, keys in zip(groups, telling(groups), strict=True)]
    seen: Counter[str] = Counter()
    told = []
    for family, member, label in found:
        seen[label] += 1
        mark = f" · no. {seen[label]}" if seen[label] > 1 else ""  # names that were cut short, or a value that is None
        told.append((family, member + mark, label + mark))
    return told


def telling(groups: Sequence[Settings]) -> list[list[str]]:
    """For each group the settings that its name needs beside method and memory: all in which another one differs.

    Hyper-parameters are compared with groups of the same method, a memory's settings with those of the same memory.

    >>> small = {"method": "der", "memory.name": "reservoir", "memory.capacity": 100, "options.alpha": 0.5}
    >>> telling([small, small | {"memory.name": "odedm"}]), telling([small, small | {"memory.capacity": 200}])
    ([[], []], [['memory.capacity'], ['memory.capacity']])
    >>> telling([small, small | {"memory.name": "odedm", "options.alpha": 1.5}])
    [['options.alpha'], ['options.alpha']]
    >>> telling([small | {"epochs": 50}]), telling([small | {"epochs": 1}])
    ([['epochs']], [[]])

    A size that was given as ρ is named by it, and by k where runs of one ρ, λ and stream differ in it.

    >>> dual = small | {"memory.name": "odedm", "memory.rho": 0.25, "memory.k": 3}
    >>> telling([dual, dual | {"memory.rho": 0.5, "memory.k": 6}, dual | {"memory.rho": None, "memory.k": 6}])
    [['memory.rho'], ['memory.rho'], ['memory.k']]
    """
    titles = {title_key(key) for own in groups for key in own}
    rest = sorted({key for own in groups for key in own} - {*ORDER, *ALWAYS_NAMED} - titles)

    @cache
    def varies(key: str, scope: tuple[str, ...]) -> bool:
        rows = [own for own in groups if scope_of(key, own) == scope]
        leaders = () if key == "memory.k" and rows[0].get("memory.rho") is None else LEADERS.get(key, ())
        values = {canonical(own.get(key)) for own in rows}
        led = {canonical([own.get(each) for each in leaders]) for own in rows}
        both = {canonical([own.get(each) for each in (*leaders, key)]) for own in rows}
        return len(values) > 1 and (not leaders or len(both) > len(led))

    shares = any(own.get("memory.rho") is not None for own in groups)

    def told(key: str, own: Settings) -> bool:
        if key == "memory.k":  # given itself, beside others that are named by ρ
            return shares and own.get("memory.rho") is None
        return key == "epochs" and own[key] != 1  # never taken for online learning

    return [
        [key for key in (*ORDER, *rest) if _speaks(key, own) and (told(key, own) or varies(key, scope_of(key, own)))]
        for own in groups
    ]


def _speaks(key: str, own: Settings) -> bool:
    """Whether a group has something to say about a setting; "no DAC" is a choice, other things are just not there."""
    if key in UNSAID and own.get(key) in UNSAID[key]:
        return False
    return key in own and own[key] != {} and (own[key] is not None or key == "memory.dac")


def scope_of(key: str, own: Settings) -> tuple[str, ...]:
    """What two groups must share for a setting to mean the same in both."""
    table, _, _ = key.partition(".")
    if table in OPTIONS_OF:
        return (str(own.get(OPTIONS_OF[table])),)
    if key in OF_HOST or key.startswith("memory.policy_options"):  # the method's own, unless given
        return str(own["memory.name"]), str(own["method"])
    if key == "memory.k":  # of one ρ, or given itself
        return str(own["memory.name"]), str(own.get("memory.rho"))
    return (str(own["memory.name"]),) if belongs_to_memory(key) else ()


def _names(own: Settings, keys: Sequence[str]) -> tuple[str, str, str]:
    """Family, member and label of a group whose name needs these settings."""
    phrases = {key: setting_phrase(key, own.get(title_key(key)) or own[key]) for key in keys}
    family = [method_name(own), *(phrase for key, phrase in phrases.items() if not belongs_to_memory(key))]
    member = [memory_name(own), *(phrase for key, phrase in phrases.items() if belongs_to_memory(key))]
    return " · ".join(family), " · ".join(member), " · ".join([family[0], member[0], *phrases.values()])


def setting_phrase(key: str, value: object) -> str:
    """A setting in a label.

    >>> setting_phrase("memory.capacity", 200), setting_phrase("memory.dac", [3, 4]), setting_phrase("memory.dac", None)
    ('λ=200', 'DAC 3×4', 'no DAC')
    >>> setting_phrase("memory.replay", "union"), setting_phrase("memory.mixup", True), setting_phrase("batch", 16)
    ('union replay', 'mixup', 'batch=16')
    >>> setting_phrase("epochs", 50), setting_phrase("epochs", 1)
    ('offline, 50 epochs', 'online')
    """
    name = key.rpartition(".")[2]
    if key == "memory.dac":
        text = "DAC " + "×".join(str(part) for part in value) if isinstance(value, list) and value else "no DAC"
    elif key == "epochs":
        text = "online" if value == 1 else f"offline, {canonical(value)} epochs"
    elif key == "memory.replay":
        text = f"{value} replay" if value else "no replay"
    elif key == "updates":
        text = f"{value} updates"
    elif key == "weight_average":
        text = f"weights averaged by {canonical(value)}" if value else "the last weights"
    elif key == "task_classes" and isinstance(value, list):
        text = f"tasks of {'+'.join(map(str, value))}"
    elif key == "class names":
        text = f"{len(value)} classes" if isinstance(value, list) else "other classes"
    elif isinstance(value, bool):
        text = ("" if value else "no ") + name
    elif key in BARE:
        text = str(value)
    else:
        text = f"{SYMBOLS.get(key, name)}={value if isinstance(value, str) else canonical(value)}"
    return printable(text, 32)
