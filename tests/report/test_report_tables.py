"""Grouping, labels, verdicts and the table in a terminal, as Markdown and as CSV."""

from __future__ import annotations

import csv
import io
import re
from dataclasses import replace
from pathlib import Path

import pytest
from report_runs import Fabricate, table_of, with_extra
from rich.console import Console

from odedm.core.errors import UsageError
from odedm.paper.items import SHIPPED
from odedm.report import tables, terminal
from odedm.report.columns import ACC_LAST, METRICS
from odedm.report.load import gather, load
from odedm.report.summary import Table, summarise
from odedm.report.verdicts import significance, warnings
from odedm.report.wording import format_interval, number
from odedm.results.folder import FILE


def test_runs_that_differ_by_seed_device_and_threads_form_one_group(fabricate: Fabricate) -> None:
    table = table_of(
        fabricate(seed=0), fabricate(seed=1, over={"device": "cuda", "threads": 8}), fabricate(seed=2, acc=56.0)
    )
    (row,) = table.rows
    assert [run.seed for run in row.group.runs] == [0, 1, 2]
    assert row.values["acc_last"].mean == pytest.approx(52.0)
    assert row.values["acc_last"].error == pytest.approx(2.0)
    assert row.values["seconds"].mean == pytest.approx(4.5)


def test_same_seed_twice_is_an_error_that_names_both_folders(fabricate: Fabricate) -> None:
    first, second = fabricate(seed=3, name="one"), fabricate(seed=3, name="two")
    with pytest.raises(UsageError, match=r"Seed 3 .*one.*two"):
        table_of(first, second)


def test_the_same_folder_given_twice_counts_once(fabricate: Fabricate, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = fabricate()
    monkeypatch.chdir(folder.parent)
    assert len(load([folder, Path(folder.name), folder.parent, folder / FILE])) == 1


def test_labels_name_only_what_differs(fabricate: Fabricate) -> None:
    assert [g.label for g in table_of(fabricate(memory="reservoir"), fabricate()).groups] == [
        "DER++ · reservoir",
        "DER++ · ODEDM",
    ]
    more = table_of(
        fabricate(memory="reservoir", capacity=200, root="more"),
        fabricate(capacity=200, root="more"),
        fabricate(capacity=500, root="more"),
        fabricate(capacity=500, root="more", knobs={"k": 5}),
        fabricate(capacity=500, root="more", knobs={"k": 5, "dac": None}),
        fabricate("er", "reservoir", capacity=500, root="more", over={"options": {"lr": 0.1}}),
    )
    assert [group.label for group in more.groups] == [
        "ER · reservoir · λ=500",
        "DER++ · reservoir · λ=200",
        "DER++ · ODEDM · λ=200 · k=3 · DAC 3×4",
        "DER++ · ODEDM · λ=500 · k=3 · DAC 3×4",
        "DER++ · ODEDM · λ=500 · k=5 · DAC 3×4",
        "DER++ · ODEDM · λ=500 · k=5 · no DAC",
    ]
    assert len({group.label for group in more.groups}) == len(more.groups)


def test_every_method_has_its_display_name(fabricate: Fabricate) -> None:
    names = ["er", "der", "derpp", "refresh", "fdr", "icarl", "puridiver", "vrmcl", "pocl", "mine"]
    table = table_of(*(fabricate(name, "reservoir") for name in reversed(names)))
    assert [group.family for group in table.groups] == [
        "ER", "DER", "DER++", "DER++refresh", "FDR", "iCaRL", "PuriDivER", "VR-MCL", "POCL", "mine",
    ]  # fmt: skip


def test_partner_is_equal_in_everything_but_memory_and_replay(fabricate: Fabricate) -> None:
    table = table_of(
        fabricate(memory="reservoir", capacity=100, acc=40.0),
        fabricate(memory="reservoir", capacity=200, acc=45.0),
        fabricate(capacity=200, acc=50.0, knobs={"gamma": 0.5}),
        fabricate(capacity=300, acc=50.0),
        fabricate(capacity=200, acc=60.0, over={"net": "resnet18"}),
    )
    changes = {row.group.label: row.differences["acc_last"].estimate.mean for row in table.compared}
    assert list(changes.values()) == pytest.approx([5.0])


def test_difference_is_paired_by_seed(fabricate: Fabricate) -> None:
    folders = [fabricate(memory="reservoir", seed=seed, acc=acc) for seed, acc in ((0, 20.0), (1, 40.0), (2, 60.0))]
    folders += [fabricate(seed=seed, acc=acc) for seed, acc in ((2, 63.0), (1, 42.0), (0, 21.0), (9, 0.0))]
    (row,) = table_of(*folders).compared
    change = row.differences["acc_last"]
    assert change.by_seed == pytest.approx({0: 1.0, 1: 2.0, 2: 3.0})
    assert change.estimate.error == pytest.approx(3.0**-0.5)


FIVE = [12.0, 13.0, 11.0, 12.5, 14.0]


@pytest.mark.parametrize(
    ("changes", "mark"),
    [
        (FIVE, "weak-up"),
        ([-change for change in FIVE], "weak-down"),
        ([*FIVE, 12.0, 13.0], "up"),
        ([-5.0] * 7, "down"),
        ([3.0, -2.0, 1.0, 0.5, -1.5], "open"),
        ([12.0, 13.0], "open"),
        ([8.0], "open"),
    ],
)
def test_a_change_is_marked_by_interval_and_p(fabricate: Fabricate, changes: list[float], mark: str) -> None:
    folders = [fabricate(memory="reservoir", seed=seed, acc=40.0) for seed in range(len(changes))]
    folders += [fabricate(seed=seed, acc=40.0 + change) for seed, change in enumerate(changes)]
    (row,) = table_of(*folders).compared
    assert significance(row, ACC_LAST) == mark


def compared(fabricate: Fabricate, seeds: int, methods: int, root: str = "runs") -> Table:
    """So many methods, each better by 5 points on every seed."""
    folders = [
        fabricate(f"m{m}", memory, seed=seed, acc=40.0 + seed + 5.0 * (memory == "odedm"), saved=None, root=root)
        for m in range(methods)
        for memory in ("odedm", "reservoir")
        for seed in range(seeds)
    ]
    return table_of(*folders)


def test_holm_is_over_the_comparisons_of_the_table_in_one_metric(fabricate: Fabricate) -> None:
    table = compared(fabricate, seeds=6, methods=3)
    assert [row.differences["acc_last"].p for row in table.compared] == [2 / 64] * 3
    assert [row.corrected["acc_last"] for row in table.compared] == [3 * 2 / 64] * 3
    assert [row.corrected["acc_mean"] for row in table.compared] == [3 * 2 / 64] * 3
    assert table.tested == 3
    assert warnings(table) == ["With 6 seeds and 3 comparisons Holm's p cannot fall below 0.094."]


def test_few_seeds_are_noted_and_enough_are_not(fabricate: Fabricate) -> None:
    assert warnings(compared(fabricate, seeds=4, methods=1)) == [
        "Changes over fewer than 5 seeds have Student's t interval, and none of them is called clear."
    ]
    assert warnings(compared(fabricate, seeds=7, methods=1, root="more")) == []


def test_without_a_comparison_it_is_said_why(fabricate: Fabricate) -> None:
    assert warnings(table_of(fabricate()))[0].startswith("Nothing to compare")
    apart = table_of(fabricate(seed=5, root="b"), fabricate(memory="reservoir", seed=6, root="b"))
    assert "and share a seed" in warnings(apart)[0]


def test_where_groups_have_other_seeds_a_change_is_said_not_to_be_the_difference_of_means(fabricate: Fabricate):
    for seed, acc in enumerate((40.0, 50.0, 90.0)):
        fabricate("er", "reservoir", seed=seed, acc=acc)
    folders = [fabricate("er", "odedm", seed=seed, acc=acc) for seed, acc in enumerate((41.0, 51.0))]
    for named in (None, "er reservoir"):
        table = summarise(load([folders[0].parent]), named)
        (note,) = [note for note in warnings(table) if note.startswith("Seeds are not the same")]
        assert "ER · ODEDM. A change is over the seeds that both have" in note
    fabricate("er", "odedm", seed=2, acc=91.0)
    assert not any("not the same" in note for note in warnings(summarise(load([folders[0].parent]))))


def test_groups_without_a_partner_are_named_beside_those_that_have_one(fabricate: Fabricate) -> None:
    slow, quick = ({"options": {"lr": rate}} for rate in (0.03, 0.1))
    pair = [fabricate("er", memory, over=slow) for memory in ("reservoir", "odedm")]
    tuned = [fabricate("der", "reservoir", over=slow), fabricate("der", over=quick)]
    assert warnings(table_of(*pair, *tuned)) == [
        "No runs without ODEDM share all other settings, and a seed, with DER · ODEDM · lr=0.1. `odedm report "
        "--baseline NAME` compares all with one group."
    ]


def pair_of_groups(fabricate: Fabricate) -> Table:
    folders = [fabricate(memory="reservoir", seed=seed, acc=30.0 + seed) for seed in range(3)]
    return table_of(*folders, *(fabricate(seed=seed, acc=40.0 + 2 * seed) for seed in range(3)))


def test_markdown_can_be_read_back(fabricate: Fabricate) -> None:
    table = pair_of_groups(fabricate)
    lines = tables.to_markdown(table).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert {len(row) for row in rows} == {12}
    read = [dict(zip(rows[0], row, strict=True)) for row in rows[2:]]
    assert [row["Runs"] for row in read] == ["DER++ · reservoir", "DER++ · ODEDM"]
    assert read[1]["ACC_5"] == "42.0 ± 1.2"
    assert read[1]["Change in ACC_5"] == "+11.0 [8.5, 13.5], p = 0.25"
    assert read[0]["Change in ACC_5"] == ""


def test_csv_can_be_read_back_in_full_precision(fabricate: Fabricate) -> None:
    table = pair_of_groups(fabricate)
    read = list(csv.DictReader(io.StringIO(tables.to_csv(table))))
    for line, row in zip(read, table.rows, strict=True):
        assert line["label"] == row.group.label
        assert line["seeds"] == "0 1 2"
        for metric in METRICS:
            assert float(line[metric.key]) == row.values[metric.key].mean
            assert float(line[f"{metric.key}_error"]) == row.values[metric.key].error
            assert float(line[f"{metric.key}_sd"]) == row.values[metric.key].sd
    change = table.rows[1].differences["acc_last"]
    assert float(read[1]["acc_last_change"]) == change.estimate.mean
    assert (float(read[1]["acc_last_change_low"]), float(read[1]["acc_last_change_high"])) == change.interval
    assert float(read[1]["acc_last_change_p"]) == float(read[1]["acc_last_change_holm"]) == 0.25
    assert read[1]["acc_last_paper"] == read[1]["acc_last_paper_verdict"] == ""
    assert read[0]["acc_last_change"] == ""


def printed(table: Table, width: int) -> str:
    console = Console(width=width, file=io.StringIO(), color_system=None)
    terminal.print_table(table, console)
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [60, 80, 100, 120, 160])
def test_terminal_table_loses_no_final_accuracy_and_no_change(fabricate: Fabricate, width: int) -> None:
    folders = [fabricate("refresh", "reservoir", seed=seed, capacity=5120, acc=31.0 + 40 * seed) for seed in range(2)]
    folders += [fabricate("refresh", seed=seed, capacity=5120, acc=100.0, task_il=70.0 + seed) for seed in range(2)]
    folders += [fabricate("puridiver", capacity=200, knobs={"k": 5}), fabricate("puridiver", capacity=200)]
    table = table_of(*folders)
    text = printed(table, width)
    assert max(len(line.rstrip()) for line in text.splitlines()) <= width
    shown = {*re.findall(r"[+−]?[0-9]+\.[0-9]", text)}
    for row in table.rows:
        value = row.values["acc_last"]
        assert number(value.mean) in shown
        assert value.error is None or number(value.error) in shown
        for pair in [row.differences["acc_last"]] if row.differences else []:
            assert {number(pair.estimate.mean, sign=True), *map(number, pair.interval or ())} <= shown
    assert ("need 120 columns" in " ".join(text.split())) == (width < 120)


@pytest.mark.parametrize("width", [80, 120])
def test_beside_the_papers_numbers_rows_keep_their_names_and_changes(width: int) -> None:
    table = gather([SHIPPED / "table1.jsonl.gz"])
    text = printed(replace(table, rows=table.rows[:9]), width)
    words = " ".join(text.split())
    assert all(row.group.label.split(" · ")[0] in words for row in table.rows[:9])
    assert words.count("ODEDM") > 5
    intervals = {format_interval(row.interval(ACC_LAST)) for row in table.rows[:9] if row.interval(ACC_LAST)}
    assert intervals
    assert all(interval in text for interval in intervals)
    assert "13 reproduced, 6 not comparable, 5 better, 3 worse" in words


def test_the_terminal_says_what_its_signs_mean(fabricate: Fabricate) -> None:
    text = printed(pair_of_groups(fabricate), 130)
    assert (
        "± standard error over seeds; change against the same runs without ODEDM, paired by seed, with its 95 %" in text
    )
    alone = printed(table_of(fabricate("er", "reservoir")), 130)
    assert "±" not in alone
    assert "interval" not in alone


def test_names_stand_beside_their_numbers_where_there_is_room(fabricate: Fabricate) -> None:
    table = pair_of_groups(fabricate)
    (line,) = [line for line in printed(table, 130).splitlines() if line.startswith("DER++ · ODEDM")]
    assert "42.0 ± 1.2" in line
    assert "+11.0 [8.5, 13.5]" in line
    (line,) = [line for line in printed(table, 80).splitlines() if line.startswith("DER++ · ODEDM")]
    assert "42.0 " in line


def test_hostile_names_stay_text(fabricate: Fabricate) -> None:
    table = table_of(fabricate("[red]a|b\x1b[31m\n<script>", "reservoir"))
    shown = printed(table, 100)
    assert "[red]a|b" in shown.replace("\n", "")
    assert "\x1b" not in shown
    assert len(tables.to_markdown(table).splitlines()) == 3
    assert "<script>" not in tables.to_markdown(table)


def test_tables_of_different_lengths_say_acc_t(fabricate: Fabricate) -> None:
    table = table_of(fabricate(tasks=5), fabricate(tasks=2))
    assert table.title(ACC_LAST) == "ACC_T"
    assert [group.label for group in table.groups] == ["DER++ · ODEDM · 2 tasks", "DER++ · ODEDM · 5 tasks"]


@pytest.mark.parametrize(
    ("key", "value", "what"),
    [
        ("class_il", [[1.0], [2.0]], "class_il"),
        ("class_il", "none", "class_il"),
        ("acc", [], "accuracies"),
        ("acc_last", float("nan"), "NaN is no JSON"),
        ("acc_last", "high", "summary number"),
        ("seconds", {"train": "long"}, "seconds"),
        ("class_counts", [3], "class_counts"),
        ("provenance", 3, "provenance"),
        ("experiment", {"seed": "zero", "memory": {}}, "seed"),
        ("experiment", [], "experiment"),
        ("forgetting_rate", [1.0], "forgetting_rate"),
    ],
)
def test_broken_results_are_refused_by_name(fabricate: Fabricate, key: str, value: object, what: str) -> None:
    folder = with_extra(fabricate(), **{key: value})
    with pytest.raises(UsageError, match=what) as error:
        load([folder])
    assert str(folder / FILE) in str(error.value)


def test_no_runs_is_an_error() -> None:
    with pytest.raises(UsageError, match="no runs"):
        summarise([])
