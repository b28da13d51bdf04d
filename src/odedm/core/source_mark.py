"""A fingerprint of code from outside, by which a run made before an edit is told from one made after it."""

from __future__ import annotations

import ast
import sys
import sysconfig
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from operator import itemgetter
from pathlib import Path
from types import ModuleType
from typing import Any, TypeGuard

from odedm.core.plain_data import text_fingerprint

MOST_BYTES = 4 << 20
"""A larger file of code is not read."""

VERSIONED = ("odedm", "torch")
"""Packages whose versions a result names."""

QUIET = ("dataclass", "final", "runtime_checkable", "total_ordering")
"""Decorators that keep nothing of what they are given."""

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef

_remembered: dict[str, tuple[object, bytes | None]] = {}
"""Of modules by name the source that they had when it was first asked for, and the import that this was of."""


def source_mark(thing: Any, home: str = "") -> str | None:
    """A fingerprint of what computes in a class or function; None where no file has its code.

    Counted are its own code, that of the functions and classes of its module that it uses, directly or not, all other
    statements of the module, decorated functions among them, and the modules of the same package that these import.
    Comments, docstrings, layout and calls of `register` that only name something do not count. Of an object it is that
    of its class, and of all of the module `home` that made it.
    """
    is_object = not hasattr(thing, "__qualname__")
    while isinstance(thing, partial):
        thing = thing.func
    kind = thing if hasattr(thing, "__qualname__") else type(thing)
    marks = [_mark(str(getattr(kind, "__module__", "")), str(kind.__qualname__).partition(".")[0])]
    if home and is_object:
        marks.append(_mark(home, ""))
    known = [mark for mark in marks if mark is not None]
    return known[0] if len(known) == 1 else text_fingerprint(known, 12) if known else None


def remember(module: str) -> bytes | None:
    """The source of a module as it was when it was imported, if this is called soon after; None where no file has it.

    What was imported stays as it is in this process, whatever becomes of its file; unless it is imported anew.
    """
    spec = getattr(sys.modules.get(module), "__spec__", None)
    if module not in _remembered or _remembered[module][0] is not spec:
        file = _file(sys.modules.get(module))
        _remembered[module] = (spec, None if file is None else file.read_bytes())
    return _remembered[module][1]


def is_installed(file: Path) -> bool:
    """Whether a file is one of Python's own or of an installed package, which nobody edits."""
    return any(file.resolve().is_relative_to(place) for place in _places("stdlib", "platstdlib", "purelib", "platlib"))


def _places(*names: str) -> list[Path]:
    return [Path(sysconfig.get_path(name)).resolve() for name in names]


def _is_pythons(file: Path) -> bool:
    """Whether a file is of Python's own library."""
    return is_installed(file) and not any(file.resolve().is_relative_to(each) for each in _places("purelib", "platlib"))


def _mark(module: str, name: str) -> str | None:
    """That of a name's code in a module, or of all of it where it has no such name."""
    file = _file(sys.modules.get(module))
    if file is None or module.partition(".")[0] in VERSIONED or _is_pythons(file):
        return None
    source = remember(module)
    tree = _tree(source)
    if source is None or tree is None:
        return None
    used = _used(tree, name)
    texts = [_text(used, source)]
    if not is_installed(file):
        others = sorted(_imported(used, module), key=itemgetter(0))
        texts += [_text(_used(tree, ""), source) for _, tree, source in others]
    return text_fingerprint(texts, 12)


def _text(nodes: Sequence[ast.stmt], source: bytes) -> str:
    """Statements without layout and comments; all of a source that has expressions too deep for that."""
    try:
        return "\n".join(ast.unparse(node) for node in nodes)
    except RecursionError:
        return repr(source)


def _file(module: ModuleType | None) -> Path | None:
    """The Python file of a module that is imported."""
    found = getattr(module, "__file__", None)
    path = Path(found) if isinstance(found, str) and found.endswith(".py") else None
    return path if path is not None and path.is_file() and path.stat().st_size <= MOST_BYTES else None


def _tree(source: bytes | None) -> ast.Module | None:
    try:
        return None if source is None else ast.parse(source)
    except (SyntaxError, ValueError, RecursionError, MemoryError):  # edited since, and not whole
        return None


def _used(tree: ast.Module, name: str) -> list[ast.stmt]:
    """The statements of a module that a name's code depends on, in their order; all where the name is not defined."""
    found = {node.name: node for node in tree.body if isinstance(node, Definition)}
    others = [node for node in tree.body if not isinstance(node, Definition) and not _says_nothing(node)]
    wanted = [name, *_names(others), *(node.name for node in tree.body if _acts(node))]
    reached = set[str]() if name in found else set(found)
    while wanted:
        own = wanted.pop()
        if own in found and own not in reached:
            reached.add(own)
            wanted += _names([found[own]])
    return [
        _without_docstrings(node) if isinstance(node, Definition) else node
        for node in tree.body
        if node in others or (isinstance(node, Definition) and (node.name in reached or _acts(node)))
    ]


def _acts(node: ast.stmt) -> TypeGuard[Definition]:
    """Whether a definition does something as it is made: by a decorator that may keep it, unlike `dataclass`."""
    if not isinstance(node, Definition):
        return False
    kinds = [each.func if isinstance(each, ast.Call) else each for each in node.decorator_list]
    names = [each.attr if isinstance(each, ast.Attribute) else getattr(each, "id", "") for each in kinds]
    return any(name not in QUIET for name in names)


def _names(nodes: Iterable[ast.stmt]) -> list[str]:
    return [each.id for node in nodes for each in ast.walk(node) if isinstance(each, ast.Name)]


def _says_nothing(node: ast.stmt) -> bool:
    """Whether a statement is a docstring, gives code that stands elsewhere a name, or is for a script alone."""
    if isinstance(node, ast.If):
        return "__name__" in _names([ast.Expr(node.test)])
    if not isinstance(node, ast.Expr):
        return False
    if not isinstance(node.value, ast.Call):
        return isinstance(node.value, ast.Constant)
    call, given = node.value.func, [*node.value.args, *(each.value for each in node.value.keywords)]
    called = call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "")
    return called == "register" and all(isinstance(each, ast.Constant | ast.Name | ast.Attribute) for each in given)


def _without_docstrings(node: Definition) -> Definition:
    for each in ast.walk(node):
        if isinstance(each, Definition):
            each.body = [line for line in each.body if not _is_text(line)] or [ast.Pass()]
    return node


def _is_text(line: ast.stmt) -> bool:
    return isinstance(line, ast.Expr) and isinstance(line.value, ast.Constant) and isinstance(line.value.value, str)


def _imported(nodes: Iterable[ast.stmt], module: str) -> Iterator[tuple[str, ast.Module, bytes]]:
    """The modules of the same package that statements of a module import, with what these import in turn."""
    top, seen = module.partition(".")[0], {module}
    waiting = list(_modules(nodes, module))
    while waiting:
        name = waiting.pop()
        if name in seen or name.partition(".")[0] != top:
            continue
        seen.add(name)
        source = remember(name)
        tree = _tree(source)
        if source is not None and tree is not None:
            yield name, tree, source
            waiting += _modules(tree.body, name)


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
