"""No child of this package imports a module that lies in the current folder, beside someone's data."""

import ast
from pathlib import Path

import pytest
from PIL import Image

import odedm
from odedm.data import image_workers
from odedm.data.importer import import_as

ROOT = Path(odedm.__file__).parents[2]
FILES = [path for room in ("src", "tools", "benchmarks") for path in sorted((ROOT / room).rglob("*.py"))]
STARTS = {path: text for path in FILES if "sys.executable" in (text := path.read_text()) or "get_context(" in text}


@pytest.mark.parametrize("module", ["json", "multiprocessing", "signal", "numpy", "PIL"])
def test_an_import_runs_nothing_of_the_folder_it_is_started_in(module, tmp_path, monkeypatch):
    for part in ("train", "test"):
        for name in "ab":
            (tmp_path / part / name).mkdir(parents=True)
            for row in range(3):
                Image.new("RGB", (4, 4)).save(tmp_path / part / name / f"{row}.png")
    (tmp_path / f"{module}.py").write_text("open('ran', 'w')\nraise SystemExit('foreign code')")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PYTHONPATH", f":.:{tmp_path}")
    monkeypatch.setenv("ODEDM_DATA", str(tmp_path / "cache"))
    monkeypatch.setattr(image_workers, "FEW", 0)
    monkeypatch.setattr(image_workers, "CHUNK_PICTURES", 3)
    monkeypatch.setattr(image_workers, "cores", lambda: 2)
    assert import_as(Path(), "mine").rows == (6, 6)
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
