"""The site is whole: every public name, option and page has its entry, every link a target. `make docs` builds it."""

import importlib.util
import inspect
import re
import sys
from pathlib import Path

import pytest
import typer

import odedm
from odedm.cli.app import app

ROOT = Path(__file__).parent.parent
PAGES = [*sorted(ROOT.glob("*.md")), *sorted(ROOT.glob("docs/**/*.md"))]

pytestmark = pytest.mark.skipif(not (ROOT / "docs").is_dir(), reason="only in a checkout")


@pytest.fixture(scope="module")
def tool():
    """Gives a module of `tools`, which is no package."""
    sys.path.insert(0, str(ROOT / "tools/site"))

    def load(name):
        spec = importlib.util.spec_from_file_location(Path(name).stem, ROOT / "tools" / f"{name}.py")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        return module

    yield load
    sys.path.remove(str(ROOT / "tools/site"))


def test_every_public_name_has_one_place_in_the_reference(tool):
    groups = tool("site/api_pages").grouped()
    names = [name for _, _, own in groups.values() for name in own]
    assert sorted(names) == sorted(set(odedm.__all__) - {"__version__", "testing"})


def test_members_of_our_own_bases_are_in_the_reference_and_others_are_not(tool):
    pytest.importorskip("sphinx", reason="needs the dependency group 'docs'")
    made = tool("site/api_pages").pages()
    assert ".. autoclass:: odedm.Learner\n   :members:\n   :inherited-members: object\n" in made["api/learner.md"]
    assert (
        ".. autoclass:: odedm.Net\n   :members:\n   :inherited-members: Module, ABC, object\n"
        in made["api/plug-ins.md"]
    )


def public_members():
    """Every method and property that a user of a public class can call, by its name."""
    things = {f"odedm.{name}": getattr(odedm, name) for name in odedm.__all__}
    things |= {f"odedm.testing.{name}": getattr(odedm.testing, name) for name in odedm.testing.__all__}
    for path, thing in things.items():
        if inspect.isclass(thing) or inspect.isfunction(thing):
            yield path, thing
        for name, member in vars(thing).items() if inspect.isclass(thing) else ():
            own = getattr(member, "__func__", member)
            if name[0] != "_" and (inspect.isfunction(own) or isinstance(own, property)):
                yield f"{path}.{name}", own


def test_nothing_public_is_without_a_docstring():
    found = dict(public_members())
    assert len(found) > 150
    assert [path for path, thing in found.items() if not inspect.getdoc(thing)] == []


def test_no_option_is_without_an_entry_in_the_reference():
    text = (ROOT / "docs/reference.md").read_text()
    sections = dict(re.findall(r"^### `odedm ([a-z ]+)`\n(.*?)(?=^##)", text, re.S | re.M))
    pending = [((), typer.main.get_command(app))]
    while pending:
        words, command = pending.pop()
        below = getattr(command, "commands", {})
        pending += [((*words, name), each) for name, each in below.items()]
        if words and not below:
            options = [name for each in command.params for name in each.opts if name.startswith("--")]
            assert [name for name in options if name not in sections[" ".join(words)]] == []
    assert len(sections) > 15


def slugs(text):
    """The anchors of a page's headings, as GitHub and the site make them."""
    heads = re.findall(r"^#+ (.*)$", re.sub(r"```.*?```", "", text, flags=re.S), re.M)
    return {re.sub(r"[^\w\- ]", "", head.lower()).replace(" ", "-") for head in heads}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_places_that_are_linked_to_are_there(page):
    for path, anchor in re.findall(r"\]\(([^)#:\s]*)#([^)\s]+)\)", page.read_text()):
        target = (page.parent / path) if path else page
        assert anchor in slugs(target.read_text()), f"{page.name} points to {path}#{anchor}"


def test_every_page_is_in_the_menus(tool):
    stage = tool("site/stage")
    listed = {f"{each}.md" for below in stage.NAVIGATION.values() for each in below.split()} | {"index.md"}
    made = set(stage.MOVED.values()) | {"api/index.md"}
    written = {page.relative_to(ROOT / "docs").as_posix() for page in ROOT.glob("docs/**/*.md")}
    folders = ("methods/", "appendix/", "results/")  # all that is there
    assert {page for page in written - listed if not page.startswith(folders)} == set()
    assert {page for page in listed - written - made if not page.startswith("tutorials/")} == set()


def test_links_lead_to_the_site_and_code_becomes_words(tool):
    stage = tool("site/stage")
    text = "[a](../REPRODUCTION.md#the-ledger) [b](../src/odedm/core) ![c](picture.png) [d](https://e.org)\n"
    said = stage.site_text(f"{text}```\n[e](x.md)\n```\n", "docs/index.md", "index.md")
    assert said.startswith("[a](reproduction.md#the-ledger) b ![c](picture.png) [d](https://e.org)\n```\n[e](x.md)\n")
    with pytest.raises(SystemExit, match="not there"):
        stage.site_text("[a](nowhere.md)", "docs/index.md", "index.md")


def test_diagrams_are_drawn_with_every_box_and_arrow(tool):
    drawn = tool("site/diagrams").svg('graph TD\n a["one <b>"] --> b\n b --> c\n a --> c\n c -->|"again"| a\n')
    assert drawn.count("<rect") == 3
    assert drawn.count('class="edge"') == 4
    assert "one &lt;b&gt;" in drawn
    assert ">again</text>" in drawn


def test_a_broken_link_and_a_request_elsewhere_are_found(tool, tmp_path):
    check = tool("site/check")
    (tmp_path / "a.html").write_text(
        '<p id="x"><a href="b.html">b</a><a href="#y">y</a><a href="https://e.org">e</a><script src="https://e.org/s.js"></script>'
    )
    found = list(check.broken(tmp_path))
    assert len(found) == 3
    assert [word in " ".join(found) for word in ("b.html", "#y", "s.js is fetched from elsewhere")] == [True] * 3


def test_what_will_be_downloaded_is_said(tool):
    say = tool("download_size")
    torch = {"name": "torch", "version": "2.13.0"}
    assert say.summary([torch], [200_000_000]) == "To be downloaded: torch 2.13.0 (200 MB): 200 MB in all."
    assert "TORCH_INDEX=https" in say.summary([torch, {"name": "nvidia-cublas", "version": "13"}], [5, None])


def test_headings_that_are_code_may_break_in_the_list_of_sections():
    style = (ROOT / "docs/assets/site.css").read_text()
    (rule,) = re.findall(r"^\.page-toc code, \.page-toc code span\.pre \{(.*)\}$", style, re.M)
    assert "white-space: normal" in rule, "the theme's own rule for span.pre keeps words whole, and cuts them"
    assert "overflow-wrap: anywhere" in rule, "words joined by | have no place to break"
