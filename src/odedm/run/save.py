"""A run's folder: the result, the memory's final rows and any evidence, there as a whole or not at all."""

from __future__ import annotations

from pathlib import Path

from safetensors.torch import save

from odedm.errors import UsageError
from odedm.files import staged_folder, write_bytes
from odedm.keep.seal import seal
from odedm.run.loop import Outcome
from odedm.run.results import EVIDENCE_FILE, FILE, MEMORY_FILE

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


def save_run(outcome: Outcome, folder: Path, *, overwrite: bool = False) -> Path:
    """Write everything into a temporary folder beside the target, then rename it into place."""
    check_free(folder, overwrite=overwrite)
    rows = outcome.memory.rows()
    columns = {name: rows[name].contiguous().cpu() for name in STORED}
    with staged_folder(folder) as staging:
        write_bytes(staging / MEMORY_FILE, save(columns))
        if outcome.evidence is not None:
            write_bytes(staging / EVIDENCE_FILE, save(outcome.evidence))
        outcome.result.save(staging)
        seal(staging)
    return folder
