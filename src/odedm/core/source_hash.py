"""A hash of a plug-in's code, by which a run made before an edit is told from one made after it."""

from __future__ import annotations

import hashlib
import sys
from functools import partial
from pathlib import Path
from typing import Any

from odedm.core.plain_data import json_hash

VERSIONED = {"odedm", "torch", *sys.stdlib_module_names}
"""Packages whose versions a result names."""

_hashes: dict[str, tuple[object, str]] = {}
"""The hash of a module's code as it was when it was first asked for, and the import that this was of."""


def source_hash(thing: Any, home: str = "") -> str | None:
    """Hash the code that a class, function or object is of; None where no file has it.

    That is every Python file of its package, or those beside a module without a package. Of an object it is the code
    of its class, and of the module `home` that made it.
    """
    is_object = not hasattr(thing, "__qualname__")
    while isinstance(thing, partial):
        thing = thing.func
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    modules = [kind.__module__ or "", *([home] if is_object else [])]
    hashes = [known for module in modules if (known := module_hash(module)) is not None]
    return json_hash(hashes, 12) if hashes else None


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
