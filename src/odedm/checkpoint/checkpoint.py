"""Checkpoints on disk: each is one file that is there whole or not at all, and is read only after a look at it.

A file `step-00000042.safetensors` holds tensors, and in its head the tree that refers to them, whose checkpoint it is
and where in the stream. The last two are kept. Torch is imported where a state is read or written, not for a look.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from odedm.core.errors import InvalidFileError, UsageError, error_for, require
from odedm.core.plain_data import differences
from odedm.core.tensor_archive import read_head, read_whole, write_archive

if TYPE_CHECKING:
    from torch import Tensor

    from odedm.checkpoint.state_tree import State

T = TypeVar("T")

SCHEMA = "odedm.checkpoint/6"
FOLDER, SUFFIX = "checkpoints", ".safetensors"
NAME = re.compile(r"step-(\d{8,15})\.safetensors")
KEPT = 2
"""The last one, and the one before in case it is broken."""


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

    path: Path
    position: Position
    state: State
    warnings: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()


def working_folder(run: Path) -> Path:
    """Return where an unfinished run keeps its lock and its checkpoints: beside the folder that its result will be.

    >>> working_folder(Path("runs/demo/seed-0")).as_posix()
    'runs/demo/.seed-0.work'
    """
    return run.with_name(f".{run.name}.work")


def checkpoint_paths(work: Path) -> list[Path]:
    """Return the checkpoints in a working folder, newest first, valid or not."""
    paths = [path for path in (work / FOLDER).glob("step-*") if NAME.fullmatch(path.name)]
    return sorted(paths, key=_step, reverse=True)


def _step(path: Path) -> int:
    return int(path.stem.removeprefix("step-"))


def latest_valid(work: Path, read: Callable[[Path], T]) -> tuple[T | None, list[str]]:
    """Return what `read` makes of the newest checkpoint that it can use, and a line for each that it passed over."""
    faults: list[str] = []
    for path in checkpoint_paths(work):
        try:
            return read(path), faults
        except InvalidFileError as fault:
            faults.append(f"The checkpoint '{path.stem}' cannot be used: {fault}.")
    return None, faults


def latest_look(work: Path) -> tuple[Position, Meta]:
    """Return where the newest checkpoint is and whose, by its head alone, for whoever knows the folder alone."""
    look, faults = latest_valid(work, look_at)
    if look is None:
        raise UsageError(" ".join(faults) or f"There is no checkpoint in '{work}'. Start the run with `odedm run`.")
    return look


def look_at(path: Path) -> tuple[Position, Meta]:
    """Return where a checkpoint is and whose, as far as its head alone can be checked."""
    return _parsed(path, read_head(path, SCHEMA))


def _parsed(path: Path, head: Mapping[str, Any]) -> tuple[Position, Meta]:
    try:
        position = Position(**head["position"])
        meta = Meta(head["configuration"], head["data_checksum"], head["versions"], head["observation"])
        texts = [meta.data_checksum, *meta.versions, *meta.versions.values()]
        valid = all(isinstance(text, str) for text in texts)
        valid &= isinstance(meta.configuration, dict) and isinstance(meta.observation, dict)
        valid &= all(type(number) is int and 0 <= number < 1 << 53 for number in asdict(position).values())
    except (KeyError, TypeError, AttributeError):
        valid = False
    require(valid and "tree" in head, "its head is malformed")
    require(path.stem == _name(position), f"it is of step {position.step} and lies under another name")
    return position, meta


def _name(position: Position) -> str:
    return f"step-{position.step:08d}"


def load_latest(work: Path, expected: Meta) -> Checkpoint | None:
    """Return the newest valid checkpoint of this very experiment; None where there is none at all.

    Each one that is passed over gives a line in `warnings`. If none of those that are there can be used, that is an
    error with the reasons: going on from the start would throw away work without asking. Only for the holder of the
    lock: no other may be at work then.
    """
    for path in (work / FOLDER).glob(".*"):  # what a dead writer left half-made: ours, and what safetensors writes into
        path.unlink()
    checkpoint, passed = latest_valid(work, lambda path: load(path, expected))
    if checkpoint is not None:
        resumed = [f"Going on from '{checkpoint.path.stem}', the one before."] if passed else []
        return replace(checkpoint, warnings=(*passed, *resumed, *checkpoint.warnings))
    if passed:
        advice = f"No other is in '{work / FOLDER}'. Put a good copy there, or start anew with --restart."
        raise UsageError(" ".join([*passed, advice]))
    return None


def load(path: Path, expected: Meta) -> Checkpoint:
    """Read one checkpoint of this very experiment, after all of it was found to be as it was written."""
    from odedm.checkpoint.state_tree import State

    head, tensors = read_whole(path, SCHEMA)
    position, meta = _parsed(path, head)
    _check_owner(meta, expected)
    changes = _other_versions(meta.versions, expected.versions)
    return Checkpoint(path, position, State(tensors, head["tree"]), changes, changes)


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
            f"The checkpoint '{checkpoint.path}' is whole, but does not fit this version of the code: {error} "
            "Resume with the version that wrote it, or start anew with --restart."
        ) from error


def save(work: Path, state: State, meta: Meta, position: Position) -> Path:
    """Write a checkpoint whole or not at all, and keep the one before it; older ones go, and any beyond it."""
    path = work / FOLDER / (_name(position) + SUFFIX)
    written = datetime.now(UTC).isoformat(timespec="seconds")
    head = {"schema": SCHEMA, "written": written, "position": asdict(position), **asdict(meta), "tree": state.tree}
    try:
        path.parent.mkdir(exist_ok=True)
        write_archive(path, head, state.tensors)
    except OSError as error:
        reason = error.strerror or error
        raise error_for(
            error, f"Cannot write the checkpoint '{path}': {reason}. Mend that, then run the same command again."
        ) from error
    paths = checkpoint_paths(work)  # newer ones are of a future that a broken one took along
    kept = [other for other in paths if _step(other) <= position.step][:KEPT]
    for other in {*paths} - {*kept}:
        other.unlink()
    return path


def clear(work: Path) -> None:
    """Remove all checkpoints."""
    for path in checkpoint_paths(work):
        path.unlink()
