"""The paper's studies write out every setting: they stay what they are, whatever the library's defaults become."""

from __future__ import annotations

import inspect
from dataclasses import MISSING, fields, replace
from typing import Any

import pytest
import torch

from odedm import ODEDM, Experiment
from odedm.core.errors import UsageError
from odedm.core.registry import DISTANCES, METHODS, NETS
from odedm.memory import settings
from odedm.paper import protocol as paper_protocol
from odedm.paper.protocol import DATA, constants, protocol_deviations, with_explicit_settings
from odedm.paper.studies import READY, ready
from odedm.stream.dataset import Dataset, standardise
from odedm.studies.grid import OrNone, axes
from odedm.training.experiment import content_key
from odedm.training.preparation import prepare

STUDIES: list[tuple[str, str | None]] = [("table1", data) for data in ("cifar10", "cifar100", "tiny-imagenet")]
STUDIES += [(name, None) for name in READY if name not in ("table1", "mini", "equal-tuning")]
EVERY = 7
"""Of so many plans one is prepared: which takes time, and methods, λ and ρ come round in other steps."""
SOLVER = ("iterations", "tolerance", "screen", "margin")
"""How exactly a distance is solved for: no settings of a run."""
SIDES = {"cifar10": 32, "cifar100": 32, "tiny-imagenet": 64, "imagenet-r": 224}


def forged(data: str) -> Dataset:
    """Data of the shape and the classes of a data set of the paper's, a row each."""
    label = torch.arange(DATA[data]["classes"])
    image = torch.zeros(len(label), 3, SIDES[data], SIDES[data], dtype=torch.uint8)
    names = tuple(map(str, label.tolist()))
    return Dataset(data, image, label, image, label, names, standardise(image[:2]), 10, known_checksum=data)


def plans(name: str, data: str | None) -> list[Experiment]:
    return [replace(plan, device="cpu") for plan in ready(name, data).experiments() if plan.seed == 0]


def keys() -> dict[tuple[str, str | None], list[str]]:
    known = {data: forged(data) for data in SIDES}
    return {
        study: [content_key(prepare(plan, known[plan.data]).experiment.describe()) for plan in plans(*study)[::EVERY]]
        for study in STUDIES
    }


def another(value: Any) -> Any:
    """A value of the same kind that is not this one; of a name one that no table holds."""
    if isinstance(value, bool):
        return not value
    return {int: 3, float: 0.625, str: "another", type(None): 0.625}.get(type(value), value)


def change_defaults(kind: Any, patch: pytest.MonkeyPatch, keep: tuple[str, ...] = ()) -> None:
    """Give a data class, or a function, other defaults."""
    maker = inspect.unwrap(kind.__init__ if isinstance(kind, type) else kind)
    known = inspect.signature(maker).parameters
    for where in ("__defaults__", "__kwdefaults__"):
        original = getattr(maker, where)
        names = [field for field in known.values() if field.default is not inspect.Parameter.empty]
        if isinstance(original, dict):
            patch.setattr(
                maker, where, {name: original[name] if name in keep else another(original[name]) for name in original}
            )
        elif original:
            placed = [field.name for field in names if field.kind is field.POSITIONAL_OR_KEYWORD]
            pairs = zip(placed, original, strict=True)
            patch.setattr(maker, where, tuple(value if name in keep else another(value) for name, value in pairs))
    for field in fields(kind) if hasattr(kind, "__dataclass_fields__") else ():
        if field.default is not MISSING and field.name not in keep:
            patch.setattr(field, "default", another(field.default))


def test_other_defaults_leave_the_papers_plans_as_they_are(monkeypatch: pytest.MonkeyPatch) -> None:
    before = keys()
    change_defaults(Experiment, monkeypatch, keep=("seed", "device", "threads", "cuda_graph", "data"))
    change_defaults(ODEDM, monkeypatch, keep=("capacity",))
    monkeypatch.setattr(settings, "DEFAULT_RHO", 0.5)
    for entry in (*METHODS.values(), *NETS.values(), *DISTANCES.values()):
        change_defaults(entry.load(), monkeypatch, keep=SOLVER)
    with pytest.raises(UsageError, match=r"0\.625"):
        ODEDM(200)
    assert keys() == before


def test_the_papers_reading_of_the_memory_has_a_name(monkeypatch: pytest.MonkeyPatch) -> None:
    before = ODEDM.paper(200, rho=0.75, k=19)
    assert [before.flat()[name] for name in ("dac", "dac_sample", "replay", "gamma", "epsilon")] == [
        (5, 3),
        None,
        "auxiliary",
        1.0,
        0.05,
    ]
    assert ODEDM.paper(200, distance="l1").flat()["ground"] is None
    change_defaults(ODEDM, monkeypatch)
    assert ODEDM.paper(200, rho=0.75, k=19) == before


def test_every_constant_of_a_method_is_there() -> None:
    from odedm.methods.hyperparameters import hyperparameters

    for method in paper_protocol.CONSTANTS:
        assert set(constants(method, "cifar10", 200)) == set(hyperparameters(METHODS[method].load()))


@pytest.mark.parametrize(
    ("method", "data", "capacity", "name", "value"),
    [
        ("icarl", "cifar10", 200, "lr", 0.1),
        ("icarl", "cifar10", 5120, "lr", 0.03),
        ("icarl", "cifar100", 500, "lr", 0.3),
        ("icarl", "tiny-imagenet", 200, "lr", 0.03),
        ("fdr", "cifar10", 200, "alpha", 1.0),
        ("refresh", "cifar100", 200, "weight_decay", 0.0),
        ("pocl", "cifar10", 200, "cumulative", True),
    ],
)
def test_constants_are_those_of_the_release_for_the_data(
    method: str, data: str, capacity: int, name: str, value: object
) -> None:
    assert constants(method, data, capacity)[name] == value


def test_the_plans_have_these_constants() -> None:
    options_of = {(plan.method, plan.memory.capacity): plan.options for plan in plans("table1", "cifar10")}
    assert all(options == constants(method, "cifar10", size) for (method, size), options in options_of.items())


def test_data_that_the_paper_does_not_have_take_the_librarys_defaults() -> None:
    (grid,) = ready("ablation", "digits").grids[:1]
    assert with_explicit_settings(grid) == (grid,)
    assert "net" not in grid.axes


def test_none_in_a_study_is_nothing_given() -> None:
    assert isinstance(axes()["screen"], OrNone)
    assert axes()["screen"].expected == "a whole number, 1 or more, or none"
    assert axes()["screen"].validate("screen", "none") is None


def test_what_departs_from_the_paper_is_named() -> None:
    usual = {"data": "cifar10", "method": "derpp", "memory.name": "odedm", "memory.capacity": 200, "batch": 32}
    assert protocol_deviations(usual) == []
    assert protocol_deviations({**usual, "options.lr": 0.3, "net": "resnet18"}) == []
    assert protocol_deviations({**usual, "limit": 20, "factor": None}) == ["limit"]
    assert protocol_deviations({**usual, "batch": 1, "memory.gamma": 0.0}) == ["batch", "memory.gamma"]
    assert protocol_deviations({**usual, "optimizer_options": {}}) == []
    assert protocol_deviations({**usual, "optimizer_options.nesterov": True}) == ["optimizer_options.nesterov"]
    assert protocol_deviations({**usual, "memory.replay": "union", "options.beta": 1.5, "net": "cnn"}) == [
        "net",
        "options.beta",
        "memory.replay",
    ]
