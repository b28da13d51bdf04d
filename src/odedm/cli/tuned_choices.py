"""What `odedm tune` has found: tables of what was tried, and files of what was chosen."""

from __future__ import annotations

import statistics
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from rich.table import Table
from rich.text import Text

from odedm.cli.console import out, say, tell_json
from odedm.core.errors import UsageError
from odedm.core.plain_data import flatten
from odedm.core.text import counted
from odedm.study.choice_files import CHOICES, STEM, write_choices
from odedm.study.tuning import Tried, rates_at_an_end

if TYPE_CHECKING:
    from odedm.study.contests import Contests


def conclude_one(
    rivals: Contests, scores: Mapping[str, float], failed: Mapping[str, str], folder: Path, *, as_json: bool
) -> None:
    """The best of each side of one host first, here and in the folder; no choice before both have had all tries."""
    undecided = rivals.undecided(scores, failed)
    if undecided:
        left = sum(undecided.values())
        if left:
            missing = f"{counted(left, 'trial')} {'is' if left == 1 else 'are'} left"
            raise UsageError(f"There is no choice yet: {missing}. The same command goes on from here.")
        raise UsageError(
            "There is no choice: every try of one of the sides failed; the lines above say why. Give other values, or "
            "try again with --retry."
        )
    ((host, tried),) = rivals.tried(scores, failed).items()
    sides = {side: [each.to_dict() for each in own] for side, own in tried.items()}
    chosen = replace(rivals.as_study({host: tried}), name=STEM)
    path = write_choices(folder, chosen, sides, rivals.key)
    if as_json:
        tell_json({**sides, "choices": str(path)})
        return
    for side, own_side in tried.items():
        table = Table(f"{side} ODEDM", "held-out ACC", "seeds", title_justify="left")
        for each in own_side:
            table.add_row(Text(each.words), _score(each), str(len(each.scores)))
        out.print(table)
    for sentence in rates_at_an_end(tried):
        say(sentence)
    _say_where(path)


def conclude(
    rivals: Contests, scores: Mapping[str, float], failed: Mapping[str, str], folder: Path, *, as_json: bool
) -> None:
    """The choice of every host, here and in the folder, and which are missing."""
    tried, plain = rivals.tried(scores, failed), rivals.to_dict(scores, failed)
    for host, left in plain["undecided"].items():
        missing = f"{counted(left, 'trial')} left" if left else "every try of one side failed"
        say(f"No choice yet: {host}, {missing}.")
    if not tried:
        on = "The same command goes on from here" if any(plain["undecided"].values()) else "Try again with --retry"
        raise UsageError(f"No host is decided yet. {on}.")
    path = write_choices(folder, rivals.as_study(tried), plain, rivals.key)
    if as_json:
        tell_json({**plain, "choices": str(path)})
        return
    table = Table("host", "without ODEDM", "held-out ACC", "with ODEDM", "held-out ACC", title_justify="left")
    for host, sides in tried.items():
        cells = [words for own in sides.values() for words in (differing(own), _score(own[0]))]
        table.add_row(*map(Text, [host, *cells]))
    out.print(table)
    _say_where(path)


def differing(own: Sequence[Tried]) -> str:
    """What was chosen, of all that differs among the tries, of the memory's settings too; all where there is one."""
    best, *others = (flatten(each.experiment.describe()) for each in own)
    differing = {name: value for name, value in best.items() if any(each.get(name) != value for each in others)}
    words = (f"{name.rpartition('.')[2]}={value}" for name, value in differing.items())
    return ", ".join(words) or own[0].words


def _score(tried: Tried) -> str:
    spread = f" (sd {statistics.stdev(tried.scores):.1f})" if len(tried.scores) > 1 else ""
    return f"{tried.mean:.1f} %{spread}"


def _say_where(path: Path) -> None:
    """Where the choices are, and that others lie beside them."""
    if path.name != CHOICES:
        say(f"'{path.with_name(CHOICES)}' is the choice among other tries, and stays; this one is '{path.name}'.")
    say(f"The choices as a study: odedm study {path}")
