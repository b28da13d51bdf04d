"""`odedm paper`: every table and figure of the paper by name, on forged copies of its data."""

from __future__ import annotations

import csv
import json
import xml.etree.ElementTree as ET
from pathlib import Path
from typing import Any

import pytest
import torch
from commands import odedm

from odedm.cli import paper_command
from odedm.core.errors import UsageError
from odedm.data import opening
from odedm.execute import scheduler
from odedm.execute.backend import InProcessBackend
from odedm.report.figures.printed_against_ours import printed_cells, save_printed_against_ours
from odedm.report.paper_overview import to_markdown
from odedm.report.paper_tables import beside, finding, to_latex, variant_title
from odedm.results.folder import FinishedRun
from odedm.results.packed import read_packed
from odedm.results.result import Result
from odedm.stream.dataset import Dataset, standardise
from odedm.study import paper_catalogue, paper_protocol
from odedm.study.paper_catalogue import ITEMS, progress, same_run, study_of
from odedm.study.paper_numbers import CLASSES, numbers, plain

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


def forged(name: str, per_class: int, side: int = 32) -> Dataset:
    """Tiny pictures under the name of a data set of the paper's, a colour for each class."""
    classes = CLASSES[plain(name)]
    label = torch.arange(classes).repeat_interleave(per_class)
    rng = torch.Generator().manual_seed(0)
    image = torch.randint(0, 60, (len(label), 3, side, side), generator=rng) + label[:, None, None, None] % 190
    image = image.to(torch.uint8)
    tests = image[::per_class], label[::per_class]
    return Dataset(name, image, label, *tests, tuple(map(str, range(classes))), standardise(image), 10)


@pytest.fixture
def small_copies(monkeypatch: pytest.MonkeyPatch) -> None:
    """CIFAR-10 and ImageNet-R as tiny forged copies, and networks of a size that goes with them."""
    copies = {"cifar10": forged("cifar10", 8), "imagenet-r": forged("imagenet-r", 2)}

    def open_copy(name: str) -> Dataset:
        if name not in copies:
            raise UsageError(f"'{name}' is not here.")
        return copies[name]

    monkeypatch.setattr(opening, "load_dataset", open_copy)
    monkeypatch.setattr(scheduler, "open_backend", lambda *_: InProcessBackend())  # which has the copies
    monkeypatch.setitem(paper_protocol.NETS, "cifar10", ("resnet18", {"width": 2}))
    vit = {"patch": 16, "depth": 1, "width": 12, "heads": 3, "weights": ""}
    monkeypatch.setitem(paper_protocol.NETS, "imagenet-r", ("vit", vit))
    monkeypatch.setattr(paper_catalogue, "_plans", paper_catalogue._plans.__wrapped__)  # noqa: SLF001 - others keep theirs


def odedm_list(monkeypatch: pytest.MonkeyPatch, *names: str, out: Path = Path("runs/paper")) -> str:
    """What `odedm paper` says, of some alone: all take seconds."""
    monkeypatch.setattr(paper_command, "ITEMS", {name: ITEMS[name] for name in names})
    return odedm("paper", "--out", out)


def test_twelve_tables_and_five_figures_are_there() -> None:
    tables = {table for item in ITEMS.values() for table in item.tables}
    assert tables == {place[0] for place in numbers()}
    assert len([item for item in ITEMS.values() if item.tables]) == 12
    assert {name[:7] for name in ITEMS if name.startswith("figure")} == {f"figure{number}" for number in range(1, 6)}
    for name, item in ITEMS.items():
        assert item.study or item.without, name


def test_no_name_is_cut_in_a_narrow_terminal_and_results_from_elsewhere_have_a_line(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    names = [name for name, item in ITEMS.items() if not item.study] + ["task-il-tiny-imagenet", "full-tiny-imagenet"]
    monkeypatch.setattr(paper_command.out, "_width", 80)
    said = odedm_list(monkeypatch, *names, out=tmp_path)
    assert all(f"│ {name} " in said for name in names)
    assert "…" not in said
    assert max(map(len, said.partition("└")[0].splitlines())) == 80
    assert f"--with-results FILE, e.g. {paper_command.OURS} of odedm's repository" in said
    assert (ROOT / paper_command.OURS).is_file()


def test_figure_1_is_a_drawing_of_our_own() -> None:
    path = ROOT / ITEMS["figure1"].without.removeprefix("our own diagram: ")
    assert ET.parse(path).getroot().tag.endswith("svg")


def test_a_table_is_made_as_it_is_printed_and_counted_as_done(
    small_copies: None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    wishes = ["table1", "--data", "cifar10", *TINY, "--only", "rho=None,0.25"]
    assert "Runs:          4" in odedm("paper", *wishes, "--dry-run")
    said = odedm("paper", *wishes)
    assert "final ACC, cifar10, standard" in said
    assert "21.3 ± 2.6" in said
    text = (tmp_path / "runs/paper/table1/table1.csv").read_text(encoding="utf-8")
    rows = list(csv.DictReader(text.splitlines()))
    run = [row for row in rows if row["ours"]]
    assert {(row["method"], row["variant"], row["seeds"]) for row in run} == {
        ("der", "none", "2"),
        ("der", "odedm-best", "2"),
    }
    assert all(row["verdict"] in ("reproduced", "better", "worse") for row in run if row["metric"] == "acc_last")
    assert "begin{tabular}" in (tmp_path / "runs/paper/table1/table1.tex").read_text(encoding="utf-8")
    assert ", 4 done" in odedm("paper", "full-cifar10", *TINY, "--only", "rho=None,0.25"), "the same runs"
    listed = odedm_list(monkeypatch, "full-cifar10", "full-cifar100", "figure3c")
    lines = {line.split("│")[1].strip(): line for line in listed.splitlines() if line.startswith("│")}
    assert lines["full-cifar10"].split("│")[3:5] == [" 920  ", " 4    "]
    assert "1 ~ of 276" in lines["full-cifar10"]
    assert "No data here: cifar100." in listed
    assert "760 runs unmeasured" in lines["full-cifar100"].split("│")[5]
    assert lines["figure3c"].split("│")[5].strip() == "10 runs unmeasured", (
        "another method's seconds say nothing of its own"
    )
    assert " s + 800 runs unmeasured" in lines["full-cifar10"].split("│")[5], "DER was timed, others were not"


def test_a_figure_is_drawn_from_just_its_runs(small_copies: None, tmp_path: Path) -> None:
    said = odedm("paper", "figure3c", "--seeds", "1", "--device", "cpu", "--out", tmp_path / "paper")
    assert "Study 'paper': 2 runs" in said
    assert "λ=200:" in said
    assert (tmp_path / "paper/figure3c/class_density.png").is_file()


def test_imagenet_r_runs_on_a_forged_copy(small_copies: None, tmp_path: Path) -> None:
    wishes = ["--only", "capacity=200", "--only", "imbalance=standard", "--seeds", "1", "--device", "cpu"]
    said = odedm("paper", "imagenet-r", *wishes, "--out", tmp_path / "paper")
    assert "final ACC, imagenetr, standard" in said
    assert "2 not comparable, 2 too few seeds of 36 printed" in said


def test_what_cannot_be_made_is_a_sentence(tmp_path: Path) -> None:
    assert "leave the name out" in odedm("paper", "figure1", "--figure", tmp_path / "x.png", code=2)
    assert "there is nothing to draw" in odedm("paper", "--figure", tmp_path / "x.png", "--out", tmp_path, code=2)
    assert "docs/system.svg" in odedm("paper", "figure1")
    assert "did you mean" in odedm("paper", "figure3", code=2)
    assert "'digits' was given" in odedm("paper", "table1", "--data", "digits", code=2)
    assert "name it before them" in odedm("paper", "--seeds", "2", "--out", tmp_path / "paper", code=2)


def test_table_4_has_other_papers_numbers_beside_ours(tmp_path: Path) -> None:
    said = odedm("paper", "table4", "--dry-run", "--out", tmp_path / "paper")
    assert "Runs:          150" in said
    plans = study_of("table4").experiments()
    kinds = {(plan.method, plan.epochs, plan.retrieval, plan.memory.name) for plan in plans}
    assert {kind[0] for kind in kinds if kind[1] == 50} == {"gem", "agem", "fdr"}
    assert ("mir", 1, "mir", "native") in kinds
    assert ("joint", 1, "uniform", "none") in kinds
    ledger = ROOT / "docs" / "results" / "table1.jsonl.gz"
    said = odedm("paper", "table4", "--no-run", "--with-results", ledger, "--out", tmp_path / "paper")
    assert "literature values of another protocol" in said
    assert "4 not comparable of 24 printed" in said


def test_every_printed_number_that_was_run_is_a_dot(tmp_path: Path) -> None:
    ledger, picture = ROOT / "docs" / "results" / "table1.jsonl.gz", tmp_path / "x.png"
    finished = {same_run(run.result.experiment): run for run in read_packed(ledger)}
    cells = printed_cells(finished)
    assert len({cell.place[1:] for cell in cells}) == len(cells) > 100
    assert not any("best" in cell.place[5] for cell in cells)
    assert save_printed_against_ours(finished, picture) == len(cells)
    assert picture.read_bytes().startswith(b"\x89PNG")
    for wrong in (tmp_path / "notes.txt", tmp_path / "nowhere" / "x.png"):
        with pytest.raises(UsageError, match=r"ends with \.png, in a folder that is there"):
            save_printed_against_ours(finished, wrong)
        assert not wrong.exists()


def test_nothing_run_and_no_data_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nothing(name: str) -> Dataset:
        raise UsageError(f"'{name}' is not here.")

    monkeypatch.setattr(opening, "load_dataset", nothing)
    said = odedm_list(monkeypatch, "imagenet-r", "figure1", out=tmp_path / "paper")
    assert "docs/system.svg" in said
    line = next(each for each in said.splitlines() if "imagenet-r" in each)
    assert "nothing run yet" in line
    assert "90 runs unmeasured" in line
    assert "No data here: imagenet-r." in said


def test_the_overview_names_every_item_and_the_cells_that_are_worse() -> None:
    ledger = ROOT / "docs" / "results" / "table1.jsonl.gz"
    finished = {same_run(run.result.experiment): run for run in read_packed(ledger)}
    standing, worse, times = to_markdown(finished).split("\n\n")
    assert [line.split(" | ")[0].strip("| ") for line in standing.splitlines()[2:]] == list(ITEMS)
    assert all(line.rstrip(" |").rpartition(" ")[2].startswith("−") for line in worse.splitlines()[2:])
    assert "| cifar100 | PuriDivER |" in times


def measure(experiment: dict[str, Any], matrix: list[list[float]]) -> Result:
    shared: dict[str, Any] = {"classes": [], "seconds": {"train": 4.0}, "class_counts": [], "provenance": {}}
    return Result.measure(experiment=experiment, class_il=matrix, task_il=matrix, **shared)


def finished(tmp_path: Path, **changes: object) -> FinishedRun:
    """A finished run of the paper's first plan for DER, as far as a table looks at it."""
    plan = next(plan for plan in study_of("full-cifar10").experiments() if plan.method == "der")
    described = json.loads(json.dumps(plan.describe()))
    described |= {"memory": {"name": "reservoir", "capacity": 200}, "device": "cuda", **changes}
    matrix = [[50.0] * (i + 1) for i in range(5)]
    return FinishedRun(tmp_path, measure(described, matrix))


def test_a_run_counts_where_it_is_what_the_paper_ran(tmp_path: Path) -> None:
    run = finished(tmp_path)
    cells = beside(("table1",), ("cifar10",), [run])
    assert [cell.place[5] for cell in cells if cell.ours] == ["none", "none"]
    assert finding(cells) == f"2 too few seeds of {len(cells)} printed"
    assert progress("full-cifar10", {same_run(run.result.experiment): run}).done == [run]
    for changes in ({"batch": 1}, {"net": "cnn"}, {"memory": {"name": "reservoir", "capacity": 100}}):
        other = finished(tmp_path, **changes)
        assert not [cell for cell in beside(("table1",), ("cifar10",), [other]) if cell.ours]
        assert progress("full-cifar10", {same_run(other.result.experiment): other}).done == []


def test_a_run_at_another_rate_has_a_row_of_its_own(tmp_path: Path) -> None:
    usual = finished(tmp_path)
    tuned = finished(tmp_path, options={**usual.result.experiment["options"], "lr": 0.1})
    cells = [cell for cell in beside(("table1",), ("cifar10",), [usual, tuned]) if cell.ours]
    assert [cell.row[1] for cell in cells if cell.place[6] == "acc_last"] == ["without", "without lr=0.1"]
    assert "without lr=0.1" in to_latex(cells)


def test_rows_are_named_by_their_share_at_every_capacity() -> None:
    assert [variant_title(f"odedm-{k}", "cifar100", size) for k, size in ((1, 200), (3, 500), (28, 5120))] == (
        ["ODEDM 50 %"] * 3
    )


def test_what_others_ran_on_a_gpu_is_shown_here_without_running(tmp_path: Path) -> None:
    """Neither data nor GPU is needed: the ledger is enough."""
    ledger = ROOT / "docs" / "results" / "table1.jsonl.gz"
    how = ["--no-run", "--with-results", ledger, "--out", tmp_path / "paper"]
    said = odedm("paper", "table1", "--data", "cifar100", *how)
    assert "of 184 printed" in said
    assert not list((tmp_path / "paper").rglob("result.json"))
    assert "37.7 ± 2.3 without" in odedm("paper", "figure3c", *how)
    assert (tmp_path / "paper" / "figure3c" / "class_density.png").is_file()
