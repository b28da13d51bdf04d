"""Labels that cannot mislead, and comparisons of anything with anything."""

from __future__ import annotations

import csv
import io
from pathlib import Path

import pytest
from commands import odedm
from report_runs import Fabricate, groups_of, table_of, with_extra
from rich.console import Console

from odedm import Experiment, Native, UsageError
from odedm.core.plugins import register
from odedm.core.registry import METHODS
from odedm.execute.job import Job
from odedm.report import shared_settings
from odedm.report.load import load
from odedm.report.page import render
from odedm.report.summary import Table, summarise
from odedm.report.tables import escape, to_csv, to_latex, to_markdown
from odedm.report.terminal import print_table
from odedm.report.verdicts import headline, warnings


def beta(value: float) -> dict[str, object]:
    return {"options": {"lr": 0.03, "beta": value}}


def labels(*folders: Path) -> list[str]:
    return [group.label for group in groups_of(*folders)]


def test_what_differs_is_said_even_where_something_else_tells_the_rows_apart(fabricate: Fabricate) -> None:
    assert labels(fabricate(memory="reservoir", over=beta(0.5)), fabricate(over=beta(1.5))) == [
        "DER++ · reservoir · β=0.5",
        "DER++ · ODEDM · β=1.5",
    ]
    one, other = {"k": 3, "gamma": 1.0}, {"k": 6, "gamma": 0.5}
    assert labels(fabricate(root="b", knobs=one), fabricate(root="b", knobs=other)) == [
        "DER++ · ODEDM · k=3 · γ=1.0",
        "DER++ · ODEDM · k=6 · γ=0.5",
    ]
    assert labels(fabricate(root="c", over={"batch": 8}), fabricate(memory="reservoir", root="c")) == [
        "DER++ · reservoir · batch=32",
        "DER++ · ODEDM · batch=8",
    ]


def test_what_comes_with_a_method_a_memory_or_the_data_is_no_difference(fabricate: Fabricate) -> None:
    assert labels(
        fabricate("er", "reservoir", over={"options": {"lr": 0.1}}),
        fabricate("derpp", "reservoir", over=beta(0.5)),
        fabricate("icarl", "native", knobs={"policy": "herded"}, over={"options": {"lr": 0.2}}),
    ) == ["ER · reservoir", "DER++ · reservoir", "iCaRL · herded"]
    half, whole = {"precision": "bf16"}, {"precision": "tf32"}
    assert labels(fabricate(root="p", over=half), fabricate("vrmcl", root="p", over=whole)) == [
        "DER++ · ODEDM",
        "VR-MCL · ODEDM",
    ]
    assert labels(fabricate(root="q", over=half), fabricate(root="q", over=whole)) == [
        "DER++ · ODEDM · precision=bf16",
        "DER++ · ODEDM · precision=tf32",
    ]
    assert labels(fabricate(root="d"), fabricate(root="d", over={"data": "digits", "net": "mlp"})) == [
        "DER++ · ODEDM · digits",
        "DER++ · ODEDM · fashion-mini",
    ]


def test_a_size_is_named_as_it_was_given(fabricate: Fabricate) -> None:
    quarter, half, given = {"rho": 0.25, "k": 2}, {"rho": 0.5, "k": 5}, {"rho": None, "k": 5}
    assert labels(*(fabricate(root="a", knobs=settings) for settings in (quarter, half))) == [
        "DER++ · ODEDM · ρ=0.25",
        "DER++ · ODEDM · ρ=0.5",
    ]
    assert sorted(labels(*(fabricate(root="b", knobs=settings) for settings in (quarter, given)))) == [
        "DER++ · ODEDM · k=5",
        "DER++ · ODEDM · ρ=0.25",
    ], "k where k was given"
    sizes = [fabricate(root="c", capacity=size, knobs={"rho": 0.25, "k": k}) for size, k in ((20, 2), (40, 5))]
    assert labels(*sizes) == ["DER++ · ODEDM · λ=20", "DER++ · ODEDM · λ=40"], "k follows from λ and ρ, which are said"
    sizes = [fabricate(root="s", capacity=size, knobs={"rho": None, "k": k}) for size, k in ((20, 2), (40, 5))]
    assert labels(*sizes) == ["DER++ · ODEDM · λ=20 · k=2", "DER++ · ODEDM · λ=40 · k=5"]
    assert labels(*(fabricate(root="d", knobs=settings) for settings in (quarter, quarter | {"k": 3}))) == [
        "DER++ · ODEDM · k=2",
        "DER++ · ODEDM · k=3",
    ], "runs of one ρ and λ differ in it"
    assert labels(fabricate(root="e", knobs=quarter)) == ["DER++ · ODEDM"]


def test_no_two_labels_are_alike_however_long_the_values(fabricate: Fabricate) -> None:
    names = labels(*(fabricate(over={"net_options": {"way": "x" * 60 + end}}) for end in "ab"))
    assert len(set(names)) == 2


def test_a_policy_of_ones_own_has_its_name_everywhere(fabricate: Fabricate) -> None:
    folder = fabricate("er", "native", knobs={"policy": "mine"})
    table = table_of(folder)
    for text in (to_markdown(table), to_latex(table)):
        assert "mine" in text
        assert "native" not in text
    assert next(csv.DictReader(io.StringIO(to_csv(table))))["memory"] == "mine"
    assert "er with mine on" in odedm("runs", "show", folder)
    plan = Experiment(Native(20, policy="task-quota"), method="er")
    assert Job("key", plan, folder).title == "er · task-quota · λ=20 · seed 0"


def test_every_form_has_the_same_labels_and_csv_every_setting(fabricate: Fabricate) -> None:
    table = table_of(fabricate(memory="reservoir", over=beta(0.5)), fabricate(over=beta(1.5)))
    console = Console(width=200, file=io.StringIO(), color_system=None)
    print_table(table, console)
    for line in table.lines:
        assert line.label in console.file.getvalue()  # type: ignore[attr-defined]
        assert line.label in to_markdown(table)
        assert line.label in render(table)
        assert escape(line.label) in to_latex(table)
    plain, dual = csv.DictReader(io.StringIO(to_csv(table)))
    assert (plain["label"], plain["options.beta"], dual["options.beta"]) == (table.groups[0].label, "0.5", "1.5")
    assert [plain[f"memory.{name}"] for name in ("k", "dac", "mixup")] == ["", "", ""]
    assert [dual[f"memory.{name}"] for name in ("k", "dac", "mixup")] == ["3", "[3, 4]", "false"]
    assert (dual["batch"], dual["net"]) == ("32", "cnn")


def two_rates(fabricate: Fabricate, seeds: int = 6) -> list[Path]:
    """DER++ with two β on so many seeds, without ODEDM, and ER."""
    folders = [fabricate("er", "reservoir", seed=seed, acc=30.0, saved=None) for seed in range(seeds)]
    for value, acc in ((0.5, 40.0), (1.5, 44.0)):
        folders += [
            fabricate(memory="reservoir", over=beta(value), seed=seed, acc=acc, saved=None) for seed in range(seeds)
        ]
    return folders


def against(name: str, *folders: Path) -> Table:
    return summarise(load(folders), name)


def test_anything_is_compared_with_anything_by_seed(fabricate: Fabricate, tmp_path: Path) -> None:
    table = against("DER++ · reservoir · β=0.5", *two_rates(fabricate))
    assert {row.group.label: row.differences["acc_last"].estimate.mean for row in table.compared} == {
        "ER · reservoir": -10.0,
        "DER++ · reservoir · β=1.5": 4.0,
    }
    page = render(table)
    assert "against DER++ · reservoir · β=0.5" in page
    assert "without ODEDM" not in page
    assert r"against DER++ $\cdot$ reservoir $\cdot$ $\beta$=0.5" in to_latex(table)
    output = odedm("report", tmp_path / "runs", "--baseline", "β=0.5", "--markdown", "--out", tmp_path / "x.html")
    assert "+4.0 [4.0, 4.0]" in output


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("reservoir", "fits 2 groups; name one by more of its words: 'DER"),
        ("GDumb", "No group .* There are: 'ER · res"),
    ],
)
def test_a_baseline_that_is_none_or_several_is_a_sentence(fabricate: Fabricate, name: str, message: str) -> None:
    with pytest.raises(UsageError, match=message):
        against(name, *two_rates(fabricate, 1))


def test_a_baseline_of_each_method_is_the_one_with_the_fewest_other_words(fabricate: Fabricate) -> None:
    folders = [fabricate(name, "reservoir", acc=acc, saved=None) for name, acc in (("er", 30.0), ("derpp", 40.0))]
    folders += [fabricate(name, "reservoir", acc=50.0, saved=None, over={"updates": 3}) for name in ("er", "derpp")]
    table = against("reservoir", *folders)
    assert {row.group.label: row.differences["acc_last"].estimate.mean for row in table.compared} == {
        "ER · reservoir · 3 updates": 20.0,
        "DER++ · reservoir · 3 updates": 10.0,
    }
    assert table.against == "'reservoir' of the same method"


def test_plain_is_the_memory_without_odedm_of_each_method_whatever_else_differs(fabricate: Fabricate) -> None:
    folders = [fabricate(name, "odedm", acc=50.0, saved=None, over={"options": {"lr": 0.1}}) for name in ("er", "fdr")]
    folders.append(fabricate("er", "reservoir", acc=30.0, saved=None))
    folders.append(fabricate("fdr", "native", acc=40.0, saved=None, knobs={"policy": "task-quota"}))
    changes = {
        row.group.label: row.differences["acc_last"].estimate.mean for row in against("plain", *folders).compared
    }
    assert changes == {"ER · ODEDM · lr=0.1": 20.0, "FDR · ODEDM · lr=0.1": 10.0}


def test_markdown_has_a_table_for_each_problem_the_best_first_against_a_baseline(fabricate: Fabricate) -> None:
    for capacity in (20, 40):
        for name, acc in (("er", 30.0), ("derpp", 40.0)):
            for memory, more in (("reservoir", 0.0), ("odedm", 5.0)):
                folder = fabricate(name, memory, acc=acc + more + capacity, capacity=capacity, saved=None)
    text = odedm("report", folder.parent, "--markdown", "--baseline", "reservoir")
    assert [line for line in text.splitlines() if line.startswith("## ")] == [
        "## fashion-mini, λ = 20",
        "## fashion-mini, λ = 40",
    ]
    rows = [line.split(" | ")[0] for line in text.split("## ")[1].splitlines() if line.startswith(("| DER", "| ER"))]
    assert rows == ["| DER++ · ODEDM", "| DER++ · reservoir", "| ER · ODEDM", "| ER · reservoir"]
    assert "+5.0" in text
    assert "4 runs; seed 0; device a processor." in text


def test_another_problem_is_not_compared(fabricate: Fabricate) -> None:
    table = against("standard", fabricate(), fabricate(acc=60.0, over={"imbalance": "imbalanced"}))
    assert table.compared == []
    assert warnings(table) == ["Not compared, as another problem or without a common seed: DER++ · ODEDM · imbalanced."]


def test_where_nothing_can_be_paired_it_says_how_to_compare(fabricate: Fabricate) -> None:
    (note,) = warnings(table_of(fabricate(memory="reservoir", over=beta(0.5)), fabricate(over=beta(1.5))))
    assert note.startswith("Nothing to compare: no two groups differ by the memory alone and share a seed.")
    assert "--baseline" in note


def modes(fabricate: Fabricate, **replay: str) -> Table:
    folders = []
    for method, mode in replay.items():
        cost = 2.0 if mode == "union" else 2.7
        folders += [with_extra(fabricate(method, "reservoir", seed=seed), sample_gradients=2.0) for seed in range(2)]
        folders += [
            with_extra(fabricate(method, seed=seed, acc=60.0 + seed, knobs={"replay": mode}), sample_gradients=cost)
            for seed in range(2)
        ]
    return table_of(*folders)


def test_runs_of_other_replay_modes_say_so_everywhere(fabricate: Fabricate) -> None:
    """A method may win by its mode alone: a default study compared two, and nothing said so."""
    table = modes(fabricate, er="union", mine="auxiliary")
    dual = [group.label for group in table.groups if not group.plain]
    assert dual == ["ER · ODEDM · union replay", "mine · ODEDM · auxiliary replay"]
    assert "Replay modes with ODEDM differ: union (ER); auxiliary (mine)." in to_latex(table)
    assert [row["memory.replay"] for row in csv.DictReader(io.StringIO(to_csv(table)))] == [
        "", "union", "", "auxiliary",
    ]  # fmt: skip
    assert headline(table)[0].startswith("The best final accuracy is")
    assert "replay" in headline(table)[0]


def test_a_change_is_odedms_only_where_both_sides_cost_the_same(fabricate: Fabricate) -> None:
    same = modes(fabricate, er="union")
    assert same.against == "the same runs without ODEDM"
    assert not same.costs_differ
    assert [row.differs_in for row in same.compared] == [[]]
    assert "Gradients" not in to_latex(same)
    other = modes(fabricate, derpp="auxiliary")
    assert [row.differs_in for row in other.compared] == [["gradients per row (2.0 and 2.7)"]]
    words = "the same runs without ODEDM (other gradients per row)"
    assert words in headline(other)[1]
    assert words in to_latex(other)
    assert words in render(other)
    assert "at 2.7 gradients per row" in headline(other)[0]
    rows = list(csv.DictReader(io.StringIO(to_csv(other))))
    assert [row["differs_in"] for row in rows] == ["", "gradients per row (2.0 and 2.7)"]
    assert [row["partner"] for row in rows] == ["", "DER++ · reservoir"]


def test_a_caption_is_the_same_whether_code_from_outside_is_loaded_or_not(fabricate: Fabricate) -> None:
    folders = [
        fabricate("mine", memory, over={"options": {"lr": 0.03, "beta": 0.5}}) for memory in ("reservoir", "odedm")
    ]
    unloaded = to_latex(table_of(*folders))
    shared_settings._defaults.cache_clear()
    # a class with a constant of that name and default
    register("methods", "mine", "odedm.methods.derpp:DERpp")
    try:
        assert to_latex(table_of(*folders)) == unloaded
        assert r"$\beta$=0.5 (mine)" in unloaded or r"$\beta$=0.5" in unloaded
    finally:
        METHODS.pop("mine")
