"""The cache's one data file: safetensors, laid out before its rows are known and hashed without torch."""

from __future__ import annotations

import hashlib
import json
import math
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from odedm.core.errors import UsageError

BYTES = {"U8": 1, "F32": 4, "I64": 8}
TORCH_NAMES = {"U8": "torch.uint8", "F32": "torch.float32", "I64": "torch.int64"}
ORDER = ("label", "test_label", "image", "test_image")
"""In the file: labels first, so that eight-byte numbers start where eight divides the offset."""
HASHED = ("image", "label", "test_image", "test_label")
"""In the checksum: as `Dataset.checksum` takes them."""
CHUNK = 8 << 20


@dataclass(frozen=True)
class Column:
    """One tensor of the file: its type (U8, F32, I64), its shape, and the byte at which it starts."""

    dtype: str
    shape: tuple[int, ...]
    start: int = 0

    @property
    def size(self) -> int:
        """Its bytes.

        >>> Column("I64", (3,)).size
        24
        """
        return BYTES[self.dtype] * math.prod(self.shape)


def lay_out(columns: Mapping[str, tuple[str, tuple[int, ...]]]) -> tuple[bytes, dict[str, Column]]:
    """The head of the file, and where every column starts behind it.

    >>> head, placed = lay_out({name: ("I64", (1,)) for name in ORDER})
    >>> len(head) % 8, placed["label"].start == len(head)
    (0, True)
    """
    behind: dict[str, Column] = {}
    start = 0
    for name in ORDER:
        behind[name] = Column(*columns[name], start)
        start += behind[name].size
    table = {
        name: {
            "dtype": column.dtype,
            "shape": list(column.shape),
            "data_offsets": [column.start, column.start + column.size],
        }
        for name, column in behind.items()
    }
    text = json.dumps(table, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    head = struct.pack("<Q", len(text)) + text
    return head, {name: replace(column, start=len(head) + column.start) for name, column in behind.items()}


def total_bytes(head: bytes, placed: Mapping[str, Column]) -> int:
    """The length of the whole file."""
    return len(head) + sum(column.size for column in placed.values())


def checksum(path: Path, placed: Mapping[str, Column]) -> str:
    """The fingerprint of every row, equal to `Dataset.checksum` of the same data."""
    digest = hashlib.blake2b(digest_size=16)
    with path.open("rb") as file:
        for name in HASHED:
            column = placed[name]
            digest.update(f"{column.shape}{TORCH_NAMES[column.dtype]}".encode())
            file.seek(column.start)
            for chunk in _chunks(file.read, column.size):
                digest.update(chunk)
    return digest.hexdigest()


def _chunks(read: Callable[[int], bytes], size: int) -> Iterator[bytes]:
    while size:
        chunk = read(min(CHUNK, size))
        if not chunk:
            raise UsageError(f"The file ends {size} bytes too early.")
        size -= len(chunk)
        yield chunk
