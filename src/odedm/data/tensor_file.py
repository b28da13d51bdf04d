"""Lays out and hashes the cache's one data file, in safetensors' format, without torch and numpy."""

from __future__ import annotations

import errno
import hashlib
import json
import math
import shutil
import struct
from dataclasses import asdict, dataclass
from pathlib import Path

from odedm.core.errors import UsageError

BYTES = {"U8": 1, "F32": 4, "I64": 8}
TORCH_NAMES = {"U8": "torch.uint8", "F32": "torch.float32", "I64": "torch.int64"}
COLUMNS = ("image", "label", "test_image", "test_label")
"""In the order of `Dataset`, and of its checksum."""
CHUNK = 8 << 20


@dataclass(frozen=True)
class Column:
    """One tensor of the file as its head describes it: type (U8, F32, I64), shape, first and last byte behind it."""

    dtype: str
    shape: tuple[int, ...]
    data_offsets: tuple[int, int]


class TensorFile:
    """Where everything is in a file of so many training and test rows, known before the rows are.

    >>> layout = TensorFile("U8", (3, 8, 8), (10, 4))
    >>> list(layout.columns), layout.start("label") == len(layout.head), len(layout.head) % 8
    (['label', 'test_label', 'image', 'test_image'], True, 0)
    """

    def __init__(self, dtype: str, shape: tuple[int, ...], rows: tuple[int, int]) -> None:
        train, test = rows
        sides = {"label": (train,), "test_label": (test,), "image": (train, *shape), "test_image": (test, *shape)}
        self.columns: dict[str, Column] = {}
        end = 0
        for name, each in sides.items():  # labels first: eight-byte numbers start where eight divides the offset
            kind = "I64" if name.endswith("label") else dtype
            start, end = end, end + BYTES[kind] * math.prod(each)
            self.columns[name] = Column(kind, each, (start, end))
        table = {name: asdict(column) for name, column in self.columns.items()}
        text = json.dumps(table, separators=(",", ":")).encode()
        text += b" " * (-len(text) % 8)
        self.head = struct.pack("<Q", len(text)) + text
        self.length = len(self.head) + end

    def start(self, name: str) -> int:
        """The byte of the file at which a column starts."""
        return len(self.head) + self.columns[name].data_offsets[0]

    def create(self, path: Path) -> None:
        """Make the file at its full length, if the disk has room for it."""
        free = shutil.disk_usage(path.parent).free
        if self.length > free:
            raise OSError(errno.ENOSPC, f"{self.length} bytes are needed, {free} are free")
        with path.open("wb") as file:
            file.write(self.head)
            file.truncate(self.length)

    def put(self, path: Path, name: str, content: memoryview) -> None:
        """Write one column whole."""
        with path.open("rb+") as file:
            file.seek(self.start(name))
            file.write(content)

    def checksum(self, path: Path) -> str:
        """The fingerprint of every row, equal to `Dataset.checksum` of the same data."""
        digest = hashlib.blake2b(digest_size=16)
        with path.open("rb") as file:
            for name in COLUMNS:
                column = self.columns[name]
                digest.update(f"{column.shape}{TORCH_NAMES[column.dtype]}".encode())
                left = column.data_offsets[1] - column.data_offsets[0]
                file.seek(self.start(name))
                while left:
                    chunk = file.read(min(CHUNK, left))
                    if not chunk:
                        raise UsageError(f"The file ends {left} bytes too early.")
                    digest.update(chunk)
                    left -= len(chunk)
        return digest.hexdigest()
