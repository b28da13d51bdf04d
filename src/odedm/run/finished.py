"""Whether a run's folder holds the very result that is asked for."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from odedm.errors import UsageError
from odedm.keep.manifest import differences
from odedm.run.experiment import Experiment
from odedm.run.results import FILE, Result

WITHOUT_EFFECT = ("capture", "classes")
"""Of a result's configuration: what changes no number, and what follows from the rest."""


def reported(plan: Experiment, classes: Sequence[str]) -> dict[str, Any]:
    """The resolved experiment as it goes into the result, with the class names in arrival order."""
    plain = plan.describe()
    memory = plain["memory"]
    return plain | {
        "method": {"name": plan.method, **plain.pop("options")},
        "replay": memory.pop("replay", None),
        "gamma": memory.pop("gamma", None),
        "classes": list(classes),
    }


def finished(plan: Experiment, checksum: str, folder: Path) -> Result | None:
    """The result in a folder if it is that of this resolved experiment on these data; None where there is none.

    Another experiment's result, or one that cannot be read, is an error that says so: it is in the way.
    """
    if folder.is_symlink() or not (folder / FILE).is_file():
        return None
    advice = "Give another --out, or --overwrite to replace it."
    try:
        result = Result.load(folder / FILE)
        then, now = ({**each} for each in (result.experiment, reported(plan, ())))
        origin = dict(result.provenance)
    except UsageError as error:
        raise UsageError(f"{error} {advice}") from error
    except (TypeError, ValueError) as error:
        raise UsageError(f"The result in '{folder}' is not made as it should be. {advice}") from error
    for each in (then, now):
        for name in WITHOUT_EFFECT:
            each.pop(name, None)
    other = differences(now, then)
    if origin.get("data_checksum") != checksum:
        other.append((f"data of the checksum {str(origin.get('data_checksum'))[:64]}", checksum))
    if other:
        named = "; ".join(f"{there} there, {here} here" for there, here in other[:5])
        raise UsageError(f"'{folder}' holds a run already, another one: {named}. {advice}")
    return result
