"""Lays out the pages of the site in `build/site`, for Sphinx: those of `docs`, those made from code, the root's own.

    python tools/site/stage.py

Links between files of the checkout are led to where things are on the site; one to a file that is not there is an
error. Mermaid becomes SVG, for its own script would have to be fetched. Each section's `index.md` gets its contents
from NAVIGATION below.
"""

import posixpath
import re
import shutil
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import api_pages
import diagrams
import executed

ROOT = Path(__file__).resolve().parents[2]
STAGE = ROOT / "build/site"
MOVED = {
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "ARCHITECTURE.md": "architecture.md",
    "REPRODUCTION.md": "reproduction.md",
    "SECURITY.md": "security.md",
    "README.md": "index.md",
    "src/odedm/__init__.py": "api/index.md",
    **{f"docs/tutorials/{path.name}": f"tutorials/{path.stem}.md" for path in (ROOT / "docs/tutorials").glob("*.py")},
}
"""Where files of the checkout are on the site, if elsewhere; it has a front page of its own."""
NAVIGATION = {
    "index.md": "start/index tutorials/index how-to/index reference/index explanation/index glossary more",
    "start/index.md": "start/install start/five-minutes",
    "tutorials/index.md": "tutorials/compare tutorials/service tutorials/own_loop tutorials/language_model",
    "how-to/index.md": "how-to/command-line how-to/python how-to/data how-to/features how-to/streams how-to/nets "
    "how-to/plug-in how-to/own-memory consolidation how-to/optimizer how-to/ingredients how-to/studies how-to/tuning "
    "how-to/paper how-to/machines how-to/resume how-to/report how-to/keep-model how-to/learner "
    "how-to/serving how-to/memory-alone how-to/integrations how-to/cluster",
    "reference/index.md": "api/index reference reference/files methods/README",
    "explanation/index.md": "explanation/faq explanation/what-odedm-is explanation/numbers explanation/where-it-pays "
    "explanation/equal-tuning explanation/no-harm leaderboard explanation/demo explanation/statistics "
    "explanation/safety explanation/threat-model performance architecture reproduction",
    "more.md": "changelog contributing style security appendix/index",
}
"""The pages below each section's first, in order. Those of `methods` and `appendix` are all that there are."""
TITLES = {
    "reference.md": "Commands and settings",
    "methods/README.md": "Methods",
    "performance.md": "Performance",
    "reproduction.md": "This code and the paper",
    "consolidation.md": "How prototypes are chosen",
    "how-to/ingredients.md": "Recipes and ingredients",
    "how-to/python.md": "Use it from Python",
    "how-to/data.md": "Your own data",
    "how-to/features.md": "Features of a pretrained network",
    "how-to/streams.md": "Shape the stream",
    "how-to/studies.md": "Studies",
    "how-to/paper.md": "The paper",
    "explanation/demo.md": "What the demo shows",
    "explanation/safety.md": "Safety",
    "explanation/threat-model.md": "Threat model",
}
"""What menus call pages whose own titles are longer or say something else."""
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\]]*\]|!\[[^\]]*\]\([^)]*\))*)\]\(([^)\s]+)\)")


def stage() -> Path:
    """Lay out everything anew, and return where."""
    shutil.rmtree(STAGE, ignore_errors=True)
    pages = {
        path.relative_to(ROOT / "docs").as_posix(): path.read_text() for path in sorted((ROOT / "docs").rglob("*.md"))
    }
    homes = {page: f"docs/{page}" for page in pages}
    for name, page in MOVED.items():
        if "/" not in name and name != "README.md":
            pages[page], homes[page] = (ROOT / name).read_text(), name
    pages |= api_pages.pages()
    tutorials = executed.pages(ROOT)
    pages |= {path: str(text) for path, text in tutorials.items() if path.endswith(".md")}
    pages["results/faults.md"] = f"# Kills by method\n\n{pages['results/faults.md']}"  # a benchmark writes the table
    for page, text in pages.items():
        _write(page, site_text(text, homes.get(page, f"docs/{page}"), page) + _contents(page, pages))
    for path, content in tutorials.items():
        if not path.endswith(".md"):
            _write(path, content)
    for path in (ROOT / "docs").rglob("*"):
        place = STAGE / path.relative_to(ROOT / "docs")
        if path.is_file() and path.suffix not in (".md", ".py"):
            place.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(path, place)
    return STAGE


def _write(page: str, content: str | bytes) -> None:
    place = STAGE / page
    place.parent.mkdir(parents=True, exist_ok=True)
    place.write_bytes(content if isinstance(content, bytes) else content.encode())


def site_text(text: str, home: str, page: str) -> str:
    """Return a page's Markdown as the site has it: diagrams drawn, links to pages of the site, code as words."""
    parts = re.split(r"(^```.*?^```$)", text, flags=re.S | re.M)
    for at, part in enumerate(parts):
        if part.startswith("```mermaid"):
            parts[at] = diagrams.svg(part.removeprefix("```mermaid\n").removesuffix("```"))
        elif not part.startswith("```"):
            parts[at] = _together(LINK.sub(lambda match: _link(match, home, page), part))
    return "".join(parts)


def _together(text: str) -> str:
    """Numbers in tables that must not be torn apart at a line's end: 39.4 ± 1.4, and [5.2, 19.8]."""
    text = re.sub(r"(?<=\d) ± (?=\d)", "\N{NO-BREAK SPACE}±\N{NO-BREAK SPACE}", text)
    return re.sub(r"(\[[−+\d.]+,) (?=[−+\d.]+\])", "\\1\N{NO-BREAK SPACE}", text)


def _link(match: re.Match[str], home: str, page: str) -> str:
    picture, words, address = match.groups()
    path, mark, anchor = address.partition("#")
    if not path or ":" in path:
        return match[0]
    words = LINK.sub(lambda inner: _link(inner, home, page), words)
    target = posixpath.normpath(posixpath.join(posixpath.dirname(home), path))
    if not (ROOT / target).exists() and not target.startswith(("docs/api/", "docs/tutorials/")):
        raise SystemExit(f"{home} points to {path}, which is not there.")
    if target in MOVED:
        target = f"docs/{MOVED[target]}"
    if not target.startswith("docs/"):
        return words
    target = posixpath.relpath(target.removeprefix("docs/"), posixpath.dirname(page) or ".")
    return f"{picture}[{words}]({target}{mark}{anchor})"


def _contents(page: str, pages: dict[str, str]) -> str:
    """Return the list of pages below this one, by which Sphinx makes its menus."""
    below = [f"{name}.md" for name in NAVIGATION.get(page, "").split()]
    if page in ("methods/README.md", "appendix/index.md"):
        folder = posixpath.dirname(page)
        below = sorted(name for name in pages if posixpath.dirname(name) == folder and name != page)
        below += sorted(page for page in pages if page.startswith("results/")) if folder == "appendix" else []
    if not below:
        return ""
    folder = posixpath.dirname(page) or "."
    entries = {name: posixpath.relpath(name, folder) for name in below}
    listed = "\n".join(f"{TITLES[name]} <{at}>" if name in TITLES else at for name, at in entries.items())
    return f"\n```{{toctree}}\n:hidden:\n\n{listed}\n```\n"


if __name__ == "__main__":
    print(f"Pages laid out in {stage().relative_to(ROOT)}.")
