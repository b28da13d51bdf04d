"""A fingerprint of code from outside, by which a run made before an edit is told from one made after it."""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any

from odedm.core.plain_data import text_fingerprint

MOST_BYTES = 4 << 20
"""A larger file of code is not read."""

VERSIONED = ("odedm", "torch")
"""Packages whose versions a result names."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


def source_mark(thing: Any) -> str | None:
    """A fingerprint of what computes in a class or function, or in an object's class; None where no file has its code.

    Counted are its own code, that of the functions and classes of its module that it uses, directly or not, all other
    statements of the module, and the modules of the same package that these import. Comments, docstrings, layout and
    calls of `register` do not count.
    """
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    module = sys.modules.get(str(getattr(kind, "__module__", "")))
    if module is None or module.__name__.partition(".")[0] in VERSIONED:
        return None
    return _mark(module, str(kind.__qualname__).partition(".")[0])


@cache  # what was imported stays as it is in this process, whatever becomes of its file
def _mark(home: ModuleType, name: str) -> str | None:
    module = home.__name__
    file = _file(module)
    tree = None if file is None else _tree(file)
    if file is None or tree is None:
        return None
    used = _used(tree, name)
    texts = [ast.unparse(node) for node in used]
    if not is_installed(file):
        texts += [f"{file.name}\n{file.read_bytes()!r}" for file in sorted(_imported(used, module))]
    return text_fingerprint(texts, 12)


def _file(module: str) -> Path | None:
    """The Python file of a module that is imported."""
    found = getattr(sys.modules.get(module), "__file__", None)
    path = Path(found) if isinstance(found, str) and found.endswith(".py") else None
    return path if path is not None and path.is_file() and path.stat().st_size <= MOST_BYTES else None


def _tree(file: Path) -> ast.Module | None:
    try:
        return ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):  # edited since, and not whole
        return None


def is_installed(file: Path) -> bool:
    """Whether a file is one of Python's own or of an installed package, which nobody edits."""
    places = (sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib"))
    return any(file.resolve().is_relative_to(Path(place).resolve()) for place in places)


def _used(tree: ast.Module, name: str) -> list[ast.stmt]:
    """The statements of a module that a name's code depends on, in their order; all where the name is not defined."""
    found = {node.name: node for node in tree.body if isinstance(node, Definition)}
    others = [node for node in tree.body if not isinstance(node, Definition) and not _says_nothing(node)]
    wanted, reached = [name, *_names(others)], set[str]()
    while wanted:
        own = wanted.pop()
        if own in found and own not in reached:
            reached.add(own)
            wanted += _names([found[own]])
    if name not in found:
        reached = set(found)
    return [
        _without_docstrings(node) if isinstance(node, Definition) else node
        for node in tree.body
        if node in others or (isinstance(node, Definition) and node.name in reached)
    ]


def _names(nodes: Iterable[ast.stmt]) -> list[str]:
    return [each.id for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name)]


def _says_nothing(node: ast.stmt) -> bool:
    """Whether a statement is a docstring, gives code a name, or is for a script alone."""
    if isinstance(node, ast.If):
        return "__name__" in _names([ast.Expr(node.test)])
    if not isinstance(node, ast.Expr):
        return False
    call = node.value.func if isinstance(node.value, ast.Call) else None
    called = call.attr if isinstance(call, ast.Attribute) else call.id if isinstance(call, ast.Name) else ""
    return isinstance(node.value, ast.Constant) or called == "register"


def _without_docstrings(node: Definition) -> Definition:
    for each in ast.walk(node):
        if isinstance(each, Definition):
            each.body = [line for line in each.body if not _is_text(line)] or [ast.Pass()]
    return node


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


def _imported(nodes: Iterable[ast.stmt], module: str) -> set[Path]:
    """The files of the same package that statements of a module import, with what these import in turn."""
    found: set[Path] = set()
    top = module.partition(".")[0]
    waiting = list(_modules(nodes, module))
    while waiting:
        name = waiting.pop()
        file = _file(name) if name.partition(".")[0] == top else None
        if file is not None and file not in found:
            found.add(file)
            tree = _tree(file)
            waiting += _modules([] if tree is None else tree.body, name)
    return found


def _modules(nodes: Iterable[ast.stmt], module: str) -> Iterator[str]:
    """The modules that statements of a module import, by their full names, and what might be one."""
    package = str(getattr(sys.modules.get(module), "__package__", None) or "").split(".")
    for node in nodes:
        for each in ast.walk(node):
            if isinstance(each, ast.Import):
                yield from (alias.name for alias in each.names)
            elif isinstance(each, ast.ImportFrom):
                above = package[: len(package) + 1 - each.level] if each.level else []
                base = ".".join([*above, *([each.module] if each.module else [])])
                yield base
                yield from (f"{base}.{alias.name}" for alias in each.names)
