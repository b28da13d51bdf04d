"""The paper's numbers as the package carries them, against lines of its tables."""

from __future__ import annotations

import subprocess
import sys
from collections import defaultdict
from typing import Any

import pytest

from odedm.paper.paper_reference import PaperReference
from odedm.paper.printed import numbers
from odedm.paper.protocol import DATA
from odedm.report.published_number import Published

CIFAR: dict[str, Any] = {"data": "cifar10", "capacity": 200}
OF_MEMORY = ("capacity", "k", "rho", "dac", "distance")


def published(
    metric: Any, *, memory: str, tasks: int | None = None, best: bool = False, **asked: Any
) -> Published | None:
    """What the paper prints for a run with these settings."""
    settings = {f"memory.{name}" if name in OF_MEMORY else name: value for name, value in asked.items()}
    settings["options.fit"] = settings.pop("fit", False)
    settings["memory.name"] = memory if memory in ("odedm", "reservoir") else "native"
    if memory not in ("odedm", "native"):
        settings["memory.policy"] = memory
    return PaperReference.value(metric, settings, tasks=tasks or DATA[asked["data"]]["tasks"], best=best)


@pytest.mark.parametrize(
    ("asked", "mean", "error"),
    [
        ({"method": "der", "memory": "reservoir"}, 21.29, 2.64),
        ({"method": "der", "memory": "native"}, 21.29, 2.64),
        ({"method": "der", "memory": "odedm", "k": 6}, 29.99, 3.48),
        ({"method": "der", "memory": "odedm", "k": 6, "best": True}, 29.99, 3.48),
        ({"method": "derpp", "memory": "odedm", "k": 6, "best": True}, 42.71, 1.86),
        ({"method": "derpp", "memory": "reservoir", "imbalance": "imbalanced"}, 28.74, 2.10),
        ({"method": "refresh", "memory": "reservoir"}, 31.91, 4.80),
        ({"method": "er", "memory": "reservoir", "imbalance": "long-tail"}, None, None),
        ({"method": "agem", "memory": "task-quota"}, 17.5, 0.3),
        ({"method": "gem", "memory": "native", "epochs": 50}, 25.54, 0.76),
        ({"method": "puridiver", "memory": "native", "fit": True}, 49.81, 3.71),
    ],
)
def test_final_accuracy(asked: dict[str, Any], mean: float | None, error: float | None) -> None:
    number = published("acc_last", **CIFAR, **asked)
    assert (number and number.mean, number and number.error) == (mean, error)


def test_other_metrics_and_data() -> None:
    number = published("task_il_last", data="tiny-imagenet", method="der", capacity=200, memory="reservoir")
    assert number is not None
    assert (number.mean, number.error, number.table) == (27.15, 3.47, "task_il_tiny-imagenet")
    number = published("acc_last", data="imagenet-r", method="refresh", capacity=200, memory="native")
    assert number is not None
    assert number.mean == 0.94
    assert published("forgetting", **CIFAR, method="der", memory="reservoir") is None
    assert published("acc_last", data="cifar10", capacity=300, method="der", memory="reservoir") is None


def test_another_number_of_tasks_is_another_experiment() -> None:
    asked = {**CIFAR, "method": "der", "memory": "reservoir"}
    assert published("acc_last", **asked, tasks=5) == published("acc_last", **asked)
    assert published("acc_last", **asked, tasks=2) is None


def test_a_cell_left_empty_in_the_paper_is_none() -> None:
    assert (
        published("acc_last", data="tiny-imagenet", capacity=200, method="icarl", memory="odedm", k=1, best=True)
        is None
    )


@pytest.mark.parametrize("method", ["fdr", "icarl", "puridiver"])
def test_methods_with_a_memory_of_their_own_are_printed_with_it(method: str) -> None:
    assert published("acc_last", **CIFAR, method=method, memory="native") is not None
    assert published("acc_last", **CIFAR, method=method, memory="reservoir") is None


def test_dac_and_distance_find_their_own_tables() -> None:
    asked = {**CIFAR, "method": "refresh", "memory": "odedm"}
    swept = published("acc_last", **asked, k=6, rho=0.25, dac=(3, 2))
    usual = published("acc_last", **asked, k=6, rho=0.25, dac=(3, 4))
    assert swept is not None
    assert usual is not None
    assert (swept.mean, swept.table, usual.table) == (43.37, "dac_sweep", "full_cifar10")
    l1 = published("acc_last", **asked, k=19, rho=0.75, dac=(5, 3), distance="l1")
    assert l1 is not None
    assert (l1.mean, l1.error) == (41.09, None)
    assert published("acc_last", **asked, k=6, rho=0.25, dac=(3, 4), distance="l1") is None


@pytest.mark.parametrize(
    ("asked", "spread"),
    [
        ({"method": "der", "memory": "odedm", "k": 6}, "tasks"),
        ({"method": "der", "memory": "reservoir"}, "runs"),
        ({"method": "vrmcl", "memory": "reservoir"}, "tasks"),  # 56.57 ± 15.94
        ({"method": "pocl", "memory": "reservoir"}, "tasks"),
        ({"method": "puridiver", "memory": "native"}, "tasks"),
        ({"method": "puridiver", "memory": "native", "fit": True}, "tasks"),
    ],
)
def test_a_spread_over_tasks_is_not_taken_for_one_over_runs(asked: dict[str, Any], spread: str) -> None:
    mean, last = (published(metric, **CIFAR, **asked) for metric in ("acc_mean", "acc_last"))
    assert mean is not None
    assert last is not None
    assert (mean.spread, last.spread, mean.comparable) == (spread, "runs", spread == "runs")


def test_every_mean_over_tasks_on_imagenet_r_has_a_spread_over_tasks() -> None:
    spreads = [cell.spread for key, cell in numbers().items() if key[0] == "imagenet_r" and key[-1] == "acc_mean"]
    assert set(spreads) == {"tasks"}


def test_numbers_of_other_papers_are_no_runs_of_this_one() -> None:
    number = published("acc_last", **CIFAR, method="er", memory="reservoir")
    assert number is not None
    assert (number.mean, number.comparable) == (20.9, False)


def test_a_full_table_has_its_own_dac_alone() -> None:
    asked = {**CIFAR, "method": "der", "memory": "odedm", "k": 6}
    assert published("acc_last", **asked, dac=(3, 4)) == published("acc_last", **asked)
    assert published("acc_last", **asked, dac=(4, 2), rho=0.25) is None


def test_the_papers_best_is_the_largest_final_accuracy_of_its_shares() -> None:
    """Which is why a report says of such a row that it was chosen on the test set."""
    shares: dict[tuple[str, ...], list[float]] = defaultdict(list)
    for (table, *place, variant, metric), cell in numbers().items():
        if table.startswith("full_") and metric == "acc_last" and variant != "none":
            shares[tuple(place)].append(cell.mean)
    compared = 0
    for (table, *place, variant, metric), cell in numbers().items():
        if (table, variant, metric) == ("table1", "odedm-best", "acc_last"):
            compared += 1
            assert cell.mean == pytest.approx(max(shares[tuple(place)]))
    assert compared == 132


def test_it_needs_no_torch() -> None:
    code = "import sys, odedm.paper.printed as p; p.numbers(); print('torch' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
