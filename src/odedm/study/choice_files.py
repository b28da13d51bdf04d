"""The files of choices in a folder of tries: none takes the place of a choice that was made among others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from odedm.core.errors import UsageError
from odedm.core.files import read_bytes, writable_folder, write_text
from odedm.study.study import MOST_NAME, Study
from odedm.study.tuning import SIDES
from odedm.training.experiment import Experiment

STEM = "tuned"
CHOICES = f"{STEM}.toml"
"""The file of the choices, as a study; those among other tries have theirs beside it."""
HEAD = "# Chosen among the tries "
MOST_BYTES = 1 << 26


def write_choices(folder: Path, chosen: Study, plain: Mapping[str, Any], tries: str) -> Path:
    """Keep choices and what they were made by, and say in which file; `tries` is what no other set of tries has.

    Where the usual files hold a choice among other tries they stay, and these are called by their tries, as is the
    study, so that its runs get a folder of their own.
    """
    writable_folder(folder)  # where all trials are of other machines it holds nothing yet
    usual, stem = folder / CHOICES, STEM
    if usual.is_file() and not _is_among(usual, plain, tries):
        stem = f"{STEM}-{tries}"
        chosen = replace(chosen, name=f"{chosen.name[: MOST_NAME - len(tries) - 1]}-{tries}")
    path = folder / f"{stem}.toml"
    write_text(path.with_suffix(".json"), json.dumps(plain, indent=1, ensure_ascii=False) + "\n")
    write_text(path, f"{HEAD}{tries}.\n{chosen.to_toml()}")
    return path


def _is_among(usual: Path, plain: Mapping[str, Any], tries: str) -> bool:
    """Whether the usual files hold a choice among these tries; those without a head go by what was tried."""
    text = usual.read_text(encoding="utf-8")
    if text.startswith(HEAD):
        return text.startswith(f"{HEAD}{tries}.")
    try:
        before = json.loads(read_bytes(usual.with_suffix(".json"), MOST_BYTES))
        now = _tried(plain)
        return _common(before) == _common(plain) and all(each in now for each in _tried(before))
    except (OSError, UsageError, ValueError, LookupError, TypeError, AttributeError, RecursionError):
        return False  # nobody can tell, so it stays


def _tried(plain: Mapping[str, Any]) -> list[dict[str, list[str]]]:
    """Of every host that is decided, by side, each try with its scores as one text."""
    return [
        {
            side: sorted(
                json.dumps([Experiment.from_dict(one["experiment"]).slug(), one["scores"]]) for one in host[side]
            )
            for side in SIDES
        }
        for host in plain.get("contests", [plain])
    ]


def _common(plain: Mapping[str, Any]) -> str:
    """What the tries of several hosts have in common: how they are scored, and whose they are, decided or not."""
    hosts = {*(each["host"] for each in plain.get("contests", ())), *plain.get("undecided", ())}
    return json.dumps([plain.get("select"), sorted(hosts)])
