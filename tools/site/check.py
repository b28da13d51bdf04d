"""Checks the built site: no broken link, no request to another host, no public name and no option without an entry.

python tools/site/check.py [FOLDER]
"""

import sys
from collections.abc import Iterator
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from urllib.parse import unquote, urlsplit

FETCHED = {
    "script": "src",
    "img": "src",
    "iframe": "src",
    "source": "src",
    "link": "href",
    "video": "src",
    "audio": "src",
}
"""What a browser fetches by itself, by tag."""


class Page(HTMLParser):
    """The anchors, links and words of a page."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.anchors: set[str] = set()
        self.links: list[str] = []
        self.fetched: list[str] = []
        self.words: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Return a tag: what it is called and where it leads."""
        given = dict(attrs)
        self.anchors |= {value for key in ("id", "name") if (value := given.get(key))}
        address = given.get(FETCHED[tag]) if tag in FETCHED else None
        if address:
            self.fetched.append(address)
        if tag == "a" and given.get("href"):
            self.links.append(str(given["href"]))

    def handle_data(self, data: str) -> None:
        """Words between tags."""
        self.words.append(data)


@cache
def read(path: Path) -> Page:
    """Return a page of the site, read once."""
    return Page(path.read_text())


def broken(site: Path) -> Iterator[str]:
    """Yield each link inside the site that leads nowhere, and each thing that would be fetched from elsewhere."""
    for path in sorted(site.rglob("*.html")):
        if path.is_relative_to(site / "_static"):
            continue  # of the theme, and no page
        page = read(path)
        for address in [*page.links, *page.fetched]:
            parts = urlsplit(address)
            where = f"{path.relative_to(site)}: {address}"
            if parts.scheme or parts.netloc:
                if address in page.fetched and parts.scheme != "data":
                    yield f"{where} is fetched from elsewhere"
                continue
            target = (path.parent / unquote(parts.path)).resolve() if parts.path else path
            if not target.exists():
                yield f"{where}: no such file"
            elif parts.fragment and target.suffix == ".html" and unquote(parts.fragment) not in read(target).anchors:
                yield f"{where}: no such place on the page"


def missing(site: Path) -> Iterator[str]:
    """Public names and options of commands that the reference does not have."""
    import typer

    import odedm
    from odedm.cli.app import app

    api = {anchor for path in (site / "api").glob("*.html") for anchor in read(path).anchors}
    for name in odedm.__all__:
        home = getattr(odedm, name)
        known = {f"odedm.{name}", f"{getattr(home, '__module__', '')}.{getattr(home, '__qualname__', '')}"}
        if name not in ("__version__", "testing") and not known & api:
            yield f"odedm.{name} has no entry"
    for name in odedm.testing.__all__:
        if f"odedm.testing.{name}" not in api:
            yield f"odedm.testing.{name} has no entry"
    words = " ".join(read(site / "reference.html").words)
    pending = [("odedm", typer.main.get_command(app))]
    while pending:
        called, command = pending.pop()
        pending += [(f"{called} {name}", below) for name, below in getattr(command, "commands", {}).items()]
        options = [option for parameter in command.params for option in [*parameter.opts, *parameter.secondary_opts]]
        yield from (f"{called} {option} has no entry" for option in options
                    if option.startswith("--") and option not in words and "completion" not in option)  # fmt: skip


if __name__ == "__main__":
    folder = Path(sys.argv[1] if len(sys.argv) > 1 else "site").resolve()
    problems = [*broken(folder), *missing(folder)]
    print(
        "\n".join(problems)
        or f"{len(list(folder.rglob('*.html')))} pages: no broken link, no request elsewhere, nothing without an entry."
    )
    sys.exit(bool(problems))
