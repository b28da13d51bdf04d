"""The tutorials run as scripts, with few seeds and rows; as notebooks they run when the site is built."""

import importlib.util
import re
import sys
from dataclasses import replace
from pathlib import Path

import pytest

import odedm
from odedm.data.opening import load_dataset
from odedm.stream.scenarios import first_rows

ROOT = Path(__file__).parent.parent
SMALL = {
    "SEEDS = 3": "SEEDS = 1",
    "SEEDS = 5": "SEEDS = 1",
    "BATCHES = 900": "BATCHES = 130",
    "3000, seed=1": "64, seed=1",
}
SAID = {
    "compare": "\\begin{table}",
    "service": "the same to the last bit: True",
    "own_loop": "the same rows: True",
    "language_model": "ratio 0.5: loss on sums",
}

pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="only in a checkout")


def tool(name):
    """A module of `tools`, which is no package."""
    spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / "tools" / name)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def few_rows(data):
    """The data set with 24 training and 10 test rows of each class."""
    some, tested = first_rows(data.label, 24), first_rows(data.test_label, 10)
    rows = {"image": data.image[some], "label": data.label[some]}
    return replace(data, **rows, test_image=data.test_image[tested], test_label=data.test_label[tested])


@pytest.mark.parametrize("name", sorted(SAID))
def test_it_runs_as_a_script(name, tmp_path, monkeypatch, capsys):
    pytest.importorskip("matplotlib").use("agg")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(odedm, "load_dataset", lambda name: few_rows(load_dataset(name)), raising=False)
    monkeypatch.setattr("torch.set_num_threads", lambda number: None)  # which would hold for tests to come
    text = (ROOT / f"docs/tutorials/{name}.py").read_text()
    changed = text
    for large, small in SMALL.items():
        changed = changed.replace(large, small)
    assert changed != text
    exec(compile(changed, name, "exec"), {"__name__": "__main__"})
    sys.modules["matplotlib.pyplot"].close("all")
    assert SAID[name] in capsys.readouterr().out


def test_every_tutorial_is_tried_and_listed():
    scripts = {path.stem for path in (ROOT / "docs/tutorials").glob("*.py")}
    assert scripts == set(SAID)
    assert scripts == set(re.findall(r"\]\((\w+)\.py\)", (ROOT / "docs/tutorials/index.md").read_text()))


def test_a_script_becomes_a_notebook_and_a_page():
    executed = tool("site/executed.py")
    book = executed.notebook("# %% [markdown]\n# # Title\n#\n# Words.\n\n# %%\n1 < 2\n")
    assert [cell["cell_type"] for cell in book["cells"]] == ["markdown", "code"]
    book["cells"][1]["outputs"] = [
        {"output_type": "stream", "text": "a < b\n\nc"},
        {"output_type": "display_data", "data": {"image/png": "AAAA", "text/plain": "figure"}},
    ]
    page, pictures = executed.page(book, "one", 3.0)
    assert page.startswith("# Title\n\n*This page is a* {download}`script <one.py>`")
    assert "a &lt; b&#10;&#10;c" in page
    assert "\n\n![Made by the code above](one-1.png)\n\n" in page
    assert pictures == {"one-1.png": b"\0\0\0"}
    book["cells"][1]["source"] = "# alt: a line that rises\ndraw()"
    assert "![a line that rises](one-1.png)" in executed.page(book, "one", 3.0)[0]


def test_a_download_has_no_links_into_the_site():
    executed = tool("site/executed.py")
    for path in (ROOT / "docs/tutorials").glob("*.py"):
        text = executed.without_links(path.read_text())
        assert ".md)" in text
        assert not re.search(r"\]\((?!https?:)", text)
        named = re.findall(r"\((docs/[\w./-]+)\)", text)
        assert [file for file in named if not (ROOT / file).is_file()] == []
