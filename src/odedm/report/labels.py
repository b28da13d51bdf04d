"""Names of groups of runs: method, memory, and every setting in which two groups of a table differ."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from odedm.core.registry import MEMORIES, METHODS, title
from odedm.core.text import printable
from odedm.report.wording import canonical
from odedm.selection.flat_settings import OF_DAC

Settings = dict[str, Any]
"""A configuration without the seed, flat: {"method": "der", "options.lr": 0.03, …}."""

OPTIONS_OF = {
    "options": "method",
    "net_options": "net",
    "retrieval_options": "retrieval",
    "optimizer_options": "optimizer",
}
"""Tables of options, each with the setting that names whose they are."""
SHAPE = ("task_classes", "recurring", "domain")
FIRST = ("data", "imbalance", "epochs", "memory.capacity", "tasks", *SHAPE, "limit", "blur", "noise")
OF_MEMORY = ("replay", "rho", "k", "dac", "distance", "space", "candidates", "rows_per_prototype", "mixup", "gamma")
ORDER = (*FIRST, *(f"memory.{name}" for name in OF_MEMORY), "options.lr", "net")
"""How settings follow each other in a name; the others come behind, by their names."""
ALWAYS_NAMED = ("method", "memory.name", "memory.policy")
"""What every name starts with."""
IMPLIED_BY = {
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
"""Settings that follow from others unless somebody says otherwise: not named where the others, which are, decide them.

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
OF_METHOD = ("memory.short_policy", "memory.gamma_rule")
"""Settings of ODEDM that go by the method: they differ between methods without anybody's choice.

So does the replay mode, but between modes no difference is a method's: where runs of one table differ in it, each name
says it."""
UNSAID: dict[str, tuple[object, ...]] = {
    "updates": (1,),
    "views": ("crop",),
    "weight_average": (None, 0.0),
    "memory.gamma_rule": ("fixed",),
}
"""What goes without saying: a run has an ingredient, or it is not named; an average of 0.0 is none."""


def belongs_to_memory(key: str) -> bool:
    """Return whether a setting may differ between a run and its reservoir partner, which has the same capacity.

    >>> [belongs_to_memory(key) for key in ("memory.k", "memory.capacity", "options.lr")]
    [True, False, False]
    """
    return key.startswith("memory.") and key != "memory.capacity"


def title_key(key: str) -> str:
    """Return under which key settings hold how people write the value of another one, which is code from outside."""
    return f"{key} (title)"


def method_name(settings: Settings) -> str:
    """Return the method as people write it.

    >>> method_name({"method": "derpp"}), method_name({"method": "mine", "method (title)": "Mine"})
    ('DER++', 'Mine')
    >>> method_name({"method": "joint"})
    'Joint (bound)'
    """
    bound = " (bound)" if getattr(METHODS.get(settings["method"]), "bound", False) else ""
    return printable(settings.get(title_key("method")) or title(METHODS, settings["method"]), 24) + bound


def memory_name(settings: Settings) -> str:
    """Return the memory as people write it: a policy by its own name.

    >>> memory_name({"memory.name": "odedm"}), memory_name({"memory.name": "native", "memory.policy": "herded"})
    ('ODEDM', 'herded')
    """
    name = settings["memory.name"]
    policy = settings.get(title_key("memory.policy")) or settings.get("memory.policy") if name == "native" else None
    return printable(policy or title(MEMORIES, name), 24)


def group_names(groups: Sequence[Settings]) -> list[tuple[str, str, str]]:
    """Return family, member and label of each group, no two labels alike.

    >>> one = {"method": "der", "memory.name": "odedm", "memory.capacity": 100, "memory.k": 3}
    >>> group_names([one, one | {"memory.capacity": 200, "memory.k": 6}])[0]
    ('DER · λ=100', 'ODEDM · k=3', 'DER · ODEDM · λ=100 · k=3')
    """
    seen: Counter[str] = Counter()
    names = []
    for settings, keys in zip(groups, distinguishing_settings(groups), strict=True):
        phrases = {key: phrase_of(key, settings) for key in keys}
        family = [method_name(settings), *(phrase for key, phrase in phrases.items() if not belongs_to_memory(key))]
        member = [memory_name(settings), *(phrase for key, phrase in phrases.items() if belongs_to_memory(key))]
        label = " · ".join([family[0], member[0], *phrases.values()])
        seen[label] += 1
        mark = f" · no. {seen[label]}" if seen[label] > 1 else ""  # names that were cut short, or a value that is None
        names.append((" · ".join(family), " · ".join(member) + mark, label + mark))
    return names


def distinguishing_settings(groups: Sequence[Settings]) -> list[list[str]]:
    """Return for each group the settings that its name needs beside method and memory: all in which another differs.

    Hyper-parameters are compared with groups of the same method, a memory's settings with those of the same memory.

    >>> small = {"method": "der", "memory.name": "reservoir", "memory.capacity": 100, "options.alpha": 0.5}
    >>> distinguishing_settings([small, small | {"memory.name": "odedm"}])
    [[], []]
    >>> distinguishing_settings([small, small | {"memory.capacity": 200}])
    [['memory.capacity'], ['memory.capacity']]
    >>> distinguishing_settings([small | {"epochs": 50}]), distinguishing_settings([small | {"epochs": 1}])
    ([['epochs']], [[]])

    A size that was given as ρ is named by it, and by k where runs of one ρ, λ and stream differ in it.

    >>> dual = small | {"memory.name": "odedm", "memory.rho": 0.25, "memory.k": 3}
    >>> distinguishing_settings([dual, dual | {"memory.rho": 0.5, "memory.k": 6}])
    [['memory.rho'], ['memory.rho']]
    """
    titles = {title_key(key) for settings in groups for key in settings}
    others = sorted({key for settings in groups for key in settings} - {*ORDER, *ALWAYS_NAMED} - titles)
    by_share = any(settings.get("memory.rho") is not None for settings in groups)

    @cache
    def varies(key: str, scope: tuple[str, ...]) -> bool:
        peers = [settings for settings in groups if scope_of(key, settings) == scope]
        given_k = key == "memory.k" and peers[0].get("memory.rho") is None
        implied_by = () if given_k else IMPLIED_BY.get(key, ())
        causes = {canonical([settings.get(cause) for cause in implied_by]) for settings in peers}
        pairs = {canonical([settings.get(name) for name in (*implied_by, key)]) for settings in peers}
        return len({canonical(settings.get(key)) for settings in peers}) > 1 and (
            not implied_by or len(pairs) > len(causes)
        )

    def is_named(key: str, settings: Settings) -> bool:
        if not _has_value(key, settings):
            return False
        if key == "memory.k" and by_share and settings.get("memory.rho") is None:
            return True  # given itself, beside others that are named by ρ
        if key == "epochs" and settings[key] != 1:
            return True  # never taken for online learning
        return varies(key, scope_of(key, settings))

    return [[key for key in (*ORDER, *others) if is_named(key, settings)] for settings in groups]


def _has_value(key: str, settings: Settings) -> bool:
    """Return whether a group has a value of a setting to name; of those without one "no DAC" is a choice."""
    if key in UNSAID and settings.get(key) in UNSAID[key]:
        return False
    return key in settings and settings[key] != {} and (settings[key] is not None or key == "memory.dac")


def scope_of(key: str, settings: Settings) -> tuple[str, ...]:
    """Return what two groups must share for a setting to mean the same in both."""
    table, _, _ = key.partition(".")
    if table in OPTIONS_OF:
        return (str(settings.get(OPTIONS_OF[table])),)
    if key in OF_METHOD or key.startswith("memory.policy_options"):  # the method's, unless given
        return str(settings["memory.name"]), str(settings["method"])
    if key == "memory.k":  # of one ρ, or given itself
        return str(settings["memory.name"]), str(settings.get("memory.rho"))
    return (str(settings["memory.name"]),) if belongs_to_memory(key) else ()


def phrase_of(key: str, settings: Settings) -> str:
    """Return a group's value of a setting in words; of code from outside by its title."""
    return setting_phrase(key, settings.get(title_key(key)) or settings[key])


def setting_phrase(key: str, value: object) -> str:
    """Return a setting in words.

    >>> setting_phrase("memory.capacity", 200), setting_phrase("memory.dac", [3, 4]), setting_phrase("memory.dac", None)
    ('λ=200', 'DAC 3×4', 'no DAC')
    >>> setting_phrase("memory.replay", "union"), setting_phrase("memory.mixup", True), setting_phrase("batch", 16)
    ('union replay', 'mixup', 'batch=16')
    >>> setting_phrase("epochs", 50), setting_phrase("epochs", 1)
    ('offline, 50 epochs', 'online')
    """
    name = key.rpartition(".")[2]
    if key in PHRASES:
        text = PHRASES[key](value)
    elif isinstance(value, bool):
        text = ("" if value else "no ") + name
    elif key in BARE:
        text = str(value)
    else:
        text = f"{SYMBOLS.get(key, name)}={value if isinstance(value, str) else canonical(value)}"
    return printable(text, 32)


PHRASES: dict[str, Callable[[Any], str]] = {
    "limit": lambda rows: f"first {rows} rows of each class",
    "tasks": lambda tasks: f"{tasks} tasks",
    "epochs": lambda epochs: "online" if epochs == 1 else f"offline, {canonical(epochs)} epochs",
    "updates": lambda updates: f"{updates} updates",
    "weight_average": lambda decay: f"weights averaged by {canonical(decay)}" if decay else "the last weights",
    "task_classes": lambda classes: f"tasks of {'+'.join(map(str, classes or []))}",
    "class names": lambda names: f"{len(names)} classes" if isinstance(names, list) else "other classes",
    "memory.dac": lambda dac: f"DAC {'×'.join(map(str, dac))}" if dac else "no DAC",
    "memory.replay": lambda mode: f"{mode} replay" if mode else "no replay",
}
"""Settings whose words are not their name and value."""
