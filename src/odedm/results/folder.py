"""A finished run's folder: written whole or not at all, found again, and read."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odedm.checkpoint.checkpoint import working_folder
from odedm.core.checksums import check_one, write_checksums
from odedm.core.errors import InvalidFileError, UsageError
from odedm.core.files import atomic_folder, check_file, write_bytes, write_text
from odedm.core.text import printable
from odedm.results.result import Result

if TYPE_CHECKING:
    import numpy as np

    from odedm.core.rows import Rows

FILE = "result.json"
MEMORY_FILE = "memory.safetensors"
EVIDENCE_FILE = "evidence.safetensors"
"""Only where a run was to keep evidence."""
MODEL_FILE = "model.safetensors"
"""Only where a run was to keep its trained model."""
PACKED = ".jsonl.gz"
"""What the name of a file of packed results ends with; it is no folder."""
STORED = ("image", "label", "task", "index", "prototype")
"""The columns of a saved memory."""
FEATURES = ("feature.data", "feature.memory")
CHOICE = ("choice.index", "choice.label", "choice.kept", "choice.distance")
"""The columns of saved evidence: features of rows, and the candidates of every choice of prototypes."""

Columns = dict[str, "np.ndarray[Any, Any]"]


@dataclass(frozen=True)
class FinishedRun:
    """A finished run and its folder."""

    folder: Path
    result: Result

    @classmethod
    def load(cls, folder: Path) -> FinishedRun:
        """Read the run in a folder."""
        return cls(folder, Result.load(folder / FILE))

    @property
    def seed(self) -> int:
        """Return the seed that everything random of the run came from."""
        return int(self.result.experiment["seed"])

    @property
    def seconds(self) -> float:
        """Return wall seconds, all phases together."""
        return self.result.total_seconds

    @property
    def anytime(self) -> list[tuple[int, float]]:
        """Return rows seen and accuracy in per cent over the classes seen so far, where measured."""
        return [(int(rows), float(accuracy)) for rows, accuracy in self.result.anytime or []]

    @property
    def classes(self) -> list[str]:
        """Return the class names in label order, fit to be shown."""
        return [printable(name) for name in self.result.classes]

    def class_name(self, label: int) -> str:
        """Return the name of one class; its number where it has none."""
        return self.classes[label] if 0 <= label < len(self.classes) else str(label)


def load_runs(folders: Iterable[Path]) -> tuple[list[FinishedRun], dict[Path, str]]:
    """Read the runs whose result is as it was written, and say by folder what is wrong with each of the others."""
    runs, faults = [], {}
    for folder in folders:
        try:
            run = FinishedRun.load(folder)
            check_one(folder, FILE)
        except InvalidFileError as fault:
            faults[folder] = f"The result '{folder / FILE}' cannot be used: {fault}."
        except UsageError as error:
            faults[folder] = str(error)
        else:
            runs.append(run)
    return runs, faults


class NoRuns(UsageError):
    """There is no finished run at or below the folders that were given."""


def check_free(folder: Path, *, overwrite: bool) -> None:
    """Refuse a folder that holds something; with `overwrite` a finished run may be replaced, nothing else."""
    if folder.is_symlink():
        raise UsageError(
            f"'{folder}' is a link; runs are written into real folders. Give another folder, on the command line "
            "by --out."
        )
    if not folder.exists() or (folder.is_dir() and not any(folder.iterdir())):
        return
    if not (folder / FILE).is_file():
        raise UsageError(
            f"'{folder}' exists and is not a run's folder. Give another folder, on the command line by --out."
        )
    if not overwrite:
        raise UsageError(
            f"'{folder}' holds a run already. Give another folder, or replace it: in Python overwrite=True; on the "
            "command line --out, or --overwrite."
        )


def save_run(
    folder: Path,
    result: Result,
    rows: Rows,
    evidence: Rows | None = None,
    model: Callable[[Path], None] | None = None,
    *,
    overwrite: bool = False,
) -> Path:
    """Write the result, the memory's final `rows`, evidence and model beside the target, then rename it into place."""
    from safetensors.torch import save  # torch is imported where runs happen, not where they are planned

    check_free(folder, overwrite=overwrite)
    columns = {name: rows[name].contiguous().cpu() for name in STORED}
    with atomic_folder(folder) as staging:
        write_bytes(staging / MEMORY_FILE, save(columns))
        if evidence is not None:
            write_bytes(staging / EVIDENCE_FILE, save(evidence))
        if model is not None:
            model(staging / MODEL_FILE)
        write_text(staging / FILE, json.dumps(result.to_dict(), indent=1, allow_nan=False) + "\n")
        write_checksums(staging)
    return folder


def read_columns(path: Path, names: Sequence[str] | None = None) -> Columns:
    """Read the named columns that a run's file has, or all of them, without torch; a link is followed."""
    from safetensors import SafetensorError, safe_open

    check_file(path)
    try:
        with safe_open(path, framework="np") as file:
            present = set(file.keys())
            return {name: file.get_tensor(name) for name in names or sorted(present) if name in present}
    except (SafetensorError, OSError, TypeError, ValueError, KeyError) as error:
        raise InvalidFileError(f"{path.name} cannot be read ({str(error)[:100]})") from None


def find_runs(paths: Sequence[Path]) -> list[Path]:
    """Return every folder at or below `paths` that holds a finished run, sorted; raise `NoRuns` if there is none."""
    folders: set[Path] = set()
    for path in paths:
        if not path.exists():
            if working_folder(path).is_dir():
                raise UsageError(f"'{path}' is not finished. Go on with `odedm resume {path}`.")
            raise UsageError(f"There is no '{path}'. Give the folder of a run, or a folder that holds runs.")
        if path.name == FILE:
            folders.add(path.parent)
            continue
        if path.is_file():
            packed = f"Packed results: `odedm report {path}`." if path.name.endswith(PACKED) else "Give a folder."
            raise UsageError(f"'{path}' is a file, and this takes folders of runs. {packed}")
        for folder, subfolders, files in os.walk(path):  # one may vanish meanwhile
            subfolders[:] = [name for name in subfolders if not name.startswith(".")]  # what is unfinished
            if FILE in files:
                folders.add(Path(folder))
    if not folders:
        places = ", ".join(f"'{path}'" for path in paths)
        raise NoRuns(f"No finished run at or below {places}: no {FILE} there. Make one with `odedm run`.")
    return sorted(folders)


def find_run(path: Path) -> Path:
    """Return the folder of the only run at or below a path."""
    folders = find_runs([path])
    if len(folders) > 1:
        raise UsageError(f"'{path}' holds {len(folders)} runs; give one, e.g. '{folders[0]}', or use `odedm report`.")
    return folders[0]
