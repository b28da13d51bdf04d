"""Columns of rows in the files of a folder, mapped into memory, with an undo journal since the last save.

A save is a consistent point. Rows that the last save holds are copied to the journal before they are overwritten for
the first time, so a process that is killed loses only what came after that save: `recover` puts the old rows back.
The guarantee is for processes that end, however they end. After a power cut the files are as the system left them.
"""

from __future__ import annotations

import mmap
import os
import re
import struct
import weakref
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import torch
from filelock import FileLock, Timeout
from torch import Tensor

from odedm.core.errors import InvalidFileError, LockedError, UsageError, require
from odedm.core.files import remove_stale, write_for_user, writing
from odedm.core.rows import ColumnSpec, Rows

STATE, LOCK, VERSIONS = "state.odedm", "lock", "versions"
COLUMN, JOURNAL = re.compile(r"column-\d+"), re.compile(r"undo-\d+")
UNFINISHED = re.compile(r"\.state\.odedm\..*|\.tmp\w{6}")
"""What a save leaves that is killed: our own file, or that which safetensors writes first."""
MAPPED_PAGE_ROWS = 8_192
"""After so many rows at random places their pages are given back: the kernel maps up to 64 KiB around each of them."""
ALLOCATED_ROWS = 65_536
"""The least number of rows for which room on the disk is taken at once: where it is full, `add` is refused."""
RECORD = struct.Struct("<4sIII")  # mark, rows, bytes, checksum of the bytes
MARK = b"undo"
NO_LINK = getattr(os, "O_NOFOLLOW", 0)
"""No file outside the folder is opened by a link in it, where the system can refuse that."""
JOURNAL_FLAGS = os.O_WRONLY | os.O_CREAT | os.O_APPEND | NO_LINK
JOURNAL_ROWS = 4_096
"""Rows of one record at most."""


class RowFolder:
    """The mapped columns of a store: `columns` by name, whose rows may be written inside `writing` alone.

    One process at a time works on a folder; forked processes may read.

    Args:
        path: of the folder, which is made if it is missing, and must be empty or one of these.

    >>> import tempfile
    >>> folder = RowFolder(Path(tempfile.mkdtemp()))
    >>> folder.map([ColumnSpec("image", (2,))], 3)
    >>> with folder.writing(torch.tensor([1])):
    ...     _ = folder.columns["image"].index_fill_(0, torch.tensor([1]), 5.0)
    >>> folder.columns["image"].sum().item()
    10.0
    """

    def __init__(self, path: Path) -> None:
        self.path = path
        write_for_user("memory", path / STATE, lambda _: None)  # makes the folder, or says why not
        self._check_content()
        lock = FileLock(path / LOCK)
        try:
            lock.acquire(timeout=0.2)
        except Timeout:
            raise LockedError(
                f"The memory in '{path}' is in use; close it, wait until its process ends, or give another folder."
            ) from None
        self._release = weakref.finalize(self, _release, lock, os.getpid())
        remove_stale(path / STATE)
        self.closed = False
        """Whether another process may have the folder."""
        self.generation = 0
        """How often the memory was saved."""
        self.columns: Rows = {}
        self.capacity = 0
        self._specs: tuple[ColumnSpec, ...] = ()
        self._maps: list[mmap.mmap] = []
        self._process = os.getpid()
        self._versions = np.zeros(0, np.uint32)
        self._needs_no_undo = torch.zeros(0, dtype=torch.bool)
        self._journal: int | None = None
        self._allocated = 0
        self._rows_touched = 0

    def _check_content(self) -> None:
        """Refuse a folder that holds anything else, in which a file of ours could take the place of a user's."""
        for entry in self.path.iterdir():
            ours = any(pattern.fullmatch(entry.name) for pattern in (COLUMN, JOURNAL, UNFINISHED))
            if not ours and entry.name not in (STATE, LOCK, VERSIONS):
                raise UsageError(
                    f"'{self.path}' holds other files, '{entry.name}' say; give a folder for a memory alone."
                )

    @property
    def saved(self) -> bool:
        """Return whether the folder holds a saved memory."""
        return (self.path / STATE).exists()

    def clear(self) -> None:
        """Remove what a process left that has never saved."""
        for entry in self.path.iterdir():
            if entry.name != LOCK:
                entry.unlink()

    def map(self, specs: Sequence[ColumnSpec], capacity: int) -> None:
        """Map a file for each column, of so many rows; files that are there keep what they hold."""
        self._specs = tuple(specs)
        self.resize(capacity)

    def resize(self, capacity: int) -> None:
        """Change the number of rows; the first ones stay. Files never shrink: the last save may have more rows."""
        columns: Rows = {}
        maps: list[mmap.mmap] = []
        with writing(self.path):
            for number, spec in enumerate(self._specs):
                columns[spec.name] = self._mapped(f"column-{number}", spec, capacity, maps)
            versions = self._mapped(VERSIONS, ColumnSpec("", (), torch.int32), capacity, maps)
        # never shorter than it was: the last save may have rows beyond the capacity of now
        needs_no_undo = torch.ones(max(capacity, len(self._needs_no_undo)), dtype=torch.bool)
        needs_no_undo[: len(self._needs_no_undo)] = self._needs_no_undo
        self.columns, self._maps, self._versions = columns, maps, versions.numpy().view(np.uint32)
        self._needs_no_undo, self.capacity = needs_no_undo, capacity

    def _mapped(self, name: str, spec: ColumnSpec, capacity: int, maps: list[mmap.mmap]) -> Tensor:
        """Return a tensor [capacity, ...] whose memory is a file of this name."""
        size = capacity * row_bytes(spec)
        if not size:
            return torch.zeros((capacity, *spec.shape), dtype=spec.dtype)
        with open(os.open(self.path / name, os.O_RDWR | os.O_CREAT | NO_LINK, 0o666), "r+b") as file:
            if os.fstat(file.fileno()).st_size < size:
                os.truncate(file.fileno(), size)
            pages = mmap.mmap(file.fileno(), size)
        maps.append(pages)
        return torch.frombuffer(pages, dtype=spec.dtype).view(capacity, *spec.shape)

    @contextmanager
    def writing(self, slot: Tensor) -> Iterator[None]:
        """Allow rows at `slot` [n] to be written; what the last save has of them goes to the journal first."""
        if os.getpid() != self._process:
            raise UsageError("A memory on disk can be changed only by the process that opened it; others may read it.")
        self._allocate(slot)
        due = slot[~self._needs_no_undo[slot]]
        for part in due.split(JOURNAL_ROWS) if len(due) else ():
            self._append(part)
        self._needs_no_undo[due] = True
        places = slot.numpy()
        self._versions[places] += 1  # odd while the row is being written
        try:
            yield
        finally:
            self._versions[places] += 1
            self.touched(len(places))

    def touched(self, rows: int) -> None:
        """Count rows that were read or written; give their pages back to the system after many."""
        self._rows_touched += rows
        if self._rows_touched >= MAPPED_PAGE_ROWS:
            self._rows_touched = 0
            self.give_back_pages()

    def give_back_pages(self) -> None:
        """Give back what is mapped: what was written stays in the system's cache, and goes to the disk from there."""
        for pages in self._maps:
            if hasattr(mmap, "MADV_DONTNEED"):
                pages.madvise(mmap.MADV_DONTNEED)

    def _allocate(self, slot: Tensor) -> None:
        """Take room on the disk: of a mapped file without room the system would end the process with a signal."""
        last = int(slot.max()) + 1 if len(slot) else 0
        if last <= self._allocated:
            return
        end = min(max(last, self._allocated + max(ALLOCATED_ROWS, self.capacity // 64)), self.capacity)
        with writing(self.path):
            for number, spec in enumerate(self._specs):
                _allocate(self.path / f"column-{number}", self._allocated * row_bytes(spec), end * row_bytes(spec))
            _allocate(self.path / VERSIONS, self._allocated * 4, end * 4)
        self._allocated = end

    def _append(self, slot: Tensor) -> None:
        """Write a record of the rows at `slot`, as they are, to the journal."""
        values = [self.columns[spec.name].index_select(0, slot) for spec in self._specs]
        content = b"".join([_raw(slot), *map(_raw, values)])
        record = RECORD.pack(MARK, len(slot), len(content), zlib.crc32(content)) + content
        with writing(self.path):
            if self._journal is None:
                self._journal = os.open(self._journal_path(), JOURNAL_FLAGS, 0o666)
            end = os.lseek(self._journal, 0, os.SEEK_END)
            try:
                rest = memoryview(record)
                while rest:
                    rest = rest[os.write(self._journal, rest) :]
            except BaseException:
                os.truncate(self._journal, end)
                raise

    def _journal_path(self) -> Path:
        return self.path / f"undo-{self.generation}"

    def commit(self, write_state: Callable[[Path, int], object], empty: Tensor) -> None:
        """Make what is there now the last save.

        Args:
            write_state: writes the state of everything but the rows to a path, whole or not at all, and in it the
                number of this save.
            empty: which slots [capacity] hold no row.
        """
        with writing(self.path):
            for pages in self._maps:
                pages.flush()
        write_state(self.path / STATE, self.generation + 1)
        stale, self.generation = self._journal_path(), self.generation + 1
        self._needs_no_undo = empty.clone()
        if self._journal is not None:
            os.close(self._journal)
            self._journal = None
            stale.unlink(missing_ok=True)

    def recover(self, generation: int, empty: Tensor) -> None:
        """Put back the rows as they were at the save of this number, whose slots are mapped already."""
        self.generation = generation
        path = self._journal_path()
        if path.exists():
            with writing(self.path):
                for slot, values in self._records(path):
                    for spec, value in zip(self._specs, values, strict=True):
                        self.columns[spec.name].index_copy_(0, slot, value)
                for pages in self._maps:
                    pages.flush()
        for entry in self.path.iterdir():
            if JOURNAL.fullmatch(entry.name) or UNFINISHED.fullmatch(entry.name):
                entry.unlink()
        self._needs_no_undo = empty.clone()

    def _records(self, path: Path) -> Iterator[tuple[Tensor, list[Tensor]]]:
        """Iterate over what the journal holds; a record that is not whole was not followed by any write."""
        sizes = [8, *map(row_bytes, self._specs)]
        with path.open("rb") as file:
            while len(head := file.read(RECORD.size)) == RECORD.size:
                mark, rows, length, checksum = RECORD.unpack(head)
                if mark != MARK or not 0 < rows <= JOURNAL_ROWS or length != rows * sum(sizes):
                    return
                content = bytearray(file.read(length))
                if len(content) != length or zlib.crc32(content) != checksum:
                    return
                bounds = np.cumsum([0, *sizes]) * rows
                slot = torch.frombuffer(content, dtype=torch.int64, count=rows)
                require(bool(((slot >= 0) & (slot < self.capacity)).all()), "its journal is of other rows")
                yield (
                    slot,
                    [
                        torch.frombuffer(content[start:end], dtype=spec.dtype).view(rows, *spec.shape)
                        for spec, start, end in zip(
                            self._specs, bounds[1:-1].tolist(), bounds[2:].tolist(), strict=True
                        )
                    ],
                )

    def check_files(self, specs: Sequence[ColumnSpec], capacity: int) -> None:
        """Raise `InvalidFileError` where a file of a saved memory is missing or too short."""
        for number, spec in enumerate(specs):
            size = capacity * row_bytes(spec)
            path = self.path / f"column-{number}"
            if size and (path.is_symlink() or not path.is_file() or path.stat().st_size < size):
                raise InvalidFileError(f"its file {path.name} is missing or has fewer than {size} bytes")

    def versions(self, slot: Tensor) -> Tensor:
        """Return numbers [n] that change whenever one of these rows is written, and are odd meanwhile."""
        return torch.from_numpy(self._versions[slot.numpy()].astype(np.int64))

    @property
    def nbytes(self) -> int:
        """Return the bytes that the files take on the disk."""
        return sum(512 * entry.stat().st_blocks for entry in self.path.iterdir())

    def close(self) -> None:
        """Let another process have the folder. The rows can no longer be used here."""
        self.closed = True
        self.columns, self._maps, self._specs = {}, [], ()
        if self._journal is not None:
            os.close(self._journal)
            self._journal = None
        self._release()


_of_parents: list[FileLock] = []
"""Locks that a forked process has copies of: released here they would be released there, too."""


def _release(lock: FileLock, process: int) -> None:
    if os.getpid() == process:
        lock.release()
    else:
        _of_parents.append(lock)


def row_bytes(spec: ColumnSpec) -> int:
    """Return the bytes of one row of a column.

    >>> row_bytes(ColumnSpec("image", (3, 2), torch.float16))
    12
    """
    return torch.Size(spec.shape).numel() * spec.dtype.itemsize


def _raw(column: Tensor) -> bytes:
    return column.contiguous().view(-1).view(torch.uint8).numpy().tobytes() if column.numel() else b""


def _allocate(path: Path, start: int, end: int) -> None:
    """Take room for the bytes from start to end of a file, which is sparse there."""
    if end <= start:
        return
    with path.open("r+b") as file:
        if hasattr(os, "posix_fallocate"):
            os.posix_fallocate(file.fileno(), start, end - start)
        else:  # macOS; the bytes belong to slots that hold no row yet
            file.seek(start)
            for offset in range(start, end, 1 << 20):
                file.write(bytes(min(1 << 20, end - offset)))
