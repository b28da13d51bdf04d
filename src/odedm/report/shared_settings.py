"""What all runs of a table share and a reader of its numbers must know: the setup, and every unusual setting."""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any

from odedm.core.configuration import default_of, settings_of
from odedm.core.options import options_of
from odedm.core.plugins import is_built_in
from odedm.core.registry import DISTANCES, METHODS, NETS, RETRIEVALS, WITHOUT_CLUSTERS
from odedm.memory.build_context import StreamShape
from odedm.memory.paper_preset import paper_dac, paper_preset
from odedm.memory.settings import DEFAULT_RHO, ODEDM, memory_to_dict
from odedm.report.labels import (
    ALWAYS_NAMED,
    ORDER,
    Settings,
    belongs_to_memory,
    memory_name,
    method_name,
    phrase_of,
    scope_of,
    title_key,
)
from odedm.report.wording import canonical
from odedm.selection.prototype_settings import Sinkhorn, as_selection
from odedm.training.experiment import Experiment

FIRST = "limit"
"""What is said before all else: with a few rows of each class no number is one of the data set."""
ALWAYS = ("data", "tasks", "memory.capacity", "memory.rho", "net", "options.lr", "batch")
"""What a caption says even where it is as usual, in this order."""


def in_common(groups: Sequence[Settings]) -> list[str]:
    """Return what a caption says of all groups: the setup as far as they share it, and each unusual setting, in words.

    What differs between groups is in their labels. A setting of some groups only, of a method or a memory, names them.

    >>> plain = {"data": "blobs", "method": "er", "memory.name": "reservoir", "memory.capacity": 100, "batch": 10}
    >>> in_common([plain, plain | {"memory.name": "odedm", "memory.rho": 0.25, "batch": 32}])
    ['blobs', 'λ=100', 'ρ=0.25 (ODEDM)']
    >>> in_common([plain | {"limit": 30, "noise": 0.4}])
    ['first 30 rows of each class', 'blobs', 'λ=100', 'batch=10', 'noise=0.4']
    """
    known = {key for settings in groups for key in settings}
    known -= {*ALWAYS_NAMED, "class names", *map(title_key, known)}
    first = dict.fromkeys((FIRST, *ALWAYS, *ORDER))
    words = [
        phrase
        for key in [*first, *sorted(known.difference(first))]
        if key in known and (phrase := _phrase(key, groups))
    ]
    return words + _of_paper(groups)


def _of_paper(groups: Sequence[Settings]) -> list[str]:
    """Say whether ODEDM is as in the paper: in all runs, or with which methods."""
    dual = [settings for settings in groups if settings["memory.name"] == ODEDM.name]
    papers = [settings for settings in dual if is_as_in_paper(settings)]
    methods = ", ".join(dict.fromkeys(map(method_name, papers)))
    return [f"ODEDM as in the paper{'' if len(papers) == len(dual) else f' ({methods})'}"] if papers else []


def is_as_in_paper(settings: Settings) -> bool:
    """Return whether a run has every setting of `ODEDM.paper`, whatever its sizes, and its method's own policy.

    >>> dual = {"method": "er", "memory.capacity": 200, "memory.rho": 0.5, "memory.short_policy": "reservoir"}
    >>> like_paper = dual | {f"memory.{name}": value for name, value in paper_preset().items() if name not in dual}
    >>> is_as_in_paper({**like_paper, "memory.dac": [3, 2], "memory.short_policy": "reservoir"})
    True
    >>> is_as_in_paper({**like_paper, "memory.dac": None, "memory.short_policy": "reservoir"})
    False
    """
    distance, method = str(settings.get("memory.distance")), settings["method"]
    if not is_built_in(distance) or distance not in DISTANCES or distance in WITHOUT_CLUSTERS:
        return False
    dac = paper_dac(settings["memory.capacity"], settings.get("memory.rho") or DEFAULT_RHO)
    expected = {**paper_preset(distance), "dac": dac}
    expected["short_policy"] = METHODS[method].load().policy if method in METHODS and is_built_in(method) else None
    return all(canonical(settings.get(f"memory.{name}")) == canonical(value) for name, value in expected.items())


def _phrase(key: str, groups: Sequence[Settings]) -> str:
    """Return what is to be said of one setting, if anything: of each part that has it by itself."""
    by_scope: dict[tuple[str, ...], list[Settings]] = {}
    for settings in groups:
        by_scope.setdefault(scope_of(key, settings), []).append(settings)
    owners: dict[str, list[Settings]] = {}
    for peers in by_scope.values():
        shared = key in peers[0] and len({canonical(settings.get(key)) for settings in peers}) == 1
        if shared and (not _is_default(key, peers[0]) or (key in ALWAYS and peers[0][key] is not None)):
            owners.setdefault(phrase_of(key, peers[0]), []).extend(peers)
    return "; ".join(f"{phrase}{_owner(key, peers, groups)}" for phrase, peers in owners.items())


def _owner(key: str, owners: Sequence[Settings], groups: Sequence[Settings]) -> str:
    """Whose setting it is, where not all runs have it; a memory's is always its own.

    One that goes by the method is that of the memory with these methods, where with others the memory has another.
    """
    memories = dict.fromkeys(map(memory_name, owners))
    methods = ", ".join(dict.fromkeys(map(method_name, owners)))
    others = [settings for settings in groups if not belongs_to_memory(key) or memory_name(settings) in memories]
    shared = all(canonical(settings.get(key)) == canonical(owners[0][key]) for settings in others)
    if belongs_to_memory(key):
        return f" ({', '.join(memories)}{'' if shared else f' with {methods}'})"
    return "" if shared else f" ({methods})"


def _is_default(key: str, settings: Settings) -> bool:
    """Return whether a setting is what a run has where nobody gives it; of code from outside nothing is."""
    if settings[key] in (None, {}) and key != "memory.dac":
        return True
    follows = {"replay_batch": settings.get("batch"), "retrieval": settings["method"]}
    if settings["memory.name"] == "odedm" and settings.get("memory.rho") is not None:
        follows["memory.k"] = settings.get("memory.k")
    names = (str(settings.get(part)) for part in ("method", "net", "retrieval", "memory.name", "memory.distance"))
    usual = _defaults(*names)
    return any(key in known and canonical(known[key]) == canonical(settings[key]) for known in (usual, follows))


@cache
def _defaults(method: str, net: str, retrieval: str, memory: str, distance: str) -> Settings:
    """Return every setting of runs of these parts where nothing else is given, flat."""
    from odedm.methods.hyperparameters import hyperparameters
    from odedm.nets.build import options

    usual: dict[str, Any] = {name: default_of(Experiment, name) for name in settings_of(Experiment)}
    usual |= {"precision": "fp32", "weight_average": 0.0}
    if method in METHODS and is_built_in(method):
        usual |= {f"options.{name}": value for name, value in hyperparameters(METHODS[method].load()).items()}
        if memory == "odedm" and is_built_in(distance):
            usual |= {f"memory.{name}": value for name, value in _odedm_defaults(method, distance).items()}
    if net in NETS and is_built_in(net):
        usual |= {f"net_options.{name}": value for name, value in options(net).items()}
    if retrieval in RETRIEVALS and is_built_in(retrieval):
        usual |= {f"retrieval_options.{name}": v for name, v in options_of(RETRIEVALS[retrieval].load()).items()}
    return usual


def _odedm_defaults(method: str, distance: str) -> Settings:
    """Return what ODEDM has with this method and by this distance where nothing else is given."""
    from odedm.training.replay import resolve_replay_mode

    base = METHODS[method].load()
    memory = resolve_replay_mode(ODEDM(selection=as_selection(distance)), base)
    one_task = StreamShape(1, 1)  # nothing is pinned, so every λ and ρ fits
    usual = memory_to_dict(memory.resolve(one_task, base.policy)) | {"distance": Sinkhorn.name}
    return usual | ({"dac": None} if distance in WITHOUT_CLUSTERS else {})
