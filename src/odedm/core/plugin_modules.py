"""Imports the plug-ins that a user gave, and tells worker processes what this one knows."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterable, Mapping
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from odedm.core.errors import UsageError, describe_error
from odedm.core.plugins import POINTS, PluginEntry, loading, plugin_entries, plugins, safe_path
from odedm.core.source_hash import module_hash, source_hash

MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")


def load_plugins(words: Iterable[str]) -> None:
    """Import the modules that a user gave, by name or as files; what they register is known from then on.

    >>> load_plugins(["no such module"])
    Traceback (most recent call last):
    odedm.UsageError: --plugin takes a module, e.g. mypackage.mine, or a file, e.g. ./mine.py; 'no such module' is none.
    """
    for word in words:
        path = Path(word)
        is_file = word.endswith(".py") or len(path.parts) > 1
        name = path.stem if is_file else word
        if not MODULE.fullmatch(name):
            raise UsageError(
                f"--plugin takes a module, e.g. mypackage.mine, or a file, e.g. ./mine.py; '{word}' is none."
            )
        loading.append(name)
        try:
            if is_file:
                _import_file(name, path.resolve())
            else:
                import_module(name)
        except UsageError as error:
            raise UsageError(f"The plug-in '{word}' cannot be used: {error}") from error
        except Exception as error:  # a module of anyone's may raise what it likes as it is imported
            raise UsageError(
                f"The plug-in '{word}' cannot be imported: {describe_error(error)}. Give a module that Python finds, "
                "or the path of its file, e.g. --plugin ./mine.py; ODEDM_TRACEBACK=1 shows the line that fails."
            ) from error
        finally:
            loading.pop()
        plugins[name] = str(path.resolve()) if is_file else word
        module_hash(name)  # before its file is edited again


def _import_file(name: str, path: Path) -> None:
    """Import a file as the module of its own name."""
    existing = sys.modules.get(name)
    if existing is not None:
        if Path(getattr(existing, "__file__", None) or "").resolve() == path:
            return
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


def export_plugins() -> dict[str, Any]:
    """What another process needs to find the code that is registered here, as plain data: names, modules, folders."""
    portable = [(name, entry) for name, entry in plugin_entries() if entry.target]
    return {
        "path": safe_path(),
        "plugins": list(plugins.values()),
        "entries": [[entry.point, name, entry.target, entry.about, entry.title] for name, entry in portable],
    }


def import_plugins(exported: Mapping[str, Any]) -> None:
    """Know in this process what another one has exported; plug-ins are imported, the rest when it is needed."""
    sys.path.extend(path for path in exported["path"] if path not in sys.path)
    for point, name, target, about, title in exported["entries"]:
        POINTS[point].table.setdefault(name, PluginEntry(target, about, title, point=point))
    load_plugins(exported["plugins"])


def registered_modules() -> set[str]:
    """The modules whose code this process has been told of: those of registered names, and plug-ins."""
    return {entry.target.partition(":")[0] for _, entry in plugin_entries() if entry.target} | set(plugins)


def origins(parts: Mapping[str, tuple[str, PluginEntry]]) -> dict[str, dict[str, Any]]:
    """What a result says of code from outside, by setting.

    That is its title, where it is from, whether a file can name it, and which code it was (`source_hash`). Data need
    no such hash: they have a checksum.
    """
    return {
        setting: {
            "title": entry.title,
            "from": entry.target or entry.plugin or None,
            "again": entry.portable,
            "code": None
            if entry.point == "data"
            else source_hash(entry.original(), entry.target.partition(":")[0] or entry.plugin),
        }
        for setting, (_, entry) in parts.items()
    }


def code_marks(origin: object) -> dict[str, str]:
    """Of what `origins` gave, perhaps to a file of anyone's, the hashes of code by setting, those that are known.

    >>> code_marks({"method": {"title": "Mine", "code": "12ab"}, "net": {"title": "Net"}})
    {'method': '12ab'}
    """
    parts = origin.items() if isinstance(origin, dict) else ()
    hashes = {str(setting): part.get("code") for setting, part in parts if isinstance(part, dict)}
    return {setting: code for setting, code in hashes.items() if isinstance(code, str)}
