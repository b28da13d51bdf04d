"""The kinds of plug-ins there are, and the entry that a plug-in has in a table of the registry."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pkgutil import resolve_name
from typing import Any, NamedTuple

from odedm.core import registry
from odedm.core.errors import UsageError, describe_error, short_repr
from odedm.core.registry import Entry


class ExtensionPoint(NamedTuple):
    """A table of the registry that is open to plug-ins.

    `what` is one of its objects in words and `needs` what such an object must be: a subclass of `base`, or anything
    that `has` these attributes. `adapt` makes of an object what the package works with.
    """

    table: dict[str, Any]
    what: str
    needs: str
    base: str = ""
    has: tuple[str, ...] = ("__call__",)
    reserved: tuple[str, ...] = ()
    adapt: str = ""


POINTS = {
    "methods": ExtensionPoint(registry.METHODS, "method", "a subclass of odedm.Method", "methods.base:Method"),
    "policies": ExtensionPoint(
        registry.POLICIES,
        "memory policy",
        "a subclass of odedm.Memory",
        "memory.buffer:Buffer",
        reserved=("native", "none"),
    ),
    "retrievals": ExtensionPoint(
        registry.RETRIEVALS, "retrieval", "a subclass of odedm.Retrieval", "training.retrieval:Retrieval"
    ),
    "distances": ExtensionPoint(
        registry.DISTANCES,
        "distance",
        "a class or an object with fit, pairwise and between_sets (see odedm.Distance)",
        has=("fit", "pairwise", "between_sets"),
    ),
    "nets": ExtensionPoint(
        registry.NETS,
        "net",
        "an nn.Module, a class of one, or a function that makes one",
        reserved=("auto",),
        adapt="nets.wrap:net_factory",
    ),
    "data": ExtensionPoint(registry.DATASETS, "data set", "a function that gives an odedm.Dataset"),
    "transforms": ExtensionPoint(registry.TRANSFORMS, "transform", "a function of images [n, ...] and a generator"),
    "optimizers": ExtensionPoint(registry.OPTIMIZERS, "optimizer", "a function of parameters and keywords, or a class"),
    "schedules": ExtensionPoint(
        registry.SCHEDULES,
        "schedule",
        "a function of a batch's number that gives a factor, or of an optimizer that gives one of torch's schedulers",
    ),
}
"""Kinds of plug-ins by the name of their list; entry points are in groups "odedm.methods", …"""

loading: list[str] = []
"""The plug-ins whose modules are being imported, the innermost last."""
plugins: dict[str, str] = {}
"""The modules that the user gave by --plugin, with the word by which another process imports them."""


@dataclass(frozen=True)
class PluginEntry(Entry):
    """A name for code from outside: a class or function by its import path, or an object that only this process has.

    `reference` returns that object. `plugin` is the module given by --plugin whose import registered it, if there is
    one.
    """

    point: str = ""
    reference: Callable[[], Any] | None = None
    plugin: str = ""

    @property
    def portable(self) -> bool:
        """Return whether another process can find it."""
        return bool(self.target or self.plugin)

    @property
    def import_path(self) -> str:
        """Return where it is imported from."""
        return self.target

    def load(self) -> Any:
        """Import the class or function if need be, and return what the package works with."""
        return check_plugin(self.point, self.original(), self.title)

    def original(self) -> Any:
        """Return it as its author wrote it."""
        what = f"The {POINTS[self.point].what} '{self.title}'"
        try:
            obj = resolve_name(self.target) if self.reference is None else self.reference()
        except Exception as error:  # a module of anyone's may raise what it likes as it is imported
            process = f" in process {os.getpid()}" if plugins else ""
            message = f"{what} cannot be had from '{self.target}'{process}: {describe_error(error)}."
            raise UsageError(message) from error
        if obj is None:
            raise UsageError(f"{what} is gone: nothing holds the object any more. Give the object again.")
        return obj


def plugin_entries() -> Iterator[tuple[str, PluginEntry]]:
    """Yield every name for code from outside, with what it stands for."""
    for extension in POINTS.values():
        for name, entry in extension.table.items():
            if isinstance(entry, PluginEntry):
                yield name, entry


def check_plugin(point: str, obj: Any, name: str) -> Any:
    """Return what the package works with, made of an object from outside; refuse one that is none of its kind."""
    _, what, needs, base, has, _, adapt = POINTS[point]
    if base:
        fits = isinstance(obj, type) and issubclass(obj, Entry(base, "").load())
    else:
        fits = all(hasattr(obj, attribute) for attribute in has)
    if not fits:
        raise UsageError(f"The {what} '{name}' must be {needs}; {short_repr(obj)} was given.")
    missing = sorted(getattr(obj, "__abstractmethods__", ())) if isinstance(obj, type) else []
    if missing:
        raise UsageError(f"The {what} '{name}' lacks {', '.join(missing)}, which every {what} defines.")
    return Entry(adapt, "").load()(obj) if adapt else obj
