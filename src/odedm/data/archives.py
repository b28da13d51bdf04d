"""Reads folders, tar and zip archives alike, as names and bytes; nothing is unpacked, followed or trusted."""

from __future__ import annotations

import errno
import os
import re
import stat
import tarfile
import zipfile
from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path

from odedm.core.errors import UsageError
from odedm.core.files import read_regular
from odedm.data.archive_guards import CarefulInfo, MeteredGzip, ZipHeaders

CHUNK = 1 << 20
DEPTH = 32
UNSAFE = re.compile(r"[\\\x00-\x1f\x7f]")
JUNK = ("__macosx", "thumbs.db", "desktop.ini")

READ = (
    "Data are read from a folder of pictures (train/<class>/*, test/<class>/*), such a folder as tar, tar.gz or zip, "
    "official CIFAR, Tiny-ImageNet and ImageNet-R archives, arrays x and y in one .npz or as x.npy and y.npy, and data "
    "sets saved by Hugging Face. Turn a table of text into arrays: numpy.savez('mine.npz', x=rows, y=labels)."
)
"""What can be given as data, for whoever gave something else."""


@dataclass(frozen=True)
class ArchiveLimits:
    """What no data set of pictures exceeds: entries, letters of all names, bytes, and growth on unpacking."""

    entries: int = 1_000_000
    letters: int = 128 << 20
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
    if UNSAFE.search(raw):
        raise UsageError(f"'{where}' holds the name {raw!r} with a backslash or control character; it is refused.")
    if len(raw) > 1024 or len(parts) > DEPTH:
        raise UsageError(
            f"'{where}' holds a name of {len(raw)} characters and {len(parts)} parts; 1024 and {DEPTH} are the most."
        )
    return "/".join(parts)


def when_changed(status: os.stat_result) -> str:
    """What differs when a file was written or replaced, even where its length and its time of change were kept."""
    return f"{status.st_mtime_ns}/{status.st_ctime_ns}/{status.st_ino}"


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
        self._packed = path.stat().st_size if path.is_file() else 0

    @cached_property
    def sizes(self) -> dict[str, int]:
        """The bytes of every file, by name, in sorted order; fills `folders` as well."""
        found: dict[str, int] = {}
        total = letters = entries = 0
        for name, size in self._list():
            entries += 1
            letters += len(name)
            folder = name if size is None else name.rpartition("/")[0]
            while folder and folder not in self.folders:
                self.folders.add(folder)
                letters += len(folder)
                folder = folder.rpartition("/")[0]
            if entries > self.limits.entries or letters > self.limits.letters:
                raise UsageError(
                    f"'{self.path}' holds more than {self.limits.entries} files and folders, or their names have more "
                    f"than {self.limits.letters} letters; it is refused. Give a part of it, or arrays (.npz)."
                )
            if size is None or not name:
                continue
            if name in found:
                raise UsageError(f"'{self.path}' holds '{name}' twice; which one counts cannot be told.")
            if not 0 <= size <= self.limits.file_bytes:
                raise UsageError(
                    f"'{name}' in '{self.path}' has {size} bytes; 0 to {self.limits.file_bytes} are allowed."
                )
            found[name] = size
            total += size
            self._check_growth(total)
        return dict(sorted(found.items()))

    def _check_growth(self, total: int) -> None:
        limits = self.limits
        packed = self._packed or total
        if total > limits.total_bytes or (total > limits.growth_from and total > limits.growth * packed):
            raise UsageError(
                f"'{self.path}' ({packed} bytes) would unpack to more than {total} bytes: an archive bomb, or not a "
                "data set. It is refused."
            )

    @abstractmethod
    def _list(self) -> Iterator[tuple[str, int | None]]:
        """Every clean name and size, None for a folder's; refuses whatever is neither file nor folder."""

    def payloads(self, names: Collection[str], most: int) -> Iterator[tuple[str, bytes | Path]]:
        """The files asked for, in the order that is cheapest here: their bytes, at most so many, or where they are."""
        for name in names:
            if self.sizes.get(name, 0) > most:
                raise UsageError(f"'{name}' in '{self.path}' has {self.sizes[name]} bytes; {most} are the most here.")
        return self._payloads(names)

    @abstractmethod
    def _payloads(self, names: Collection[str]) -> Iterator[tuple[str, bytes | Path]]: ...

    def contents(self, names: Collection[str], most: int) -> dict[str, bytes]:
        """The bytes of a few files, each of at most so many."""
        found = {
            name: read_regular(payload, most) if isinstance(payload, Path) else payload
            for name, payload in self.payloads(names, most)
        }
        for name in names:
            if name not in found:
                raise UsageError(f"'{self.path}' lacks the file '{name}'.")
        return found


class Folder(Tree):
    """A folder on disk; the listing also notes when each file last changed."""

    def _list(self) -> Iterator[tuple[str, int | None]]:
        self.changed: dict[str, str] = {}
        yield from self._below("", 0)

    def _below(self, prefix: str, depth: int) -> Iterator[tuple[str, int | None]]:
        if depth > DEPTH:
            raise UsageError(f"'{self.path / prefix}' lies more than {DEPTH} folders deep; give a folder closer to it.")
        with os.scandir(os.path.join(self.path, prefix)) as entries:
            for entry in entries:
                name = f"{prefix}/{entry.name}" if prefix else entry.name
                if entry.is_symlink():
                    raise UsageError(
                        f"'{entry.path}' is a link; links are not followed. Put the files there, or give its target."
                    )
                if entry.is_dir(follow_symlinks=False):
                    if not is_junk(entry.name):
                        yield name, None
                        yield from self._below(name, depth + 1)
                elif entry.is_file(follow_symlinks=False):
                    status = entry.stat(follow_symlinks=False)
                    self.changed[name] = when_changed(status)
                    yield name, status.st_size
                else:
                    raise UsageError(f"'{entry.path}' is a pipe, socket or device, not a file; remove it.")

    def _payloads(self, names: Collection[str]) -> Iterator[tuple[str, bytes | Path]]:
        """Paths: whoever decodes can read them on its own core."""
        for name in names:
            yield name, self.path / name


class PackedTree(Tree):
    """An archive, read from front to back."""

    @abstractmethod
    def _members(self) -> Iterator[tuple[str, int, Callable[[], bytes] | None]]:
        """Clean name, size and reader of every member, None for a folder's; refuses links, devices and the like."""

    def _list(self) -> Iterator[tuple[str, int | None]]:
        for name, size, read in self._members():
            yield name, size if read else None

    def _payloads(self, names: Collection[str]) -> Iterator[tuple[str, bytes | Path]]:
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
        careful = type("CountedInfo", (CarefulInfo,), {"headers": 0})
        with (
            _damage(self.path),
            MeteredGzip(self.path, self._check_growth) if packed else self.path.open("rb") as file,
            tarfile.open(fileobj=file, mode=mode, tarinfo=careful) as tar,  # type: ignore[call-overload]
        ):
            while (member := tar.next()) is not None:
                tar.members.clear()  # or a million headers pile up
                if not 0 <= member.size <= self.limits.file_bytes:  # else the way to the next one may have no end
                    raise UsageError(
                        f"'{self.path}' holds '{member.name}' of {member.size} bytes; 0 to {self.limits.file_bytes} "
                        "are allowed."
                    )
                if member.issym() or member.islnk():
                    raise UsageError(f"'{self.path}' holds a link, '{member.name}'; archives with links are refused.")
                if not (member.isdir() or member.isreg()):
                    raise UsageError(f"'{self.path}' holds '{member.name}', a device or pipe; it is refused.")
                name = safe_name(member.name, str(self.path))
                yield name, member.size, partial(_tar_content, tar, member) if member.isreg() else None
            while packed and file.read(CHUNK):  # to the end, where gzip keeps its checksum
                pass
            if not packed:
                file.seek(tar.offset)
                if file.read(512) != bytes(512):
                    raise UsageError(f"'{self.path}' is truncated: its end mark is missing. Get it again.")


def _tar_content(tar: tarfile.TarFile, member: tarfile.TarInfo) -> bytes:
    file = tar.extractfile(member)
    return file.read() if file else b""


class Zip(PackedTree):
    """A zip archive with its checksums."""

    def _members(self) -> Iterator[tuple[str, int, Callable[[], bytes] | None]]:
        with _damage(self.path), self.path.open("rb") as raw:
            file = ZipHeaders(raw)
            archive = zipfile.ZipFile(file)
            file.listed = True
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
                yield name, member.file_size, None if member.is_dir() else partial(self._content, archive, member)

    @staticmethod
    def _content(archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> bytes:
        with archive.open(member) as file:
            return file.read(member.file_size + 1)  # not `archive.read`, which unpacks whatever there is


@contextmanager
def _damage(path: Path, name: str = "") -> Iterator[None]:
    """Turn what decompressors say of broken files into one sentence that names the file."""
    try:
        yield
    except UsageError:
        raise
    except Exception as error:  # decompressors meet hostile bytes here: whatever they raise, the file is broken
        if isinstance(error, OSError) and error.errno not in (None, errno.EINVAL):
            raise  # the disk's fault, not that of an archive which leads to places before its start
        where = f"'{name}' in '{path}'" if name else f"'{path}'"
        raise UsageError(f"{where} is truncated or corrupt ({error or type(error).__name__}). Get it again.") from error


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
        f"{start[:8]!r}.{page} {READ}"
    )
