"""Downloads a file over HTTP, and keeps it only if it is the known one."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import shutil
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path

from odedm.core.errors import UsageError, describe_error
from odedm.core.files import writing
from odedm.data.contents import OnProgress
from odedm.data.published import Archive

CHUNK = 1 << 18
TIMEOUT = 30.0
TRIES = 4
RETRY_PAUSE = 1.0
"""A factor for the pauses between tries."""
MAX_BYTES = 64 << 30
"""Of a file whose length nobody knows."""
BROKEN = (OSError, http.client.HTTPException, ValueError)
"""What a connection that fails raises; ValueError stands for an address that cannot be sent, here or further on."""


def download(url: str, target: Path, known: Sequence[Archive], on_progress: OnProgress, *, manual: str) -> Path:
    """Get `url` into `target`; `known` are the files it may be, `manual` the sentence on doing it by hand."""
    if not re.match("https?://", url, re.IGNORECASE):
        raise UsageError(
            f"'{url}' is no web address; http:// and https:// are. A file on disk can be imported. {manual}"
        )
    if target.is_file() and _is_known(target, known):
        return target
    part = target.with_name(target.name + ".part")
    try:
        for attempt in range(TRIES):
            try:
                _fetch(url, part, known, on_progress)
                break
            except UsageError:
                raise
            except BROKEN as error:
                refused = isinstance(error, ValueError) or getattr(error, "code", 500) < 500
                if isinstance(error, urllib.error.HTTPError):
                    error.close()
                if refused or attempt == TRIES - 1:
                    raise UsageError(f"'{url}' cannot be had: {describe_error(error)}. {manual}") from error
            time.sleep(min(2.0**attempt, 8.0) * RETRY_PAUSE)
        if not _is_known(part, known):
            present = f"{part.stat().st_size} bytes, md5 {digest(part, 'md5')}, sha256 {digest(part, 'sha256')}"
            raise UsageError(f"What came from '{url}' is not the known file ({present}); it was removed. {manual}")
        os.replace(part, target)
    finally:
        part.unlink(missing_ok=True)
    return target


def _fetch(url: str, part: Path, known: Sequence[Archive], on_progress: OnProgress) -> None:
    """Try once; any error where the connection ends early."""
    request = urllib.request.Request(url, headers={"User-Agent": "odedm", "Accept-Encoding": "identity"})
    with writing(part), urllib.request.urlopen(request, timeout=TIMEOUT) as answer, part.open("wb") as file:
        length = answer.headers.get("Content-Length", "")
        total = int(length) if re.fullmatch("[0-9]{1,18}", length) else None
        free = shutil.disk_usage(part.parent).free
        if total is not None and total > free:
            raise UsageError(
                f"The download needs {total} bytes, but {free} are free in '{part.parent}'. Set ODEDM_DATA."
            )
        limit = min(free, max((archive.size or MAX_BYTES for archive in known), default=MAX_BYTES))
        done = 0
        while chunk := answer.read(CHUNK):
            done += len(chunk)
            if done > limit:
                raise UsageError(f"'{url}' sends more than {limit} bytes; the download was stopped.")
            file.write(chunk)
            on_progress("downloading", done, total or limit)
    if total is not None and done < total:
        raise http.client.IncompleteRead(b"", total - done)


def _is_known(path: Path, known: Sequence[Archive]) -> bool:
    """Return whether a file is one of those that are known; any file is, where none is."""
    size = path.stat().st_size
    return not known or any(
        archive.size in (None, size) and digest(path, archive.algorithm) == archive.digest for archive in known
    )


def digest(path: Path, algorithm: str) -> str:
    """Return the digest of a file in hexadecimal digits."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(algorithm, usedforsecurity=False)).hexdigest()
