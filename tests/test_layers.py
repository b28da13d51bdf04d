"""Who may import whom: the folder tree's promise, read from the imports themselves."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import odedm

ROOT = Path(odedm.__file__).parent
LAYERS = (
    {"core"},
    {"nets", "stream", "consolidate", "checkpoint"},
    {"data", "memory", "methods"},
    {"results"},
    {"training"},
    {"execute"},
    {"study", "recipes"},
    {"report"},
    {"cli"},
)
"""Rooms from the ground up: each may use those below its own layer, and of its own layer none but itself."""
BESIDE = {"methods": {"nets"}, "memory": {"consolidate"}, "data": {"stream"}}
"""Rooms of the science know of those below them only what they need."""
ALLOWED = {
    room: set().union({"core"}, BESIDE[room]) if room in BESIDE else set().union(*LAYERS[:height])
    for height, layer in enumerate(LAYERS)
    for room in layer
}
ALLOWED |= {"__init__": set().union(*LAYERS), "__main__": {"cli"}}
LIGHT = {"torch", "numpy", "safetensors", "typer", "rich", "jinja2", "markupsafe"}  # markupsafe is half of jinja2
OPTIONAL = {"sklearn": {"data/builtin.py"}, "matplotlib": {"report/figures/style.py"}}
OPTIONAL |= {
    "PIL": {"data/images.py"},
    "datasets": {"data/huggingface.py"},
    "triton": {
        "nets/grouped_batch_norm_triton.py",
        "consolidate/kmeans_triton.py",
        "consolidate/sinkhorn/solver_triton.py",
    },
}
OPTIONAL |= {"ray": {"execute/ray_engine.py"}, "pandas": {"report/notebook.py"}}


def imports(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{path}: imports are absolute"
            if node.module == "odedm":
                yield from (f"odedm.{alias.name}" for alias in node.names)
            else:
                yield node.module


def room(path):
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


FILES = sorted(ROOT.rglob("*.py"))


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_every_module_imports_only_what_its_room_may(path):
    own = room(path)
    assert own in ALLOWED, f"say in this test what {own} may import"
    for name in imports(path):
        top, *rest = name.split(".")
        if top == "odedm":
            assert rest[0] in ALLOWED[own] | {own}, f"{own} must not import odedm.{rest[0]}"
        elif top in OPTIONAL:
            assert str(path.relative_to(ROOT)) in OPTIONAL[top], f"{top} is optional: import it elsewhere"
        else:
            assert top in LIGHT or top in sys.stdlib_module_names, f"{top} is not a dependency"


def test_memory_and_methods_never_import_each_other():
    assert "methods" not in ALLOWED["memory"]
    assert "memory" not in ALLOWED["methods"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_loaded_with_pickle(path):
    text = path.read_text()
    for word in ("import pickle", "torch.load", "allow_pickle=True", "eval(", "exec("):
        assert word not in text.replace(".eval(", "").replace("def eval(", ""), word


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_help_and_plans_need_no_torch():
    code = "import sys, odedm, odedm.cli.app, odedm.recipes.demo; print('torch' in sys.modules)"
    assert run_python(code) == "False"


def test_the_library_needs_nothing_optional():
    code = (
        "import sys\n"
        "for name in ('matplotlib', 'sklearn', 'scipy', 'PIL', 'ot', 'torchvision'): sys.modules[name] = None\n"
        "import odedm\n"
        "odedm.train('blobs', memory=odedm.ODEDM(20, k=1))\n"
        "print('ran')"
    )
    assert run_python(code) == "ran"


def test_public_names_are_there_and_listed():
    for name in odedm.__all__:
        assert getattr(odedm, name) is not None
    assert dir(odedm) == sorted(odedm.__all__)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        _ = odedm.nonsense
