"""The page in a real browser, where there is one: its script runs under its own security policy, sorts and filters."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
from report_runs import Fabricate

from odedm.report.load import gather
from odedm.report.page import save_page

CHROMIUM = shutil.which("chromium")
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="chromium is not on the PATH")
QUIET = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --virtual-time-budget=3000 --dump-dom"
)


@pytest.fixture
def report(fabricate: Fabricate, tmp_path: Path) -> Path:
    """A page with three groups whose accuracy is not in the order of their names."""
    methods = {"er": 30.0, "der": 50.0, "derpp": 40.0}
    folders = [fabricate(name, "reservoir", acc=acc) for name, acc in methods.items()]
    return save_page(gather(folders), tmp_path / "page.html")


def shown(page: Path, tmp_path: Path, *more: str) -> str:
    """The document as the browser has it after the scripts ran."""
    command = [str(CHROMIUM), *QUIET.split(), *more, f"--user-data-dir={tmp_path / 'profile'}", page.as_uri()]
    return subprocess.run(command, capture_output=True, text=True, check=True, timeout=60).stdout


def clicking(page: Path, column: int, times: int) -> Path:
    """A copy of the page that clicks a heading of the first table by itself, which the page's own policy forbids."""
    text, replaced = re.subn(r"script-src '[^']*'", "script-src 'unsafe-inline'", page.read_text(encoding="utf-8"))
    assert replaced == 1
    heading = f'document.querySelectorAll("table")[0].tHead.rows[0].cells[{column}]'
    clicks = f'{heading}.querySelector("button").click();' * times
    copy = page.with_name("clicking.html")
    copy.write_text(text.replace("</body>", f"<script>{clicks}</script></body>"), encoding="utf-8")
    return copy


def filtering(page: Path, words: str) -> Path:
    """A copy of the page that types into the filter of the first table by itself."""
    text = re.sub(r"script-src '[^']*'", "script-src 'unsafe-inline'", page.read_text(encoding="utf-8"))
    typing = f'const f = document.querySelector("input"); f.value = "{words}"; f.dispatchEvent(new Event("input"));'
    copy = page.with_name("filtering.html")
    copy.write_text(text.replace("</body>", f"<script>{typing}</script></body>"), encoding="utf-8")
    return copy


def first_table(text: str) -> tuple[list[str], list[str]]:
    """The sort directions that its headings show, and the names of its rows from top to bottom."""
    table = text[text.index("<table") : text.index("</table>")]
    return re.findall(r'aria-sort="(\w+)"', table), re.findall(r'<th scope="row" data-value="([^"]+)"', table)


def test_the_script_runs_under_the_policy_of_the_page(report: Path, tmp_path: Path) -> None:
    assert '<button type="button"' not in report.read_text(encoding="utf-8")
    text = shown(report, tmp_path)
    headings = len(re.findall(r"<th scope=\"col\"", text))
    assert headings > 20
    assert text.count('<button type="button"') == headings
    assert first_table(text) == ([], ["ER · reservoir", "DER · reservoir", "DER++ · reservoir"])


@pytest.mark.parametrize(
    ("column", "times", "direction", "order"),
    [
        (2, 1, "descending", ["DER · reservoir", "DER++ · reservoir", "ER · reservoir"]),
        (2, 2, "ascending", ["ER · reservoir", "DER++ · reservoir", "DER · reservoir"]),
        (0, 1, "descending", ["ER · reservoir", "DER++ · reservoir", "DER · reservoir"]),
    ],
)
def test_a_click_on_a_heading_sorts(
    report: Path, tmp_path: Path, column: int, times: int, direction: str, order: list[str]
) -> None:
    assert first_table(shown(clicking(report, column, times), tmp_path)) == ([direction], order)


@pytest.mark.parametrize(
    ("words", "left"),
    [("der", ["DER · reservoir", "DER++ · reservoir"]), ("DER++ 40.0", ["DER++ · reservoir"]), ("nothing", [])],
)
def test_the_filter_keeps_the_rows_that_hold_all_words(
    report: Path, tmp_path: Path, words: str, left: list[str]
) -> None:
    text = shown(filtering(report, words), tmp_path)
    table = text[text.index("<table") : text.index("</table>")]
    rows = re.findall(r'<tr([^>]*)><th scope="row" data-value="([^"]+)"', table)
    assert len(rows) == 3
    assert [name for attributes, name in rows if "hidden" not in attributes] == left
    assert f"{len(left)} of 3 rows" in text


def test_the_policy_stops_every_other_script(report: Path, tmp_path: Path) -> None:
    page = report.with_name("attacked.html")
    attack = '<script>document.title = "taken over";</script></body>'
    page.write_text(report.read_text(encoding="utf-8").replace("</body>", attack), encoding="utf-8")
    assert "<title>taken over" not in shown(page, tmp_path)


PHONE = """
onload = () => {
  const pictures = [...document.querySelectorAll("figure img")];
  const sizes = pictures.map(picture => 11 * picture.getBoundingClientRect().width / picture.naturalWidth * 4 / 3);
  const page = document.documentElement;
  parent.postMessage(`${sizes.length} ${Math.min(...sizes)} ${page.scrollWidth - page.clientWidth}`, "*");
};
"""
"""Letters have 11 points of the picture, whose natural width is in pixels of 4 / 3 points."""


@pytest.mark.parametrize("width", [320, 390])
def test_text_in_pictures_can_be_read_on_a_phone(report: Path, tmp_path: Path, width: int) -> None:
    inner, outer = report.with_name("inner.html"), report.with_name("outer.html")  # no window is so narrow, a frame is
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", report.read_text(encoding="utf-8"))
    inner.write_text(text.replace("</body>", f"<script>{PHONE}</script></body>"), encoding="utf-8")
    listen = "<script>onmessage = event => { document.title = event.data }</script>"
    outer.write_text(f'{listen}<iframe src="inner.html" style="width: {width}px; height: 600px"></iframe>')
    (measured,) = re.findall("<title>(.*?)</title>", shown(outer, tmp_path))
    pictures, smallest, beyond = map(float, measured.split())
    assert pictures > 3
    assert smallest >= 10, "a picture scrolls sideways before its text becomes smaller"
    assert beyond <= 0, "and the page does not"


WIDTHS = """
const box = document.querySelector("#h-summary ~ .card.scroll");
document.title = `${innerWidth} ${box.scrollWidth - box.clientWidth}`;
"""


def test_the_main_table_fits_a_window_of_1200_pixels(fabricate: Fabricate, tmp_path: Path) -> None:
    rates = [{"options": {"lr": lr, "beta": 1.5}, "imbalance": "imbalanced"} for lr in (0.03, 0.1)]
    folders = [
        fabricate("refresh", memory, seed=seed, acc=40.0 + (10 + seed) * (memory == "odedm"), over=over)
        for memory in ("reservoir", "odedm")
        for seed in range(3)
        for over in rates
    ]
    text = save_page(gather(folders), tmp_path / "page.html").read_text(encoding="utf-8")
    text = re.sub(r'<meta http-equiv="Content-Security-Policy"[^>]*>', "", text)
    page = tmp_path / "wide.html"
    page.write_text(text.replace("</body>", f"<script>{WIDTHS}</script></body>"), encoding="utf-8")
    (measured,) = re.findall("<title>(.*?)</title>", shown(page, tmp_path, "--window-size=1200,900"))
    assert measured == "1200 0", "the changes are its last columns, and must be seen"
