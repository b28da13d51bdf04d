"""Stands between hostile archives and the readers of the standard library: refuses what would fill the memory."""

from __future__ import annotations

import gzip
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import IO

from odedm.core.errors import UsageError

HEADER, HEADERS = 128 << 10, 64 << 20
"""No honest name or attribute of one member is longer, nor the names and attributes of a whole archive: a reader that
believed more would fill the memory."""


class CarefulInfo(tarfile.TarInfo):
    """A header that refuses sizes, names and attributes beyond reason before anything is read into memory."""

    headers = 0
    """Bytes of long names and attributes so far; counted on a class of its own for each archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> CarefulInfo:
        """The header in a block."""
        info = super().frombuf(buf, encoding, errors)
        if info.size < 0:
            raise UsageError(f"The archive holds '{info.name}' of {info.size} bytes: it is corrupt, and refused.")
        if info.type == tarfile.GNUTYPE_SPARSE:
            info.refuse_sparse()
        if info.type in (b"x", b"g", b"X", b"L", b"K"):
            cls.headers += info.size
            if info.size > HEADER or cls.headers > HEADERS:
                raise UsageError(f"The archive has a header of {info.size} bytes: an archive bomb. It is refused.")
        return info

    def refuse_sparse(self, *_: object) -> None:
        """Refuse a file with holes before the list of these, which may be endless, is read."""
        raise UsageError("The archive holds a sparse file; it is refused. Unpack it yourself and give the folder.")

    _proc_gnusparse_00 = _proc_gnusparse_01 = _proc_gnusparse_10 = refuse_sparse


class MeteredGzip(gzip.GzipFile):
    """Tells how much it has unpacked so far, so that a bomb is refused while it is still small."""

    def __init__(self, path: Path, tell: Callable[[int], None]) -> None:
        super().__init__(path)
        self.tell_total, self.total, self.ends = tell, 0, 0

    def read(self, size: int | None = -1) -> bytes:
        """As of any file."""
        content = super().read(size)
        self.ends += not content
        if self.ends > 100:  # tarfile reads on towards a member's end, however far behind the archive's that is
            raise EOFError("it ends early")
        self.total += len(content)
        self.tell_total(self.total)
        return content


class ZipHeaders:
    """A file that refuses a list of members beyond reason: it is read whole, and ten times as large in memory."""

    def __init__(self, file: IO[bytes]) -> None:
        self.tell, self.seek, self.seekable, self._read = file.tell, file.seek, file.seekable, file.read
        self.listed = False

    def read(self, size: int = -1) -> bytes:
        """As of any file."""
        if size > HEADERS and not self.listed:
            raise UsageError(f"The archive's list of members has {size} bytes; at most {HEADERS} are read.")
        return self._read(size)
