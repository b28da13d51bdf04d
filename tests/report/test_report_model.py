"""The table as data: the paper's number beside ours, the choice among several ρ, and LaTeX."""

from __future__ import annotations

import csv
import io
import json
import math
import re
from pathlib import Path
from typing import Any

import pytest
from report_runs import Fabricate, table_of, with_extra

from odedm.core.errors import UsageError
from odedm.report.load import load
from odedm.report.published_number import Comparison, Published
from odedm.report.statistics import Estimate
from odedm.report.summary import choices
from odedm.report.tables import escape, to_csv, to_latex, to_markdown
from odedm.report.verdicts import warnings
from odedm.results.folder import FILE


def cifar(fabricate: Fabricate, memory: str, method: str = "derpp", seeds: int = 2, **given: Any) -> list[Path]:
    over = {"data": "cifar10"} | given.pop("over", {})
    given = {"capacity": 200, "saved": None, "acc": 40.0} | given
    acc = given.pop("acc")
    return [fabricate(method, memory, seed=s, acc=acc + 2.0 * s, over=over, **given) for s in range(seeds)]


def with_rho(fabricate: Fabricate, rho: float, k: int, dac: list[int], **given: Any) -> list[Path]:
    return cifar(fabricate, "odedm", knobs={"rho": rho, "k": k, "dac": dac}, **given)


PRINTED = Published(45.0, 3.0, "runs", "table1")


@pytest.mark.parametrize(
    ("ours", "verdict"), [(39.1, "reproduced"), (50.9, "reproduced"), (52, "better"), (38, "worse")]
)
def test_a_number_is_reproduced_where_chance_explains_the_gap(ours: float, verdict: str) -> None:
    cell = Comparison(Estimate(ours, 2.5, 5), PRINTED)
    assert cell.allowed == pytest.approx(2 * math.sqrt(2.5**2 + 3.0**2 / 3))
    assert cell.gap == pytest.approx(ours - 45)
    assert cell.verdict == verdict


def test_what_cannot_be_compared_has_no_other_verdict() -> None:
    over_tasks = Comparison(Estimate(40.0, 3.0, 5), Published(41.0, 20.0, "tasks", "table1"))
    assert (over_tasks.gap, over_tasks.allowed, over_tasks.verdict) == (-1.0, None, "not comparable")
    borrowed = Comparison(Estimate(40.0, 3.0, 5), Published(41.0, 1.0, "runs", "other_baselines", borrowed=True))
    assert borrowed.verdict == "not comparable"
    other = Comparison(Estimate(45.0, 3.0, 5), PRINTED, same_protocol=False)
    assert (other.allowed, other.verdict) == (None, "not comparable")


def test_without_errors_nothing_is_said() -> None:
    assert Comparison(Estimate(45.0, None, 1), PRINTED).verdict is None
    assert Comparison(Estimate(45.0, 1.0, 5), Published(41.0, None, "runs", "distance_ablation")).verdict is None


PAPERS = {"net": "resnet18", "net_options": {"width": 64}, "batch": 32, "replay_batch": 32}


@pytest.mark.parametrize(
    ("over", "same"),
    [({}, True), ({"batch": 1}, False), ({"net": "cnn"}, False), ({"options": {"lr": 0.3, "beta": 1.5}}, False)],
)
def test_only_runs_that_are_what_the_paper_ran_have_a_verdict(
    fabricate: Fabricate, over: dict[str, Any], *, same: bool
) -> None:
    options = {"options": {"lr": 0.3, "alpha": 0.1, "beta": 0.5}}
    folders = [
        fabricate(
            "derpp",
            "reservoir",
            seed=seed,
            acc=30.0 + seed,
            capacity=200,
            over={"data": "cifar10", **PAPERS, **options, **over},
        )
        for seed in range(2)
    ]
    (line,) = table_of(*folders).lines
    assert line.paper.get("acc_last") is not None
    assert (line.paper["acc_last"].verdict == "not comparable") is not same


def test_each_line_stands_beside_its_cell_of_the_paper(fabricate: Fabricate) -> None:
    table = table_of(*cifar(fabricate, "reservoir"), *with_rho(fabricate, 0.25, 6, [3, 4]))
    plain, odedm = table.lines
    assert (plain.paper["acc_last"].paper.mean, plain.paper["task_il_last"].paper.mean) == (29.67, 82.6)
    assert odedm.paper["acc_last"].paper.table == "full_cifar10"
    assert odedm.paper["acc_last"].gap == pytest.approx(41.0 - odedm.paper["acc_last"].paper.mean)
    assert plain.paper.get("forgetting") is None


@pytest.mark.parametrize(
    "knobs", [{"mixup": True}, {"dac": None}, {"k": 0, "rho": 0.0}, {"distance": "l1"}, {"k": 7, "rho": 0.28}]
)
def test_variants_without_a_number_in_the_paper_have_none(fabricate: Fabricate, knobs: dict[str, Any]) -> None:
    (line,) = table_of(*cifar(fabricate, "odedm", knobs={"k": 6, "rho": 0.25, "dac": [3, 4]} | knobs)).lines
    assert not line.paper


@pytest.mark.parametrize("distance", ["random", "herding", "my own"])
def test_rows_that_no_distance_of_the_paper_chose_are_reported(fabricate: Fabricate, distance: str) -> None:
    lines = table_of(*cifar(fabricate, "odedm", knobs={"distance": distance, "dac": None})).lines
    assert [line.paper["acc_last"].verdict for line in lines if line.paper] in ([], ["not comparable"])


def test_other_data_and_noise_have_no_number(fabricate: Fabricate) -> None:
    assert not table_of(*cifar(fabricate, "reservoir", over={"data": "mnist"}, root="a")).printed
    assert not table_of(*cifar(fabricate, "reservoir", over={"noise": 0.2}, root="b")).printed


def three_shares(fabricate: Fabricate, scores: tuple[float, ...] = ()) -> list[Path]:
    shares = [(0.25, 6, [3, 4], 40.0), (0.5, 13, [3, 2], 44.0), (0.75, 19, [5, 3], 42.0)]
    by_share = [with_rho(fabricate, rho, k, dac, acc=acc, seeds=6) for rho, k, dac, acc in shares]
    for (rho, k, dac, _), score in zip(shares, scores, strict=False):
        validated = {"validation": 0.2, "first_tasks": 2}
        by_share.append(with_rho(fabricate, rho, k, dac, acc=score, seeds=2, over=validated))
    return [*cifar(fabricate, "reservoir", acc=35.0, seeds=6), *(folder for folders in by_share for folder in folders)]


def test_best_of_three_is_marked_as_chosen_on_the_test_set(fabricate: Fabricate) -> None:
    table = table_of(*three_shares(fabricate))
    assert [line.kind for line in table.lines] == ["runs"] * 4 + ["test"]
    best = table.lines[-1]
    assert best.label == "DER++ · ODEDM · best of 3 ρ (ρ=0.5), chosen on the test set"
    assert best.values["acc_last"].mean == pytest.approx(49.0)
    assert best.paper["acc_last"].paper.mean == 42.71  # the paper's best of three
    assert best.corrected == {}
    assert "A best ρ chosen on the test set is too good by construction" in warnings(table)[-1]


def test_the_correction_does_not_count_a_choice_twice(fabricate: Fabricate) -> None:
    table = table_of(*three_shares(fabricate))
    assert table.tested == 3
    assert table.lines[2].corrected["acc_last"] == pytest.approx(3 * 2 / 64)


def test_an_honest_choice_stands_beside_the_best(fabricate: Fabricate) -> None:
    table = table_of(*three_shares(fabricate, (60.0, 70.0, 71.0)))
    assert sorted(line.kind for line in table.lines if line.kind != "runs") == ["test", "validation", "validation"]
    validated, honest = (line for line in table.lines if line.kind == "validation")
    assert honest.label == "DER++ · ODEDM · ρ=0.75, chosen on validation rows"
    assert honest.values["acc_last"].mean == pytest.approx(47.0), "tested on the test rows"
    assert validated.values["acc_last"].mean == pytest.approx(72.0), "of the validated runs themselves"


def test_a_share_that_was_not_validated_makes_no_choice(fabricate: Fabricate) -> None:
    folders = three_shares(fabricate, (60.0, 70.0))
    rows = choices(table_of(*folders))
    assert [choice.kind for choice in rows] == ["validation", "test"]
    assert rows[0].group.settings["validation"] == 0.2, "among the validated ones alone"


def test_runs_of_a_tuned_study_say_so_in_their_label(fabricate: Fabricate) -> None:
    folder = fabricate("er", "odedm", seed=0)
    result = json.loads((folder / FILE).read_text())
    with_extra(folder, provenance={**result["provenance"], "chosen": "on 20% of the training rows"})
    assert (
        table_of(folder, fabricate("er", "reservoir", seed=0))
        .rows[-1]
        .group.label.endswith("tuned on 20% of the training rows")
    )


@pytest.mark.parametrize(("key", "value"), [("anytime", [[1, 2, 3]]), ("anytime", "x")])
def test_broken_extras_are_refused_by_name(fabricate: Fabricate, key: str, value: object) -> None:
    folder = with_extra(fabricate(saved=None), **{key: value})
    with pytest.raises(UsageError, match=key):
        load([folder / FILE])


def test_a_sweep_of_dac_is_no_choice_of_rho(fabricate: Fabricate) -> None:
    folders = [
        f for dac in ([3, 2], [3, 4]) for rho, k in ((0.25, 6), (0.5, 13)) for f in with_rho(fabricate, rho, k, dac)
    ]
    rows = choices(table_of(*folders))
    assert [choice.tried for choice in rows] == [2, 2]  # one for each setting of DAC
    assert choices(table_of(*folders[:2], *folders[4:6])) == []  # one ρ, two settings of DAC


def test_markdown_and_csv_have_the_paper_and_the_choice(fabricate: Fabricate) -> None:
    table = table_of(*three_shares(fabricate))
    text = to_markdown(table)
    assert "Paper's ACC_5 | Gap" in text
    assert "29.7 ± 4.2 | +10.3 (not comparable)" in text  # of another network
    last = list(csv.DictReader(io.StringIO(to_csv(table))))[-1]
    chosen = "DER++ · ODEDM · best of 3 ρ (ρ=0.5), chosen on the test set"
    assert (last["label"], last["kind"]) == (chosen, "test")
    assert last["acc_last_change_low"] == ""


def test_latex_is_balanced_and_escaped(fabricate: Fabricate) -> None:
    folders = three_shares(fabricate) + cifar(fabricate, "reservoir", "50%_&{#$~^\\<x>日", capacity=100)
    text = to_latex(table_of(*folders), caption="CIFAR-10 & friends", label="tab:a_b}")
    assert text.count(r"\begin{") == text.count(r"\end{") == 2
    assert r"50\%\_\&\{\#\$\textasciitilde{}\textasciicircum{}\textbackslash{}" in text
    assert r"\label{tab:ab}" in text
    assert r"CIFAR-10 \& friends" in text
    assert all(ord(character) < 0x250 for character in text)
    body = text[text.index(r"\toprule") : text.index(r"\bottomrule")]
    rows = [line for line in body.splitlines() if line.endswith(r"\\")]
    columns = len(re.search(r"tabular}{(l r*|lr*)}", text).group(1))
    assert {len(re.findall(r"(?<!\\)&", row)) + 1 for row in rows} == {columns}
    for row in rows:
        bare = re.sub(r"\\[\\{}$]", "", row)
        assert bare.count("$") % 2 == 0
        assert bare.count("{") == bare.count("}")
    assert r"29.7 $\pm$ 4.2" in text
    assert r"\textbf{+9.0} [9.0, 9.0]" in text
    assert r"\emph{DER++ $\cdot$ ODEDM" in text


def test_escape_leaves_words_alone() -> None:
    assert escape("DER++ reservoir, 3/4") == "DER++ reservoir, 3/4"
