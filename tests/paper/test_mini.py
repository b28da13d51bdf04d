"""The paper in miniature: every run has its small one, and the page has every table and figure as the paper has it."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest
from commands import odedm

from odedm.core.registry import METHODS
from odedm.data import opening
from odedm.data.opening import load_dataset
from odedm.execute import scheduler
from odedm.execute.backend import InProcessBackend
from odedm.paper import dac_timing
from odedm.paper.dac_timing import TimingPlan
from odedm.paper.items import ITEMS, keeps_evidence, run_signature, study_of
from odedm.paper.mini import SCALE, miniature
from odedm.paper.paper_cells import paper_cells
from odedm.paper.paper_page import section
from odedm.stream.dataset import Dataset
from odedm.training.preparation import prepare

TINY = ["--only", "method=refresh,puridiver,agem", "--only", "capacity=200", "--only", "imbalance=standard"]
TINY += ["--only", "rho=none,0.75,1.0", "--seeds", "1", "--device", "cpu", "--workers", "1"]


def test_every_run_of_the_paper_has_a_small_one_that_can_be_made() -> None:
    data = {name: load_dataset(name) for name in ("fashion-mini", "fashion-mini-20", "fashion-mini-40")}
    small = {}
    for item in ITEMS.values():
        plans = study_of(item).with_seeds(1).experiments() if item.study else []
        for plan in plans:
            if plan.memory.name != "none":
                tiny = miniature(plan)
                small[run_signature(tiny.describe())] = tiny
    assert len(small) > 500
    eight = {"der", "derpp", "refresh", "fdr", "icarl", "puridiver", "vrmcl", "pocl"}
    assert {plan.method for plan in small.values() if plan.data == "fashion-mini"} >= eight
    assert {plan.method for plan in small.values()} <= set(METHODS)
    kinds = {(plan.method, plan.data, plan.memory.capacity, plan.memory.name): plan for plan in small.values()}
    dual = [plan.memory for plan in small.values() if plan.memory.name == "odedm"]
    assert all(memory.selection and memory.short_policy != "auto" for memory in dual), "no default of today's"
    for signature, plan in small.items():
        if plan in kinds.values() or plan.memory.name == "odedm":
            prepared = prepare(replace(plan, device="cpu"), data[plan.data]).experiment
            assert run_signature(prepared.describe()) == signature, "a result is found by its plan"


def test_the_pictures_that_stand_for_more_classes_are_those_of_fashion_mini() -> None:
    few = load_dataset("fashion-mini")
    for turns, name in ((2, "fashion-mini-20"), (4, "fashion-mini-40")):
        larger = load_dataset(name)
        assert larger.classes == 10 * turns
        assert larger.label.bincount().unique().tolist() == [300 // turns]
        assert larger.label.div(turns, rounding_mode="floor").equal(few.label)
        row = int((larger.label % turns == 1).nonzero()[0])
        assert larger.image[row].equal(few.image[row].rot90(1, (1, 2)))
        assert not larger.transform.flip
    small = [(table["name"], table["tasks"], table["classes"]) for table in SCALE["data"].values()]
    assert all(
        (data.tasks, data.classes) == (tasks, classes) for name, tasks, classes in small if (data := load_dataset(name))
    )


def test_runs_whose_pictures_are_shown_keep_them_whichever_table_asks() -> None:
    plans = [plan for plan in study_of(ITEMS["table5"]).experiments() if plan.seed == 0]
    signatures = [run_signature(miniature(plan).describe()).rpartition("seed ")[0] for plan in plans]
    kept = [plan for plan, signature in zip(plans, signatures, strict=True) if signature in keeps_evidence()]
    assert {(plan.method, plan.memory.capacity) for plan in kept} == {("refresh", 200)}
    assert {getattr(plan.memory, "rho", None) for plan in kept} == {None, 0.75}


@pytest.mark.parametrize(
    ("name", "columns", "rows"),
    [
        ("table1", ("CIFAR10", "Standard", "ACC_5"), ["DER", "DER w/ ODEDM", "DER++", "DER++ w/ ODEDM"]),
        ("table3", ("25%", "ACC_5"), ["2", "3", "4"]),
        ("table4", ("M = 50",), ["A-GEM", "GSS", "ER", "MIR", "GDumb", "ASER", "CoPE", "DER++"]),
        ("table5", ("Standard", "ACC_5"), ["DER (ODEDM-6)", "DER (ODEDM-13)", "DER (ODEDM-19)", "DER++ (ODEDM-6)"]),
        ("table8", ("Standard", "ACC_5"), ["PuriDivER", *(f"PuriDivER (ODEDM-{k})" for k in (6, 13, 19))]),
        ("table9", ("Standard", "ACC_10"), ["DER++refresh", "DER++refresh (ODEDM-1)"]),
        ("table10", ("Standard", "ACC_5^Task-IL"), ["DER", "DER (ODEDM-6)", "DER (ODEDM-13)", "DER (ODEDM-19)"]),
        ("figure4", ("ACC_5",), ["Sinkhorn", "L2", "L1", "MMD"]),
    ],
)
def test_tables_have_the_papers_headings_and_rows_in_its_order(
    name: str, columns: tuple[str, ...], rows: list[str]
) -> None:
    item = ITEMS[name]
    (table,) = section(item, paper_cells(item.tables, item.data, ())).tables
    assert table.columns[0] == columns
    first = [*next(iter(table.groups.values()))]
    assert first[: len(rows)] == rows or sorted(first) == sorted(rows)


@pytest.fixture
def few_pictures(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every tenth row of each class, and runs in this process."""

    def thinned(name: str) -> Dataset:
        data = load_dataset(name)
        rows = [part for cls in range(data.classes) for part in (data.label == cls).nonzero().flatten()[::10].tolist()]
        return replace(data, image=data.image[rows], label=data.label[rows])

    monkeypatch.setattr(opening, "load_dataset", thinned)
    monkeypatch.setattr(scheduler, "open_backend", lambda _jobs, _config, data: InProcessBackend(data))
    monkeypatch.setattr(dac_timing, "MINI", TimingPlan("fashion-mini", rows=(20, 30), k=(2, 4), repeats=1))


def parts(page: Path) -> dict[str, str]:
    """The sections of a page by the name of their table or figure."""
    sections = re.findall(r'<section id="(\w+)">(.*?)</section>', page.read_text(encoding="utf-8"), re.DOTALL)
    return dict(sections)


def test_all_is_made_small_as_one_page_and_goes_on_where_it_was_stopped(few_pictures: None, tmp_path: Path) -> None:
    """From the command to the page, for every table and figure."""
    one = ["--only", "method=refresh", "--only", "capacity=200", "--only", "imbalance=standard", "--only", "rho=0.5"]
    odedm("paper", "table6", "--mini", *one, "--seeds", "1", "--device", "cpu", "--out", tmp_path / "mini")
    assert len(list((tmp_path / "mini").rglob("result.json"))) == 1
    how = ["--mini", *TINY, "--out", tmp_path / "mini"]
    output = odedm("paper", *how)
    runs = len(list((tmp_path / "mini").rglob("result.json"))) - 1
    assert f"{runs} small runs are done" in output, output
    shown = parts(tmp_path / "mini" / "paper.html") | parts(tmp_path / "mini" / "table6.html")
    for item in ITEMS.values():
        if item.name == "table11":
            continue  # as table6 without the plain rows
        part = shown[item.name]
        assert f"<b>{item.number}.</b>" in part
        numbers = re.findall(r"<td[^>]*>(?:<b>)?\d+", part)
        assert "data:image/svg+xml" in part if item.name.startswith("figure") else numbers, item.number
    assert "to start" not in odedm("paper", *how), "nothing is missing"


def test_what_cannot_be_made_small_is_a_sentence(tmp_path: Path) -> None:
    where = ["--out", tmp_path / "mini"]
    assert "Leave one out" in odedm("paper", "--mini", "--with-results", tmp_path / "x.jsonl.gz", *where, code=2)
    assert "no table on 'digits'" in odedm("paper", "--mini", "--data", "digits", *where, code=2)
    assert "leave the name and --mini out" in odedm("paper", "--mini", "--markdown", *where, code=2)
    assert "has method=scr" in odedm("paper", "--mini", "--only", "method=scr", *where, code=2)
    assert "Runs:          28" in odedm("paper", "table3", "--mini", "--seeds", "1", "--dry-run", *where)
    (tmp_path / "notes").mkdir()
    (tmp_path / "notes" / "mine.txt").write_text("mine")
    assert "not a study's folder" in odedm("paper", "table2", "--mini", "--out", tmp_path / "notes", code=2)
