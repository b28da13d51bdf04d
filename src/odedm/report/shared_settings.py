"""What all runs of a table share and a reader of its numbers must know: the setup, and every unusual setting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from odedm.core.configuration import default_of, settings_of
from odedm.core.options import options_of
from odedm.core.plugins import is_built_in
from odedm.core.registry import METHODS, NETS, RETRIEVALS, WITHOUT_CLUSTERS
from odedm.memory.build_context import StreamShape
from odedm.memory.settings import ODEDM, memory_to_dict
from odedm.report.labels import (
    ALWAYS_NAMED,
    ORDER,
    Settings,
    belongs_to_memory,
    memory_name,
    method_name,
    scope_of,
    setting_phrase,
    title_key,
)
from odedm.report.wording import canonical
from odedm.selection.prototype_settings import as_selection
from odedm.training.experiment import Experiment

FIRST = "limit"
"""What is said before all else: with a few rows of each class no number is one of the data set."""
ALWAYS = ("data", "tasks", "memory.capacity", "memory.rho", "net", "options.lr", "batch")
"""What a caption says even where it is as usual, in this order."""
NEVER = frozenset({*ALWAYS_NAMED, "data", "tasks", "class names", "memory.capacity", "memory.rho", "net"})
"""What is unusual nowhere: it is in the labels or said always."""


def in_common(groups: Sequence[Settings]) -> list[str]:
    """Return what a caption says of all groups: the setup as far as they share it, and each unusual setting, in words.

    >>> plain = {"data": "blobs", "method": "er", "memory.name": "reservoir", "memory.capacity": 100, "batch": 10}
    >>> in_common([plain, plain | {"memory.name": "odedm", "memory.rho": 0.25, "batch": 32}])
    ['blobs', 'λ=100', 'ρ=0.25 (ODEDM)']
    >>> in_common([plain | {"limit": 30, "noise": 0.4}])
    ['first 30 rows of each class', 'blobs', 'λ=100', 'batch=10', 'noise=0.4']
    """
    phrases = unusual(groups)
    first = {FIRST: phrases.pop(FIRST)} if FIRST in phrases else {}
    setup: dict[str, str] = {}
    for key in ALWAYS:
        peers = [settings for settings in groups if key != "memory.rho" or settings["memory.name"] == "odedm"]
        values = [settings.get(key) for settings in peers]
        if values and values[0] is not None and len({canonical(value) for value in values}) == 1:
            setup[key] = _phrase(key, peers[0])
    return list((first | setup | {key: phrase for key, phrase in phrases.items() if key not in setup}).values())


def unusual(groups: Sequence[Settings]) -> dict[str, str]:
    """Return every setting that differs from its default in all runs that have it, in words; `limit` is the first.

    What differs between groups is in their labels. A setting of some groups only, of a method or a memory, names them.

    >>> run = {"method": "er", "memory.name": "reservoir", "epochs": 2, "updates": 1, "replay_batch": 10, "batch": 10}
    >>> unusual([run])
    {'epochs': 'offline, 2 epochs', 'batch': 'batch=10'}
    """
    titles = {title_key(key) for settings in groups for key in settings}
    known = {key for settings in groups for key in settings} - NEVER - titles
    order = [FIRST, *(key for key in ORDER if key != FIRST), *sorted(known - {*ORDER})]
    return {key: phrase for key in order if key in known and (phrase := _unusual(key, groups))}


def _unusual(key: str, groups: Sequence[Settings]) -> str:
    """What is to be said of one setting, if anything: of each part that has it by itself."""
    by_scope: dict[tuple[str, ...], list[Settings]] = {}
    for settings in groups:
        by_scope.setdefault(scope_of(key, settings), []).append(settings)
    owners: dict[str, list[Settings]] = {}
    for peers in by_scope.values():
        values = {canonical(settings.get(key)) for settings in peers}
        if len(values) == 1 and key in peers[0] and not _is_usual(key, peers[0]):
            owners.setdefault(_phrase(key, peers[0]), []).extend(peers)
    return "; ".join(f"{phrase}{_owner(key, peers, groups)}" for phrase, peers in owners.items())


def _phrase(key: str, settings: Settings) -> str:
    if key == FIRST:
        return f"first {settings[key]} rows of each class"
    if key == "tasks":
        return f"{settings[key]} tasks"
    if key == "memory.rho":
        return f"{setting_phrase(key, settings[key])} (ODEDM)"
    return setting_phrase(key, settings.get(title_key(key)) or settings[key])


def _owner(key: str, owners: Sequence[Settings], groups: Sequence[Settings]) -> str:
    """Whose setting it is, where not all runs have it; a memory's is always its own.

    One that goes by the method is that of the memory with these methods, where with others the memory has another.
    """
    value, memories = canonical(owners[0][key]), dict.fromkeys(map(memory_name, owners))
    methods = ", ".join(dict.fromkeys(map(method_name, owners)))
    others = [settings for settings in groups if not belongs_to_memory(key) or memory_name(settings) in memories]
    shared = all(canonical(settings.get(key)) == value for settings in others)
    if belongs_to_memory(key):
        return f" ({', '.join(memories)}{'' if shared else f' with {methods}'})"
    return "" if shared else f" ({methods})"


def _is_usual(key: str, settings: Settings) -> bool:
    """Whether a setting is what a run has where nobody says anything.

    Of code from outside nothing is usual: a caption does not depend on whether the code is loaded.
    """
    part, dot, name = key.partition(".")
    if settings[key] in (None, {}) and key != "memory.dac":
        return True
    usual = _defaults_of_part(part, settings) if dot else _defaults_of_plan(settings)
    return (name or part) in usual and canonical(usual[name or part]) == canonical(settings[key])


def _defaults_of_plan(settings: Settings) -> dict[str, Any]:
    """An experiment's defaults, as they are when filled in."""
    usual = {name: default_of(Experiment, name) for name in settings_of(Experiment)}
    filled = {"replay_batch": settings.get("batch"), "precision": "fp32", "weight_average": 0.0}  # the last weights
    if settings.get("retrieval") == settings["method"]:  # which is named for the rows that it replays
        filled["retrieval"] = settings["method"]
    return usual | filled


def _defaults_of_part(part: str, settings: Settings) -> dict[str, Any]:
    """The defaults of what a plan consists of: its method, memory, network or retrieval."""
    if part.startswith("memory"):
        if settings["memory.name"] != "odedm":
            return {}
        usual = _odedm_defaults(str(settings["method"]), str(settings.get("memory.distance")))
        return usual if settings.get("memory.rho") is None else usual | {"k": settings.get("memory.k")}  # k follows ρ
    owner = {"options": "method", "net_options": "net", "retrieval_options": "retrieval"}.get(part, part)
    return _option_defaults(owner, str(settings.get(owner)))


@cache
def _option_defaults(kind: str, name: str) -> dict[str, Any]:
    if not is_built_in(name):
        return {}
    if kind == "method":
        from odedm.methods.hyperparameters import hyperparameters

        return hyperparameters(METHODS[name].load()) if name in METHODS else {}
    if kind == "net":
        from odedm.nets.build import options

        return options(name) if name in NETS else {}
    return options_of(RETRIEVALS[name].load()) if name in RETRIEVALS else {}


@cache
def _odedm_defaults(method: str, distance: str) -> dict[str, Any]:
    """What ODEDM has with this method and by this distance where nothing else is given."""
    from odedm.training.replay import resolve_replay_mode

    if method not in METHODS or not is_built_in(method) or not is_built_in(distance):
        return {}
    base = METHODS[method].load()
    memory = resolve_replay_mode(ODEDM(selection=as_selection(distance)), base)
    one_task = StreamShape(1, 1)  # nothing is pinned, so every λ and ρ fits
    usual = memory_to_dict(memory.resolve(one_task, base.policy)) | {"distance": default_of(ODEDM, "distance")}
    if distance in WITHOUT_CLUSTERS:
        usual["dac"] = None
    return usual
