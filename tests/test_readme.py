"""The README's Python runs as it stands, and its words and the code agree."""

import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PAGES = [
    "README.md",
    *(f"docs/how-to/{name}.md" for name in ("memory-alone", "learner", "python", "keep-model", "serving")),
]


@pytest.mark.parametrize("page", PAGES)
def test_python_in_the_pages_runs(page, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)  # a page may write a study
    blocks = re.findall(r"```python\n(.*?)```", (ROOT / page).read_text(), re.S)
    assert blocks
    together = {} if page.endswith("serving.md") else None  # its second block reads the first one's file
    for block in blocks:
        exec(compile(block, page, "exec"), {} if together is None else together)
    said = {
        "README.md": "ODEDM",
        "docs/how-to/memory-alone.md": "12 long-term",
        "docs/how-to/learner.md": "<Prequential: ",
        "docs/how-to/serving.md": "[0 1 2 3]\n[0 1 2 3]",
    }
    said["docs/how-to/python.md"] = "<Outcome of ER · ODEDM · λ=40 on 'blobs', seed 0: ACC_5"
    said["docs/how-to/keep-model.md"] = "<TrainedModel of ER · ODEDM · λ=40 on 'arrays', seed 0: ACC_2"
    assert said[page] in capsys.readouterr().out


def test_the_first_pages_table_is_what_its_lines_print(capsys):
    """Up to what another processor may change in the last digits of a training."""
    page = (ROOT / "docs/index.md").read_text()
    (lines,) = re.findall(r"```python\n(.*?)```", page, re.S)
    exec(compile(lines, "index.md", "exec"), {})
    printed = capsys.readouterr().out
    for memory in ("reservoir", "ODEDM"):
        said, found = (re.search(rf"\| ER · {memory} \| 5 \| ([\d.]+) ±", text)[1] for text in (page, printed))
        assert abs(float(said) - float(found)) < 1, memory


def test_the_policy_of_the_page_on_memories_is_sound(tmp_path, monkeypatch, capsys):
    from odedm.core.registry import POLICIES

    plugin, *others = re.findall(r"```python\n(.*?)```", (ROOT / "docs/how-to/own-memory.md").read_text(), re.S)
    (tmp_path / "hard.py").write_text(plugin)
    monkeypatch.syspath_prepend(tmp_path)
    before = [*POLICIES]
    try:
        for block in others:
            exec(compile(block, "own-memory.md", "exec"), {})
    finally:
        for name in [each for each in POLICIES if each not in before]:
            del POLICIES[name]
        sys.modules.pop("hard", None)
    said = capsys.readouterr().out
    assert "hard" in said
    assert "keeps its promises" in said
    assert re.search(r"from row [1-9]\d* on, prototypes have \[0\]", said)


def test_links_and_pictures_exist():
    for page in [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md")]:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page.name} points to {target}"


def test_every_method_has_its_page():
    from odedm.core.registry import METHODS

    missing = [name for name in METHODS if not (ROOT / "docs" / "methods" / f"{name}.md").is_file()]
    assert not missing
