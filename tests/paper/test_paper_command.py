"""`odedm paper`: every table and figure of the paper by number, on forged copies of its data."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
from commands import odedm

from odedm.cli import paper_runs
from odedm.cli.console import out
from odedm.paper.items import DIAGRAM, ITEMS, by_signature, changes_since, items_named, progress, shipped_runs, study_of
from odedm.paper.overview import to_markdown
from odedm.paper.paper_cells import finding, paper_cells, variant_title
from odedm.paper.paper_tables import prototype_table
from odedm.paper.printed import numbers
from odedm.results.folder import FinishedRun
from odedm.results.result import Result

ROOT = Path(__file__).parents[2]
TINY = [
    "--only",
    "DER",
    "--only",
    "capacity=200",
    "--only",
    "imbalance=standard",
    "--seeds",
    "2",
    "--device",
    "cpu",
    "--workers",
    "1",
]


def listed(*words: object) -> dict[str, list[str]]:
    """The lines of `odedm paper` by the number of their table or figure, in words."""
    lines = odedm("paper", *words).splitlines()
    return {" ".join(line.split()[:2]): line.split()[2:] for line in lines if line.startswith(("Table ", "Figure "))}


def test_twelve_tables_and_five_figures_are_there_by_number_in_the_papers_order() -> None:
    tables = {table for item in ITEMS.values() for table in item.tables}
    assert tables == {cell.table for cell in numbers()}
    assert [item.number for item in ITEMS.values()] == [
        *(f"Table {number}" for number in range(1, 13)),
        *(f"Figure {number}" for number in ("1", "2", "3a", "3b", "3c", "4", "5")),
    ]
    assert all(item.study or item.source for item in ITEMS.values())
    assert [item.name for item in items_named("figure3")] == ["figure3a", "figure3b", "figure3c"]


def test_each_has_one_line_on_80_columns_with_the_runs_that_come_with_the_package(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody runs anything first: 387 runs are in the package."""
    monkeypatch.setattr(out, "_width", 80)
    monkeypatch.chdir(tmp_path)
    output = odedm("paper")
    assert "arXiv:2505.18101" in output
    assert max(map(len, output.splitlines())) <= 80
    assert "…" not in output
    lines = listed()
    assert list(lines) == [item.number for item in ITEMS.values()]
    assert lines["Table 1"][-6:] == ["387/2300†", "42", "31", "7", "32", "532"]
    assert lines["Table 12"][-2:] == ["0/620", "124"]
    assert lines["Figure 3c"][-1] == "10/10†"
    assert "runs are older than changes of their algorithm: one k-means" in " ".join(output.split())
    assert list(tmp_path.iterdir()) == []


def test_figure_1_is_a_drawing_of_our_own() -> None:
    path = ROOT / ITEMS["figure1"].source.removeprefix("a diagram: ")
    assert ET.parse(path).getroot().tag.endswith("svg")
    assert path.read_bytes() == DIAGRAM.read_bytes(), "one drawing, for the package and for its pages"


def test_table_2_is_computed_beside_the_printed_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(out, "_width", 80)
    output = odedm("paper", "table2")
    assert "480 (75%)" in output
    lines = prototype_table().lines()
    assert [(entry.printed, entry.ours) for entry in lines[0][2:]] == [
        ("6 (24%)", "6 (24%)"),
        ("-", "1 (45%)"),
        ("-", "-"),
    ]
    assert [(entry.printed, entry.ours) for entry in lines[-1][3:]] == [("42 (74%)", "43 (76%)"), ("21 (74%)",) * 2]
    assert all(line[2].printed == line[2].ours for line in lines), "CIFAR-10"


def test_a_table_without_its_data_shows_printed_numbers_beside_ours_and_what_is_missing(tmp_path: Path) -> None:
    output = odedm("paper", "table5", "--out", tmp_path / "paper")
    assert "30.0 ± 3.5" in output
    assert "28.6 ± 2.1 =†" in output
    assert "21 reproduced, 10 better, 2 worse, 33 not comparable of 276 printed" in output
    assert "712 of 920 runs are missing; not here: cifar10" in output
    assert not list((tmp_path / "paper").rglob("result.json"))


def test_a_table_is_made_as_it_is_printed_and_counted_as_done(
    small_copies: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(paper_runs, "shipped_runs", list)
    wishes = ["table1", "--data", "cifar10", *TINY, "--only", "rho=none,0.25"]
    assert "To do:         4" in odedm("paper", *wishes, "--dry-run")
    output = odedm("paper", *wishes)
    assert "final ACC, cifar10, standard" in output
    assert "21.3 ± 2.6" in output
    text = (tmp_path / "runs/paper/table1/table1.csv").read_text(encoding="utf-8")
    rows = [row for row in csv.DictReader(text.splitlines()) if row["ours"]]
    assert {(row["method"], row["variant"], row["seeds"]) for row in rows} == {
        ("der", "none", "2"),
        ("der", "odedm-best", "2"),
    }
    assert {row["lr"] for row in rows} == {"0.03"}, "the paper does not report its own"
    assert all(row["verdict"] in ("reproduced", "better", "worse") for row in rows if row["metric"] == "acc_last")
    assert "begin{tabular}" in (tmp_path / "runs/paper/table1/table1.tex").read_text(encoding="utf-8")
    again = odedm("paper", "table5", *TINY, "--only", "rho=none,0.25", "--dry-run")
    assert "Done:          4" in again, "the same runs"
    lines = listed()
    assert "4/920" in lines["Table 5"]
    assert lines["Table 6"][-2:] == ["0/760", "212"]


def test_showing_first_does_not_bar_the_way_of_later_runs(small_copies: None, tmp_path: Path) -> None:
    """The folder of a table that was only shown was once taken for a stranger's."""
    wishes = ["table1", "--data", "cifar10", *TINY, "--out", tmp_path / "paper"]
    odedm("paper", *wishes, "--no-run")
    assert (tmp_path / "paper/table1/table1.csv").is_file()
    odedm("paper", *wishes, "--only", "memory=native")
    assert len(list((tmp_path / "paper").rglob("result.json"))) == 2


def test_what_is_shown_is_narrowed_as_what_is_run(tmp_path: Path) -> None:
    """--only and --seeds once meant nothing beside --no-run."""
    how = ["table5", "--no-run", "--out", tmp_path]
    assert "of 920 runs" in odedm("paper", *how)
    narrowed = odedm("paper", *how, "--only", "method=der", "--only", "capacity=200", "--seeds", "1")
    assert "of 920 runs" not in narrowed
    text = (tmp_path / "table5/table5.csv").read_text(encoding="utf-8")
    ours = [row for row in csv.DictReader(text.splitlines()) if row["ours"]]
    assert {(row["method"], row["seeds"]) for row in ours} == {("der", "1")}


def test_a_figure_is_drawn_from_just_its_runs(
    small_copies: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(paper_runs, "shipped_runs", list)
    output = odedm("paper", "figure3c", "--seeds", "1", "--device", "cpu", "--out", tmp_path / "paper")
    assert "2 runs are missing, 2 to start" in output
    assert "Rows of each class in memory: 2 runs." in output
    assert (tmp_path / "paper/figure3c/class_density.png").is_file()


def test_a_figure_of_timings_that_nobody_made_says_so(tmp_path: Path) -> None:
    """The missing file of timings was once an error of its own."""
    output = odedm("paper", "figure3b", "--mini", "--no-run", "--out", tmp_path)
    assert "Figure 3b: there is nothing to draw yet" in output


def test_figure_3b_shows_the_timings_that_come_with_the_package(tmp_path: Path) -> None:
    output = odedm("paper", "figure3b", "--no-run", "--out", tmp_path)
    assert "480 prototypes of 3000 rows take 2.3 s without DAC, 1.3 s with DAC 3×2" in output
    assert "Features of all pictures of fashion-mini" in output
    assert "50 of 70 runs are missing" in output
    assert len(list((tmp_path / "figure3b").glob("dac_timing-*.png"))) == 2


def test_imagenet_r_runs_on_a_forged_copy(small_copies: None, tmp_path: Path) -> None:
    wishes = ["--only", "capacity=200", "--only", "imbalance=standard", "--seeds", "1", "--device", "cpu"]
    output = odedm("paper", "table9", *wishes, "--out", tmp_path / "paper")
    assert "final ACC, imagenet-r, standard" in output
    assert "2 not comparable, 2 too few seeds of 36 printed" in output


def test_what_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    assert "leave the name and --mini out" in odedm("paper", "figure1", "--markdown", code=2)
    assert "docs/system.svg" in odedm("paper", "figure1")
    assert "did you mean" in odedm("paper", "figure6", code=2)
    assert "'digits' was given" in odedm("paper", "table1", "--data", "digits", code=2)
    assert "name it before them" in odedm("paper", "--seeds", "2", "--out", tmp_path / "paper", code=2)


def test_table_4_has_other_papers_numbers_beside_ours(tmp_path: Path) -> None:
    output = odedm("paper", "table4", "--dry-run", "--out", tmp_path / "paper")
    assert "Runs:          150" in output
    plans = study_of(ITEMS["table4"]).experiments()
    kinds = {(plan.method, plan.epochs, plan.retrieval, plan.memory.name) for plan in plans}
    assert {kind[0] for kind in kinds if kind[1] == 50} == {"gem", "agem", "fdr"}
    assert ("mir", 1, "mir", "native") in kinds
    assert ("joint", 1, "uniform", "none") in kinds
    output = odedm("paper", "table4", "--no-run", "--out", tmp_path / "paper")
    assert "literature values of another protocol" in output
    assert "4 not comparable of 24 printed" in output


def test_the_overview_names_every_item_and_the_cells_that_are_worse() -> None:
    standing, worse, times = to_markdown(by_signature(shipped_runs())).split("\n\n")
    names = [line.split(" | ")[0].strip("| ") for line in standing.splitlines()[2:]]
    assert names == [item.number for item in ITEMS.values()]
    assert all(line.rstrip(" |").rpartition(" ")[2].startswith("−") for line in worse.splitlines()[2:])
    assert "| cifar100 | PuriDivER |" in times


@pytest.mark.skipif(not (ROOT / "REPRODUCTION.md").is_file(), reason="only in a checkout")
def test_the_page_on_the_paper_has_the_overview_of_the_ledger() -> None:
    """After a change to the ledger: put there what `odedm paper --markdown` prints."""
    page = (ROOT / "REPRODUCTION.md").read_text(encoding="utf-8")
    assert to_markdown(by_signature(shipped_runs())) in page


def measure(experiment: dict[str, Any], matrix: list[list[float]]) -> Result:
    shared: dict[str, Any] = {"classes": [], "seconds": {"train": 4.0}, "class_counts": [], "provenance": {}}
    return Result.measure(experiment=experiment, class_il=matrix, task_il=matrix, **shared)


def finished(tmp_path: Path, **changes: object) -> FinishedRun:
    """A finished run of the paper's first plan for DER, as far as a table looks at it."""
    plan = next(plan for plan in study_of(ITEMS["table5"]).experiments() if plan.method == "der")
    described = json.loads(json.dumps(plan.describe()))
    described |= {"memory": {"name": "reservoir", "capacity": 200}, "device": "cuda", **changes}
    matrix = [[50.0] * (i + 1) for i in range(5)]
    return FinishedRun(tmp_path, measure(described, matrix))


def test_a_run_counts_where_it_is_what_the_paper_ran(tmp_path: Path) -> None:
    run = finished(tmp_path)
    cells = paper_cells(("table1",), ("cifar10",), [run])
    assert [cell.cell.variant for cell in cells if cell.ours] == ["none", "none"]
    assert finding(cells) == f"2 too few seeds of {len(cells)} printed"
    assert progress(ITEMS["table5"], by_signature([run])).done == [run]
    for changes in ({"batch": 1}, {"net": "cnn"}, {"memory": {"name": "reservoir", "capacity": 100}}):
        other = finished(tmp_path, **changes)
        assert not [cell for cell in paper_cells(("table1",), ("cifar10",), [other]) if cell.ours]
        assert progress(ITEMS["table5"], by_signature([other])).done == []


def test_runs_that_are_older_than_a_change_of_their_algorithm_are_marked(tmp_path: Path) -> None:
    plain = finished(tmp_path)
    odedm_run = finished(tmp_path, memory={"name": "odedm", "capacity": 200})
    assert changes_since([plain]) == {}
    assert {*changes_since([odedm_run, odedm_run]).values()} == {2}
    odedm_run.result.provenance["finished"] = "2026-11-20T00:00:00+00:00"
    assert changes_since([odedm_run]) == {}


def test_rows_are_named_by_their_share_at_every_capacity() -> None:
    assert [variant_title(f"odedm-{k}", "cifar100", size) for k, size in ((1, 200), (3, 500), (28, 5120))] == (
        ["ODEDM 50 %"] * 3
    )


def test_what_others_ran_on_a_gpu_is_drawn_here_without_running(tmp_path: Path) -> None:
    """Neither data nor GPU is needed: the ledger is enough."""
    output = odedm("paper", "figure3c", "--no-run", "--out", tmp_path / "paper")
    assert "Rows of each class in memory: 10 runs." in output
    assert (tmp_path / "paper" / "figure3c" / "class_density.png").is_file()
    assert not list((tmp_path / "paper").rglob("result.json"))
