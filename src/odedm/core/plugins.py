"""Names for code from outside the package: registered, in entry points of installed packages, or given by --plugin.

Wherever a setting takes a name of the registry it takes a class or an object as well, and what is kept is a name. A
name in a file imports nothing: it is looked up among what this process registered, the plug-ins that its user gave and
the entry points of installed packages, and only what is found there is imported, when a run needs it.
"""

from __future__ import annotations

import re
import sys
import weakref
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

from odedm.core import registry
from odedm.core.errors import UsageError, choose, short_repr, unknown_name_error
from odedm.core.extension_points import POINTS, PluginEntry, check_plugin, loading, plugin_entries, plugins
from odedm.core.registry import Entry, typed

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}")
IMPORT_PATH = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
HOW = (
    "Code from outside is known here once its module is given by --plugin, its package is installed with an entry "
    "point, or odedm.register has named it."
)
"""What to do about a name that may be another's code."""


_named: Counter[str] = Counter()
"""How many objects got each name: no number is given twice, since results go by names."""


class ObjectName(str):
    """The name of an object without an import path. It holds the object, which thus lives as long as its name is used.

    Written to a file or sent to another process it is plain text.
    """

    target: Any

    def __reduce__(self) -> tuple[type[str], tuple[str]]:
        return str, (str(self),)

    def __deepcopy__(self, memo: dict[int, Any]) -> ObjectName:
        return self


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
        entry = entry if entry.target else replace(entry, reference=lambda: target)  # for good
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
    """Return the entry of a class, function or object, without a reference to it."""
    about = about or (getattr(obj, "__doc__", "") or "").strip().partition("\n")[0] or "From this process."
    return PluginEntry(import_path(obj), about, title, point=point)


def _add(name: str, entry: PluginEntry) -> None:
    table = POINTS[entry.point].table
    plugin = loading[-1] if loading else getattr(table.get(name), "plugin", "")
    table[name] = replace(entry, plugin=plugin)


def check_name(what: str, name: str, table: Mapping[str, Any], also: Sequence[str] = ()) -> str:
    """Return the name if it is in the table or one of a plug-in's, else refuse it; nothing is imported for it.

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
    """Return whether a name is that of a class in a plug-in's module, module.Class; then register it under that."""
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
    """Return what may be given in the place of a name, in words; empty where names alone go."""
    return next((extension.needs for extension in POINTS.values() if extension.table is table), "")


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
    """Return where Python looks for modules, without the current folder, which may hold another's files."""
    folder = Path.cwd().resolve()
    return [path for path in sys.path if path and Path(path).resolve() != folder]


def auto_register(table: Mapping[str, Any], obj: Any) -> str | None:
    """Return the name of a class, function or object in a table, made for it if it has none; None where names alone go.

    It is called by its module and itself. What no other process can import, an object or a class of a notebook that is
    defined once more, has a number as well, and leaves the table when nobody holds it or its name any more.
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
    entry = _entry_of(point, obj, title)
    if not entry.target:
        _named[name] += 1
        if is_object or _named[name] > 1 or name in table:
            name = f"{name}@{_named[name]}"
        _forget_dead()
        entry = replace(entry, reference=_reference(obj))
    _add(name, entry)
    return name if entry.target else _object_name(name, obj)


def _reference(obj: Any) -> Callable[[], Any]:
    """Return a weak reference; one for good to what a plug-in makes as it is imported, and to objects with slots."""
    try:
        return (lambda: obj) if loading else weakref.ref(obj)
    except TypeError:
        return lambda: obj


def _object_name(name: str, obj: Any) -> ObjectName:
    held = ObjectName(name)
    held.target = obj
    return held


def _forget_dead() -> None:
    for name, entry in [*plugin_entries()]:
        if entry.reference is not None and entry.reference() is None:
            del POINTS[entry.point].table[name]


def _existing_name(table: Mapping[str, Any], obj: Any) -> str | None:
    """Return the name under which a class, function or object is in a table already.

    >>> from odedm.selection.distance import L2
    >>> _existing_name(registry.DISTANCES, L2)
    'l2'
    """
    path = import_path(obj)
    for name, entry in table.items():
        if isinstance(entry, PluginEntry) and entry.reference is not None:
            if entry.reference() is obj:
                return _object_name(name, obj)
        elif isinstance(entry, Entry) and entry.import_path == path:
            return name
    return None


def is_built_in(name: str) -> bool:
    """Return whether a name is that of something in the package.

    >>> is_built_in("derpp"), is_built_in("mine")
    (True, False)
    """
    return any(
        name in extension.table and not isinstance(extension.table[name], PluginEntry) for extension in POINTS.values()
    )


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
