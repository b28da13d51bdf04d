"""The files of choices in a folder of tries: none takes the place of a choice that was made among others."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from odedm.core.files import writable_folder, write_text
from odedm.study.study import MOST_NAME, Study

STEM = "tuned"
CHOICES = f"{STEM}.toml"
"""The file of the choices, as a study; those among other tries have theirs beside it."""
HEAD = "# Chosen among the tries "


def write_choices(folder: Path, chosen: Study, plain: Mapping[str, Any], tries: str) -> Path:
    """Keep choices and what they were made by, and say in which file; `tries` is what no other set of tries has.

    Where the usual files hold a choice among other tries they stay, and these are called by their tries, as is the
    study, so that its runs get a folder of their own.
    """
    writable_folder(folder)  # where all trials are of other machines it holds nothing yet
    usual, stem = folder / CHOICES, STEM
    if usual.is_file() and not usual.read_text(encoding="utf-8").startswith(f"{HEAD}{tries}."):
        stem = f"{STEM}-{tries}"
        chosen = replace(chosen, name=f"{chosen.name[: MOST_NAME - len(tries) - 1]}-{tries}")
    path = folder / f"{stem}.toml"
    write_text(path.with_suffix(".json"), json.dumps(plain, indent=1, ensure_ascii=False) + "\n")
    write_text(path, f"{HEAD}{tries}.\n{chosen.to_toml()}")
    return path
