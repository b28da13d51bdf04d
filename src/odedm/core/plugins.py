"""Names for code from outside the package: registered, in entry points of installed packages, or given by --plugin.

Wherever a setting takes a name of the registry it takes a class or an object as well, and what is kept is a name. A
name in a file imports nothing: it is looked up among what this process registered, the plug-ins that its user gave and
the entry points of installed packages, and only what is found there is imported, when a run needs it.
"""

from __future__ import annotations

import os
import re
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pkgutil import resolve_name
from typing import Any

from odedm.core.errors import UsageError, choose, describe_error, short_repr, unknown_name_error
from odedm.core.processes import safe_path
from odedm.core.registry import NETS, REGISTRIES, Entry, Registry, add_library_net, title, typed

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}")
IMPORT_PATH = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")

PLAIN = (type(None), bool, int, float, bytes, list, tuple, dict, set)
"""What is never a part."""
loading: list[str] = []
"""The plug-ins whose modules are being imported, the innermost last."""
plugins: dict[str, str] = {}
"""The modules that the user gave by --plugin, with the word by which another process imports them."""
_numbers: Counter[str] = Counter()
"""How many objects got each name: no number is given twice, since results go by names."""


@dataclass(frozen=True)
class PluginEntry(Entry):
    """A name for code from outside: a class or function by its import path, or an object that only this process has.

    `group` is its registry's. `reference` returns that object. `plugin` is the module given by --plugin whose import
    registered it, if any.
    """

    group: str = ""
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
        return REGISTRIES[self.group].check(self.title, self.original())

    def original(self) -> Any:
        """Return it as its author wrote it."""
        what = f"The {REGISTRIES[self.group].what} '{self.title}'"
        try:
            obj = resolve_name(self.target) if self.reference is None else self.reference()
        except Exception as error:  # a module of anyone's may raise what it likes as it is imported
            process = f" in process {os.getpid()}" if plugins else ""
            message = f"{what} cannot be had from '{self.target}'{process}: {describe_error(error)}."
            raise UsageError(message) from error
        if obj is None:
            raise UsageError(f"{what} is gone: nothing holds the object any more. Give the object again.")
        return obj


class ObjectName(str):
    """The name of an object without an import path. It holds the object, which thus lives as long as its name is used.

    Written to a file or sent to another process it is plain text.
    """

    target: Any

    def __new__(cls, name: str, target: Any) -> ObjectName:
        """Return the name, which holds the object."""
        self = super().__new__(cls, name)
        self.target = target
        return self

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> ObjectName:
        return self


def register(group: str, name: str, target: Any, *, about: str = "", title: str = "") -> None:
    """Give code from outside the package a name, by which settings, commands, studies and workers know it.

    Args:
        group: what it is: "methods", "policies", "retrievals", "distances", "nets", "data", "transforms",
            "optimizers" or "schedules".
        name: letters, digits, dots, underscores, plus and minus signs; not that of something built in.
        target: "package.module:Name", which is imported when it is first needed, or the class or function itself.
        about: one line for `odedm list`.
        title: how people write the name, in tables and reports.

    A class of a module reaches worker processes, Ray and resumed runs by its module; one of a script or notebook, or
    an object, is known to this process alone.

    >>> register("methods", "my-own", "mypackage.mine:Mine", title="Mine")
    >>> REGISTRIES["methods"].pop("my-own").title
    'Mine'
    >>> register("methods", "er", "mypackage.mine:Mine")
    Traceback (most recent call last):
    odedm.UsageError: The method 'er' is built in; register 'mypackage.mine:Mine' under another name.
    """
    registry = choose("list of names", group, REGISTRIES)
    what = registry.what
    if not NAME.fullmatch(name):
        legal = "up to 60 letters, digits, dots, underscores, plus and minus signs, a letter or digit first"
        raise UsageError(f"The name of a {what} must be {legal}; {short_repr(name)} was given.")
    path = target if isinstance(target, str) else import_path(target)
    if not isinstance(target, str):
        registry.check(name, target)  # refused now, not in the middle of a study
    elif not IMPORT_PATH.fullmatch(target):
        raise UsageError(f"The place of a {what} is written 'package.module:Name'; {short_repr(target)} was given.")
    before, advice = registry.get(name), f"register {short_repr(target)} under another name."
    if name in registry.reserved or (before is not None and not isinstance(before, PluginEntry)):
        raise UsageError(f"The {what} '{name}' is built in; {advice}")
    if before is not None and before.target and path not in ("", before.target):
        raise UsageError(f"The {what} '{name}' is registered already, as {before.target}; {advice}")
    reference = None if path else lambda: target
    _add(registry, name, path, about or _first_line(target), title or name, reference)


def _add(
    registry: Registry, name: str, path: str, about: str, title: str, reference: Callable[[], Any] | None = None
) -> None:
    plugin = loading[-1] if loading else getattr(registry.get(name), "plugin", "")
    registry[name] = PluginEntry(path, about, title, group=registry.group, reference=reference, plugin=plugin)


def _first_line(target: Any) -> str:
    """Return what lists say of code from outside: where it is from, or the first line of its docstring."""
    if isinstance(target, str):
        return f"From {target.partition(':')[0]}."
    return (getattr(target, "__doc__", "") or "").strip().partition("\n")[0] or "From this process."


def plugin_entries() -> Iterator[tuple[str, PluginEntry]]:
    """Yield every name for code from outside, with what it stands for."""
    for registry in REGISTRIES.values():
        yield from ((name, entry) for name, entry in [*registry.items()] if isinstance(entry, PluginEntry))


def is_built_in(name: str) -> bool:
    """Return whether a name is that of something in the package.

    >>> is_built_in("derpp"), is_built_in("mine")
    (True, False)
    """
    return any(name in table and not isinstance(table[name], PluginEntry) for table in REGISTRIES.values())


def check_name(what: str, name: str, table: Mapping[str, Any], also: Sequence[str] = ()) -> str:
    """Return the name if it is in the table or one of a plug-in's, else refuse it; nothing is imported for it.

    >>> check_name("method", "derpp", REGISTRIES["methods"])
    'derpp'
    """
    if name in also or name in table or (table is NETS and add_library_net(name)):
        return name
    if not isinstance(table, Registry):
        raise unknown_name_error(what, name, [*also, *table])
    discover()
    if name not in table and not _register_from_plugin(table, name):
        titles = {title(table, key).lower(): key for key in typed(table)}
        error = unknown_name_error(what, name, [*also, *typed(table)], titles)
        module = name.rpartition(".")[0] if NAME.fullmatch(name) else ""
        option = f"--plugin {module}".rstrip()
        raise UsageError(
            f"{error} A plug-in's names are known once its module is imported ({option}), its package is installed "
            "with an entry point, or odedm.register has named it."
        )
    return name


def _register_from_plugin(registry: Registry, name: str) -> bool:
    """Return whether a name is module.Class of a plug-in's module, which is then registered under it."""
    module = next((module for module in plugins if name.startswith(f"{module}.")), "")
    obj = _attribute(sys.modules.get(module), name.removeprefix(f"{module}."))
    if obj is None or not import_path(obj):
        return False
    registry.check(name, obj)
    _add(registry, name, import_path(obj), _first_line(obj), obj.__qualname__)
    return True


def discover() -> None:
    """Read the entry points of installed packages into the tables; nothing is imported."""
    for group, name, path in _entry_points():
        if name not in REGISTRIES[group] and name not in REGISTRIES[group].reserved:
            _add(REGISTRIES[group], name, path, _first_line(path), name)


@cache
def _entry_points() -> tuple[tuple[str, str, str], ...]:
    from importlib import metadata  # half a dozen modules, which `--help` need not wait for

    groups = {f"odedm.{group}": group for group in REGISTRIES}
    entries = [entry for package in metadata.distributions(path=safe_path()) for entry in package.entry_points]
    return tuple((groups[entry.group], entry.name, entry.value) for entry in entries if entry.group in groups)


def auto_register(table: Mapping[str, Any], obj: Any) -> str | None:
    """Return the name of a class, function or object in a table, made for it if it has none; None where names alone go.

    It is module.Name. What no other process can import, an object or a class of a notebook, has a number as well, and
    leaves the table when nobody holds it or its name any more.
    """
    if not isinstance(table, Registry) or isinstance(obj, PLAIN):
        return None
    kind = obj if hasattr(obj, "__qualname__") else type(obj)
    title = kind.__qualname__.replace("<locals>.", "").replace("<lambda>", "function")
    path, name = import_path(obj), f"{kind.__module__}.{title}"
    for known, entry in table.items():
        if isinstance(entry, Entry) and path and entry.import_path == path:
            return known
        if isinstance(entry, PluginEntry) and entry.reference is not None and entry.reference() is obj:
            return ObjectName(known, obj)
    table.check(title, obj)
    if path:
        _add(table, name, path, _first_line(obj), title)
        return name
    for known, other in plugin_entries():
        if other.reference is not None and other.reference() is None:
            del REGISTRIES[other.group][known]
    _numbers[name] += 1
    name = f"{name}@{_numbers[name]}"
    # for good what a plug-in makes as it is imported, and an object with slots
    is_weak = not loading and type(obj).__weakrefoffset__ != 0
    _add(table, name, "", _first_line(obj), title, weakref.ref(obj) if is_weak else lambda: obj)
    return ObjectName(name, obj)


def import_path(obj: Any) -> str:
    """Return where another process can import a class or function from; empty where it cannot.

    >>> import_path(UsageError), import_path(lambda: None)
    ('odedm:UsageError', '')
    """
    module, attributes = getattr(obj, "__module__", None) or "", getattr(obj, "__qualname__", "")
    path = f"{module}:{attributes}"
    importable = module != "__main__" and IMPORT_PATH.fullmatch(path)
    return path if importable and _attribute(sys.modules.get(module), attributes) is obj else ""


def _attribute(module: Any, path: str) -> Any:
    """Return what has this dotted name in a module; None where nothing has."""
    for attribute in path.split("."):
        module = getattr(module, attribute, None)
    return module
