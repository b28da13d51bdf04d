"""No child of this package imports a module that lies in the current folder, beside someone's data."""

import ast
from pathlib import Path

import pytest

import odedm
from odedm.core.processes import start_program

ROOT = Path(odedm.__file__).parents[2]
FILES = [path for room in ("src", "tools", "benchmarks") for path in sorted((ROOT / room).rglob("*.py"))]
STARTS = {path: text for path in FILES if "sys.executable" in (text := path.read_text()) or "get_context(" in text}


@pytest.mark.parametrize("module", ["json", "signal", "typer", "rich"])
def test_a_program_runs_nothing_of_the_folder_it_is_started_in(module, tmp_path, monkeypatch):
    (tmp_path / f"{module}.py").write_text("open('ran', 'w')\nraise SystemExit('foreign code')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f":.:{tmp_path}")
    program = start_program("odedm", "--version")
    answer, _ = program.communicate(timeout=60)
    assert (program.returncode, odedm.__version__ in answer.decode()) == (0, True)
    assert not (tmp_path / "ran").exists()


@pytest.mark.parametrize("path", STARTS, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_python_is_started_safely(path):
    for node in ast.walk(ast.parse(STARTS[path])):
        if isinstance(node, ast.List | ast.Tuple) and node.elts and ast.unparse(node.elts[0]) == "sys.executable":
            assert ast.unparse(node.elts[1]) == "'-P'", f"line {node.lineno}: the current folder comes first without it"
    if "get_context(" in STARTS[path]:
        assert "safe_environment()" in STARTS[path]
    if path.is_relative_to(ROOT / "src") and path.name != "processes.py":
        raise AssertionError("children are started by odedm.core.processes alone")
