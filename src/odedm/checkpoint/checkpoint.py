"""Checkpoints on disk: each is a folder that is there whole or not at all, and is read only after a look at it.

A folder `step-00000042` holds tensors, the tree that refers to them, and a manifest: whose checkpoint it is, where in
the stream, and checksums. The last two are kept. Torch is imported where a state is read or written, not for a look.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from odedm.core.checksums import are_checksums, check_files, compute_checksums, read_json
from odedm.core.errors import InfrastructureError, InvalidFileError, UsageError, error_for, require
from odedm.core.files import atomic_folder, remove_stale, sync_file, write_text
from odedm.core.plain_data import differences, json_hash

if TYPE_CHECKING:
    from torch import Tensor

    from odedm.checkpoint.state_tree import State

T = TypeVar("T")

SCHEMA = "odedm.checkpoint/5"
FOLDER = "checkpoints"
MANIFEST, TENSORS, TREE = "manifest.json", "state.safetensors", "state.json"
NAME = re.compile(r"step-(\d{8,15})")
KEPT = 2
"""The last one, and the one before in case it is broken."""
MAX_MANIFEST_BYTES, MAX_TREE_BYTES = 1 << 20, 1 << 28


@dataclass(frozen=True)
class Position:
    """Where in the stream a run is: the task's index, and the steps and rows it has done in all."""

    task: int
    step: int
    rows: int


@dataclass(frozen=True)
class Meta:
    """Whose checkpoint it is: the resolved configuration, the data's checksum, what computed it, what it looks at."""

    configuration: dict[str, Any]
    data_checksum: str
    versions: dict[str, str] = field(default_factory=dict)
    observation: dict[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class Checkpoint:
    """A valid checkpoint. `warnings` says what was passed over on the way to it, and `changes` what computes otherwise.

    The changes are among the warnings; they belong into the result as well.
    """

    folder: Path
    position: Position
    state: State
    meta: Meta
    warnings: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


def working_folder(run: Path) -> Path:
    """Return where an unfinished run keeps its lock and its checkpoints: beside the folder that its result will be.

    >>> working_folder(Path("runs/demo/seed-0")).as_posix()
    'runs/demo/.seed-0.work'
    """
    return run.with_name(f".{run.name}.work")


def checkpoint_folders(work: Path) -> list[Path]:
    """Return the checkpoints in a working folder, newest first, valid or not."""
    folder = work / FOLDER
    if not folder.is_dir():
        return []
    steps = [(int(match[1]), path) for path in folder.iterdir() if (match := NAME.fullmatch(path.name))]
    return [path for _, path in sorted(steps, reverse=True)]


def latest_valid(work: Path, read: Callable[[Path], T]) -> tuple[T | None, list[str]]:
    """Return what `read` makes of the newest checkpoint that it can use, and a line for each that it passed over."""
    faults: list[str] = []
    for folder in checkpoint_folders(work):
        try:
            return read(folder), faults
        except InvalidFileError as fault:
            faults.append(f"The checkpoint '{folder.name}' cannot be used: {fault}.")
    return None, faults


def latest_manifest(work: Path) -> dict[str, Any]:
    """Return the newest manifest that is valid, for whoever knows the folder alone."""
    manifest, faults = latest_valid(work, read_manifest)
    if manifest is None:
        raise UsageError(" ".join(faults) or f"There is no checkpoint in '{work}'. Start the run with `odedm run`.")
    return manifest


def read_manifest(folder: Path) -> dict[str, Any]:
    """Return what a checkpoint says of itself, as far as that alone can be checked."""
    require(folder.is_dir(), "it is not a folder")
    manifest: dict[str, Any] = read_json(folder / MANIFEST, MAX_MANIFEST_BYTES)
    require(isinstance(manifest, dict), f"{MANIFEST} is a {type(manifest).__name__}, not an object")
    _check_format(manifest)
    try:
        seal = manifest.pop("seal", None)
        require(seal == json_hash(manifest), f"{MANIFEST} was changed after it was written: its seal is broken")
        meta, position = _meta(manifest), Position(**manifest["position"])
        texts = [meta.data_checksum, *meta.versions, *meta.versions.values()]
        valid = all(isinstance(text, str) for text in texts)
        valid &= isinstance(meta.configuration, dict) and isinstance(meta.observation, dict)
        valid &= all(type(number) is int and 0 <= number < 1 << 53 for number in asdict(position).values())
    except (KeyError, TypeError, AttributeError, RecursionError):
        valid = False
    require(valid, f"{MANIFEST} is malformed")
    files: Any = manifest.get("files")
    require(are_checksums(files) and set(files) == {TENSORS, TREE}, "the files it lists are not those of a checkpoint")
    require(folder.name == _name(position), f"it is of step {position.step} and lies under another name")
    return manifest


def _check_format(manifest: Mapping[str, Any]) -> None:
    """Refuse another format, naming the version of the code that wrote it and can finish the run."""
    schema, versions = manifest.get("schema"), manifest.get("versions")
    writer = ""
    if isinstance(versions, dict):
        code = f"odedm {str(versions.get('odedm'))[:20]} at commit {str(versions.get('commit'))[:41]}"
        writer = f"; {code} wrote it and can finish the run"
    require(schema == SCHEMA, f"its format is {str(schema)[:60]!r}, and this version reads '{SCHEMA}'{writer}")


def _meta(manifest: Mapping[str, Any]) -> Meta:
    return Meta(manifest["configuration"], manifest["data_checksum"], manifest["versions"], manifest["observation"])


def _name(position: Position) -> str:
    return f"step-{position.step:08d}"


def load_latest(work: Path, expected: Meta) -> Checkpoint | None:
    """Return the newest valid checkpoint of this very experiment; None where there is none at all.

    Each one that is passed over gives a line in `warnings`. If none of those that are there can be used, that is an
    error with the reasons: going on from the start would throw away work without asking.
    """
    remove_leftovers(work)
    checkpoint, passed = latest_valid(work, lambda folder: load(folder, expected))
    if checkpoint is not None:
        resumed = [f"Going on from '{checkpoint.folder.name}', the one before."] if passed else []
        return replace(checkpoint, warnings=(*passed, *resumed, *checkpoint.warnings))
    if passed:
        advice = f"No other is in '{work / FOLDER}'. Put a good copy there, or start anew with --restart."
        raise UsageError(" ".join([*passed, advice]))
    return None


def load(folder: Path, expected: Meta | None = None) -> Checkpoint:
    """Read one checkpoint, after all of it was found to be as it was written."""
    from safetensors import SafetensorError
    from safetensors.torch import load_file

    from odedm.checkpoint.state_tree import State

    manifest = read_manifest(folder)
    meta = _meta(manifest)
    changes: tuple[str, ...] = ()
    if expected is not None:
        _check_owner(meta, expected)
        changes = _other_versions(meta.versions, expected.versions)
    check_files(folder, manifest["files"])
    tree = read_json(folder / TREE, MAX_TREE_BYTES)
    try:
        tensors = load_file(folder / TENSORS)
    except (OSError, ValueError, SafetensorError) as error:
        raise InvalidFileError(f"its state cannot be read ({type(error).__name__}: {str(error)[:120]})") from error
    return Checkpoint(folder, Position(**manifest["position"]), State(tensors, tree), meta, changes, changes)


def _check_owner(meta: Meta, expected: Meta) -> None:
    changed = differences(json.loads(json.dumps(expected.configuration)), meta.configuration)
    listed = "; ".join(f"{theirs} there, {ours} here" for theirs, ours in changed[:5])
    require(not changed, f"it is of another configuration: {listed}")
    checksum = meta.data_checksum
    require(
        checksum == expected.data_checksum,
        f"it was made on other data: their checksum is {checksum[:64]} there, {expected.data_checksum} here",
    )


def _other_versions(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """Return a line where other versions compute now: the run goes on, but not bit for bit as it would have."""
    changed = [f"{name} {then[name]} then, {now[name]} now" for name in now if name in then and then[name] != now[name]]
    return (f"The checkpoint was computed by others: {'; '.join(changed)}.",) if changed else ()


def restore(value: Any, checkpoint: Checkpoint, external_tensors: Mapping[str, Tensor] | None = None) -> None:
    """Put a checkpoint's state into a freshly built object, or say that this version cannot."""
    from odedm.checkpoint.load_state_tree import load_state_tree
    from odedm.checkpoint.state_tree import StateError

    try:
        load_state_tree(value, checkpoint.state, external_tensors)
    except StateError as error:
        raise UsageError(
            f"The checkpoint '{checkpoint.folder}' is whole, but does not fit this version of the code: {error} "
            "Resume with the version that wrote it, or start anew with --restart."
        ) from error


def save(work: Path, state: State, meta: Meta, position: Position) -> Path:
    """Write a checkpoint whole or not at all, and keep the one before it; older ones go, and any beyond it.

    The working folder must be there: one that was deleted under the run is not made again behind anyone's back.
    """
    if not work.is_dir():
        raise UsageError(
            f"The working folder '{work}' is gone: deleted or moved while the run was going. It stops here."
        )
    folder = work / FOLDER / _name(position)
    remove_leftovers(work)
    _write(folder, state, meta, position)
    kept = 0
    for path in checkpoint_folders(work):
        newer = int(path.name.removeprefix("step-")) > position.step  # of a future that a broken checkpoint took along
        kept += not newer
        if newer or kept > KEPT:
            _remove(path)
    return folder


def _write(folder: Path, state: State, meta: Meta, position: Position) -> None:
    """Write the folder; where that fails, name the last checkpoint."""
    work = folder.parents[1]
    older = checkpoint_folders(work)
    last = f"The last one is '{older[0].name}'." if older else "There is none before it."
    free, needed = shutil.disk_usage(work).free, state.bytes + MAX_MANIFEST_BYTES
    if free < needed:
        raise InfrastructureError(
            f"A checkpoint needs {needed / 2**20:.0f} MiB and the disk of '{work}' has {free / 2**20:.0f} left. "
            f"{last} Make room, then run the same command again."
        )
    try:
        if folder.is_file():
            folder.unlink()
        with atomic_folder(folder) as staging:
            _write_files(staging, state, meta, position)
    except (OSError, InfrastructureError) as error:
        reason = getattr(error.__cause__ or error, "strerror", None) or str(error)
        raise error_for(
            error,
            f"Cannot write the checkpoint '{folder}': {reason}. {last} Mend that, then run the same command again.",
        ) from error


def _write_files(staging: Path, state: State, meta: Meta, position: Position) -> None:
    from odedm.core.tensor_archive import save_tensors

    save_tensors(staging / TENSORS, state.tensors)
    sync_file(staging / TENSORS)
    write_text(staging / TREE, json.dumps(state.tree, allow_nan=False, separators=(",", ":")))
    manifest = {
        "schema": SCHEMA,
        "written": datetime.now(UTC).isoformat(timespec="seconds"),
        "position": asdict(position),
        **asdict(meta),
        "files": compute_checksums(staging, (TENSORS, TREE)),
    }
    manifest = json.loads(json.dumps(manifest))  # tuples become lists before the seal, as they will be after reading
    write_text(staging / MANIFEST, json.dumps({**manifest, "seal": json_hash(manifest)}, indent=1) + "\n")


def clear(work: Path) -> None:
    """Remove all checkpoints."""
    remove_leftovers(work)
    for path in checkpoint_folders(work):
        _remove(path)


def remove_leftovers(work: Path) -> None:
    """Remove what a dead writer left half-made; only for the holder of the lock: no other can be at work then."""
    folder = work / FOLDER
    if folder.is_dir():
        for name in {path.name.split(".")[1] for path in folder.glob(".step-*")}:
            remove_stale(folder / name)


def _remove(path: Path) -> None:
    """Remove a checkpoint at once: half of one must never be seen under its name."""
    if not path.is_dir():
        path.unlink(missing_ok=True)
        return
    aside = path.with_name(f".{path.name}.{os.getpid()}.gone")
    os.replace(path, aside)
    shutil.rmtree(aside, ignore_errors=True)
