"""Checkpoints on disk: each a folder that is there whole or not at all, and is believed only after a look at it."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file, save_file
from torch import Tensor

from odedm.checkpoint.capture_state import State, StateError
from odedm.checkpoint.manifest import (
    FOLDER,
    MANIFEST,
    MOST_MANIFEST,
    SCHEMA,
    TENSORS,
    TREE,
    Meta,
    Position,
    Unfit,
    listed,
    no_constant,
    read_manifest,
    working_folder,
)
from odedm.checkpoint.restore_state import restore_state
from odedm.core.errors import UsageError
from odedm.core.files import staged_folder, sync_file, write_text
from odedm.core.plain_data import differences, text_fingerprint
from odedm.core.seal import damage, listing

__all__ = [
    "Checkpoint",
    "Meta",
    "Position",
    "clear",
    "load",
    "load_latest",
    "restore",
    "save",
    "sweep",
    "working_folder",
]

KEPT = 2
"""The last one, and the one before in case it is broken."""


@dataclass(frozen=True)
class Checkpoint:
    """A sound checkpoint. `warnings` says what was passed over on the way to it, and `changes` what computes otherwise.

    The changes are among the warnings; they belong into the result as well.
    """

    folder: Path
    position: Position
    state: State
    meta: Meta
    warnings: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


def clear(work: Path) -> None:
    """Forget all checkpoints: what comes next starts anew."""
    sweep(work)
    for path in listed(work):
        _remove(path)


def sweep(work: Path) -> None:
    """Remove what a dead writer left half-made. Only for the holder of the lock: no other can be at work then."""
    folder = work / FOLDER
    if folder.is_dir() and not folder.is_symlink():
        for left in folder.glob(".step-*"):
            name = left.name.split(".")[1]
            if left.name.endswith(".old") and not (folder / name).exists():  # died between two renames
                os.replace(left, folder / name)
            else:
                shutil.rmtree(left, ignore_errors=True)


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
        _check_disk(work, state)
        try:
            if folder.is_symlink() or folder.is_file():
                folder.unlink()
            with staged_folder(folder) as staging:
                _write(staging, state, meta, position)
        except (OSError, SafetensorError) as error:
            raise UsageError(_unwritten(folder, error, listed(work))) from error
    kept = 0
    for path in listed(work):
        newer = int(path.name.removeprefix("step-")) > position.step  # of a future that a broken checkpoint took along
        kept += not newer
        if newer or kept > KEPT:
            _remove(path)
    return folder


def load_latest(work: Path, expected: Meta) -> Checkpoint | None:
    """The newest sound checkpoint of this very experiment; None where there is none at all.

    Each one that is passed over gives a line in `warnings`. If none of those that are there can be used, that is an
    error with the reasons: going on from the start would throw away work without asking.
    """
    sweep(work)
    passed: list[str] = []
    for folder in listed(work):
        try:
            found = load(folder, expected)
        except Unfit as reason:
            passed.append(f"The checkpoint '{folder.name}' cannot be used: {reason}.")
            continue
        if passed:
            passed.append(f"Going on from '{folder.name}', the one before.")
        return replace(found, warnings=(*passed, *found.warnings))
    if passed:
        raise UsageError(
            " ".join(passed) + f" No other is in '{work / FOLDER}'. Put a good copy there, or start anew with --fresh."
        )
    return None


def load(folder: Path, expected: Meta | None = None) -> Checkpoint:
    """One checkpoint, read only after all of it was found to be as it was written."""
    manifest = read_manifest(folder)
    meta = Meta(manifest["configuration"], manifest["data_checksum"], manifest["versions"], manifest["observation"])
    warnings: tuple[str, ...] = ()
    if expected is not None:
        _check_owner(meta, expected)
        warnings = _other_versions(meta.versions, expected.versions)
    fault = damage(folder, manifest["files"])
    if fault:
        raise Unfit(fault)
    try:
        tree = json.loads((folder / TREE).read_text("utf-8"), parse_constant=no_constant)
        tensors = load_file(folder / TENSORS)
    except (OSError, ValueError, RecursionError, SafetensorError) as error:
        raise Unfit(f"its state cannot be read ({type(error).__name__}: {str(error)[:120]})") from error
    return Checkpoint(folder, Position(**manifest["position"]), State(tensors, tree), meta, warnings, warnings)


def restore(thing: Any, checkpoint: Checkpoint, outside: Mapping[str, Tensor] | None = None) -> None:
    """Put a checkpoint's state into a freshly built object, or say that this version cannot."""
    try:
        restore_state(thing, checkpoint.state, outside)
    except StateError as error:
        raise UsageError(
            f"The checkpoint '{checkpoint.folder}' is whole, but does not fit this version of the code: {error} "
            "Resume with the version that wrote it, or start anew with --fresh."
        ) from error


def _write(staging: Path, state: State, meta: Meta, position: Position) -> None:
    save_file(state.tensors, staging / TENSORS)
    sync_file(staging / TENSORS)
    write_text(staging / TREE, json.dumps(state.plain, allow_nan=False, separators=(",", ":")))
    plain = {
        "schema": SCHEMA,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "position": asdict(position),
        "configuration": dict(meta.configuration),
        "configuration_hash": text_fingerprint(dict(meta.configuration)),
        "data_checksum": meta.data_checksum,
        "versions": dict(meta.versions),
        "observation": dict(meta.observation),
        "files": listing(staging, (TENSORS, TREE)),
    }
    plain = json.loads(json.dumps(plain))  # tuples become lists before the seal, as they will be after reading
    write_text(staging / MANIFEST, json.dumps({**plain, "seal": text_fingerprint(plain)}, indent=1) + "\n")


def _is_there(folder: Path, meta: Meta, position: Position) -> bool:
    """Whether this very checkpoint exists and is sound: after a resume the first one may be."""
    try:
        return folder.is_dir() and load(folder, meta).position == position
    except Unfit:
        return False


def _remove(path: Path) -> None:
    """Take a checkpoint away at once: half of one must never be seen under its name."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}.gone")
    os.replace(path, aside)
    shutil.rmtree(aside, ignore_errors=True)


def _check_disk(work: Path, state: State) -> None:
    free, needed = shutil.disk_usage(work).free, state.bytes + MOST_MANIFEST
    if free < needed:
        raise UsageError(
            f"A checkpoint needs {needed / 2**20:.0f} MiB and the disk of '{work}' has {free / 2**20:.0f} left. "
            f"{_last(listed(work))} Make room, then run the same command again."
        )


def _unwritten(folder: Path, error: Exception, there: list[Path]) -> str:
    reason = (error.strerror if isinstance(error, OSError) else None) or str(error)
    return (
        f"Cannot write the checkpoint '{folder}': {reason}. {_last(there)} Mend that, then run the same command again."
    )


def _last(there: list[Path]) -> str:
    return f"The last one is '{there[0].name}'." if there else "There is none before it."


def _check_owner(meta: Meta, expected: Meta) -> None:
    other = differences(json.loads(json.dumps(dict(expected.configuration))), meta.configuration)
    if other:
        raise Unfit(
            "it is of another configuration: " + "; ".join(f"{each} there, {own} here" for each, own in other[:5])
        )
    if meta.data_checksum != expected.data_checksum:
        raise Unfit(
            f"it was made on other data: their checksum is {meta.data_checksum[:64]} there, "
            f"{expected.data_checksum} here"
        )


def _other_versions(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """A line where something that computes has changed: the run goes on, but not bit for bit as it would have."""
    changed = [f"{name} {then[name]} then, {now[name]} now" for name in now if name in then and then[name] != now[name]]
    return (f"The checkpoint was computed by others: {'; '.join(changed)}.",) if changed else ()
