"""Count modules, lines, code lines (without docstrings, comments and blanks) and the longest functions, by room.

python tools/measure_code.py [SRC]
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections import Counter
from pathlib import Path

SCIENCE = {"rows", "memory", "methods", "selection", "nets", "core/rows.py", "core/store.py"}
"""Rooms and modules of the science: what is stored, learned and chosen."""
CONFIGURATION = {"memory/settings.py"}
"""Modules of those rooms that are not."""
SILENT = {tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER}


def code_lines(text: str) -> int:
    """Lines that hold code."""
    strings = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant) and isinstance(node.value.value, str):
            strings.update(range(node.lineno, (node.end_lineno or node.lineno) + 1))
    lines = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in SILENT:
            lines.update(range(token.start[0], token.end[0] + 1))
    return len(lines - strings)


def longest(text: str) -> tuple[int, str]:
    """Lines and name of the longest function, its signature and docstring included."""
    found = [
        ((node.end_lineno or 0) - node.lineno + 1, node.name)
        for node in ast.walk(ast.parse(text))
        if isinstance(node, ast.FunctionDef)
    ]
    return max(found, default=(0, ""))


def main() -> None:
    """Print the table."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else "src/odedm")
    modules: Counter[str] = Counter()
    lines: Counter[str] = Counter()
    code: Counter[str] = Counter()
    functions, names = [], Counter(path.stem for path in root.rglob("*.py") if path.stem != "__init__")
    sizes = []
    for path in sorted(root.rglob("*.py")):
        text, parts = path.read_text(), path.relative_to(root).parts
        room = parts[0] if len(parts) > 1 else "(root)"
        modules[room] += path.stem != "__init__"
        lines[room] += text.count("\n")
        code[room] += code_lines(text)
        here = "/".join(parts)
        if SCIENCE & {parts[0].removesuffix(".py"), here} and here not in CONFIGURATION:
            code["= science"] += code_lines(text)
        functions.append((*longest(text), str(path.relative_to(root))))
        sizes.append((text.count("\n"), str(path.relative_to(root))))
    rooms = sorted(modules)
    for room in rooms:
        print(f"{room:<16} {modules[room]:>4} modules {lines[room]:>6} lines {code[room]:>6} code")
    total = sum(code[room] for room in rooms)
    print(f"{'all':<16} {sum(modules.values()):>4} modules {sum(lines.values()):>6} lines {total:>6} code")
    print(f"science {code['= science']} code, outside it {total - code['= science']}")
    print("longest functions:", ", ".join(f"{name} {size} ({path})" for size, name, path in sorted(functions)[-3:]))
    print("longest modules:", ", ".join(f"{path} {size}" for size, path in sorted(sizes)[-3:]))
    print("names twice:", sorted(name for name, number in names.items() if number > 1))


if __name__ == "__main__":
    main()
