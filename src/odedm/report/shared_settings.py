"""What all runs of a table share and a reader of its numbers must know: the setup, and every unusual setting."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import cache
from typing import Any

from odedm.core.configuration import default_of, settings_of
from odedm.core.errors import UsageError
from odedm.core.options import options_of
from odedm.core.registry import METHODS, NETS, RETRIEVALS
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
    """What a caption says of all groups: the setup as far as they share it, and each setting that is unusual, in words.

    >>> plain = {"data": "blobs", "method": "er", "memory.name": "reservoir", "memory.capacity": 100, "batch": 10}
    >>> in_common([plain, plain | {"memory.name": "odedm", "memory.rho": 0.25, "batch": 32}])
    ['blobs', 'λ=100', 'ρ=0.25 (ODEDM)']
    >>> in_common([plain | {"limit": 30, "noise": 0.4}])
    ['first 30 rows of each class', 'blobs', 'λ=100', 'batch=10', 'noise=0.4']
    """
    told = unusual(groups)
    said = {FIRST: told.pop(FIRST)} if FIRST in told else {}
    for key in ALWAYS:
        own = [each.get(key) for each in groups if key != "memory.rho" or each["memory.name"] == "odedm"]
        if own and own[0] is not None and len({canonical(value) for value in own}) == 1:
            said[key] = _phrase(key, groups[0] if key != "memory.rho" else {key: own[0]})
    return list((said | {key: phrase for key, phrase in told.items() if key not in said}).values())


def unusual(groups: Sequence[Settings]) -> dict[str, str]:
    """Every setting that differs from its default in all runs that have it, in words; `limit` is the first.

    What differs between groups is in their labels. A setting of some groups only, of a method or a memory, names them.

    >>> run = {"method": "er", "memory.name": "reservoir", "epochs": 2, "updates": 1, "replay_batch": 10, "batch": 10}
    >>> unusual([run])
    {'epochs': 'offline, 2 epochs', 'batch': 'batch=10'}
    """
    titles = {title_key(key) for own in groups for key in own}
    known = {key for own in groups for key in own} - NEVER - titles
    order = [FIRST, *(key for key in ORDER if key != FIRST), *sorted(known - {*ORDER})]
    return {key: phrase for key in order if key in known and (phrase := _unusual(key, groups))}


def _unusual(key: str, groups: Sequence[Settings]) -> str:
    """What is to be said of one setting, if anything: of each part that has it by itself."""
    scopes: dict[tuple[str, ...], list[Settings]] = {}
    for own in groups:
        scopes.setdefault(scope_of(key, own), []).append(own)
    owners: dict[str, list[Settings]] = {}
    for rows in scopes.values():
        values = {canonical(own.get(key)) for own in rows}
        if len(values) == 1 and key in rows[0] and not _is_usual(key, rows[0]):
            owners.setdefault(_phrase(key, rows[0]), []).extend(rows)
    return "; ".join(f"{phrase}{_owner(key, rows, groups)}" for phrase, rows in owners.items())


def _phrase(key: str, own: Settings) -> str:
    if key == FIRST:
        return f"first {own[key]} rows of each class"
    if key == "tasks":
        return f"{own[key]} tasks"
    if key == "memory.rho":
        return f"{setting_phrase(key, own[key])} (ODEDM)"
    return setting_phrase(key, own.get(title_key(key)) or own[key])


def _owner(key: str, rows: Sequence[Settings], groups: Sequence[Settings]) -> str:
    """Whose setting it is, where not all runs have it; a memory's is always its own.

    One that goes by the method is that of the memory with these methods, where with others the memory has another.
    """
    value, memories = canonical(rows[0][key]), dict.fromkeys(map(memory_name, rows))
    methods = ", ".join(dict.fromkeys(map(method_name, rows)))
    others = [own for own in groups if not belongs_to_memory(key) or memory_name(own) in memories]
    shared = all(canonical(own.get(key)) == value for own in others)
    if belongs_to_memory(key):
        return f" ({', '.join(memories)}{'' if shared else f' with {methods}'})"
    return "" if shared else f" ({methods})"


def _is_usual(key: str, own: Settings) -> bool:
    """Whether a setting is what a run has where nobody says anything; of code that is not here nobody knows that."""
    part, dot, name = key.partition(".")
    if own[key] in (None, {}) and key != "memory.dac":
        return True
    usual = _of_part(part, own) if dot else _of_plan(own)
    return (name or part) in usual and canonical(usual[name or part]) == canonical(own[key])


def _of_plan(own: Settings) -> dict[str, Any]:
    """An experiment's defaults, as they are when filled in."""
    usual = {name: default_of(Experiment, name) for name in settings_of(Experiment)}
    filled = {"replay_batch": own.get("batch"), "precision": "fp32", "weight_average": 0.0}  # which is the last weights
    if own.get("retrieval") == own["method"]:  # which is named for the rows that it replays
        filled["retrieval"] = own["method"]
    return usual | filled


def _of_part(part: str, own: Settings) -> dict[str, Any]:
    """The defaults of what a plan consists of: its method, memory, network or retrieval."""
    if part == "options":
        return _of_method(str(own["method"]))
    if part == "net_options":
        return _of_net(str(own.get("net")))
    if part == "retrieval_options":
        return _of_retrieval(str(own.get("retrieval")))
    if own["memory.name"] != "odedm":
        return {}
    usual = _of_odedm(str(own["method"]), str(own.get("memory.distance")))
    return usual if own.get("memory.rho") is None else usual | {"k": own.get("memory.k")}  # k follows the share


def _known(find: Callable[[], dict[str, Any]]) -> dict[str, Any]:
    """Defaults of a part, or none where its code is not here or does not say them."""
    try:
        return find()
    except (UsageError, ImportError, LookupError, TypeError, ValueError, AttributeError):
        return {}


@cache
def _of_method(name: str) -> dict[str, Any]:
    def find() -> dict[str, Any]:
        from odedm.methods.hyperparameters import hyperparameters

        return hyperparameters(METHODS[name].load())

    return _known(find)


@cache
def _of_net(name: str) -> dict[str, Any]:
    def find() -> dict[str, Any]:
        from odedm.nets.build import options

        return options(name) if name in NETS else {}

    return _known(find)


@cache
def _of_retrieval(name: str) -> dict[str, Any]:
    return _known(lambda: options_of(RETRIEVALS[name].load()))


@cache
def _of_odedm(method: str, distance: str) -> dict[str, Any]:
    """What ODEDM has with this method and by this distance where nothing else is given."""

    def find() -> dict[str, Any]:
        from odedm.training.replay import resolve_replay_mode

        host = METHODS[method].load()
        own = resolve_replay_mode(ODEDM(selection=as_selection(distance)), host)
        one_task = StreamShape(1, 1)  # nothing is pinned, so every λ and ρ fits
        return memory_to_dict(own.resolve(one_task, host.policy)) | {"distance": default_of(ODEDM, "distance")}

    return _known(find)
