"""Writes a run's checkpoints to disk: each a folder that is there whole or not at all; the last two are kept."""

from __future__ import annotations

import errno
import json
import os
import shutil
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path

from safetensors import SafetensorError
from safetensors.torch import save_file

from odedm.checkpoint.manifest import FOLDER, MANIFEST, MOST_MANIFEST, SCHEMA, TENSORS, TREE, Meta, Position, listed
from odedm.checkpoint.read_checkpoint import load, sweep
from odedm.checkpoint.state_tree import State
from odedm.core.errors import DiskFull, InvalidFileError, UsageError
from odedm.core.files import atomic_folder, sync_file, write_text
from odedm.core.plain_data import json_hash
from odedm.core.seal import listing

KEPT = 2
"""The last one, and the one before in case it is broken."""


def save(work: Path, state: State, meta: Meta, position: Position) -> Path:
    """Write a checkpoint whole or not at all, and keep the one before it; older ones go, and any beyond it.

    The working folder must be there: one that was deleted under the run is not made again behind anyone's back.
    """
    if not work.is_dir():
        raise UsageError(
            f"The working folder '{work}' is gone: deleted or moved while the run was going. It stops here."
        )
    folder = work / FOLDER / f"step-{position.step:08d}"
    sweep(work)
    if not _is_there(folder, meta, position):
        _write(folder, state, meta, position)
    kept = 0
    for path in listed(work):
        newer = int(path.name.removeprefix("step-")) > position.step  # of a future that a broken checkpoint took along
        kept += not newer
        if newer or kept > KEPT:
            _remove(path)
    return folder


def clear(work: Path) -> None:
    """Forget all checkpoints: what comes next starts anew."""
    sweep(work)
    for path in listed(work):
        _remove(path)


def _is_there(folder: Path, meta: Meta, position: Position) -> bool:
    """Whether this very checkpoint exists and is sound: after a resume the first one may be."""
    try:
        return folder.is_dir() and load(folder, meta).position == position
    except InvalidFileError:
        return False


def _write(folder: Path, state: State, meta: Meta, position: Position) -> None:
    """Write the folder where the disk has room for it; an error that names the last checkpoint where it cannot be."""
    work = folder.parents[1]
    free, needed = shutil.disk_usage(work).free, state.bytes + MOST_MANIFEST
    if free < needed:
        raise DiskFull(
            f"A checkpoint needs {needed / 2**20:.0f} MiB and the disk of '{work}' has {free / 2**20:.0f} left. "
            f"{_last(work)} Make room, then run the same command again."
        )
    try:
        if folder.is_symlink() or folder.is_file():
            folder.unlink()
        with atomic_folder(folder) as staging:
            _write_files(staging, state, meta, position)
    except (OSError, SafetensorError, DiskFull) as error:
        reason = getattr(error.__cause__ or error, "strerror", None) or str(error)
        full = isinstance(error, DiskFull) or f"os error {errno.ENOSPC}" in reason  # as safetensors words it
        raise (DiskFull if full else UsageError)(
            f"Cannot write the checkpoint '{folder}': {reason}. {_last(work)} Mend that, then run the same command "
            "again."
        ) from error


def _write_files(staging: Path, state: State, meta: Meta, position: Position) -> None:
    save_file(state.tensors, staging / TENSORS)
    sync_file(staging / TENSORS)
    write_text(staging / TREE, json.dumps(state.tree, allow_nan=False, separators=(",", ":")))
    plain = {
        "schema": SCHEMA,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "position": asdict(position),
        **asdict(meta),
        "configuration_hash": json_hash(meta.configuration),
        "files": listing(staging, (TENSORS, TREE)),
    }
    plain = json.loads(json.dumps(plain))  # tuples become lists before the seal, as they will be after reading
    write_text(staging / MANIFEST, json.dumps({**plain, "seal": json_hash(plain)}, indent=1) + "\n")


def _last(work: Path) -> str:
    there = listed(work)
    return f"The last one is '{there[0].name}'." if there else "There is none before it."


def _remove(path: Path) -> None:
    """Take a checkpoint away at once: half of one must never be seen under its name."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}.gone")
    os.replace(path, aside)
    shutil.rmtree(aside, ignore_errors=True)
