"""Unpacks tar and zip archives of strangers into a folder: nothing outside it, no links, and no more than was allowed.

Members are written here and not by `extractall`: its filters allow links, doubled names and any number of bytes.
"""

from __future__ import annotations

import bz2
import errno
import gzip
import lzma
import re
import shutil
import stat
import tarfile
import zipfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from odedm.core.errors import UsageError

CHUNK = 1 << 20
HEADER_BYTES = 256 << 10
"""No honest header of one tar member, names and attributes included, is longer."""
DEPTH, NAME_LETTERS = 32, 1024
DAMAGE = (None, errno.EINVAL, errno.EILSEQ, errno.ENAMETOOLONG)
"""Errors that the archive is to blame for: it leads to places before its start, or has names that no disk takes."""
UNSAFE = re.compile(r"[\\\x00-\x1f\x7f]|^/|^[A-Za-z]:|(^|/)\.\.(/|$)")
NO_FILE = "which is a link, a device, a pipe or a sparse file; unpack it yourself and give the folder."
OPENERS: dict[bytes, Callable[..., Any]] = {
    b"\x1f\x8b": gzip.open,
    b"BZh": bz2.open,
    b"\xfd7zXZ\0": lzma.open,
}
"""What packed tars are opened by, and the bytes that they start with."""
READ = (
    "Data are read from a folder of pictures (train/<class>/*, test/<class>/*), such a folder as tar (also gz, bz2, "
    "xz) or zip, official CIFAR, Tiny-ImageNet and ImageNet-R archives, and arrays x and y in one .npz or as x.npy "
    "and y.npy. Turn a table of text into arrays: numpy.savez('mine.npz', x=rows, y=labels)."
)
"""What can be given as data, for whoever gave something else."""


@dataclass(frozen=True)
class ArchiveLimits:
    """What no data set exceeds: files and folders, bytes, and growth on unpacking."""

    entries: int = 1_000_000
    total_bytes: int = 64 << 30
    growth: int = 200
    growth_from: int = 1 << 30
    """Growth is judged from this many unpacked bytes on: small files of zeros are no bomb."""


LIMITS = ArchiveLimits()


def unpack(archive: Path, folder: Path, limits: ArchiveLimits = LIMITS) -> None:
    """Write an archive's files into a new folder; its kind is told by its first bytes and not by its name.

    Raises:
        UsageError: it is damaged, dangerous or no archive; the folder then holds what was written before that showed.
    """
    with archive.open("rb") as raw:
        start = raw.read(512)
    opener = next((OPENERS[mark] for mark in OPENERS if start.startswith(mark)), None)
    opener = Path.open if start[257:262] == b"ustar" else opener
    target = _Target(archive, folder, limits)
    try:
        if start.startswith((b"PK\x03\x04", b"PK\x05\x06")):
            _unpack_zip(target)
        elif opener:
            with opener(archive, "rb") as file:
                _unpack_tar(target, file)
        else:
            page = " It looks like a web page: the download went wrong." if start.lstrip().startswith(b"<") else ""
            raise UsageError(
                f"'{archive}' is not an archive this reads (tar, tar.gz, tar.bz2, tar.xz, zip): "
                f"it starts with {start[:8]!r}.{page} {READ}"
            )
    except UsageError:
        raise
    except Exception as error:  # readers meet hostile bytes here: whatever they raise, the archive is broken
        if isinstance(error, OSError) and error.errno not in DAMAGE:
            raise  # the disk's fault
        reason = error or type(error).__name__
        raise UsageError(f"'{archive}' is truncated or corrupt ({reason}). Get it again.") from error


def safe_name(raw: str, archive: Path) -> str:
    """Return a member's name without empty and `.` parts; UsageError where it leads outside or hides something.

    >>> safe_name("./data//a.png", Path("x.tar"))
    'data/a.png'
    >>> safe_name("../a.png", Path("x.tar"))
    Traceback (most recent call last):
    odedm.UsageError: 'x.tar' holds the name '../a.png', which leads outside or has a backslash or control character.
    """
    parts = [part for part in raw.split("/") if part not in ("", ".")]
    if UNSAFE.search(raw):
        raise UsageError(
            f"'{archive}' holds the name {raw!r}, which leads outside or has a backslash or control character."
        )
    if len(raw) > NAME_LETTERS or len(parts) > DEPTH:
        raise UsageError(
            f"'{archive}' holds a name of {len(raw)} characters and {len(parts)} parts; {NAME_LETTERS} and {DEPTH} "
            "are the most."
        )
    return "/".join(parts)


class _Target:
    """The folder that an archive is unpacked into, and how much of what is allowed it has taken."""

    def __init__(self, archive: Path, folder: Path, limits: ArchiveLimits) -> None:
        self.archive, self.folder, self.limits = archive, folder, limits
        self._packed, self._entries = archive.stat().st_size, 0
        folder.mkdir()

    def add(self, raw_name: str, size: int, source: IO[bytes] | None) -> None:
        """Write one member; a folder has no source."""
        name = safe_name(raw_name, self.archive)
        path = self.folder / name
        self._count()
        try:
            self._make_folder(path if source is None else path.parent)
            if source is None:
                return
            self.check_total(size)
            free = shutil.disk_usage(self.folder).free
            if size > free:
                raise UsageError(f"'{name}' in '{self.archive}' needs {size} bytes, but {free} are free on the disk.")
            with path.open("xb") as file:
                shutil.copyfileobj(source, file, CHUNK)
        except FileExistsError:
            raise UsageError(f"'{self.archive}' holds '{name}' twice; which one counts cannot be told.") from None

    def check_total(self, total: int) -> None:
        """Refuse an archive that unpacks to so many bytes, if that is beyond reason."""
        limits = self.limits
        if total > limits.total_bytes or total > max(limits.growth_from, limits.growth * self._packed):
            raise UsageError(
                f"'{self.archive}' ({self._packed} bytes) would unpack to {total} bytes or more: an archive bomb, or "
                "not a data set. It is refused."
            )

    def _make_folder(self, path: Path) -> None:
        """Make a folder and those above it, which count as well: a name may imply many."""
        if not path.is_dir():
            self._make_folder(path.parent)
            self._count()
            path.mkdir()

    def _count(self) -> None:
        self._entries += 1
        if self._entries > self.limits.entries:
            raise UsageError(
                f"'{self.archive}' holds more than {self.limits.entries} files and folders; it is refused. Give a part "
                "of it, or arrays (.npz)."
            )


class _Metered:
    """A stream that gives no more than `allowed` bytes, and tells how many it has given in all."""

    def __init__(self, file: Any, tell_total: Callable[[int], None]) -> None:
        self._file, self._tell_total = file, tell_total
        self._total, self.allowed = 0, HEADER_BYTES

    def read(self, size: int) -> bytes:
        content: bytes = self._file.read(size) or b""
        self._total += len(content)
        self._tell_total(self._total)
        self.allowed -= len(content)
        if self.allowed < 0:
            raise UsageError(f"The archive has a header of more than {HEADER_BYTES} bytes: an archive bomb.")
        return content


def _unpack_tar(target: _Target, file: Any) -> None:
    last_block: bytes | bytearray = b""

    class Header(tarfile.TarInfo):
        """Keeps the last block that was taken for a header: tarfile ends at a wrong one as at the end mark."""

        @classmethod
        def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> Header:
            nonlocal last_block
            last_block = buf
            return super().frombuf(buf, encoding, errors)

    stream = _Metered(file, target.check_total)
    with tarfile.open(fileobj=stream, mode="r|", tarinfo=Header) as tar:  # type: ignore[call-overload]
        while (member := tar.next()) is not None:
            tar.members.clear()  # or a million headers pile up
            tar.pax_headers.clear()
            if not (member.isdir() or member.isreg()) or member.issparse():
                raise UsageError(f"'{target.archive}' holds '{member.name}', {NO_FILE}")
            if member.size < 0:
                raise tarfile.ReadError(f"it holds '{member.name}' of {member.size} bytes")
            stream.allowed = member.size + HEADER_BYTES
            target.add(member.name, member.size, None if member.isdir() else tar.extractfile(member))
            stream.allowed = HEADER_BYTES
    if last_block != bytes(tarfile.BLOCKSIZE):
        raise tarfile.ReadError("its end mark is missing")
    stream.allowed = target.limits.total_bytes
    while stream.read(CHUNK):  # to the end, where packers keep their checksum
        pass


def _unpack_zip(target: _Target) -> None:
    with zipfile.ZipFile(target.archive) as packed:
        target.check_total(sum(member.file_size for member in packed.infolist()))
        for member in packed.infolist():
            name = member.orig_filename
            if stat.S_IFMT(member.external_attr >> 16) not in (0, stat.S_IFREG, stat.S_IFDIR):
                raise UsageError(f"'{target.archive}' holds '{name}', {NO_FILE}")
            if member.flag_bits & 1 or member.compress_type not in (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED):
                raise UsageError(
                    f"'{name}' in '{target.archive}' is encrypted, or packed in an unusual way; unpack it yourself and "
                    "give the folder."
                )
            if member.is_dir():
                target.add(name, 0, None)
                continue
            with packed.open(member) as source:
                target.add(name, member.file_size, source)
