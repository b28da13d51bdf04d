"""The page and its figures: complete, self-contained, escaped, the same every time, sound at the edges."""

from __future__ import annotations

import base64
import csv
import io
import os
import re
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
from commands import odedm
from report_runs import Fabricate, groups_of, table_of
from sampling import KEEPING

from odedm.core.errors import UsageError
from odedm.report import page
from odedm.report.figures import style
from odedm.report.figures.all_figures import report_figures
from odedm.report.figures.comparisons import accuracy_matrices
from odedm.report.figures.curves import BASELINE, BOUNDS, families, forgetting_curves, named_strokes
from odedm.report.figures.memory import final_class_counts, long_term_pictures, memory_by_class
from odedm.report.load import gather
from odedm.report.tables import to_csv, to_markdown
from odedm.results.folder import MEMORY_FILE

VOID = {"meta", "link", "br", "img"}


class Outline(HTMLParser):
    """Collects ids, elements and what they ask for, and checks that tags close in order."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.ids: list[str] = []
        self.tags: list[str] = []
        self.asked: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        if tag not in VOID:
            self.open.append(tag)
        self._look(attrs)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self._look(attrs)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def _look(self, attrs: list[tuple[str, str | None]]) -> None:
        for name, value in attrs:
            if name == "id":
                self.ids.append(value or "")
            if name in {"src", "href", "xlink:href", "action", "poster", "srcset"}:
                self.asked.append(value or "")


def outline(text: str) -> Outline:
    reader = Outline()
    reader.feed(text)
    assert reader.open == []
    return reader


def written(tmp_path: Path, *folders: Path) -> str:
    return page.save_page(gather(folders), tmp_path / "out" / "report.html").read_text(encoding="utf-8")


def full(fabricate: Fabricate) -> list[Path]:
    return [
        fabricate(method, memory, seed=seed, acc=30.0 + seed + 10 * (memory == "odedm"))
        for method in ("der", "derpp")
        for memory in ("reservoir", "odedm")
        for seed in range(3)
    ]


def test_page_says_what_was_found_and_shows_every_figure(fabricate: Fabricate, tmp_path: Path) -> None:
    text = written(tmp_path, *full(fabricate))
    assert "2 comparisons with the same runs without ODEDM: 2 open; +10.0 points of ACC" in text
    assert text.count("Changes over fewer than 5 seeds have Student") == 1
    for name in ("differences", "forgetting", "matrices", "classes", "pictures", "seconds"):
        assert f'id="f-{name}"' in text
    assert text.count("<figure") == text.count("<figcaption") == 6
    assert len(text) < 3_000_000


def test_page_is_sound_html_with_unique_ids(fabricate: Fabricate, tmp_path: Path) -> None:
    reader = outline(written(tmp_path, *full(fabricate)))
    assert len(reader.ids) == len(set(reader.ids))
    assert {"main", "header", "table", "figure", "details", "img"} <= set(reader.tags)


def test_every_picture_has_a_description(fabricate: Fabricate, tmp_path: Path) -> None:
    pictures = re.findall(r"<img[^>]*>", written(tmp_path, *full(fabricate)))
    assert pictures
    assert all(re.search(r'src="data:image/svg[^"]+" alt="[^"]+', picture) for picture in pictures)


def test_page_asks_for_nothing(fabricate: Fabricate, tmp_path: Path) -> None:
    text = written(tmp_path, *full(fabricate))
    bare = re.sub(r'xmlns(:\w+)?="[^"]*"', "", text)
    assert not re.search(r"https?://", bare)
    assert "@import" not in bare
    assert all(link.startswith(("data:", "#")) for link in outline(text).asked)
    assert not re.search(r"url\((?!#)", bare)
    assert "default-src 'none'" in text


def test_data_behind_every_picture_can_be_taken_away(fabricate: Fabricate, tmp_path: Path) -> None:
    text = written(tmp_path, *full(fabricate))
    links = re.findall(r'<a download="([^"]+)" href="data:[^"]+?;base64,([^"]+)"', text)
    files = {name: base64.b64decode(content).decode() for name, content in links}
    assert len(files) == len(links)
    assert text.count('role="group"') == len(files) - 3  # and the table in three forms
    assert files["forgetting-1.csv"].startswith("runs,task,forgetting_rate,standard_error,seeds\n")
    assert files["differences-1.csv"].count("\n") == 1 + 2 * 3
    assert files["table.tex"].startswith("% ")
    table = table_of(tmp_path / "runs")
    assert files["table.md"] == to_markdown(table)
    assert files["table.csv"] == to_csv(table)
    for name, content in files.items():
        if name.endswith(".csv"):
            assert len({len(row) for row in csv.reader(io.StringIO(content))}) == 1


def test_the_paper_stands_beside_where_it_has_numbers(fabricate: Fabricate, tmp_path: Path) -> None:
    assert "Beside the paper" not in written(tmp_path, *full(fabricate))
    folder = fabricate("derpp", "reservoir", capacity=200, acc=28.0, over={"data": "cifar10"}, root="paper")
    text = written(tmp_path, folder)
    row = text[text.index("Beside the paper") :]
    assert re.search(r'29\.7 ± 4\.2</td><td data-value="-1\.67[0-9]*">−1\.7</td>', row)
    assert ">not comparable</td>" in row  # the network is another


def test_a_choice_of_rho_is_marked_in_the_page(fabricate: Fabricate, tmp_path: Path) -> None:
    folders = [fabricate(saved=None, acc=acc, knobs={"rho": rho}) for rho, acc in ((0.25, 40.0), (0.5, 45.0))]
    text = written(tmp_path, fabricate(memory="reservoir", saved=None), *folders)
    assert "best of 2 ρ (ρ=0.5), chosen on the test set" in text
    assert "too good by construction" in text
    assert 'id="f-share"' in text


def test_page_is_the_same_every_time(fabricate: Fabricate, tmp_path: Path) -> None:
    folders = full(fabricate)
    first = page.save_page(gather(folders), tmp_path / "a.html").read_bytes()
    second = page.save_page(gather(list(reversed(folders))), tmp_path / "b.html").read_bytes()
    assert first == second


def test_hostile_names_come_out_escaped(fabricate: Fabricate, tmp_path: Path) -> None:
    evil = '<script>alert("x")</script>'
    broken = '"><img src=x onerror=alert(1)>'
    names = [evil, broken, "$\\frac{", "]]>-->", "日本", "a\x00b", "</svg></figure>", "&amp;", "{{ 7*7 }}", "x" * 500]
    folders = [
        fabricate(
            "der" if memory == "odedm" else evil,
            memory,
            classes=names,
            over={"data": evil, "net": broken, "imbalance": evil},
            provenance={"device": evil, "commit": broken},
            name=f"<b>{memory}",
        )
        for memory in ("odedm", "reservoir")
    ]
    text = written(tmp_path, *folders)
    reader = outline(text)
    assert reader.tags.count("script") == 1
    assert reader.tags.count("img") == text.count('<img src="data:image/svg+xml;')
    assert "b" not in reader.tags
    assert "&lt;script&gt;" in text
    assert "\x00" not in text
    assert "{{ 7*7 }}" in text


@pytest.mark.parametrize("memory", ["odedm", "reservoir"])
def test_one_run_one_task(fabricate: Fabricate, tmp_path: Path, memory: str) -> None:
    text = written(tmp_path, fabricate(memory=memory, tasks=1))
    assert "1 task" in text
    assert "Nothing to compare" in text
    assert ('id="f-pictures"' in text) == (memory == "odedm")


def test_a_hundred_classes(fabricate: Fabricate, tmp_path: Path) -> None:
    names = [f"class {label}" for label in range(100)]
    folders = [fabricate(memory=memory, tasks=20, classes=names, channels=3) for memory in ("odedm", "reservoir")]
    text = written(tmp_path, *folders)
    assert len(text) < 3_000_000
    (matrix,) = accuracy_matrices(groups_of(*folders[:1]))
    assert ">90</text>" not in matrix.svg


def test_many_groups_are_all_in_the_table_but_not_all_drawn(
    fabricate: Fabricate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [fabricate(name, "reservoir", saved=None) for name in ("er", "der", "derpp")]
    assert "Figures of single groups" not in written(tmp_path, *folders)
    monkeypatch.setattr(page, "DRAWN", 2)
    text = written(tmp_path, *folders)
    assert "those of the first 2 of 3 groups" in text
    assert text.count('alt="Accuracy matrix of') == 2
    assert text.count('<th scope="row" data-value="DER++ · reservoir"') == 3  # summary, further numbers, single runs


def test_long_streams_become_pictures_not_paths(fabricate: Fabricate) -> None:
    names = [str(label) for label in range(60)]
    groups = groups_of(fabricate(tasks=60, classes=names, saved=None))
    (matrix,) = accuracy_matrices(groups)
    assert "<image" in matrix.svg
    assert len(matrix.svg) < 30_000


def test_vectors_have_no_pictures(fabricate: Fabricate, tmp_path: Path) -> None:
    assert 'id="f-pictures"' not in written(tmp_path, fabricate(saved="vector"))


def test_broken_memory_is_told(fabricate: Fabricate, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    folder = fabricate()
    (folder / MEMORY_FILE).write_bytes(b"nonsense")
    assert 'id="f-pictures"' not in written(tmp_path, folder)
    assert "cannot be read" in caplog.text


def test_the_first_seed_with_a_memory_gives_the_pictures(fabricate: Fabricate) -> None:
    folders = [fabricate(seed=0, saved=None), fabricate(seed=1, channels=3), fabricate(seed=2)]
    (panel,) = long_term_pictures(groups_of(*folders))
    assert panel.title == "DER++ · ODEDM, seed 1"
    assert "2 of 1: Trouser" in panel.alt


def test_different_numbers_of_tasks(fabricate: Fabricate, tmp_path: Path) -> None:
    text = written(tmp_path, fabricate(tasks=5), fabricate(tasks=2), fabricate(memory="reservoir", tasks=2))
    assert "ACC<sub>T</sub>" in text


def test_classes_shuffled_by_seed_are_matched_by_name(fabricate: Fabricate, tmp_path: Path) -> None:
    forwards, backwards = ["a", "b", "c", "d"], ["d", "c", "b", "a"]
    folders = [
        fabricate(seed=0, tasks=2, classes=forwards, saved=None),
        fabricate(seed=1, tasks=2, classes=backwards, saved=None),
    ]
    (group,) = groups_of(*folders)
    _, long = final_class_counts(group)
    assert long.tolist() == [0.5, 0.5, 0.5, 0.5]  # each class is pinned in one of the two seeds
    assert "classes in the order of their names" in written(tmp_path, *folders)


def test_runs_without_a_class_counts(fabricate: Fabricate) -> None:
    import json

    file = fabricate(saved=None) / "result.json"
    data = json.loads(file.read_text())
    data["class_counts"] = []
    data["classes"] = []
    file.write_text(json.dumps(data))
    assert 'id="f-classes"' not in page.render(table_of(file.parent))


def test_many_groups_without_partners_share_one_panel_until_colours_run_out(fabricate: Fabricate) -> None:
    names = KEEPING
    groups = groups_of(*(fabricate(name, "reservoir", saved=None) for name in names))
    assert len(forgetting_curves(groups[:4])) == 1
    assert len(forgetting_curves(groups)) == len(names)


def test_more_groups_than_anyone_looks_at_take_no_more_time_or_room(fabricate: Fabricate, monkeypatch) -> None:
    folders = [fabricate("er", "reservoir", saved=None, over={"epochs": n}) for n in range(1, 13)]
    table = table_of(*folders)
    monkeypatch.setattr(style, "MOST_ROWS", 5)
    figures = report_figures(table, 3)
    assert len(figures["forgetting"]) == 3
    (seconds,) = figures["seconds"]
    assert len({row[0] for row in csv.reader(io.StringIO(seconds.data))}) == 1 + 5


def test_bounds_are_grey_lines_in_every_panel_of_their_problem(fabricate: Fabricate) -> None:
    folders = [fabricate(name, memory, saved=None) for name in ("er", "derpp") for memory in ("reservoir", "odedm")]
    folders += [fabricate(name, "none", saved=None) for name in ("finetune", "joint")]
    groups = groups_of(*folders, fabricate("joint", "none", saved=None, over={"epochs": 9}))
    drawn = {title: named_strokes(members, title) for title, members in families(groups)}
    assert {title.partition(" ·")[0] for title in drawn} == {"ER", "DER++"}
    for strokes in drawn.values():
        names = [name for _, name, _ in strokes]
        assert [name.partition(" ·")[0] for name in names[2:]] == ["Finetune (bound)", "Joint (bound)"]
        assert [stroke in BOUNDS for _, _, stroke in strokes] == [False, False, True, True]
        assert strokes[0][2] is BASELINE


def test_many_variants_of_one_family_are_split_and_keep_their_baseline(fabricate: Fabricate) -> None:
    folders = [fabricate(saved=None, knobs={"k": k}) for k in range(1, 9)]
    groups = groups_of(fabricate(memory="reservoir", saved=None), *folders)
    panels = forgetting_curves(groups)
    assert [panel.title for panel in panels] == ["DER++", "DER++"]
    assert all("reservoir" in panel.svg for panel in panels)
    drawn = {k for k in range(1, 9) if any(f">ODEDM · k={k}<" in panel.svg for panel in panels)}
    assert drawn == set(range(1, 9))


def test_readme_picture(fabricate: Fabricate, tmp_path: Path) -> None:
    sys.path.insert(0, str(Path(__file__).parents[2] / "tools"))
    from make_picture import readme_picture

    folders = full(fabricate)
    content = readme_picture(folders, tmp_path / "new" / "hero.png").read_bytes()
    assert content == readme_picture(folders, tmp_path / "again.png").read_bytes()
    assert int.from_bytes(content[16:20], "big") == 1200
    readme_picture([fabricate(memory="reservoir", root="alone")], tmp_path / "alone.png")


def test_no_global_state_is_left_behind(fabricate: Fabricate, tmp_path: Path) -> None:
    import matplotlib

    before = dict(matplotlib.rcParams)
    written(tmp_path, fabricate())
    assert dict(matplotlib.rcParams) == before


def test_without_matplotlib_there_is_a_page_without_figures_and_it_is_said_first(
    fabricate: Fabricate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = [fabricate(), fabricate(memory="reservoir", acc=40.0)]
    monkeypatch.setitem(sys.modules, "matplotlib", None)
    output = odedm("report", *folders, "--out", tmp_path / "report.html")
    assert output.index("pip install 'odedm[plot]'") < output.index("DER++ · ODEDM") < output.index("Report: ")
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "This page has no figures" in text
    assert "<img" not in text
    assert "DER++ · ODEDM" in text
    output = odedm("report", *folders, "--figures", tmp_path / "figures", "--out", tmp_path / "other.html", code=2)
    assert "Figures need matplotlib" in output
    assert {path.name for path in tmp_path.iterdir()} == {"runs", "report.html"}, "nothing else was written"


@pytest.mark.parametrize("form", ["--csv", "--latex", "--markdown"])
def test_only_what_was_asked_for_is_written(
    fabricate: Fabricate, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, form: str
) -> None:
    fabricate()
    monkeypatch.chdir(tmp_path)
    output = odedm("report", "runs", form)
    assert "ODEDM" in output
    assert "Report:" not in output
    assert [path.name for path in tmp_path.iterdir()] == ["runs"]


def test_latex_has_the_caption_and_the_label_that_were_given(fabricate: Fabricate, tmp_path: Path) -> None:
    folders = [fabricate(memory=memory, seed=seed) for memory in ("reservoir", "odedm") for seed in range(3)]
    output = odedm("report", *folders, "--latex", "--caption", "What 5 % did", "--label", "tab:mine")
    assert r"\caption{What 5 \% did. All runs: " in output
    assert r"$\lambda$=" in output
    assert "interval; bold" in output
    assert r"\label{tab:mine}" in output
    assert "--latex" in odedm("report", *folders, "--caption", "Mine", "--out", tmp_path / "none.html", code=2)
    assert not (tmp_path / "none.html").exists()


def test_a_page_is_written_over_a_page_and_nothing_else(fabricate: Fabricate, tmp_path: Path) -> None:
    folder, mine = fabricate(saved=None), tmp_path / "mine.html"
    mine.write_text("<p>my own</p>")
    output = odedm("report", folder, "--out", mine, code=2)
    assert "no report that odedm made" in output
    assert mine.read_text() == "<p>my own</p>"
    mine.unlink()
    for _ in range(2):
        odedm("report", folder, "--out", mine)
    mine.unlink()
    mine.touch()
    os.truncate(mine, 1 << 40)  # of which only the end is looked at
    assert "no report that odedm made" in odedm("report", folder, "--out", mine, code=2)


def test_a_folder_is_not_a_file_to_write(fabricate: Fabricate, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is a folder"):
        page.save_page(gather([fabricate()]), tmp_path)


def test_lesser_numbers_have_a_table_of_their_own(fabricate: Fabricate) -> None:
    text = page.render(table_of(fabricate("er", "reservoir"), fabricate("er", "odedm")))
    tables = [part.split("</table>")[0] for part in text.split("<table data-sortable>")[1:]]
    for name in ("BWT", "Seconds", "Gradients/row"):
        assert name not in tables[0]
        assert name in tables[1]
    assert "Change in" in tables[0]


def test_the_key_of_a_memory_has_only_what_the_memory_holds(fabricate: Fabricate) -> None:
    panels = memory_by_class(groups_of(fabricate("er", "reservoir"), fabricate("er", "odedm")))
    assert [">long-term<" in panel.svg for panel in panels] == [False, True]
    assert all(">short-term<" in panel.svg for panel in panels)
