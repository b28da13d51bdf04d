"""Tutorials: scripts in `docs/tutorials` become notebooks, are run as such, and become pages with what they showed.

    python tools/site/executed.py [NAME…]

A script is Python as it is; `# %%` begins a cell, `# %% [markdown]` one of words, and `# alt:` says what a cell's
picture shows. Results go to `build/tutorials`: NAME.ipynb with its outputs, NAME.md and the pictures. `make docs` does
this before it builds the site.
"""

import base64
import html
import json
import posixpath
import re
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MADE = "build/tutorials"
FIRST_LINE = (
    "*This page is a* {{download}}`script <{name}.py>` *and a* {{download}}`notebook <{name}.ipynb>`*. "
    "What is below was made by running it, in {seconds:.0f} s. "
    "A notebook shows what a cell ends with; in a script, print it.*"
)


def cells(script: str) -> list[tuple[str, str]]:
    r"""Return the script's cells: 'markdown' or 'code', and the text.

    >>> cells("# %% [markdown]\n# # A\n#\n# b\n\n# %%\nprint(1)\n")
    [('markdown', '# A\n\nb'), ('code', 'print(1)')]
    """
    cells = []
    for kind, text in re.findall(r"^# %%( \[markdown\])?\n(.*?)(?=^# %%|\Z)", script, re.S | re.M):
        words = "\n".join(re.sub(r"^# ?", "", line) for line in text.splitlines()) if kind else text
        cells.append(("markdown" if kind else "code", words.strip()))
    return cells


def notebook(script: str) -> dict[str, Any]:
    """Return the script as a notebook without outputs, as the file format 4.5 has it."""
    made: list[dict[str, Any]] = []
    for number, (kind, text) in enumerate(cells(script)):
        made.append({"id": f"cell-{number}", "cell_type": kind, "metadata": {}, "source": text})
        if kind == "code":
            made[-1] |= {"outputs": [], "execution_count": None}
    spec = {"name": "python3", "display_name": "Python 3", "language": "python"}
    metadata = {"kernelspec": spec, "language_info": {"name": "python"}}
    return {"nbformat": 4, "nbformat_minor": 5, "metadata": metadata, "cells": made}


def run(script: Path, out: Path) -> None:
    """Run a script as a notebook in an empty folder, and write notebook, page and pictures to `out`."""
    import nbformat
    from nbclient import NotebookClient

    book = nbformat.from_dict(notebook(script.read_text()))  # type: ignore[no-untyped-call]
    started = time.monotonic()
    with tempfile.TemporaryDirectory() as place:
        client = NotebookClient(book, kernel_name="python3", timeout=300, resources={"metadata": {"path": place}})
        client.extra_arguments = ["--log-level=ERROR"]  # the kernel is on this machine alone
        client.execute()
    seconds = time.monotonic() - started
    out.mkdir(parents=True, exist_ok=True)
    (out / f"{script.stem}.ipynb").write_text(json.dumps(book, indent=1, ensure_ascii=False) + "\n")
    text, pictures = page(book, script.stem, seconds)
    (out / f"{script.stem}.md").write_text(text)
    for name, picture in pictures.items():
        (out / name).write_bytes(picture)
    (out / f"{script.stem}.py").write_text(script.read_text())


def page(book: Any, name: str, seconds: float) -> tuple[str, dict[str, bytes]]:
    """Return an executed notebook as Markdown, and its pictures by file name."""
    parts, pictures = [], {}
    for cell in book["cells"]:
        if cell["cell_type"] == "markdown":
            parts.append(cell["source"])
            continue
        code = re.sub(r"^# alt: .+\n", "", cell["source"], flags=re.M)  # said by the picture itself
        parts.append(f"```python\n{code}\n```")
        shown = []
        for output in cell["outputs"]:
            data = output.get("data", {})
            if output["output_type"] == "stream":
                shown.append(_plain(output["text"]))
            elif "image/png" in data:
                file = f"{name}-{len(pictures) + 1}.png"
                pictures[file] = base64.b64decode(data["image/png"])
                told = re.search(r"^# alt: (.+)$", cell["source"], re.M)
                shown.append(f"\n\n![{told[1] if told else 'Made by the code above'}]({file})\n\n")
            elif "text/html" in data:
                shown.append("".join(data["text/html"].splitlines()))
            elif "text/plain" in data:
                shown.append(_plain(data["text/plain"]))
        if shown:
            parts.append('<div class="output">' + "".join(shown) + "\n</div>")
    title, rest = parts[0].split("\n", 1)
    first = FIRST_LINE.format(name=name, seconds=seconds)
    return "\n\n".join([title, first, rest.strip(), *parts[1:]]) + "\n", pictures


def _plain(text: str) -> str:
    lines = html.escape(text.rstrip()).replace("\n", "&#10;")  # in one line, so that Markdown leaves it alone
    return f"<pre><code>{lines}</code></pre>"


def without_links(text: str) -> str:
    """Return a script or notebook to be downloaded: links within the site, dead there, say which file is meant.

    >>> without_links("See [statistics](../explanation/statistics.md#p), or [a service](service.md).")
    'See statistics (docs/explanation/statistics.md), or a service (docs/tutorials/service.py).'
    """

    def named(match: re.Match[str]) -> str:
        words, link = match.groups()
        page = re.sub(r"^(\w+)\.md$", r"\1.py", link)  # a page of this folder is another tutorial
        return f"{words} ({posixpath.normpath(f'docs/tutorials/{page}')})"

    return re.sub(r"\[([^\[\]]+)\]\(((?:\.\./|\w)[\w./-]*\.(?:md|py))(?:#[\w-]+)?\)", named, text)


def pages(root: Path) -> dict[str, Any]:
    """For the site: path by content of all that `run` has written."""
    made, scripts = root / MADE, sorted((root / "docs/tutorials").glob("*.py"))
    late = [s.name for s in scripts if not (made / s.name).is_file() or (made / s.name).read_text() != s.read_text()]
    if late:
        raise RuntimeError(f"{', '.join(late)}: not run since it was changed. `make docs` does both.")
    names = "|".join(script.stem for script in scripts)
    files = [path for path in sorted(made.iterdir()) if re.fullmatch(rf"({names})(-\d+)?\.\w+", path.name)]
    return {f"tutorials/{path.name}": _content(path) for path in files}


def _content(path: Path) -> str | bytes:
    if path.suffix == ".png":
        return path.read_bytes()
    return path.read_text() if path.suffix == ".md" else without_links(path.read_text())


if __name__ == "__main__":
    root = Path(__file__).resolve().parents[2]
    for tutorial in sorted((root / "docs/tutorials").glob("*.py")):
        if tutorial.stem in sys.argv[1:] or not sys.argv[1:]:
            begun = time.monotonic()
            run(tutorial, root / MADE)
            print(f"{tutorial.name}: {time.monotonic() - begun:.0f} s", flush=True)
