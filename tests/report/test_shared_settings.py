"""What captions and headlines say of all runs: every setting that changes numbers, `limit` first."""

from __future__ import annotations

from typing import Any

import pytest
from report_runs import Fabricate, groups_of, table_of

from odedm.core.configuration import default_of, settings_of
from odedm.report.page import render
from odedm.report.shared_settings import in_common
from odedm.report.tables import to_latex
from odedm.training.experiment import Experiment

SETUP = {"method", "data", "tasks", "memory", "net"}
"""What a caption says always, or a label."""
OTHERS: dict[str, Any] = {"epochs": 2, "blur": 0.2, "noise": 0.4, "class_order": "seed", "updates": 2}
CHANGING = sorted(
    name
    for name, setting in settings_of(Experiment).items()
    if not setting.speed_only and name not in {*SETUP, "seed", "options"} and not name.endswith("_options")
)
"""Settings of a plan itself that may change a number."""
WORDS = ("offline, 2 epochs", "blur=0.2", "noise=0.4", "class_order=seed", "2 updates")


def test_caption_and_headline_name_every_setting_that_is_not_as_usual(fabricate: Fabricate) -> None:
    folders = [fabricate("er", memory, over={"limit": 50, "batch": 10, **OTHERS}) for memory in ("reservoir", "odedm")]
    table = table_of(*folders)
    caption = to_latex(table).replace("\\_", "_")
    head = render(table).split("</header>")[0]
    assert "All runs: first 50 rows of each class, fashion-mini, 5 tasks, $\\lambda$=20" in caption
    assert '<ul class="facts"><li>first 50 rows of each class</li>' in head
    for words in WORDS:
        assert f", {words}" in caption
        assert f"<li>{words}</li>" in head
    assert "standard setting" not in head


def test_what_is_as_usual_is_not_said(fabricate: Fabricate) -> None:
    names = [name for name in settings_of(Experiment) if name not in {*SETUP, "options"} and "_options" not in name]
    usual = {name: default_of(Experiment, name) for name in names}
    (group,) = groups_of(
        fabricate("derpp", "reservoir", over={**usual, "replay_batch": 32, "precision": "fp32", "seed": 0})
    )
    assert set(in_common([group.settings])) <= {"fashion-mini", "5 tasks", "λ=20", "cnn", "lr=0.03", "batch=32", "auto"}


@pytest.mark.parametrize("name", CHANGING)
def test_no_setting_is_passed_over_where_it_is_another(fabricate: Fabricate, name: str) -> None:
    setting = settings_of(Experiment)[name]
    usual = (default_of(Experiment, name), "fp32")
    known = [choice for choice in getattr(setting.validator, "names", []) if choice not in usual]
    value = not default_of(Experiment, name) if name == "shuffle" else known[-1] if known else 7
    value = [2, 8] if name == "task_classes" else value
    (group,) = groups_of(fabricate("derpp", "reservoir", over={name: value}))
    usual = groups_of(fabricate("derpp", "reservoir", root="usual"))
    assert in_common([group.settings]) != in_common([usual[0].settings])


def test_a_constant_of_a_method_or_a_memory_names_it(fabricate: Fabricate) -> None:
    folders = [
        fabricate("derpp", "reservoir", over={"options": {"lr": 0.03, "alpha": 0.9, "beta": 0.5}}),
        fabricate("er", "odedm", over={"options": {"lr": 0.03}}, knobs={"space": "pixels", "rows_per_prototype": 1}),
    ]
    phrases = in_common([group.settings for group in groups_of(*folders)])
    assert {"α=0.9 (DER++)", "pixels (ODEDM)", "lr=0.03"} <= set(phrases)
    assert not any("β" in words or "rows" in words for words in phrases)


def test_what_goes_by_the_method_names_the_methods_where_they_differ(fabricate: Fabricate) -> None:
    """No memory has two readings at once."""
    policies = {"er": "reservoir", "derpp": "reservoir", "gdumb": "balanced", "gem": "balanced"}
    runs = [fabricate(method, "odedm", knobs={"short_policy": policy}) for method, policy in policies.items()]
    runs = [group.settings for group in groups_of(*runs)]
    phrases = [words for words in in_common(runs) if "short_policy" in words]
    assert phrases == [
        "short_policy=reservoir (ODEDM with ER, DER++); short_policy=balanced (ODEDM with GEM, GDumb)"
    ] or phrases == ["short_policy=balanced (ODEDM with GEM, GDumb)"]


def test_what_differs_is_left_to_the_labels(fabricate: Fabricate) -> None:
    folders = [fabricate("er", "reservoir", over={"noise": noise}) for noise in (0.2, 0.4)]
    assert not any("noise" in words for words in in_common([group.settings for group in groups_of(*folders)]))


def test_constants_of_code_that_is_not_here_are_all_said(fabricate: Fabricate) -> None:
    (group,) = groups_of(fabricate("somebodys", "reservoir", over={"options": {"lr": 0.5, "zeta": 3}}))
    assert {"lr=0.5", "zeta=3"} <= set(in_common([group.settings]))


def test_an_average_of_the_weights_that_comes_to_nothing_is_named_nowhere(fabricate: Fabricate) -> None:
    folders = [
        fabricate("derpp", "reservoir", over={"updates": 3, "weight_average": 0.0}),
        fabricate("derpp", "reservoir", over={"updates": 1, "weight_average": None}),
    ]
    groups = groups_of(*folders)
    assert {group.label for group in groups} == {"DER++ · reservoir", "DER++ · reservoir · 3 updates"}
    assert not any("averaged" in words for words in in_common([group.settings for group in groups[:1]]))
    (other,) = groups_of(fabricate("derpp", "reservoir", over={"weight_average": 0.95}))
    assert "weights averaged by 0.95" in in_common([other.settings])
