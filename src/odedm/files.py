"""Writing files so that a reader sees the old one or the new one, never half of it."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from odedm.errors import UsageError


def write_bytes(path: Path, content: bytes) -> None:
    """Write to a temporary file beside `path`, flush it to the disk, then rename it into place."""
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.chmod(name, 0o644)
        os.replace(name, path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def write_text(path: Path, content: str) -> None:
    """Write text as UTF-8, whole or not at all."""
    write_bytes(path, content.encode())


@contextmanager
def staged_folder(folder: Path) -> Iterator[Path]:
    """A temporary folder beside `folder` that takes its place when the block ends well, and vanishes otherwise."""
    staging = Path(tempfile.mkdtemp(dir=writable_folder(folder.parent), prefix=_mark(folder, os.getpid())))
    try:
        yield staging
        staging.chmod(0o755)
        if folder.exists():  # moved aside first: at every moment there is a whole folder to be found
            old = staging.with_name(staging.name + ".old")
            os.replace(folder, old)
            os.replace(staging, folder)
            shutil.rmtree(old)
        else:
            os.replace(staging, folder)
    except BaseException:
        shutil.rmtree(staging, ignore_errors=True)
        raise


def sweep_staging(folder: Path, process: int) -> None:
    """Remove what a killed process left of its work on `folder`."""
    for left in folder.parent.glob(_mark(folder, process) + "*"):
        shutil.rmtree(left, ignore_errors=True)


def _mark(folder: Path, process: int) -> str:
    return f".{folder.name}.{process}."


def writable_folder(path: Path) -> Path:
    """Make the folder and prove that files can be written into it, or say why not."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path):
            return path
    except OSError as error:
        reason = error.strerror or str(error)
        raise UsageError(
            f"Cannot write into the folder '{path}': {reason}. Give a folder you may write to, e.g. --out runs/mine."
        ) from error
