"""Names for code from outside the package: registered, in entry points of installed packages, or given by --plugin.

Wherever a setting takes a name of the registry it takes a class or an object as well, and what is kept is a name. A
name in a file imports nothing: it is looked up among what this process registered, the plug-ins that its user gave and
the entry points of installed packages, and only what is found there is imported, when a run needs it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import import_module
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from odedm.core import registry
from odedm.core.errors import UsageError, choose, describe_error, short_repr, unknown_name_error
from odedm.core.registry import Entry, typed

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}")
IMPORT_PATH = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
HOW = (
    "Code from outside is known here once its module is given by --plugin, its package is installed with an entry "
    "point, or odedm.register has named it."
)
"""What to do about a name that may be another's code."""


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
}
"""Kinds of plug-ins by the name of their list; entry points are in groups "odedm.methods", …"""

loading: list[str] = []
"""The plug-ins whose modules are being imported, the innermost last."""
plugins: dict[str, str] = {}
"""The modules that the user gave by --plugin, with the word by which another process imports them."""


@dataclass(frozen=True)
class PluginEntry(Entry):
    """A name for code from outside: a class or function by its import path, or an object that only this process has.

    `plugin` is the module given by --plugin whose import registered it, if there is one.
    """

    point: str = ""
    held: Any = None
    plugin: str = ""

    @property
    def portable(self) -> bool:
        """Whether another process can find it."""
        return bool(self.target or self.plugin)

    @property
    def import_path(self) -> str:
        """Where it is imported from."""
        return self.target

    def load(self) -> Any:
        """The class, function or object itself, imported now if it was not before."""
        return check_plugin(self.point, self.original(), self.title)

    def original(self) -> Any:
        """The same as its author wrote it, before it is made what the package works with."""
        what = f"The {POINTS[self.point].what} '{self.title}'"
        return self.held if self.held is not None else import_object(self.target, what)


def register(point: str, name: str, target: Any, *, about: str = "", title: str = "") -> None:
    """Give code from outside the package a name, by which settings, commands, studies and workers know it.

    Args:
        point: what it is: "methods", "policies", "retrievals", "distances", "nets", "data", "transforms" or
            "optimizers".
        name: letters, digits, dots, underscores, plus and minus signs; not that of something built in.
        target: "package.module:Name", which is imported when it is first needed, or the class or function itself.
        about: one line for `odedm list`.
        title: how people write the name, in tables and reports.

    A class of a module reaches worker processes, Ray and resumed runs by its module; one of a script or notebook, or
    an object, is known to this process alone.

    >>> register("methods", "my-own", "mypackage.mine:Mine", title="Mine")
    >>> registry.METHODS.pop("my-own").title
    'Mine'
    >>> register("methods", "er", "mypackage.mine:Mine")
    Traceback (most recent call last):
    odedm.UsageError: The method 'er' is built in; register 'mypackage.mine:Mine' under another name.
    """
    extension = choose("list of names", point if isinstance(point, str) else short_repr(point), POINTS)
    what = extension.what
    if not isinstance(name, str) or not NAME.fullmatch(name):
        legal = "up to 60 letters, digits, dots, underscores, plus and minus signs, a letter or digit first"
        raise UsageError(f"The name of a {what} must be {legal}; {short_repr(name)} was given.")
    if isinstance(target, str):
        if not IMPORT_PATH.fullmatch(target):
            raise UsageError(f"The place of a {what} is written 'package.module:Name'; {short_repr(target)} was given.")
        entry = PluginEntry(target, about or f"From {target}.", title or name, point=point)
    else:
        check_plugin(point, target, name)  # refused now, not in the middle of a study
        entry = _entry_of(point, target, title or name, about)
    before = extension.table.get(name)
    if name in extension.reserved or (before is not None and not isinstance(before, PluginEntry)):
        raise UsageError(f"The {what} '{name}' is built in; register {short_repr(target)} under another name.")
    if before is not None and before.target and entry.target not in ("", before.target):
        raise UsageError(
            f"The {what} '{name}' is registered already, as {before.target}; register {short_repr(target)} under "
            "another name."
        )
    _add(name, entry)


def _entry_of(point: str, obj: Any, title: str, about: str = "") -> PluginEntry:
    """The entry of a class, function or object; one that cannot be imported is held."""
    path = import_path(obj)
    about = about or (getattr(obj, "__doc__", "") or "").strip().partition("\n")[0] or "From this process."
    return PluginEntry(path, about, title, point=point, held=None if path else obj)


def _add(name: str, entry: PluginEntry) -> None:
    table = POINTS[entry.point].table
    plugin = loading[-1] if loading else getattr(table.get(name), "plugin", "")
    table[name] = replace(entry, plugin=plugin)


def plugin_entries() -> Iterator[tuple[str, PluginEntry]]:
    """Every name for code from outside, with what it stands for."""
    for extension in POINTS.values():
        for name, entry in extension.table.items():
            if isinstance(entry, PluginEntry):
                yield name, entry


def check_name(what: str, name: str, table: Mapping[str, Any], also: Sequence[str] = ()) -> str:
    """The name, if it is in the table or one of a plug-in's; else refused. Nothing is imported for it.

    >>> check_name("method", "derpp", registry.METHODS)
    'derpp'
    """
    if name in also or name in table:
        return name
    point = _point_of(table)
    if point is None:
        raise unknown_name_error(what, name, [*also, *table])
    discover()
    if name not in table and not _in_plugin(point, name):
        titles = {registry.title(table, key).lower(): key for key in typed(table)}
        raise UsageError(f"{unknown_name_error(what, name, [*also, *typed(table)], titles)} {HOW}")
    return name


def _point_of(table: Mapping[str, Any]) -> str | None:
    return next((point for point, extension in POINTS.items() if extension.table is table), None)


def _in_plugin(point: str, name: str) -> bool:
    """Whether a name is that of a class in a plug-in's module, module.Class; then it is registered under it."""
    module = next((module for module in plugins if name.startswith(f"{module}.")), None)
    if module is None:
        return False
    obj = _attribute(sys.modules.get(module), name.removeprefix(f"{module}."))
    if obj is None or not import_path(obj):
        return False
    check_plugin(point, obj, name)
    _add(name, _entry_of(point, obj, obj.__qualname__))
    return True


def needs_of(table: Mapping[str, Any]) -> str:
    """What may be given in the place of a name, in words; empty where names alone go."""
    point = _point_of(table)
    return POINTS[point].needs if point else ""


def discover() -> None:
    """Read the entry points of installed packages into the tables; nothing is imported."""
    for point, name, path in _entry_points():
        if name not in POINTS[point].table and name not in POINTS[point].reserved:
            _add(name, PluginEntry(path, f"From {path.partition(':')[0]}.", name, point=point))


@cache
def _entry_points() -> tuple[tuple[str, str, str], ...]:
    from importlib import metadata  # half a dozen modules, which `--help` need not wait for

    points = {f"odedm.{point}": point for point in POINTS}
    entries = [entry for package in metadata.distributions(path=safe_path()) for entry in package.entry_points]
    return tuple((points[entry.group], entry.name, entry.value) for entry in entries if entry.group in points)


def safe_path() -> list[str]:
    """Where Python looks for modules, without the current folder, which may hold another's files."""
    folder = Path.cwd().resolve()
    return [path for path in sys.path if path and Path(path).resolve() != folder]


def auto_register(table: Mapping[str, Any], obj: Any) -> str | None:
    """The name of a class, function or object in a table, made for it if it has none; None where names alone go.

    It is called by its module and itself. What no other process can import, an object or a class of a notebook that is
    defined once more, has a number as well.
    """
    point = _point_of(table)
    if point is None or obj is None or isinstance(obj, bool | int | float | bytes | list | tuple | dict | set):
        return None
    existing = _existing_name(table, obj)
    if existing is not None:
        return existing
    is_object = not hasattr(obj, "__qualname__")
    kind = type(obj) if is_object else obj
    title = kind.__qualname__.replace("<locals>.", "").replace("<lambda>", "function")
    check_plugin(point, obj, f"{title} object" if is_object else title)
    name = f"{kind.__module__}.{title}"
    if is_object or name in table:
        name = next(numbered for n in count(1) if (numbered := f"{name}@{n}") not in table)
    _add(name, _entry_of(point, obj, title))
    return name


def _existing_name(table: Mapping[str, Any], obj: Any) -> str | None:
    """The name under which a class, function or object is in a table already.

    >>> from odedm.selection.distance import L2
    >>> _existing_name(registry.DISTANCES, L2)
    'l2'
    """
    path = import_path(obj)
    for name, entry in table.items():
        held = getattr(entry, "held", None)
        if isinstance(entry, Entry) and (held is obj if held is not None else entry.import_path == path):
            return name
    return None


def is_built_in(name: str) -> bool:
    """Whether a name is that of something in the package.

    >>> is_built_in("derpp"), is_built_in("mine")
    (True, False)
    """
    return any(
        name in extension.table and not isinstance(extension.table[name], PluginEntry) for extension in POINTS.values()
    )


def check_plugin(point: str, obj: Any, name: str) -> Any:
    """What the package works with, made of an object from outside; refused where it is none of its kind."""
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


def import_object(path: str, what: str) -> Any:
    """What is at "package.module:Name", imported now."""
    module, _, attributes = path.partition(":")
    try:
        obj: Any = import_module(module)
        for attribute in attributes.split("."):
            obj = getattr(obj, attribute)
    except Exception as error:  # a module of anyone's may raise what it likes as it is imported
        process = f" in process {os.getpid()}" if plugins else ""
        raise UsageError(f"{what} cannot be had from '{path}'{process}: {describe_error(error)}.") from error
    return obj


def import_path(obj: Any) -> str:
    """Where another process can import a class or function from; empty where it cannot.

    >>> import_path(UsageError), import_path(lambda: None)
    ('odedm:UsageError', '')
    """
    module, attributes = getattr(obj, "__module__", None), getattr(obj, "__qualname__", "")
    if not module or module == "__main__" or not IMPORT_PATH.fullmatch(f"{module}:{attributes}"):
        return ""
    return f"{module}:{attributes}" if _attribute(sys.modules.get(module), attributes) is obj else ""


def _attribute(module: Any, path: str) -> Any:
    """What has this dotted name in a module; None where nothing has."""
    for attribute in path.split("."):
        module = getattr(module, attribute, None)
    return module
