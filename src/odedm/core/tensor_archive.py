"""One file for tensors and what is to be said of them: safetensors' format, a head of JSON, a checksum over both.

Files come from anyone: nothing in one is run or imported, and what is not whole is refused with a sentence. Torch is
imported where tensors are read or written, not for a look at a head.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

from safetensors import SafetensorError, safe_open

from odedm.core.errors import InfrastructureError, InvalidFileError, UsageError, require, short_repr
from odedm.core.files import atomic_file, check_file
from odedm.core.plain_data import parse_json
from odedm.core.version import __version__

if TYPE_CHECKING:
    from torch import Tensor

MOST_HEAD = 1 << 26
"""Bytes of JSON that no head of ours exceeds."""
DEEPEST = 300
"""Levels of lists and objects in each other: the trees of states lie deep."""


def archive_checksum(head: str, tensors: Mapping[str, Tensor]) -> str:
    """Return a digest of a head and of every tensor's name and content, without a copy of those that are contiguous."""
    import torch

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
        _save_tensors(part, separate, {"odedm": plain, "checksum": archive_checksum(plain, separate)})


def _save_tensors(path: Path, tensors: dict[str, Tensor], metadata: dict[str, str]) -> None:
    """Call `safetensors.torch.save_file`, with errors and permissions as those of any other new file."""
    from safetensors.torch import save_file

    path.touch()
    mode = path.stat().st_mode
    try:
        save_file(tensors, path, metadata)
        path.chmod(mode)
    except SafetensorError as error:
        number = re.search(r"os error (\d+)", str(error))
        code = int(number[1]) if number else errno.EIO
        raise OSError(code, os.strerror(code) if number else str(error), str(path)) from error


def packed(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return a state with its tensors as bytes: another process must not be sent handles of shared memory."""
    from safetensors.torch import save

    return {**state, "tensors": save(state["tensors"])}


def unpacked(state: Mapping[str, Any]) -> dict[str, Any]:
    """Return the state that was `packed`."""
    from safetensors.torch import load

    return {**state, "tensors": load(state["tensors"])}


def read_head(path: Path, schema: str) -> dict[str, Any]:
    """Return the head of an archive without a look at its tensors; InvalidFileError where it is none of this format."""
    with _opened(path, "np") as file:
        return _head(file, schema)[1]


def read_whole(path: Path, schema: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Return the head and the tensors of an archive; InvalidFileError where anything of it is not as it was written."""
    with _opened(path, "pt") as file:
        plain, head = _head(file, schema)
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118 - no mapping
        same = archive_checksum(plain, tensors) == file.metadata().get("checksum")
        require(same, "it has changed since it was written: its checksum is another")
    return head, tensors


def read_archive(path: Path, schema: str, what: str, writer: str) -> tuple[dict[str, Any], dict[str, Tensor]]:
    """Read a file that a user gave; `what` it should be and its `writer` are for messages."""
    if not os.path.lexists(path):
        raise UsageError(f"There is no file '{path}'. Give one that {writer} has written.")
    try:
        return read_whole(path, schema)
    except InvalidFileError as error:
        raise UsageError(
            f"'{path}' is no {what} that can be loaded: {error}. Give a file that {writer} has written."
        ) from error


@contextmanager
def _opened(path: Path, framework: str) -> Iterator[Any]:
    check_file(path)
    try:
        with safe_open(path, framework) as file:
            yield file
    except (InvalidFileError, InfrastructureError):
        raise
    except (OSError, KeyError, ValueError, RuntimeError, SafetensorError) as error:
        raise InvalidFileError(f"it is not whole ({type(error).__name__}: {str(error)[:120]})") from error


def _head(file: Any, schema: str) -> tuple[str, dict[str, Any]]:
    """Return the head as text and as what that says."""
    plain = (file.metadata() or {})["odedm"]
    require(len(plain) <= MOST_HEAD, "its head is too large")
    head = parse_json(plain, DEEPEST)
    require(isinstance(head, dict), "its head is no object")
    if head.get("schema") != schema:
        written, versions = short_repr(head.get("schema"), 60), head.get("versions")
        code = [f"{name} {version}" for name, version in versions.items()] if isinstance(versions, dict) else []
        writer = f"; {short_repr(', '.join(code), 120)} wrote it" if code else ""
        raise InvalidFileError(
            f"its format is {written} and this version of odedm ({__version__}) reads '{schema}'{writer}"
        )
    return plain, head
