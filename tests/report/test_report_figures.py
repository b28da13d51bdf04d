"""Figures: what they show, the data behind them, and the files they become."""

from __future__ import annotations

import base64
import csv
import html
import io
import re
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from report_runs import Fabricate, groups_of, table_of, with_extra
from safetensors.numpy import save_file
from safetensors.torch import save

from odedm.core.errors import UsageError
from odedm.paper.dac_timing import Timing, TimingPlan
from odedm.paper.figures import class_density, dac_timing, density_of, training_time
from odedm.report import page
from odedm.report.figures.all_figures import report_figures, save_figures
from odedm.report.figures.comparisons import seconds_by_phase
from odedm.report.figures.curves import (
    KEY,
    Curve,
    accuracy_over_capacity,
    accuracy_over_share,
    anytime_curves,
    curve_chart,
    families,
    forgetting_curves,
)
from odedm.report.figures.memory import (
    direction,
    least_squares,
    memory_pca,
    memory_projection,
    picture_chart,
    pictures_by_distance,
    project,
)
from odedm.report.figures.style import COLOURS, DASHES, MARKERS, Chart, look
from odedm.report.load import load
from odedm.report.statistics import Estimate
from odedm.report.summary import Table
from odedm.results.folder import EVIDENCE_FILE


def read(panel: Chart) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(panel.data)))


def pictures(text: str) -> list[str]:
    """The SVG of every picture of a page."""
    return [base64.b64decode(code).decode() for code in re.findall(r'src="data:image/svg\+xml[^,]*,([^"]*)"', text)]


def features(data: int, memory: int, wide: int = 5) -> dict[str, Any]:
    rng = np.random.default_rng(0)
    return {name: rng.normal(size=(n, wide)) for name, n in (("feature.data", data), ("feature.memory", memory))}


def everything(fabricate: Fabricate) -> Table:
    """Runs from which every figure of a report can be drawn."""
    folders = [fabricate(memory="reservoir", seed=s, capacity=c, acc=30.0 + s) for s in range(2) for c in (20, 40)]
    folders += [
        fabricate(seed=s, capacity=c, acc=40.0 + s + 10 * rho, knobs={"rho": rho, "k": int(12 * rho)})
        for s in range(2)
        for c in (20, 40)
        for rho in (0.25, 0.5)
    ]
    folders.append(fabricate(knobs={"rho": 0.25, "k": 3, "distance": "l2"}))
    save_file(features(60, 9), folders[-1] / EVIDENCE_FILE)
    return table_of(*(with_extra(folder, anytime=[[10, 90.0], [20, 50.0]]) for folder in folders))


def test_every_figure_has_pictures_and_data(fabricate: Fabricate) -> None:
    figures = report_figures(everything(fabricate))
    for name, panels in figures.items():
        assert panels, name
        for panel in panels:
            assert ET.fromstring(panel.svg).tag.endswith("svg"), name
            rows = list(csv.reader(io.StringIO(panel.data)))
            assert len(rows) > 1, name
            assert {len(row) for row in rows} == {len(rows[0])}, name


def test_the_line_of_least_squares_is_not_the_main_direction() -> None:
    rng = np.random.default_rng(0)
    data = rng.normal(size=(400, 2)) * np.array([3.0, 2.5])
    seen = project(data, data @ np.array([[0.8, 0.6], [-0.6, 0.8]]))
    assert least_squares(seen.data)[1] == pytest.approx(0.0, abs=1e-9)  # the components of the data go apart
    assert seen.cosine(least_squares) > seen.cosine(direction) + 0.05
    slope = np.polyfit(*seen.memory.T, 1)[0]
    assert least_squares(seen.memory)[1] / least_squares(seen.memory)[0] == pytest.approx(slope)


def test_a_density_over_the_classes_has_area_one_and_shows_a_lack() -> None:
    x, y = density_of(np.array([8.0, 8.0, 0.0, 8.0]))
    assert np.trapezoid(y, x) == pytest.approx(1.0, abs=0.01)
    assert y[np.argmin(abs(x - 3))] < 0.5 * y[np.argmin(abs(x - 1))]


def test_the_paper_has_a_density_and_a_training_time_of_its_own(fabricate: Fabricate) -> None:
    knobs = [{"rho": rho, "k": int(12 * rho), "dac": dac} for rho in (0.25, 0.5) for dac in (None, [3, 4])]
    folders = [fabricate(memory="reservoir"), *(fabricate(knobs=settings) for settings in knobs)]
    (density,) = class_density(groups_of(*folders))
    assert len({row["runs"] for row in read(density)}) == 5
    (seconds,) = training_time(groups_of(*folders))
    assert [(row["runs"], row["k"]) for row in read(seconds)] == [
        ("DER++ · with DAC", "3.0"),
        ("DER++ · with DAC", "6.0"),
        ("DER++ · without DAC", "3.0"),
        ("DER++ · without DAC", "6.0"),
    ]
    assert training_time(groups_of(*folders[:2])) == []


def test_sweeps_with_dac_and_without_are_two(fabricate: Fabricate) -> None:
    pairs = {0.25: [3, 4], 0.5: [3, 2], 0.75: [5, 3], 1.0: [5, 3]}
    folders = [
        fabricate(knobs={"rho": rho, "k": int(12 * rho), "dac": dac}) for rho in pairs for dac in (None, pairs[rho])
    ]
    (panel,) = accuracy_over_share(groups_of(fabricate(memory="reservoir"), *folders))
    lines = [row["runs"] for row in read(panel)]
    assert sorted(lines.count(name) for name in set(lines)) == [1, 4, 4]


def test_figures_become_files_that_need_no_page(fabricate: Fabricate, tmp_path: Path) -> None:
    figures = report_figures(everything(fabricate))
    paths = save_figures(figures, tmp_path / "new" / "figures")
    assert len(paths) == 3 * sum(len(panels) for panels in figures.values())
    assert {path.name for path in paths if "seconds" in path.name} == {"seconds.png", "seconds.svg", "seconds.csv"}
    for path in paths:
        if path.suffix == ".png":
            assert path.read_bytes()[:8] == b"\x89PNG\r\n\x1a\n"
        elif path.suffix == ".svg":
            text = path.read_text(encoding="utf-8")
            assert ET.fromstring(text).tag.endswith("svg")
            assert "fill: #ffffff" in text  # the ground: in a dark viewer dark letters would be lost
    assert (tmp_path / "new" / "figures" / "share-1.csv").read_text() == figures["share"][0].data


def test_files_are_the_same_every_time(fabricate: Fabricate, tmp_path: Path) -> None:
    figures = {"forgetting": forgetting_curves(everything(fabricate).groups)}
    first = [path.read_bytes() for path in save_figures(figures, tmp_path / "a")]
    assert first == [path.read_bytes() for path in save_figures(figures, tmp_path / "b")]


def test_a_place_that_cannot_be_written_is_said(fabricate: Fabricate, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    panel = seconds_by_phase(groups_of(fabricate(saved=None)))
    with pytest.raises(UsageError, match="Cannot write figures"):
        save_figures({"seconds": [panel]}, tmp_path / "file" / "below")


def test_lines_differ_without_their_colours() -> None:
    assert len({*map(str, DASHES)}) == len({*MARKERS}) == len(COLOURS)


def test_lines_of_pictures_have_pictures_at_even_steps() -> None:
    image = np.random.default_rng(0).integers(0, 255, (27, 3, 8, 8)).astype(np.uint8)
    chart = picture_chart("l2", {"task 1": image[:21], "task 3": image[21:]}, 5 * 2 * 64)
    shown = [(row["line"], int(row["picture"])) for row in read(chart) if row["shown"] == "1"]
    assert shown[:5] == [("task 1", row) for row in (0, 5, 10, 15, 20)]
    assert [row for line, row in shown if line == "task 3"] == [0, 1, 2, 4, 5]
    assert chart.svg.count("<image") == 1


def test_no_groups_no_families() -> None:
    assert families([]) == []
    assert anytime_curves([]) == []


def test_accuracy_over_capacity_joins_what_differs_by_it(fabricate: Fabricate) -> None:
    runs = [("derpp", "reservoir", 20), ("derpp", "reservoir", 40), ("derpp", "odedm", 20), ("er", "reservoir", 20)]
    folders = [fabricate(method, memory, capacity=n, acc=float(n), saved=None) for method, memory, n in runs]
    folders.append(fabricate("derpp", "odedm", capacity=40, acc=40.0, saved=None, knobs={"k": 6}))  # k follows λ
    (panel,) = accuracy_over_capacity(groups_of(*folders))
    assert panel.title == "DER++"
    drawn = [(row["runs"], row["capacity"]) for row in read(panel)]
    assert drawn == [(name, size) for name in ("reservoir", "ODEDM") for size in ("20.0", "40.0")]


def test_accuracy_over_rho_has_the_partner_and_leaves_other_sweeps_out(fabricate: Fabricate) -> None:
    shares = [fabricate(acc=100 * rho, saved=None, knobs={"rho": rho, "k": int(8 * rho)}) for rho in (0.75, 0.25)]
    folders = [fabricate(memory="reservoir", acc=33.0, saved=None), *shares]
    folders.append(fabricate(saved=None, knobs={"rho": 0.25, "k": 2, "dac": None}))
    (panel,) = accuracy_over_share(groups_of(*folders))
    assert [(row["rho"], float(row["acc_last"])) for row in read(panel)] == [
        ("0.0", 33.0),
        ("0.25", 25.0),
        ("0.75", 75.0),
    ]
    assert accuracy_over_share(groups_of(*folders[:2])) == []


def test_anytime_meets_other_seeds_between_their_points(fabricate: Fabricate) -> None:
    folders = [
        with_extra(fabricate(seed=0, saved=None), anytime=[[10, 80.0], [20, 60.0], [30, 40.0]]),
        with_extra(fabricate(seed=1, saved=None), anytime=[[10, 100.0], [30, 60.0]]),
    ]
    (panel,) = anytime_curves(groups_of(*folders))
    assert [(row["rows_seen"], float(row["accuracy"])) for row in read(panel)] == [
        ("10.0", 90.0),
        ("20.0", 70.0),
        ("30.0", 50.0),
    ]
    assert anytime_curves(groups_of(folders[0], fabricate(seed=2, saved=None))) == []


def timings(rows: tuple[int, ...] = (100, 200, 400), k: tuple[int, ...] = (3, 6)) -> list[Timing]:
    """Without DAC n·k milliseconds, with it half of that."""
    cells = TimingPlan("blobs", rows, k, dac=("3x4",), repeats=2).cells()
    where = ("a processor", 1, "2.6", "")
    seconds = [n * size / 1000 / (1 if dac == "none" else 2) for n, size, dac, _ in cells]
    return [Timing("blobs", *cell, *where, took) for cell, took in zip(cells, seconds, strict=True)]


def test_timings_have_a_line_with_and_without_over_both_sizes() -> None:
    over_n, over_k = dac_timing(timings())
    assert (over_n.title, over_k.title) == ("Against n, at k = 6", "Against k, at n = 400")
    assert len(read(over_n)) == 3 * 2
    assert {row["k"] for row in read(over_k)} == {"3.0", "6.0"}
    assert "At the end without DAC 2.4; with DAC 3×4 1.2" in over_n.alt
    assert dac_timing(timings(rows=(100,), k=(3,))) == dac_timing([]) == []


def test_pca_tells_a_memory_along_the_data_from_one_across() -> None:
    rng = np.random.default_rng(0)
    data = rng.normal(size=(500, 8)) * np.array([5.0, 2.0, *[0.1] * 6])
    assert project(data, data).cosine(direction) == pytest.approx(1.0)
    across = data * np.array([0.01, 5.0, *[1.0] * 6])
    assert project(data, across[:60]).cosine(direction) < 0.05
    turned, _ = np.linalg.qr(rng.normal(size=(8, 8)))  # the same cloud seen from elsewhere
    again = project(data @ turned, across[:60] @ turned)
    assert again.cosine(direction) == pytest.approx(project(data, across[:60]).cosine(direction))
    panels = [memory_pca(name, data, memory) for name, memory in (("sinkhorn", data[:40]), ("l2", across[:40]))]
    assert [panel.title.split(":")[0] for panel in panels] == ["sinkhorn", "l2"]
    kinds = [row["what"] for row in read(panels[0])]
    assert (kinds.count("data"), kinds.count("memory")) == (500, 40)
    assert kinds[-2:] == ["memory_line", "memory_least_squares"]


def test_direction_is_the_line_nearest_to_the_points() -> None:
    points = np.array([[0.0, 0.0], [3.0, 1.0], [6.0, 2.0]])
    assert direction(points).tolist() == pytest.approx((np.array([3.0, 1.0]) / 10**0.5).tolist())


@pytest.mark.parametrize("memory", [np.zeros((5, 3)), np.zeros((1, 4)), np.zeros(4), np.full((5, 4), np.nan)])
def test_pca_refuses_features_that_do_not_fit(memory: Any) -> None:
    with pytest.raises(UsageError, match="features"):
        memory_pca("l2", np.random.default_rng(0).normal(size=(9, 4)), memory)


def test_features_of_the_first_seed_that_saved_them_are_projected(fabricate: Fabricate) -> None:
    folders = [fabricate(seed=seed) for seed in range(3)]
    save_file(features(50, 7), folders[1] / EVIDENCE_FILE)
    save_file(features(50, 8), folders[2] / EVIDENCE_FILE)
    (panel,) = memory_projection(groups_of(*folders))
    assert panel.title.startswith("DER++ · ODEDM, seed 1: cosine ")
    assert [row["what"] for row in read(panel)].count("memory") == 7


def test_evidence_that_cannot_be_used_stops_nothing(fabricate: Fabricate) -> None:
    empty, broken, odd = (fabricate(seed=seed) for seed in range(3))
    save_file({"feature.data": np.zeros((3, 2))}, empty / EVIDENCE_FILE)
    (broken / EVIDENCE_FILE).write_bytes(b"nonsense")
    assert memory_projection(groups_of(empty, broken)) == []
    save_file(features(1, 1), odd / EVIDENCE_FILE)
    assert memory_projection(groups_of(odd)) == []


def test_evidence_that_cannot_be_read_is_told(fabricate: Fabricate, caplog: pytest.LogCaptureFixture) -> None:
    folder = fabricate()
    short = torch.zeros(5, 2, dtype=torch.bfloat16)  # numpy knows no such type
    for bad in (b"", b"nonsense", save({"feature.data": short, "feature.memory": short.clone()})):
        caplog.clear()
        (folder / EVIDENCE_FILE).write_bytes(bad)
        assert memory_projection(groups_of(folder)) == []
        assert "Cannot read" in caplog.text


@pytest.mark.parametrize("rows", [10**400, -1, 1 << 53])
def test_any_time_rows_beyond_all_streams_are_told(fabricate: Fabricate, rows: int) -> None:
    with pytest.raises(UsageError, match="'anytime' is not a list of pairs"):
        load([with_extra(fabricate(), anytime=[[rows, 3.0]])])


def by_distances(fabricate: Fabricate, *distances: str, **settings: Any) -> list[Path]:
    return [fabricate(knobs={"distance": distance}, **settings) for distance in distances]


def test_pictures_are_put_side_by_side_where_the_distance_alone_differs(fabricate: Fabricate) -> None:
    other = fabricate(knobs={"distance": "mmd", "dac": None})  # differs in more than the distance
    first = by_distances(fabricate, "sinkhorn", "l2", seed=0)
    groups = groups_of(fabricate(memory="reservoir"), other, *first)
    panels = pictures_by_distance(groups)
    assert [panel.title for panel in panels] == ["l2, seed 0", "sinkhorn, seed 0"]
    assert {row["line"] for row in read(panels[0])} == {f"task {task}" for task in range(1, 6)}
    assert pictures_by_distance(groups_of(other, first[0])) == []
    (first[1] / "memory.safetensors").unlink()
    assert [panel.title for panel in pictures_by_distance(groups)] == ["sinkhorn, seed 0"]


def test_rows_chosen_without_clusters_stand_beside_those_by_a_distance(fabricate: Fabricate) -> None:
    by_distance = fabricate(knobs={"distance": "l2", "dac": [3, 2]})
    control = fabricate(knobs={"distance": "random", "dac": None})
    other = fabricate(knobs={"distance": "random", "dac": None, "space": "pixels"})
    panels = pictures_by_distance(groups_of(by_distance, control, other))
    assert [panel.title for panel in panels] == ["l2, seed 0", "random, seed 0"]
    assert pictures_by_distance(groups_of(control, other)) == []


def test_every_figure_is_on_the_page(fabricate: Fabricate) -> None:
    table = everything(fabricate)
    text = page.render(table)
    for name in report_figures(table):
        assert f'id="f-{name}"' in text, name
    assert text.count("<figcaption") == text.count("<figure")


def test_a_long_title_is_whole_in_a_file(fabricate: Fabricate, tmp_path: Path) -> None:
    title = "ER · ODEDM · standard · λ=100 · k=3 · DAC 3×4 · sinkhorn · no mixup · cnn, seed 0"
    rng = np.random.default_rng(0)
    panels = [memory_pca(title, rng.normal(size=(20, 3)), rng.normal(size=(5, 3)))]
    (svg,) = [path for path in save_figures({"cloud": panels}, tmp_path) if path.suffix == ".svg"]
    text = " ".join("".join(node.itertext()) for node in ET.parse(svg).iter() if node.tag.endswith("text"))
    assert "no mixup" in text
    assert "cosine" in text
    assert "…" not in text


def test_a_long_name_is_whole_in_the_key() -> None:
    name = "ODEDM · auxiliary replay · sinkhorn · gamma_rule=share · no DAC"
    with look():
        chart = curve_chart("", "What", [Curve(name, name, [1.0], [Estimate(2.0, None, 1)])], ("x", "y"))
    (text,) = (text.get_text() for text in chart.figure.axes[0].get_legend().get_texts())
    assert text.replace("\n", " ") == name
    assert max(map(len, text.splitlines())) <= KEY


def test_the_error_over_tasks_is_not_called_forgetting(fabricate: Fabricate) -> None:
    text = page.render(table_of(fabricate("er", "reservoir"), fabricate("er", "odedm")))
    figure = text.split('id="f-forgetting"')[1].split("</figure>")[0]
    assert "Error on the tasks so far" in figure
    drawn, caption = figure.split("<figcaption>")
    assert "orgetting" not in re.sub(r'(href|src|download|aria-label|id)="[^"]*"', "", drawn)
    assert "error on tasks so far, %" in "".join(pictures(figure))
    assert "the paper's forgetting rate" in html.unescape(caption)
