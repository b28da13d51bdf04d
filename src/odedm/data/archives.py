"""Reads folders, tar and zip archives alike, as names and bytes; nothing is unpacked, followed or trusted."""

from __future__ import annotations

import gzip
import os
import re
import stat
import tarfile
import zipfile
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from odedm.core.errors import UsageError
from odedm.core.files import read_regular

CHUNK = 1 << 20
HEADER = 1 << 20
"""No honest name or attribute of a tar member is longer; a reader that believed more would fill the memory."""
JUNK = ("__macosx", "thumbs.db", "desktop.ini")


@dataclass(frozen=True)
class ArchiveLimits:
    """What no data set of pictures exceeds: files, bytes of one file, bytes in all, and growth on unpacking."""

    files: int = 1_000_000
    file_bytes: int = 8 << 30
    total_bytes: int = 64 << 30
    growth: int = 200
    growth_from: int = 1 << 30
    """Growth is judged from this many unpacked bytes on: small files of zeros are no bomb."""


def safe_name(raw: str, where: str) -> str:
    """The name of a member, cleaned of empty and `.` parts, if it stays inside and hides nothing.

    >>> safe_name("./data//a.png", "x.tar")
    'data/a.png'
    >>> safe_name("../a.png", "x.tar")
    Traceback (most recent call last):
    odedm.UsageError: 'x.tar' holds the name '../a.png', which leads outside; it is refused whole.
    """
    parts = [part for part in raw.split("/") if part not in ("", ".")]
    if raw.startswith("/") or ".." in parts or re.match(r"[A-Za-z]:", raw):
        raise UsageError(f"'{where}' holds the name {raw!r}, which leads outside; it is refused whole.")
    if "\\" in raw or any(ord(letter) < 32 or ord(letter) == 127 for letter in raw):
        raise UsageError(f"'{where}' holds the name {raw!r} with a backslash or control character; it is refused.")
    if len(raw) > 1024:
        raise UsageError(f"'{where}' holds a name of {len(raw)} characters; it is refused.")
    return "/".join(parts)


def is_junk(name: str) -> bool:
    """Whether a name is what systems leave behind: hidden files and folders, `__MACOSX`, `Thumbs.db`.

    >>> is_junk("a/.DS_Store"), is_junk("__MACOSX/a.png"), is_junk("a/b.png")
    (True, True, False)
    """
    return any(part.startswith(".") or part.lower() in JUNK for part in name.split("/"))


class Tree(ABC):
    """Files by their names below one root, wherever they are kept."""

    def __init__(self, path: Path, limits: ArchiveLimits | None = None) -> None:
        self.path, self.limits = path, limits or ArchiveLimits()
        self.folders: set[str] = set()

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The bytes of every file, by name, in sorted order; fills `folders` as well."""
        found: dict[str, int] = {}
        total = 0
        for name, size in self._list():
            if name in found:
                raise UsageError(f"'{self.path}' holds '{name}' twice; which one counts cannot be told.")
            if size > self.limits.file_bytes:
                raise UsageError(f"'{name}' in '{self.path}' has {size} bytes; {self.limits.file_bytes} are allowed.")
            found[name] = size
            total += size
            if len(found) > self.limits.files:
                raise UsageError(f"'{self.path}' holds more than {self.limits.files} files; it is refused.")
            self._check_growth(total)
        self.folders.update(name[:end] for name in found for end, letter in enumerate(name) if letter == "/")
        return dict(sorted(found.items()))

    def _check_growth(self, total: int) -> None:
        limits = self.limits
        packed = self.path.stat().st_size if self.path.is_file() else total
        if total > limits.total_bytes or (total > limits.growth_from and total > limits.growth * packed):
            raise UsageError(
                f"'{self.path}' ({packed} bytes) would unpack to more than {total} bytes: an archive bomb, or not a "
                "data set. It is refused."
            )

    @abstractmethod
    def _list(self) -> Iterator[tuple[str, int]]:
        """Every file's clean name and size; refuses whatever is neither file nor folder."""

    @abstractmethod
    def payloads(self, names: Collection[str]) -> Iterator[tuple[str, bytes | Path]]:
        """The files asked for, in the order that is cheapest here: their bytes, or where to read them."""

    def contents(self, names: Collection[str]) -> dict[str, bytes]:
        """The bytes of a few files."""
        found = {
            name: read_regular(payload, self.limits.file_bytes) if isinstance(payload, Path) else payload
            for name, payload in self.payloads(names)
        }
        for name in names:
            if name not in found:
                raise UsageError(f"'{self.path}' lacks the file '{name}'.")
        return found


class Folder(Tree):
    """A folder on disk; the listing also notes when each file last changed."""

    def _list(self) -> Iterator[tuple[str, int]]:
        self.changed: dict[str, int] = {}
        yield from self._below("", 0)

    def _below(self, prefix: str, depth: int) -> Iterator[tuple[str, int]]:
        if depth > 32:
            raise UsageError(f"'{self.path / prefix}' lies more than 32 folders deep; give a folder closer to it.")
        with os.scandir(os.path.join(self.path, prefix)) as entries:
            for entry in entries:
                name = f"{prefix}/{entry.name}" if prefix else entry.name
                if entry.is_symlink():
                    raise UsageError(
                        f"'{entry.path}' is a link; links are not followed. Put the files there, or give its target."
                    )
                if entry.is_dir(follow_symlinks=False):
                    if not is_junk(entry.name):
                        self.folders.add(name)
                        yield from self._below(name, depth + 1)
                elif entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    self.changed[name] = status.st_mtime_ns
                    yield name, status.st_size
                else:
                    raise UsageError(f"'{entry.path}' is a pipe, socket or device, not a file; remove it.")

    def payloads(self, names: Collection[str]) -> Iterator[tuple[str, bytes | Path]]:
        """Paths: whoever decodes can read them on its own core."""
        for name in names:
            yield name, self.path / name


class PackedTree(Tree):
    """An archive, read from front to back."""

    @abstractmethod
    def _members(self) -> Iterator[tuple[str, int, Callable[[], bytes] | None]]:
        """Clean name, size and reader of every member, None for a folder's; refuses links, devices and the like."""

    def _list(self) -> Iterator[tuple[str, int]]:
        for name, size, read in self._members():
            if read:
                yield name, size
            else:
                self.folders.add(name)

    def payloads(self, names: Collection[str]) -> Iterator[tuple[str, bytes | Path]]:
        """Bytes, in the archive's own order."""
        wanted = set(names)
        for name, size, read in self._members():
            if read and name in wanted:
                with _damage(self.path, name):
                    content = read()
                if len(content) != size:
                    raise UsageError(f"'{self.path}' is truncated: '{name}' ends after {len(content)} bytes.")
                yield name, content


class Tar(PackedTree):
    """A tar archive, plain or gzipped."""

    def _members(self) -> Iterator[tuple[str, int, Callable[[], bytes] | None]]:
        with self.path.open("rb") as start:
            packed = start.read(2) == b"\x1f\x8b"
        mode = "r|" if packed else "r:"
        with (
            _damage(self.path),
            _MeteredGzip(self) if packed else self.path.open("rb") as file,
            tarfile.open(fileobj=file, mode=mode, tarinfo=_CarefulInfo) as tar,  # type: ignore[call-overload]
        ):
            while (member := tar.next()) is not None:
                tar.members.clear()  # or a million headers pile up
                if member.issym() or member.islnk():
                    raise UsageError(f"'{self.path}' holds a link, '{member.name}'; archives with links are refused.")
                if not (member.isdir() or member.isreg()) or member.issparse():
                    raise UsageError(
                        f"'{self.path}' holds '{member.name}', a device, pipe or sparse file; it is refused."
                    )
                name, content = safe_name(member.name, str(self.path)), tar.extractfile(member)
                if name:
                    yield name, member.size, content.read if content else None
            while packed and file.read(CHUNK):  # to the end, where gzip keeps its checksum
                pass
            if not packed:
                file.seek(tar.offset)
                if file.read(512) != bytes(512):
                    raise UsageError(f"'{self.path}' is truncated: its end mark is missing. Get it again.")


class _CarefulInfo(tarfile.TarInfo):
    """A header that refuses long names and attributes beyond reason before they are read into memory."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _CarefulInfo:
        info = super().frombuf(buf, encoding, errors)
        if info.type in (b"x", b"g", b"X", b"L", b"K") and info.size > HEADER:
            raise UsageError(f"The archive has a header of {info.size} bytes: an archive bomb. It is refused.")
        return info


class _MeteredGzip(gzip.GzipFile):
    """Counts what it unpacks, so that a bomb is refused while it is still small."""

    def __init__(self, tree: Tree) -> None:
        super().__init__(tree.path)
        self.tree, self.total = tree, 0

    def read(self, size: int | None = -1) -> bytes:
        content = super().read(size)
        self.total += len(content)
        self.tree._check_growth(self.total)
        return content


class Zip(PackedTree):
    """A zip archive with its checksums."""

    def _members(self) -> Iterator[tuple[str, int, Callable[[], bytes] | None]]:
        with _damage(self.path), zipfile.ZipFile(self.path) as archive:
            for member in archive.infolist():
                name = safe_name(member.orig_filename, str(self.path))
                kind = stat.S_IFMT(member.external_attr >> 16)
                if kind == stat.S_IFLNK:
                    raise UsageError(f"'{self.path}' holds a link, '{name}'; archives with links are refused.")
                if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise UsageError(f"'{self.path}' holds '{name}', a device or pipe; it is refused.")
                if member.flag_bits & 0x1:
                    raise UsageError(f"'{name}' in '{self.path}' is encrypted; unpack it yourself and give the folder.")
                if member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                    raise UsageError(
                        f"'{name}' in '{self.path}' is packed in an unusual way; unpack it and give the folder."
                    )
                if name:
                    yield name, member.file_size, None if member.is_dir() else partial(archive.read, member)


@contextmanager
def _damage(path: Path, name: str = "") -> Iterator[None]:
    """Turn what decompressors say of broken files into one sentence that names the file."""
    try:
        yield
    except (tarfile.TarError, zipfile.BadZipFile, zlib.error, EOFError, gzip.BadGzipFile, RuntimeError) as error:
        where = f"'{name}' in '{path}'" if name else f"'{path}'"
        raise UsageError(f"{where} is truncated or corrupt ({error}). Get it again.") from error


def open_tree(path: Path, limits: ArchiveLimits | None = None) -> Tree:
    """The folder or archive at a path, told by its first bytes and not by its name."""
    if path.is_dir():
        return Folder(path, limits)
    if not path.is_file():
        raise UsageError(f"There is no file or folder '{path}'.")
    with path.open("rb") as file:
        start = file.read(512)
    if not start:
        raise UsageError(f"'{path}' is empty. Get it again.")
    if start[:4] in (b"PK\x03\x04", b"PK\x05\x06"):
        return Zip(path, limits)
    if start[:2] == b"\x1f\x8b" or start[257:262] == b"ustar":
        return Tar(path, limits)
    page = " It looks like a web page: the download went wrong." if start.lstrip()[:1] == b"<" else ""
    raise UsageError(
        f"'{path}' is not an archive this reads (tar, tar.gz, zip), whatever its name says: it starts with "
        f"{start[:8]!r}.{page}"
    )
