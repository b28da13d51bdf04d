"""A finished run's folder: written whole or not at all, and compared with what is asked for."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odedm.core.errors import UsageError
from odedm.core.files import staged_folder, write_bytes
from odedm.core.plain_data import differences
from odedm.core.seal import seal
from odedm.results.result import EVIDENCE_FILE, FILE, MEMORY_FILE, Result

if TYPE_CHECKING:
    from odedm.core.rows import Rows

STORED = ("image", "label", "task", "index", "prototype")


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that holds something already; with `overwrite` a finished run may be replaced, nothing else."""
    if folder.is_symlink():
        raise UsageError(f"'{folder}' is a link; runs are written into real folders. Give another --out.")
    if not folder.exists():
        return
    if overwrite and (folder / FILE).is_file():
        return
    if folder.is_dir() and not any(folder.iterdir()):
        return
    if (folder / FILE).is_file():
        raise UsageError(f"'{folder}' holds a run already. Give another --out, or --overwrite to replace it.")
    raise UsageError(f"'{folder}' exists and is not a run's folder. Give another --out.")


def save_run(
    folder: Path, result: Result, rows: Rows, evidence: Rows | None = None, *, overwrite: bool = False
) -> Path:
    """Write the result, the memory's final `rows` and any evidence beside the target, then rename it into place."""
    from safetensors.torch import save  # torch is imported where runs happen, not where they are planned

    check_free(folder, overwrite=overwrite)
    columns = {name: rows[name].contiguous().cpu() for name in STORED}
    with staged_folder(folder) as staging:
        write_bytes(staging / MEMORY_FILE, save(columns))
        if evidence is not None:
            write_bytes(staging / EVIDENCE_FILE, save(evidence))
        result.save(staging)
        seal(staging)
    return folder


WITHOUT_EFFECT = ("capture", "classes")
"""Of a result's configuration: what changes no number, and what follows from the rest."""


def finished(plan: Mapping[str, Any], checksum: str, folder: Path) -> Result | None:
    """The result in a folder if it is that of this resolved experiment on these data; None where there is none.

    Another experiment's result, or one that cannot be read, is an error that says so: it is in the way.
    """
    if folder.is_symlink() or not (folder / FILE).is_file():
        return None
    advice = "Give another --out, or --overwrite to replace it."
    try:
        result = Result.load(folder / FILE)
        then, now = ({**each} for each in (result.experiment, plan))
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
