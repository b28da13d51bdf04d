"""A live memory whose rows are files in a folder: made, saved, opened again."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import torch

from odedm.core.errors import InvalidFileError, UsageError, require
from odedm.core.files import as_path
from odedm.core.row_folder import STATE, RowFolder
from odedm.core.store import EMPTY
from odedm.memory import live_state

if TYPE_CHECKING:
    from odedm.memory.live import DualMemory


def new_folder(storage: str | Path | None, device: torch.device) -> RowFolder | None:
    """Return the folder of a new memory, None for one in RAM; refuse one that holds a saved memory."""
    if storage is None:
        return None
    if device.type != "cpu":
        raise UsageError(f"Rows in a folder are read by the CPU; device={device} was given beside storage.")
    folder = RowFolder(as_path(storage))
    if folder.saved:
        folder.close()
        raise UsageError(
            f"'{storage}' holds a saved memory. Load it by DualMemory.load('{storage}'), or give another folder."
        )
    folder.clear()
    return folder


def save_in_folder(memory: DualMemory, folder: RowFolder, path: str | Path | None) -> Path:
    """Make what the memory holds now the point to which a load returns."""
    if path is not None:
        raise UsageError(f"The rows of this memory are files in '{folder.path}': call save() without a path.")
    memory._check_sound()  # of one that is closed or torn the last save stays
    state = live_state.capture(memory)
    folder.commit(lambda file, number: live_state.write({**state, "generation": number}, file), _empty_slots(memory))
    return folder.path


def open_folder(kind: type[DualMemory], path: Path, device: torch.device | str) -> DualMemory:
    """Return the memory of a folder as it was at its last save."""
    if torch.device(device).type != "cpu":
        raise UsageError(f"Rows in a folder are read by the CPU; device={device} was given.")
    if not (path / STATE).exists():
        raise UsageError(f"The folder '{path}' holds no saved memory. Give one in which a memory was saved.")
    folder = RowFolder(path)
    try:
        state = live_state.read(path / STATE)
        require(type(state["generation"]) is int and state["generation"] > 0, "its save has no number")
        memory = kind.from_config(live_state.settings_in(state), seed=state["seed"])
        memory._folder = folder
        live_state.restore(memory, state)
        folder.recover(state["generation"], _empty_slots(memory))
    except BaseException as error:
        folder.close()
        if isinstance(error, InvalidFileError):
            raise UsageError(f"The memory in '{path}' cannot be used: {error}.") from error
        raise
    return memory


def _empty_slots(memory: DualMemory) -> torch.Tensor:
    """Return which slots hold no row."""
    return memory._dual.buffer.store.priority == EMPTY if memory._dual else torch.zeros(0, dtype=torch.bool)
