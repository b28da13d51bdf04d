"""Reads a run's checkpoints from disk: the newest that is whole and its own, believed only after a look at it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load_file
from torch import Tensor

from odedm.checkpoint.load_state_tree import load_state_tree
from odedm.checkpoint.manifest import FOLDER, MOST_TREE, TENSORS, TREE, Meta, Position, newest_sound, read_manifest
from odedm.checkpoint.state_tree import State, StateError
from odedm.core.errors import InvalidFileError, UsageError, require
from odedm.core.files import remove_stale
from odedm.core.plain_data import differences
from odedm.core.seal import check_files, read_json


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


def sweep(work: Path) -> None:
    """Remove what a dead writer left half-made, unless a link leads elsewhere; nothing may be written there either.

    Only for the holder of the lock: no other can be at work then.
    """
    folder = work / FOLDER
    if folder.is_symlink():
        raise UsageError(f"'{folder}' is a link; checkpoints are kept in a real folder. Remove it, then run it again.")
    if folder.is_dir():
        for name in {left.name.split(".")[1] for left in folder.glob(".step-*")}:
            remove_stale(folder / name)


def load_latest(work: Path, expected: Meta) -> Checkpoint | None:
    """The newest sound checkpoint of this very experiment; None where there is none at all.

    Each one that is passed over gives a line in `warnings`. If none of those that are there can be used, that is an
    error with the reasons: going on from the start would throw away work without asking.
    """
    sweep(work)
    found, passed = newest_sound(work, partial(load, expected=expected))
    if found is not None:
        going_on = [f"Going on from '{found.folder.name}', the one before."] if passed else []
        return replace(found, warnings=(*passed, *going_on, *found.warnings))
    if passed:
        where = f"No other is in '{work / FOLDER}'. Put a good copy there, or start anew with --fresh."
        raise UsageError(" ".join([*passed, where]))
    return None


def load(folder: Path, expected: Meta | None = None) -> Checkpoint:
    """One checkpoint, read only after all of it was found to be as it was written."""
    manifest = read_manifest(folder)
    meta = Meta(manifest["configuration"], manifest["data_checksum"], manifest["versions"], manifest["observation"])
    changes: tuple[str, ...] = ()
    if expected is not None:
        _check_owner(meta, expected)
        changes = _other_versions(meta.versions, expected.versions)
    check_files(folder, manifest["files"])
    try:
        tensors = load_file(folder / TENSORS)
    except (OSError, ValueError, SafetensorError) as error:
        raise InvalidFileError(f"its state cannot be read ({type(error).__name__}: {str(error)[:120]})") from error
    tree = read_json(folder / TREE, MOST_TREE, "more than any state")
    return Checkpoint(folder, Position(**manifest["position"]), State(tensors, tree), meta, changes, changes)


def _check_owner(meta: Meta, expected: Meta) -> None:
    other = differences(json.loads(json.dumps(expected.configuration)), meta.configuration)
    named = "; ".join(f"{there} there, {here} here" for there, here in other[:5])
    require(not other, f"it is of another configuration: {named}")
    there, here = meta.data_checksum, expected.data_checksum
    require(there == here, f"it was made on other data: their checksum is {there[:64]} there, {here} here")


def _other_versions(then: Mapping[str, str], now: Mapping[str, str]) -> tuple[str, ...]:
    """A line where something that computes has changed: the run goes on, but not bit for bit as it would have."""
    changed = [f"{name} {then[name]} then, {now[name]} now" for name in now if name in then and then[name] != now[name]]
    return (f"The checkpoint was computed by others: {'; '.join(changed)}.",) if changed else ()


def restore(thing: Any, checkpoint: Checkpoint, external_tensors: Mapping[str, Tensor] | None = None) -> None:
    """Put a checkpoint's state into a freshly built object, or say that this version cannot."""
    try:
        load_state_tree(thing, checkpoint.state, external_tensors)
    except StateError as error:
        raise UsageError(
            f"The checkpoint '{checkpoint.folder}' is whole, but does not fit this version of the code: {error} "
            "Resume with the version that wrote it, or start anew with --fresh."
        ) from error
