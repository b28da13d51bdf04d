"""Imports the plug-ins that a user gave, and lets worker processes find the very same modules, and no others."""

from __future__ import annotations

import re
import shlex
import sys
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from importlib import import_module
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from importlib.util import find_spec, module_from_spec, spec_from_file_location
from pathlib import Path
from types import ModuleType
from typing import Any

from odedm.core.errors import UsageError, why
from odedm.core.outside import SHELVES, OutsideEntry, adapted, loading, plugins
from odedm.core.source_mark import remember, source_mark

MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
FITTING = ("methods", "policies")
"""Kinds by which a module that registers nothing is seen to be a plug-in all the same."""


def load_plugins(words: Iterable[str]) -> None:
    """Import the modules that a user gave, by name or as files; what they register is known from then on.

    >>> load_plugins(["no_such_module"])
    Traceback (most recent call last):
    odedm.UsageError: The plug-in 'no_such_module' cannot be imported: ModuleNotFoundError: No module named \
'no_such_module'. Give a module that Python finds, or the path of its file, e.g. --plugin ./mine.py.
    """
    for word in words:
        path = Path(word)
        is_file = word.endswith(".py") or len(path.parts) > 1
        name = path.stem if is_file else word
        if not MODULE.fullmatch(name):
            raise UsageError(
                f"--plugin takes a module, e.g. mypackage.mine, or a file, e.g. ./mine.py; '{word}' is none."
            )
        before = {(shelf, each) for shelf, each, _ in entries()}
        with _loading(name, word):
            module = _from_file(name, path) if is_file else import_module(name)
            remember(name)  # before its file is edited again
        if name not in plugins:
            plugins.append(name)
        added = {(shelf, each) for shelf, each, _ in entries()} - before
        if not added and not any(entry.plugin == name for _, _, entry in entries()) and not _fits(module):
            raise UsageError(
                f"The plug-in '{word}' has nothing to plug in: call odedm.register in it, e.g. "
                "odedm.register('methods', 'mine', Mine)."
            )


@contextmanager
def _loading(name: str, word: str) -> Iterator[None]:
    loading.append(name)
    try:
        yield
    except UsageError as error:
        raise UsageError(f"The plug-in '{word}' cannot be used: {error}") from error
    except Exception as error:  # a module of anyone's may raise what it likes as it is imported
        is_missing = isinstance(error, ModuleNotFoundError) and f"{name}.".startswith(f"{error.name}.")
        advice = "Give a module that Python finds, or the path of its file, e.g. --plugin ./mine.py."
        if not is_missing:
            look = f"python {shlex.quote(word)}" if word.endswith(".py") else f"python -c 'import {name}'"
            advice = f"It is there and fails as it is read, so mend it; `{look}` shows the line."
        raise UsageError(f"The plug-in '{word}' cannot be imported: {why(error)}. {advice}") from error
    finally:
        loading.pop()


def _from_file(name: str, path: Path) -> ModuleType:
    """The module in a file, under the file's own name."""
    path = path.resolve()
    there = sys.modules.get(name)
    if there is not None:
        if Path(getattr(there, "__file__", None) or "").resolve() == path:
            return there
        raise UsageError(f"a module '{name}' is there already, from another place; give the file another name.")
    spec = spec_from_file_location(name, path)
    if spec is None or spec.loader is None or not path.is_file():
        raise UsageError(f"there is no Python file '{path}'.")
    module = sys.modules[name] = module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
    except BaseException:
        del sys.modules[name]
        raise
    return module


def _fits(module: ModuleType) -> bool:
    """Whether a module has a class of its own that a run could take."""
    for thing in vars(module).values():
        if isinstance(thing, type) and thing.__module__ == module.__name__:
            for shelf in FITTING:
                try:
                    adapted(shelf, thing, thing.__name__)
                except UsageError:
                    continue
                return True
    return False


def handed_on() -> dict[str, Any]:
    """What another process needs to find the code that is registered here, as plain data: names, modules, files."""
    portable = [(shelf, name, entry) for shelf, name, entry in entries() if entry.target]
    used = {entry.target.partition(":")[0] for _, _, entry in portable} | set(plugins)
    tops = sorted({name.partition(".")[0] for name in used} - {"odedm"})
    return {
        "entries": [[shelf, name, each.target, each.about, each.title] for shelf, name, each in portable],
        "plugins": list(plugins),
        "modules": {name: found for name in tops if (found := _whereabouts(name)) is not None},
    }


def receive(plain: Mapping[str, Any]) -> None:
    """Know in this process what another one has handed on; plug-ins are imported, the rest when it is needed."""
    if plain["modules"] and not any(
        isinstance(each, _Finder) and each.modules == plain["modules"] for each in sys.meta_path
    ):
        sys.meta_path.insert(0, _Finder(plain["modules"]))
    for shelf, name, target, about, title in plain["entries"]:
        SHELVES[shelf].table.setdefault(name, OutsideEntry(target, about, title, shelf=shelf))
    load_plugins(plain["plugins"])


def _whereabouts(name: str) -> dict[str, Any] | None:
    """The file of a module at the top of its package, or the folders of one without a file; not imported for it."""
    try:
        spec = getattr(sys.modules.get(name), "__spec__", None) or find_spec(name)
    except (ImportError, ValueError, AttributeError):
        return None
    if spec is None:
        return None
    folders = (
        None
        if spec.submodule_search_locations is None
        else [str(Path(each).resolve()) for each in spec.submodule_search_locations]
    )
    return {"file": str(Path(spec.origin).resolve()) if spec.has_location and spec.origin else None, "folders": folders}


class _Finder(MetaPathFinder):
    """Finds exactly these modules, where the parent found them; what lies beside them is not found."""

    def __init__(self, modules: Mapping[str, Mapping[str, Any]]) -> None:
        self.modules = modules

    def find_spec(
        self, name: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The module's place, if it is one of them and its file is here."""
        del path, target
        own = self.modules.get(name)
        if own is None:
            return None
        if own["file"] is not None:
            here = Path(own["file"]).is_file()
            return (
                spec_from_file_location(name, own["file"], submodule_search_locations=own["folders"]) if here else None
            )
        spec = ModuleSpec(name, None, is_package=True)
        spec.submodule_search_locations = own["folders"]
        return spec


def registered_modules() -> set[str]:
    """The modules whose code this process has been told of: those of registered names, and plug-ins."""
    return {entry.target.partition(":")[0] for _, _, entry in entries() if entry.target} | set(plugins)


def origins(parts: Mapping[str, tuple[str, OutsideEntry]]) -> dict[str, dict[str, Any]]:
    """What a result says of code from outside, by setting.

    That is its title, where it is from, whether a file can name it, and which code it was (`source_mark`). Data need
    no such mark: they have a checksum.
    """
    return {
        setting: {
            "title": entry.title,
            "from": entry.target or entry.plugin or None,
            "again": entry.portable,
            "code": None if entry.shelf == "data" else source_mark(entry.original(), _home(entry)),
        }
        for setting, (_, entry) in parts.items()
    }


def _home(entry: OutsideEntry) -> str:
    """The module that made what an entry stands for, where that is known."""
    return entry.target.partition(":")[0] or entry.plugin


def code_marks(origin: object) -> dict[str, str]:
    """Of what `origins` gave, perhaps to a file of anyone's, the marks of code by setting, those that are known.

    >>> code_marks({"method": {"title": "Mine", "code": "12ab"}, "net": {"title": "Net"}})
    {'method': '12ab'}
    """
    every = origin.items() if isinstance(origin, dict) else ()
    marks = {str(key): each.get("code") for key, each in every if isinstance(each, dict)}
    return {key: mark for key, mark in marks.items() if isinstance(mark, str)}


def entries() -> Iterator[tuple[str, str, OutsideEntry]]:
    """Every name for code from outside: its list, itself, and what it stands for."""
    for shelf, own in SHELVES.items():
        for name, entry in own.table.items():
            if isinstance(entry, OutsideEntry):
                yield shelf, name, entry
