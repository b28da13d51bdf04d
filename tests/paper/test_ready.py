"""The ready studies are the paper's tables: no cell without its run, no run without a cell."""

from __future__ import annotations

from typing import Any

import pytest

from odedm import ODEDM, Experiment
from odedm.core.errors import UsageError
from odedm.core.plain_data import flatten
from odedm.paper.printed import by_spot, numbers, spots
from odedm.paper.protocol import EPOCHS
from odedm.paper.studies import READY, ready


def printed(plan: Experiment, metric: str) -> object:
    return next(
        (by_spot()[spot, metric] for spot in spots(flatten(plan.describe())) if (spot, metric) in by_spot()), None
    )


@pytest.mark.parametrize(
    ("name", "data", "tables", "metric"),
    [
        ("table1", "cifar10", ["table1", "full_cifar10"], "acc_last"),
        ("table1", "cifar100", ["table1", "full_cifar100"], "acc_last"),
        ("table1", "tiny-imagenet", ["table1", "full_tiny-imagenet"], "acc_last"),
        ("table1", "cifar10", ["task_il_cifar10"], "task_il_last"),
        ("table1", "cifar100", ["task_il_cifar100"], "task_il_last"),
        ("table1", "tiny-imagenet", ["task_il_tiny-imagenet"], "task_il_last"),
        ("fitting", "cifar10", ["puridiver_fitting"], "acc_last"),
        ("imagenet-r", "imagenet-r", ["imagenet_r"], "acc_last"),
    ],
)
def test_each_cell_of_the_tables_is_one_configuration(name: str, data: str, tables: list[str], metric: str) -> None:
    study = ready(name, data)
    plans = [plan for plan in study.experiments() if plan.seed == 0]
    assert all(printed(plan, metric) is not None for plan in plans)
    cells = {
        (setting, size, method, variant)
        for table, place, setting, size, method, variant, kind in numbers()
        if table in tables and place == data and kind == metric and variant != "odedm-best"
        if setting not in EPOCHS.values()
    }
    assert len(plans) == len(cells)


def test_shares_carry_the_papers_k_also_where_it_differs_from_the_formula() -> None:
    sizes = {
        (plan.memory.capacity, plan.memory.rho, plan.memory.k)
        for plan in ready("table1", "cifar100").experiments()
        if isinstance(plan.memory, ODEDM)
    }
    assert (5120, 0.75, 42) in sizes
    assert (500, 0.5, 3) in sizes
    assert {k for size, _, k in sizes if size == 200} == {1}


@pytest.mark.parametrize(
    ("name", "data", "rho", "dac"),
    [
        ("table1", "cifar100", 0.5, (3, 2)),
        ("table1", "tiny-imagenet", 0.75, (5, 3)),
        ("imagenet-r", "imagenet-r", 0.75, (5, 3)),
    ],
)
def test_one_prototype_of_200_rows_belongs_to_the_row_whose_share_it_is(
    name: str, data: str, rho: float, dac: tuple[int, int]
) -> None:
    memories = [plan.memory for plan in ready(name, data).experiments() if plan.memory.capacity == 200]
    sizes = {(memory.k, memory.rho, memory.flat()["dac"]) for memory in memories if isinstance(memory, ODEDM)}
    assert sizes == {(1, rho, dac)}


def test_the_sweep_and_the_distances_find_their_numbers() -> None:
    swept = [plan for plan in ready("dac-sweep").experiments() if plan.seed == 0]
    assert len(swept) == 1 + 27
    assert len({(plan.memory.rho, plan.memory.flat()["dac"]) for plan in swept if isinstance(plan.memory, ODEDM)}) == 27
    distances = [plan for plan in ready("distances").experiments() if plan.seed == 0]
    assert {plan.memory.flat()["distance"] for plan in distances if isinstance(plan.memory, ODEDM)} == {
        "sinkhorn",
        "l1",
        "l2",
        "mmd",
    }


SHARES = {0.25, 0.5, 0.75}


def memories(name: str) -> list[Any]:
    plans = [plan for plan in ready(name).experiments() if plan.seed == 0]
    assert {(plan.data, plan.method, plan.imbalance) for plan in plans} == {("cifar10", "refresh", "standard")}
    return [plan.memory for plan in plans]


def test_the_ablation_goes_over_rho_and_its_mixup_has_no_dac() -> None:
    duals = [memory for memory in memories("ablation") if isinstance(memory, ODEDM)]
    assert len(memories("ablation")) == 1 + len(duals) == 13
    assert {memory.rho for memory in duals} == {*SHARES, 1.0}
    assert {(memory.selection.mixup, memory.selection.dac is None) for memory in duals} == {
        (False, False),
        (False, True),
        (True, True),
    }


def test_the_curves_are_of_three_capacities() -> None:
    curves = memories("forgetting")
    assert {memory.capacity for memory in curves} == {200, 500, 5120}
    assert {memory.rho for memory in curves if isinstance(memory, ODEDM)} == SHARES
    assert len(curves) == 12


def test_the_study_of_distances_keeps_what_its_figures_show() -> None:
    assert ready("distances").observation.evidence
    assert ready("distances", "digits").observation.evidence


def test_the_density_has_the_memory_with_and_without() -> None:
    assert [memory.name for memory in memories("density")] == ["native", "odedm"]


def test_mini_has_every_kind_of_evidence() -> None:
    plans = ready("mini").experiments()
    duals = [plan.memory for plan in plans if isinstance(plan.memory, ODEDM)]
    assert {plan.data for plan in plans} == {"fashion-mini"}
    assert {plan.imbalance for plan in plans} == {"standard", "imbalanced"}
    assert {memory.flat()["distance"] for memory in duals} == {"sinkhorn", "l1", "l2", "mmd"}
    assert {0.25, 0.5, 0.75, 1.0} == {memory.rho for memory in duals}
    assert any(memory.selection.mixup for memory in duals)
    assert any(memory.selection.dac is None for memory in duals)
    assert len({memory.capacity for memory in duals}) == 2
    assert any(plan.net == "vit" for plan in plans)
    assert any(plan.options.get("fit") for plan in plans)
    looks = ready("mini").observation
    assert looks.evidence
    assert looks.anytime


def test_a_table_that_the_paper_does_not_have_is_refused() -> None:
    with pytest.raises(UsageError, match="cifar10, cifar100, tiny-imagenet"):
        ready("table1", "fashion-mini")
    with pytest.raises(UsageError, match="did you mean 'table1'"):
        ready("tabel1")
    assert {plan.data for plan in ready("ablation", "digits").experiments()} == {"digits"}
    assert all(READY.values())
