"""Code from outside the package: registered names for it, and names for classes and objects that have none.

Wherever a setting takes a name of the registry it takes a class or an object as well, and what is kept is a name. A
name in a file imports nothing: it is looked up among what this process registered, the plug-ins that its user gave and
the entry points of installed packages, and only what is found there is imported, when a run needs it.
"""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from pathlib import Path
from typing import Any, NamedTuple

from odedm.core import registry
from odedm.core.errors import UsageError, choose, shown, unknown, why
from odedm.core.registry import Entry, typed

NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._+-]{0,59}")
TARGET = re.compile(r"([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*):([A-Za-z_]\w*(?:\.[A-Za-z_]\w*)*)")
HOW = (
    "Code from outside is known here once its module is given by --plugin, its package is installed with an entry "
    "point, or odedm.register has named it."
)
"""What to do about a name that may be another's code."""


class Shelf(NamedTuple):
    """A table of the registry that is open to code from outside.

    `what` is one of its things in words and `needs` what such a thing must be; `base` is the class it derives from, if
    there is one, and `has` the methods it has. `adapt` makes of a thing what the package works with.
    """

    table: dict[str, Any]
    what: str
    needs: str
    base: str = ""
    has: tuple[str, ...] = ()
    reserved: tuple[str, ...] = ()
    adapt: str = ""


SHELVES = {
    "methods": Shelf(registry.METHODS, "method", "a subclass of odedm.Method", "methods.base:Method"),
    "policies": Shelf(
        registry.POLICIES,
        "memory policy",
        "a subclass of odedm.Memory",
        "memory.keyed:KeyedMemory",
        reserved=("native", "none"),
    ),
    "retrievals": Shelf(
        registry.RETRIEVALS, "retrieval", "a subclass of odedm.Retrieval", "training.retrieval:Retrieval"
    ),
    "distances": Shelf(
        registry.DISTANCES,
        "distance",
        "a class or an object with prepare, pairs and clouds (see odedm.Distance)",
        has=("prepare", "pairs", "clouds"),
    ),
    "nets": Shelf(
        registry.NETS,
        "net",
        "an nn.Module, a class of one, or a function that makes one",
        has=("__call__",),
        reserved=("auto",),
        adapt="nets.plain_module:net_maker",
    ),
    "data": Shelf(registry.DATASETS, "data set", "a function that gives an odedm.Dataset", has=("__call__",)),
    "transforms": Shelf(
        registry.TRANSFORMS, "transform", "a function of images [n, ...] and a generator", has=("__call__",)
    ),
    "optimizers": Shelf(
        registry.OPTIMIZERS, "optimizer", "a function of parameters and keywords, or a class", has=("__call__",)
    ),
}
"""Kinds of code that can come from outside, by the name of their list; entry points are in groups "odedm.methods", …"""


@dataclass(frozen=True)
class OutsideEntry(Entry):
    """A name for code from outside: a class or function by where it is, or a thing that only this process has.

    `plugin` is the module whose import registered it, where the user gave one.
    """

    shelf: str = ""
    thing: Any = None
    plugin: str = ""

    @property
    def portable(self) -> bool:
        """Whether another process can find it."""
        return bool(self.target or self.plugin)

    def load(self) -> Any:
        """The class, function or object itself, imported now if it was not before."""
        return adapted(self.shelf, self.original(), self.title)

    def original(self) -> Any:
        """The same as its author wrote it, before it is made what the package works with."""
        what = f"The {SHELVES[self.shelf].what} '{self.title}'"
        return self.thing if self.thing is not None else located(self.target, what)


def register(shelf: str, name: str, target: Any, *, about: str = "", title: str = "") -> None:
    """Give code from outside the package a name, by which settings, commands, studies and workers know it.

    Args:
        shelf: what it is: "methods", "policies", "retrievals", "distances", "nets", "data", "transforms" or
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
    own = choose("list of names", shelf if isinstance(shelf, str) else shown(shelf), SHELVES)
    if not isinstance(name, str) or not NAME.fullmatch(name):
        legal = "up to 60 letters, digits, dots, underscores, plus and minus signs, a letter or digit first"
        raise UsageError(f"The name of a {own.what} must be {legal}; {shown(name)} was given.")
    if isinstance(target, str):
        if not TARGET.fullmatch(target):
            raise UsageError(f"The place of a {own.what} is written 'package.module:Name'; {shown(target)} was given.")
        place, thing = target, None
    else:
        adapted(shelf, target, name)  # refused now, not in the middle of a study
        place = place_of(target)
        thing = None if place else target
    there = own.table.get(name)
    if name in own.reserved or (there is not None and not isinstance(there, OutsideEntry)):
        raise UsageError(f"The {own.what} '{name}' is built in; register {shown(target)} under another name.")
    if isinstance(there, OutsideEntry) and (there.target, there.thing) != (place, thing) and not _anew(there, target):
        raise UsageError(
            f"The {own.what} '{name}' is registered already, as {there.target or shown(there.thing)}; register "
            f"{shown(target)} under another name."
        )
    _add(shelf, name, OutsideEntry(place, about or _about(target), title or name, shelf=shelf, thing=thing))


def _anew(there: OutsideEntry, target: Any) -> bool:
    """Whether a class of a script or notebook is defined once more, by its cell or as a plug-in."""
    same = getattr(there.thing, "__qualname__", None) == getattr(target, "__qualname__", "")
    return same and getattr(there.thing, "__module__", None) in ("__main__", target.__module__)


loading: list[str] = []
"""The plug-ins whose modules are being imported, the innermost last."""
plugins: list[str] = []
"""The modules that the user gave by --plugin."""


def _add(shelf: str, name: str, entry: OutsideEntry) -> None:
    given = loading[-1] if loading else ""
    table = SHELVES[shelf].table
    before = table.get(name)
    kept = before.plugin if isinstance(before, OutsideEntry) else ""
    fields = (entry.target, entry.about, entry.title, entry.introduced)
    table[name] = OutsideEntry(*fields, shelf=shelf, thing=entry.thing, plugin=given or kept)


def known(what: str, name: str, table: Mapping[str, Any], also: Sequence[str] = ()) -> str:
    """The name, if it is in the table or one of a plug-in's; else refused. Nothing is imported for it.

    >>> known("method", "derpp", registry.METHODS)
    'derpp'
    """
    if name in also or name in table:
        return name
    shelf = _shelf_of(table)
    if shelf is None:
        raise unknown(what, name, [*also, *table])
    discover()
    if name not in table and not _in_plugin(shelf, name):
        entries = {key: each for key, each in table.items() if isinstance(each, registry.Entry) and each.title}
        titles = {each.title.lower(): key for key, each in entries.items() if key in typed(table)}
        raise UsageError(f"{unknown(what, name, [*also, *typed(table)], titles)} {HOW}")
    return name


def code_for(table: Mapping[str, Any]) -> str:
    """What may be given in the place of a name, in words; empty where names alone go."""
    return next((own.needs for own in SHELVES.values() if own.table is table), "")


def named(what: str, thing: Any, table: Mapping[str, Any]) -> str:
    """The name of something that is given as a name, a class or an object; refused where it is none of its kind."""
    found = thing if isinstance(thing, str) else name_of(table, thing)
    if found is None:
        raise UsageError(f"The {what} must be a name, a class or an object; {shown(thing)} was given.")
    return known(what, found, table)


def discover() -> None:
    """Read the entry points of installed packages into the tables; nothing is imported."""
    for shelf, name, place in _installed():
        if name not in SHELVES[shelf].table and name not in SHELVES[shelf].reserved:
            _add(shelf, name, OutsideEntry(place, f"From {place.partition(':')[0]}.", name, shelf=shelf))


@cache
def _installed() -> tuple[tuple[str, str, str], ...]:
    from importlib import metadata  # half a dozen modules, which `--help` need not wait for

    here = Path.cwd().resolve()
    # not of the current folder, which may hold another's files
    places = [each for each in sys.path if each and Path(each).resolve() != here]
    groups = {f"odedm.{shelf}": shelf for shelf in SHELVES}
    every = [point for found in metadata.distributions(path=places) for point in found.entry_points]
    fine = [each for each in every if NAME.fullmatch(each.name) and TARGET.fullmatch(each.value)]
    return tuple((groups[each.group], each.name, each.value) for each in fine if each.group in groups)


def name_of(table: Mapping[str, Any], thing: Any) -> str | None:
    """The name of a class, function or object in a table, made for it if it has none; None where names alone go.

    A class is named by its module and itself. An object has a name in this process only, and a number in it.
    """
    shelf = _shelf_of(table)
    if shelf is None or thing is None or isinstance(thing, bool | int | float | bytes | list | tuple | dict | set):
        return None
    there = _named(table, thing)
    if there is not None:
        return there
    place = place_of(thing)
    adapted(shelf, thing, getattr(thing, "__qualname__", f"{type(thing).__qualname__} object"))
    is_object = not hasattr(thing, "__qualname__")
    if is_object and (default := _default_of(table, thing)) is not None:
        return default
    title = (type(thing) if is_object else thing).__qualname__.replace("<locals>.", "").replace("<lambda>", "function")
    name = f"{(type(thing) if is_object else thing).__module__}.{title}"
    if is_object or name in table:  # objects have no name of their own, and a notebook may define a class anew
        name = next(each for n in range(1, 1 << 30) if (each := f"{name}@{n}") not in table)
    _add(shelf, name, OutsideEntry(place, _about(thing), title, shelf=shelf, thing=None if place else thing))
    return name


def _named(table: Mapping[str, Any], thing: Any) -> str | None:
    """The name under which a thing is in a table already."""
    place, ours = place_of(thing), str(getattr(thing, "__module__", "")).startswith("odedm.")
    for name, entry in table.items():
        if isinstance(entry, OutsideEntry):
            if entry.thing is thing or (place and entry.target == place):
                return name
        elif ours and isinstance(entry, Entry) and entry.load() is thing:
            return name
    return None


def _default_of(table: Mapping[str, Any], thing: Any) -> str | None:
    """The name whose class gives an equal object without being told anything: L2() is the distance 'l2'."""
    name = _named(table, type(thing))
    try:
        return name if name is not None and bool(type(thing)() == thing) else None
    except Exception:  # a class of anyone's may need arguments, or compare as it likes
        return None


def is_built_in(name: str) -> bool:
    """Whether a name is that of something in the package.

    >>> is_built_in("derpp"), is_built_in("mine")
    (True, False)
    """
    return any(name in own.table and not isinstance(own.table[name], OutsideEntry) for own in SHELVES.values())


def adapted(shelf: str, thing: Any, name: str) -> Any:
    """What the package works with, made of a thing from outside; refused where it is none of its kind."""
    own = SHELVES[shelf]
    base = Entry(own.base, "").load() if own.base else None
    derived = isinstance(thing, type) and (base is None or issubclass(thing, base))
    fine = derived if base else all(hasattr(thing, each) for each in own.has)
    if not fine:
        raise UsageError(f"The {own.what} '{name}' must be {own.needs}; {shown(thing)} was given.")
    missing = sorted(getattr(thing, "__abstractmethods__", ())) if isinstance(thing, type) else []
    if missing:
        raise UsageError(f"The {own.what} '{name}' lacks {', '.join(missing)}, which every {own.what} defines.")
    return Entry(own.adapt, "").load()(thing) if own.adapt else thing


def located(place: str, what: str) -> Any:
    """What is at "package.module:Name", imported now."""
    module, _, path = place.partition(":")
    try:
        found: Any = import_module(module)
        for each in path.split("."):
            found = getattr(found, each)
    except Exception as error:  # a module of anyone's may raise what it likes as it is imported
        where = f" in process {os.getpid()}" if plugins else ""
        raise UsageError(f"{what} cannot be had from '{place}'{where}: {why(error)}.") from error
    return found


def place_of(thing: Any) -> str:
    """Where another process can import a class or function from; empty where it cannot.

    >>> place_of(UsageError), place_of(lambda: None)
    ('odedm:UsageError', '')
    """
    module, path = getattr(thing, "__module__", None), getattr(thing, "__qualname__", "")
    if not module or module == "__main__" or not TARGET.fullmatch(f"{module}:{path}"):
        return ""
    found: Any = sys.modules.get(module)
    for each in path.split("."):
        found = getattr(found, each, None)
    return f"{module}:{path}" if found is thing else ""


def _shelf_of(table: Mapping[str, Any]) -> str | None:
    return next((name for name, own in SHELVES.items() if own.table is table), None)


def _in_plugin(shelf: str, name: str) -> bool:
    """Whether a name is that of a class in a plug-in's module, module.Class; then it is registered under it."""
    module = next((each for each in plugins if name.startswith(f"{each}.")), None)
    if module is None:
        return False
    thing: Any = sys.modules.get(module)
    for each in name.removeprefix(f"{module}.").split("."):
        thing = getattr(thing, each, None)
    if thing is None or not place_of(thing):
        return False
    adapted(shelf, thing, name)
    _add(shelf, name, OutsideEntry(place_of(thing), _about(thing), thing.__qualname__, shelf=shelf))
    return True


def _about(target: Any) -> str:
    """The first line of what a thing says of itself."""
    said = "" if isinstance(target, str) else (getattr(target, "__doc__", "") or "")
    return said.strip().partition("\n")[0] or f"From {target if isinstance(target, str) else 'this process'}."
