"""Who may import whom: the folder tree's promise, read from the imports themselves."""

import ast
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import pytest

import odedm

ROOT = Path(odedm.__file__).parent
LAYERS = (
    {"core"},
    {"nets", "stream", "selection", "checkpoint"},
    {"data", "memory", "methods"},
    {"results"},
    {"training"},
    {"execute", "learner", "integrations"},
    {"studies", "recipes", "testing"},
    {"report"},
    {"paper"},
    {"cli"},
)
"""Rooms from the ground up: each may use those below its own layer, and of its own layer none but itself."""
BESIDE = {"methods": {"nets"}, "memory": {"selection"}, "data": {"stream"}, "integrations": {"memory", "stream"}}
"""Rooms of the science know of those below them only what they need."""
ALLOWED = {
    room: set().union({"core"}, BESIDE[room]) if room in BESIDE else set().union(*LAYERS[:height])
    for height, layer in enumerate(LAYERS)
    for room in layer
}
ALLOWED |= {"__init__": set().union(*LAYERS), "__main__": {"cli"}}
LIGHT = {
    "torch",
    "numpy",
    "safetensors",
    "filelock",
    "typer",
    "rich",
    "jinja2",
    "markupsafe",
}  # markupsafe is half of jinja2
OPTIONAL = {"sklearn": {"data/builtin.py", "learner/estimator.py"}}
OPTIONAL |= {"matplotlib": {"report/figures/style.py", "learner/prequential.py"}}
OPTIONAL |= {
    "PIL": {"data/images.py"},
    "triton": {
        "nets/grouped_batch_norm_triton.py",
        "nets/second_derivatives_triton.py",
        "selection/sinkhorn/solver_triton.py",
        "methods/row_squares_triton.py",
        "memory/purity_triton.py",
    },
}
OPTIONAL |= {"sentence_transformers": {"training/embedder.py"}}
OPTIONAL |= {"avalanche": {"integrations/avalanche.py"}, "utils": {"integrations/mammoth.py"}}  # Mammoth's utils
OPTIONAL |= {"pyarrow": {"data/parquet.py"}}
OPTIONAL |= {"wandb": {"training/loggers.py"}, "ray": {"execute/ray_connection.py"}, "pandas": {"report/notebook.py"}}


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


def modules():
    """Every module by its dotted name."""
    return {".".join(path.relative_to(ROOT).with_suffix("").parts): path for path in FILES}


def test_nothing_lies_loose_at_the_root():
    assert {path.name for path in ROOT.iterdir() if path.is_file()} == {"__init__.py", "__main__.py", "py.typed"}


def test_no_module_name_is_there_twice():
    names = Counter(path.stem for path in FILES if path.stem not in ("__init__", "base"))
    assert [name for name, number in names.items() if number > 1] == []


def test_no_public_class_name_is_there_twice():
    """But for the settings of distances, which are called as what they make: they are read without torch."""
    found = Counter()
    for path in FILES:
        if path.name != "prototype_settings.py":
            tree = ast.parse(path.read_text())
            found.update(node.name for node in tree.body if isinstance(node, ast.ClassDef) and node.name[0] != "_")
    assert [name for name, number in found.items() if number > 1] == []


def test_no_module_is_longer_than_a_few_screens():
    assert [str(path.relative_to(ROOT)) for path in FILES if len(path.read_text().splitlines()) > 350] == []


def test_imports_have_no_cycle_not_even_a_late_one():
    """Late imports keep torch out of plans and help; they are no way around the layers, nor around each other."""
    known = modules()
    edges = {name: set() for name in known}
    for name, path in known.items():
        tree = ast.parse(path.read_text())
        checks = [
            node for node in ast.walk(tree) if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.unparse(node.test)
        ]
        typed = {id(each) for node in checks for each in ast.walk(node)}
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and id(node) not in typed and (node.module or "").startswith("odedm."):
                target = node.module.removeprefix("odedm.")
                for alias in node.names:
                    below = f"{target}.{alias.name}"
                    edges[name].add(below if below in known else target)
    done, path = set(), []

    def visit(name):
        if name in path:
            raise AssertionError(" -> ".join([*path[path.index(name) :], name]))
        if name in done or name not in edges:
            return
        path.append(name)
        for each in sorted(edges[name]):
            visit(each)
        path.pop()
        done.add(name)

    for name in known:
        visit(name)


def test_memory_and_methods_never_import_each_other():
    assert "methods" not in ALLOWED["memory"]
    assert "memory" not in ALLOWED["methods"]


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(ROOT)))
def test_nothing_is_loaded_with_pickle(path):
    text = path.read_text()
    for word in ("import pickle", "torch.load", "allow_pickle=True"):
        assert word not in text, word
    assert not re.search(r"(?<![\w.])(?<!def )(?:eval|exec)\(", text), "not Retrieval(, nor net.eval("


def run_python(code):
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.strip()


def test_help_and_plans_need_no_torch():
    code = "import sys, odedm, odedm.cli.app, odedm.recipes.demo; print('torch' in sys.modules)"
    assert run_python(code) == "False"


def test_what_is_for_terminals_and_pages_is_imported_where_it_is_used():
    late = ("torch", "typer", "rich", "jinja2", "PIL", "matplotlib", "pandas", "sklearn")
    code = f"import sys, odedm; print([name for name in {late} if name in sys.modules])"
    assert run_python(code) == "[]"
    later = ("typer", "jinja2", "PIL", "matplotlib", "pandas", "sklearn", "torch._dynamo")  # the last takes seconds
    look = f"print([name for name in {later} if name in sys.modules])"
    code = f"import sys, odedm; odedm.train('blobs', method='er'); {look}"
    assert run_python(code) == "[]"


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
