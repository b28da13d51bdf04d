"""Imports the plug-ins that a user gave, tells worker processes what this one knows, and hashes a plug-in's code."""

from __future__ import annotations

import hashlib
import re
import sys
from collections.abc import Iterable, Mapping
from functools import partial
from importlib import import_module
from importlib.util import module_from_spec, spec_from_file_location
from pathlib import Path
from typing import Any

from odedm.core.errors import UsageError, describe_error
from odedm.core.plain_data import json_hash
from odedm.core.plugins import PluginEntry, loading, plugin_entries, plugins
from odedm.core.processes import safe_path
from odedm.core.registry import REGISTRIES

MODULE = re.compile(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)*")
VERSIONED = {"odedm", "torch", *sys.stdlib_module_names}
"""Packages whose versions a result names."""

_hashes: dict[str, tuple[object, str]] = {}
"""The hash of a module's code as it was when it was first asked for, and the import that this was of."""


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
                f"The plug-in '{word}' cannot be imported: {describe_error(error)}. Give a module that Python finds or "
                "the path of a file; ODEDM_TRACEBACK=1 shows the line that fails."
            ) from error
        finally:
            loading.pop()
        plugins[name] = str(path.resolve()) if is_file else word
        module_hash(name)  # before its file is edited again


def name_in_file(word: str) -> str:
    """Return the name of a class or function in a Python file, "mine.py:make_net", which is imported as a plug-in.

    >>> name_in_file("resnet18")
    'resnet18'
    """
    file, _, attribute = word.rpartition(":")
    if not file.endswith(".py"):
        return word
    load_plugins([file])
    return f"{Path(file).stem}.{attribute}"


def object_in_file(word: str) -> Any:
    """Return the class, function or object that "mine.py:name" names."""
    module, _, attribute = name_in_file(word).rpartition(".")
    try:
        return getattr(sys.modules[module], attribute)
    except AttributeError:
        raise UsageError(f"There is no '{attribute}' in '{word.rpartition(':')[0]}'.") from None


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
    """Return what another process needs to find the code that is registered here: names, modules, folders."""
    return {
        "path": safe_path(),
        "plugins": list(plugins.values()),
        "entries": [[e.group, name, e.target, e.about, e.title] for name, e in plugin_entries() if e.target],
    }


def import_plugins(exported: Mapping[str, Any]) -> None:
    """Make known in this process what another one has exported; plug-ins are imported, the rest when it is needed."""
    sys.path.extend(path for path in exported["path"] if path not in sys.path)
    for group, name, target, about, title in exported["entries"]:
        REGISTRIES[group].setdefault(name, PluginEntry(target, about, title, group=group))
    load_plugins(exported["plugins"])


def registered_modules() -> set[str]:
    """Return the modules whose code this process has been told of: those of registered names, and plug-ins."""
    return {entry.target.partition(":")[0] for _, entry in plugin_entries() if entry.target} | set(plugins)


def origins(parts: Mapping[str, tuple[str, PluginEntry]]) -> dict[str, dict[str, Any]]:
    """Return what a result says of code from outside, by setting.

    That is its title, where it is from, whether a file can name it, and which code it was (`source_hash`). Data need
    no such hash: they have a checksum.
    """
    plain = {}
    for setting, (_, entry) in parts.items():
        module = entry.target.partition(":")[0] or entry.plugin
        code = None if entry.group == "data" else source_hash(entry.original(), module)
        origin = entry.target or entry.plugin or None
        plain[setting] = {"title": entry.title, "from": origin, "again": entry.portable, "code": code}
    return plain


def code_hashes(origins: Mapping[str, Mapping[str, Any]]) -> dict[str, str]:
    """Return the known hashes of code by setting, of what `origins` gave.

    >>> code_hashes({"method": {"title": "Mine", "code": "12ab"}, "data": {"title": "Data", "code": None}})
    {'method': '12ab'}
    """
    return {setting: plugin["code"] for setting, plugin in origins.items() if plugin.get("code")}


def source_hash(obj: Any, module: str = "") -> str | None:
    """Hash the code that a class, function or object is of, to tell runs before an edit from those after it.

    That is every Python file of its package, or those beside a module without a package; None where no file has it. Of
    an object it is the code of its class, and of the `module` that made it.
    """
    is_object = not hasattr(obj, "__qualname__")
    while isinstance(obj, partial):
        obj = obj.func
    kind = obj if hasattr(obj, "__qualname__") else type(obj)
    hashes = [module_hash(name) for name in (kind.__module__ or "", *([module] if is_object else []))]
    known = [value for value in hashes if value is not None]
    return json_hash(known, 12) if known else None


def module_hash(name: str) -> str | None:
    """Hash the files of a module's package, or of its folder; for an imported module as they were at the first call.

    What was imported stays as it is in this process, whatever becomes of its file, unless it is imported anew.
    """
    module, package = sys.modules.get(name), name.partition(".")[0]
    file = getattr(module, "__file__", None)
    if package in VERSIONED or not isinstance(file, str) or not file.endswith(".py"):
        return None
    spec = getattr(module, "__spec__", None)
    if name not in _hashes or _hashes[name][0] is not spec:
        folders = [Path(folder) for folder in getattr(sys.modules.get(package), "__path__", ())]
        paths = [path for folder in folders for path in folder.rglob("*.py")] or Path(file).parent.glob("*.py")
        digest = hashlib.blake2b()
        for path in sorted(paths):
            digest.update(f"{path.name}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
        _hashes[name] = spec, digest.hexdigest()
    return _hashes[name][1]
