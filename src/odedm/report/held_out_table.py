"""A table of scores on held-out training rows: each configuration, its gain over plain, and over random rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Sequence

from odedm.core.plain_data import flatten
from odedm.core.registry import METHODS
from odedm.report.groups import BASELINES, CHOICE, SEED_ONLY
from odedm.report.labels import Settings, belongs_to_memory, group_names
from odedm.report.statistics import estimate, paired
from odedm.report.tables import markdown_rows
from odedm.report.wording import canonical, number
from odedm.study.held_out_trials import Scored

HEAD = ("Runs", "Seeds", "Held-out ACC", "over plain", "over random rows")
CONTROL = "random"


def held_out_rows(found: Sequence[Scored]) -> list[list[str]]:
    """The words of each configuration: mean ± standard error, and differences paired by seed with how many are above 0.

    Plain is the same method with as many rows by its own policy, a reservoir for most; with a reservoir where there is
    no such row. Random rows are ODEDM's control, alike in all but how prototypes are chosen. Where there is no partner,
    or it is the row itself, a dash stands.
    """
    settings = [_settings(each) for each in found]
    rows = []
    for each, own, (_, _, label) in zip(found, settings, group_names(settings), strict=True):
        plain = _partner(own, settings, _has_own_policy, belongs_to_memory)
        plain = _partner(own, settings, _has_reservoir, belongs_to_memory) if plain is None else plain
        control = _partner(own, settings, _is_control, CHOICE.__contains__) if own["memory.name"] == "odedm" else None
        mean = estimate(each.scores.values())
        spread = "" if mean.error is None else f" ± {mean.error:.1f}"
        gains = [_gain(each, found, partner) for partner in (plain, control)]
        rows.append([label, str(mean.n), f"{mean.mean:.1f}{spread}", *gains])
    return rows


def held_out_markdown(found: Sequence[Scored]) -> str:
    """The table as Markdown."""
    return markdown_rows(HEAD, held_out_rows(found))


def held_out_csv(found: Sequence[Scored]) -> str:
    """Every score by configuration and seed."""
    text = io.StringIO()
    names = group_names([_settings(each) for each in found])
    lines = [
        (label, seed, f"{score:.4f}")
        for each, (_, _, label) in zip(found, names, strict=True)
        for seed, score in each.scores.items()
    ]
    csv.writer(text, lineterminator="\n").writerows([("runs", "seed", "held_out_acc"), *lines])
    return text.getvalue()


def _settings(each: Scored) -> Settings:
    plan = {key: value for key, value in each.experiment.describe().items() if key not in SEED_ONLY}
    return flatten(plan)


def _has_own_policy(own: Settings) -> bool:
    return own["memory.name"] in BASELINES and _policy(own) == METHODS[str(own["method"])].load().policy


def _has_reservoir(own: Settings) -> bool:
    return own["memory.name"] in BASELINES and _policy(own) == "reservoir"


def _policy(own: Settings) -> str:
    return str(own.get("memory.policy") or "reservoir")


def _is_control(own: Settings) -> bool:
    return own.get("memory.distance") == CONTROL


def _partner(
    own: Settings, every: Sequence[Settings], wanted: Callable[[Settings], bool], free: Callable[[str], bool]
) -> int | None:
    """Which row a row is compared with: the first one wanted that differs in what is free alone, maybe itself."""

    def bound(settings: Settings) -> str:
        return canonical({key: value for key, value in settings.items() if not free(key)})

    return next((place for place, other in enumerate(every) if wanted(other) and bound(other) == bound(own)), None)


def _gain(each: Scored, found: Sequence[Scored], partner: int | None) -> str:
    other = None if partner is None else found[partner]
    difference = None if other is None or other is each else paired(each.scores, other.scores)
    if difference is None:
        return "–"
    gain = difference.estimate
    spread = "" if gain.error is None else f" ± {gain.error:.1f}"
    return f"{number(gain.mean, sign=True)}{spread} ({difference.better} of {gain.n})"
