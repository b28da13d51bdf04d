"""Grouping, labels, verdicts and the table in a terminal, as Markdown and as CSV."""

from __future__ import annotations

import csv
import io
import re
from pathlib import Path

import pytest
from report_runs import Fabricate, table_of, with_extra
from rich.console import Console

from odedm.core.errors import UsageError
from odedm.report import tables, terminal
from odedm.report.load import load
from odedm.report.model import model
from odedm.report.statistics import FEWEST
from odedm.report.summary import ACC_LAST, METRICS, TOLD, Table, summarise
from odedm.report.verdicts import verdicts
from odedm.report.wording import number
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
    ("changes", "sentence"),
    [
        (
            FIVE,
            "ODEDM changed DER++ by +12.5 points of ACC_5 [11.2, 13.8] over 5 seeds (better in 5 of 5, p = 0.062): "
            "clear by the interval; p cannot be lower with 5 seeds.",
        ),
        (
            [-change for change in FIVE],
            "ODEDM changed DER++ by −12.5 points of ACC_5 [−13.8, −11.2] over 5 seeds (better in 0 of 5, p = 0.062): "
            "clear by the interval; p cannot be lower with 5 seeds.",
        ),
        (
            [3.0, -2.0, 1.0, 0.5, -1.5],
            "ODEDM changed DER++ by +0.2 points of ACC_5 [−1.9, 2.6] over 5 seeds (better in 3 of 5, p = 0.94).",
        ),
        (
            [12.0, 13.0],
            "ODEDM changed DER++ by +12.5 points of ACC_5 [6.1, 18.9] over 2 seeds (better in 2 of 2, p = 0.50).",
        ),
        ([8.0], "ODEDM changed DER++ by +8.0 points of ACC_5 on one seed."),
    ],
)
def test_verdicts(fabricate: Fabricate, changes: list[float], sentence: str) -> None:
    folders = [fabricate(memory="reservoir", seed=seed, acc=40.0) for seed in range(len(changes))]
    folders += [fabricate(seed=seed, acc=40.0 + change) for seed, change in enumerate(changes)]
    said = verdicts(table_of(*folders))
    said = [line.strip() for line in said if not line.endswith("(2 changes):")]
    assert said[0] == sentence
    assert "Task-IL" in said[1]
    assert len(said) == 2 + (len(changes) > 1) + (1 < len(changes) < FEWEST)


@pytest.mark.parametrize("seeds", [1, 2])
def test_a_doubt_that_many_changes_share_is_said_once(fabricate: Fabricate, seeds: int) -> None:
    said = "\n".join(verdicts(compared(fabricate, seeds=seeds, methods=4)))
    assert said.count("changed") == 8
    assert said.count("tell a change from chance") == 1


def compared(fabricate: Fabricate, seeds: int, methods: int, better: float = 5.0) -> Table:
    """So many methods, each better by 5 points on every seed."""
    folders = [
        fabricate(f"m{m}", memory, seed=seed, acc=40.0 + seed + better * (memory == "odedm"), saved=None)
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
    said = verdicts(table)
    assert said[0] == "Clear by the interval; Holm's p cannot be lower with 6 seeds (3 changes):"
    assert said[1].endswith("(better in 6 of 6, Holm's p = 0.094).")
    assert said[-1].startswith("With 6 seeds and 3 comparisons Holm's p cannot fall below 0.094, however large")


def test_a_change_that_only_many_comparisons_make_doubtful_is_said(fabricate: Fabricate) -> None:
    changes = [5.0, 6.0, 4.0, 5.0, 7.0, 6.0, 5.0, -0.5]  # one seed of eight disagrees: p = 4 / 256
    folders = [
        fabricate(f"m{m}", memory, seed=seed, acc=40.0 + change * (memory == "odedm"), saved=None)
        for m in range(4)
        for memory in ("odedm", "reservoir")
        for seed, change in enumerate(changes)
    ]
    said = verdicts(table_of(*folders))
    place = said.index("Clear by the interval, but not after Holm's correction (4 changes):")
    assert said[place + 1].endswith("(better in 7 of 8, Holm's p = 0.062).")


def test_verdicts_end_with_what_these_seeds_can_show_at_best(fabricate: Fabricate) -> None:
    (said,) = [line for line in verdicts(compared(fabricate, seeds=4, methods=1)) if "all agree" in line]
    assert said.startswith("Where 4 seeds all agree, p is 0.12, its smallest value")
    assert "chance alone does that 12 times in 100" in said


def test_nothing_more_is_said_where_the_seeds_suffice(fabricate: Fabricate) -> None:
    said = verdicts(compared(fabricate, seeds=7, methods=1))
    assert len(said) == 2
    assert said[0].endswith("(better in 7 of 7, p = 0.016).")


def test_verdicts_without_a_comparison_say_why(fabricate: Fabricate) -> None:
    assert verdicts(table_of(fabricate()))[0].startswith("Nothing to compare")
    apart = table_of(fabricate(seed=5, root="b"), fabricate(memory="reservoir", seed=6, root="b"))
    assert "no seed in common" in verdicts(apart)[0]


def test_where_groups_have_other_seeds_a_change_is_said_not_to_be_the_difference_of_means(fabricate: Fabricate):
    for seed, acc in enumerate((40.0, 50.0, 90.0)):
        fabricate("er", "reservoir", seed=seed, acc=acc)
    folders = [fabricate("er", "odedm", seed=seed, acc=acc) for seed, acc in enumerate((41.0, 51.0))]
    for named in (None, "er reservoir"):
        table = summarise(load([folders[0].parent]), named)
        (said,) = [each for each in verdicts(table) if "same seeds" in each]
        assert "ER · ODEDM (2) and ER · reservoir (3). A change is over the seeds that both have" in said
    fabricate("er", "odedm", seed=2, acc=91.0)
    assert not any("same seeds" in each for each in verdicts(summarise(load([folders[0].parent]))))


def test_sides_that_were_tuned_apart_are_named_with_how_to_compare_them(fabricate: Fabricate) -> None:
    slow, quick = ({"options": {"lr": rate}} for rate in (0.03, 0.1))
    pair = [fabricate("er", memory, over=slow) for memory in ("reservoir", "odedm")]
    tuned = [fabricate("der", "reservoir", over=slow), fabricate("der", over=quick)]
    said = [line for line in verdicts(table_of(*pair, *tuned)) if "--baseline" in line]
    assert said == [
        "DER · ODEDM · lr=0.1 and DER · reservoir · lr=0.03 differ in lr (0.1 and 0.03), too, so no change is shown; "
        "`odedm report --baseline 'DER · reservoir · lr=0.03'` compares them."
    ]
    unclear = verdicts(table_of(*pair, *tuned, fabricate("der", "reservoir", over={"options": {"lr": 0.3}})))
    assert not any("--baseline" in line for line in unclear), "it could be either"


def test_verdicts_name_the_variants(fabricate: Fabricate) -> None:
    table = table_of(
        fabricate(memory="reservoir"),
        fabricate(acc=60.0),
        fabricate(acc=70.0, knobs={"k": 5}),
        fabricate(memory="reservoir", capacity=99),
    )
    assert verdicts(table)[3].startswith("  ODEDM (k=5) changed DER++ (λ=20) by +20.0 points")


def pair_of_groups(fabricate: Fabricate) -> Table:
    folders = [fabricate(memory="reservoir", seed=seed, acc=30.0 + seed) for seed in range(3)]
    return table_of(*folders, *(fabricate(seed=seed, acc=40.0 + 2 * seed) for seed in range(3)))


def test_markdown_can_be_read_back(fabricate: Fabricate) -> None:
    table = pair_of_groups(fabricate)
    lines = tables.to_markdown(table).splitlines()
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert {len(row) for row in rows} == {11}
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
    console.print(terminal.ForTerminal(model(table)))
    return console.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.parametrize("width", [80, 100, 120, 160])
def test_terminal_table_loses_nothing(fabricate: Fabricate, width: int) -> None:
    folders = [fabricate("refresh", "reservoir", seed=seed, capacity=5120, acc=31.0 + 40 * seed) for seed in range(2)]
    folders += [fabricate("refresh", seed=seed, capacity=5120, acc=100.0, task_il=70.0 + seed) for seed in range(2)]
    folders += [fabricate("puridiver", capacity=200, knobs={"k": 5}), fabricate("puridiver", capacity=200)]
    table = table_of(*folders)
    text = printed(table, width)
    assert max(len(line) for line in text.splitlines()) <= width
    assert "…" not in text
    for word in ("Seeds", "ACC_5", "mean", "Task-IL", "Forget", "Change", "DER++refresh", "λ=5120"):
        assert word in text
    shown = set(re.findall(r"[+−]?[0-9]+\.[0-9]", text))
    for row in table.rows:
        means = [row.values[key] for key in ("acc_last", "acc_mean", "task_il_last", "forgetting")]
        assert {number(value.mean) for value in means} <= shown
        assert {number(value.error) for value in means if value.error is not None} <= shown
        changes = [row.differences[metric.key] for metric in TOLD if row.differences]
        assert {number(pair.estimate.mean, sign=True) for pair in changes} <= shown
        assert {number(end) for pair in changes for end in pair.interval or ()} <= shown


@pytest.mark.parametrize("width", [45, 56, 60, 70, 80, 100])
def test_a_change_has_its_interval_however_narrow_the_terminal(fabricate: Fabricate, width: int) -> None:
    text = printed(pair_of_groups(fabricate), width)
    assert "[8.5, 13.5]" in text
    assert max(map(len, text.splitlines())) <= width
    head = text.splitlines()[1].split()
    assert ("Task-IL" in head, "ACC" in head) == (width > 45, width >= 60)
    assert ("No room for mean ACC, Task-IL:" in text, "No room for mean ACC:" in text) == (width == 45, width == 56)


def test_the_terminal_says_what_its_signs_mean(fabricate: Fabricate) -> None:
    text = printed(pair_of_groups(fabricate), 130)
    assert (
        "± standard error over seeds; change against the same runs without ODEDM, paired by seed, with its 95 %" in text
    )
    alone = printed(table_of(fabricate("er", "reservoir")), 130)
    assert "±" not in alone
    assert "interval" not in alone


def test_terminal_table_takes_one_line_per_group_where_it_fits(fabricate: Fabricate) -> None:
    table = pair_of_groups(fabricate)
    assert "42.0 ± 1.2" in printed(table, 120)
    assert "+11.0 [8.5, 13.5]" in printed(table, 120)
    assert len(printed(table, 120).splitlines()) == 3 + 2 + 1
    assert len(printed(table, 80).splitlines()) == 3 + 2 * 2 + 2


@pytest.mark.parametrize("width", [80, 100])
def test_a_narrow_terminal_breaks_no_name_into_pieces(fabricate: Fabricate, width: int) -> None:
    over = {"options": {"lr": 0.03, "beta": 0.5}, "imbalance": "imbalanced"}
    other = {"options": {"lr": 0.1, "beta": 1.5}}
    folders = [fabricate("refresh", "reservoir", seed=seed, over=each) for seed in (0, 1) for each in (over, other)]
    folders += [fabricate("refresh", seed=seed, over=over, acc=55.0 + seed) for seed in (0, 1)]
    folders += [fabricate("refresh", over=over, knobs={"k": 6, "dac": None})]
    table = table_of(*folders)
    lines = printed(table, width).splitlines()
    assert max(map(len, lines)) <= width
    for row in table.rows:
        place = lines.index(row.group.label)
        assert number(row.values["acc_last"].mean) in lines[place + 1]
        assert ("±" in lines[place + 2]) == (len(row.group.runs) > 1)


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
    assert [group.label for group in table.groups] == ["DER++ · ODEDM · tasks=2", "DER++ · ODEDM · tasks=5"]


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
