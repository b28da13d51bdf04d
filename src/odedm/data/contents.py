"""Describes what a path holds: arrays that are ready, or pictures still to be decoded, with their labels."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from pathlib import Path
from typing import ClassVar

from odedm.core.errors import UsageError
from odedm.data.images import Array, is_picture_name
from odedm.data.published import PublishedDataset

JUNK = ("__macosx", "thumbs.db", "desktop.ini")
MAX_DEPTH = 32
OnProgress = Callable[[str, int, int], None]
"""Called with what is going on, how much of it is done, and how much there is in all."""


def is_junk(name: str) -> bool:
    """Return whether a name is what systems leave behind: hidden files and folders, `__MACOSX`, `Thumbs.db`.

    >>> is_junk("a/.DS_Store"), is_junk("__MACOSX/a.png"), is_junk("a/b.png")
    (True, True, False)
    """
    return any(part.startswith(".") or part.lower() in JUNK for part in name.split("/"))


@dataclass(frozen=True)
class DataFolder:
    """A folder to be read. Links in it are followed: it is the user's own, or was unpacked from an archive without.

    Args:
        path: where it is.
        source: what the user gave, which messages name: the folder, or the archive that was unpacked into it.
    """

    path: Path
    source: Path

    @cached_property
    def files(self) -> list[str]:
        """Return the names of all regular files below it, with slashes, sorted; junk folders are left out."""
        return sorted(_files_below(self.path, "", ()))

    @cached_property
    def pictures(self) -> list[str]:
        """Return the names of those that are pictures."""
        return [name for name in self.files if is_picture_name(name) and not is_junk(name)]


def _files_below(folder: Path, prefix: str, above: tuple[str, ...]) -> Iterator[str]:
    real = os.path.realpath(folder)
    if real in above or len(above) > MAX_DEPTH:
        raise UsageError(f"'{folder}' lies more than {MAX_DEPTH} folders deep, or is a link back to a folder above it.")
    with os.scandir(folder) as entries:
        for entry in entries:
            if entry.is_dir():
                if is_junk(entry.name):
                    continue
                yield from _files_below(folder / entry.name, f"{prefix}{entry.name}/", (*above, real))
            elif entry.is_file():
                yield prefix + entry.name


@dataclass(frozen=True)
class LabelledArrays:
    """Rows in memory: images [n, c, h, w] (uint8 or float32) or vectors [n, d], labels [n] in 0..C-1."""

    kind: str
    class_names: tuple[str, ...]
    image: Array
    label: Array
    test_image: Array
    test_label: Array
    _: KW_ONLY
    published: PublishedDataset | None = None

    skipped: ClassVar[int] = 0

    @property
    def rows(self) -> tuple[int, int]:
        """Return how many there are for training and for testing."""
        return len(self.label), len(self.test_label)


@dataclass(frozen=True)
class LabelledPictures:
    """Pictures of a folder, by their names, class by class; `size` and `resize` ask for another size than they have."""

    kind: str
    class_names: tuple[str, ...]
    folder: DataFolder
    train: Sequence[Sequence[str]]
    test: Sequence[Sequence[str]]
    _: KW_ONLY
    published: PublishedDataset | None
    size: int | None = None
    resize: int | None = None

    @property
    def rows(self) -> tuple[int, int]:
        """Return how many there are for training and for testing."""
        return sum(map(len, self.train)), sum(map(len, self.test))

    @property
    def skipped(self) -> int:
        """Return how many files of the folder are none of them."""
        return len(self.folder.files) - sum(self.rows)


Contents = LabelledArrays | LabelledPictures
