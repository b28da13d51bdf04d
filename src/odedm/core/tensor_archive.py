"""One file for tensors and what is to be said of them: safetensors' format, a head of JSON, a checksum over both.

Files come from anyone: nothing in one is run or imported, and what is not whole is refused with a sentence.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from safetensors import SafetensorError, safe_open
from safetensors.torch import save_file
from torch import Tensor

from odedm.core.checksums import no_constant
from odedm.core.errors import InvalidFileError, UsageError, require
from odedm.core.files import atomic_file, check_file
from odedm.core.version import __version__

MOST_HEAD = 1 << 26
"""Bytes of JSON that no head of ours exceeds."""
READERS = {
    "odedm.learner": "a learner that was saved; odedm.Learner.load reads it",
    "odedm.model": "the trained model of a run; odedm.load reads it",
    "odedm.memory": "a memory alone; odedm.DualMemory.load reads it",
}
"""What files of each format are, and who reads them."""


def archive_checksum(head: str, tensors: Mapping[str, Tensor]) -> str:
    """Return a digest of a head and of every tensor's name and content, without a copy of those that are contiguous."""
    digest = hashlib.blake2b(head.encode(), digest_size=16)
    for name in sorted(tensors):
        digest.update(name.encode())
        flat = tensors[name].detach().contiguous().view(-1)
        if flat.numel() < 2:  # which counts as contiguous whatever its strides are
            flat = torch.empty(flat.shape, dtype=flat.dtype).copy_(flat)
        digest.update(flat.view(torch.uint8).numpy().data)
    return digest.hexdigest()


def write_archive(path: Path, head: Mapping[str, Any], tensors: Mapping[str, Tensor]) -> None:
    """Write the file whole or not at all; tensors are copied only where they share memory or are not contiguous."""
    plain = json.dumps(head, allow_nan=False)
    separate: dict[str, Tensor] = {}
    storages: set[int] = set()
    for name, tensor in tensors.items():
        storage = tensor.untyped_storage().data_ptr()
        separate[name] = tensor.detach().clone() if storage in storages else tensor.detach()
        separate[name] = separate[name].contiguous()
        storages.add(storage)
    with atomic_file(path) as part:
        save_tensors(part, separate, {"odedm": plain, "checksum": archive_checksum(plain, separate)})


def save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str] | None = None) -> None:
    """Call `safetensors.torch.save_file`, with errors and permissions as those of any other new file."""
    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(tensors, path, metadata)
        path.chmod(mode)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        code = int(number[1]) if number else errno.EIO
        raise OSError(code, os.strerror(code) if number else str(error), str(path)) from error


def refuse_others(head: Any, schema: str) -> None:
    """Raise InvalidFileError that names the reader where another function reads such files.

    >>> refuse_others({"schema": "odedm.learner/1"}, "odedm.model/1")
    Traceback (most recent call last):
    odedm.core.errors.InvalidFileError: it is a learner that was saved; odedm.Learner.load reads it
    """
    family = str(head.get("schema") if isinstance(head, dict) else "").rpartition("/")[0]
    if family in READERS and family != schema.rpartition("/")[0]:
        raise InvalidFileError(f"it is {READERS[family]}")


def read_archive(path: Path, schema: str, what: str, writer: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the head and the tensors of an archive; `what` it should be and its `writer` are for messages."""
    if not os.path.lexists(path):
        raise UsageError(f"There is no file '{path}'. Give one that {writer} has written.")
    try:
        check_file(path)
        with safe_open(path, "pt") as file:
            metadata = file.metadata() or {}
            plain = metadata["odedm"]
            require(len(plain) <= MOST_HEAD, f"its head is larger than any {what}'s")
            head = json.loads(plain, parse_constant=no_constant)
            require(isinstance(head, dict), f"its head is not a {what}'s")
            refuse_others(head, schema)
            other = head.get("schema")
            if other != schema:
                raise InvalidFileError(
                    f"its format is '{str(other)[:60]}' and this version of odedm ({__version__}) reads '{schema}'; "
                    "load it with the version that wrote it"
                )
            tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        require(archive_checksum(plain, tensors) == metadata.get("checksum"), "it has changed since it was written")
    except InvalidFileError as error:
        raise UsageError(f"'{path}' is no {what} that can be loaded: {error}.") from error
    except (OSError, KeyError, ValueError, RecursionError, RuntimeError, SafetensorError) as error:
        raise UsageError(
            f"'{path}' is no saved {what}, or not whole ({type(error).__name__}: {str(error)[:120]}). "
            f"Give a file that {writer} has written."
        ) from error
    return head, tensors
