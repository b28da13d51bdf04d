"""Downloads a file over HTTP, going on where an earlier try stopped, and keeps it only if it is the known one."""

from __future__ import annotations

import hashlib
import http.client
import os
import re
import shutil
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import urlsplit

from odedm.core.errors import UsageError
from odedm.data.image_workers import Watch
from odedm.data.published import Archive

CHUNK = 1 << 18
TIMEOUT = 30.0
TRIES = 4
MOST = 64 << 30
"""Bytes of a file whose length nobody knows."""
RETRY_PAUSE = 1.0
"""A factor for the pauses between tries."""
BROKEN = (urllib.error.URLError, http.client.HTTPException, TimeoutError, ConnectionError, socket.gaierror)
"""What a connection that fails raises."""


def download(url: str, target: Path, known: Sequence[Archive], watch: Watch, *, manual: str) -> Path:
    """Get `url` into `target`; `known` are the files it may be, `manual` the sentence on doing it by hand.

    What has arrived stays in `<target>.part`, with a note of what it is a part of, until the file is whole.
    """
    if not _is_web_address(url):
        raise UsageError(
            f"'{url}' is no web address; http:// and https:// are. A file on disk can be imported. {manual}"
        )
    if target.is_file() and _matches(target, known):
        return target
    part = target.with_name(target.name + ".part")
    _check_free(part, _note_of(part), target)
    error: Exception | None = None
    for attempt in range(TRIES):
        if attempt:
            time.sleep(min(2.0**attempt, 8.0) * RETRY_PAUSE)
        try:
            _fetch(url, part, known, watch)
            break
        except UsageError:
            raise
        except ValueError as failure:  # an address that cannot be sent, here or where the server leads
            raise UsageError(f"'{url}' cannot be had: {failure}. {manual}") from failure
        except BROKEN as failure:
            error = failure
            if isinstance(failure, urllib.error.HTTPError):
                failure.close()
                if failure.code == 416:
                    _forget(part)
                elif failure.code < 500:
                    said = f"{failure.code} {failure.reason}"
                    raise UsageError(f"'{url}' cannot be had: the server says {said}. {manual}") from failure
    else:
        there = part.stat().st_size if part.is_file() else 0
        kept = f" {there} bytes are kept; the same command goes on from there." if there else ""
        reason = getattr(error, "reason", None) or error
        raise UsageError(f"'{url}' cannot be had: {reason}.{kept} {manual}") from error
    if not _matches(part, known):
        found = f"{part.stat().st_size} bytes, md5 {_digest(part, 'md5')}, sha256 {_digest(part, 'sha256')}"
        _forget(part)
        raise UsageError(f"What came from '{url}' is not the known file ({found}); it was removed. {manual}")
    os.replace(part, target)
    _forget(part)
    return target


def _check_free(*paths: Path) -> None:
    """Refuse to write where something else than a file lies: the folder may be one that many share."""
    for path in paths:
        if path.is_symlink() or (path.exists() and not path.is_file()):
            raise UsageError(f"'{path}' is a link or no regular file, so nothing is written there. Move it away.")


def _is_web_address(url: str) -> bool:
    try:
        return urlsplit(url).scheme in ("http", "https")
    except ValueError:
        return False


def _fetch(url: str, part: Path, known: Sequence[Archive], watch: Watch) -> None:
    """One try: ask for what is missing, append it, and fail if the connection ends early."""
    note = _note_of(part)
    have, mark = (part.stat().st_size, _note(note, url)) if part.is_file() else (0, None)
    headers = {"User-Agent": "odedm", "Accept-Encoding": "identity"}
    if have and mark:
        headers |= {"Range": f"bytes={have}-", "If-Range": mark}
    request = urllib.request.Request(url, headers=headers)
    with urllib.request.urlopen(request, timeout=TIMEOUT) as answer:
        if answer.status != 206 or not str(answer.headers.get("Content-Range", "")).startswith(f"bytes {have}-"):
            have = 0
        length = answer.headers.get("Content-Length")
        total = have + int(length) if re.fullmatch("[0-9]{1,18}", length or "") else None
        limit = _limit(total, known, part)
        mark = str(answer.headers.get("ETag") or answer.headers.get("Last-Modified") or "")
        mark = mark if mark.isascii() and mark.isprintable() else ""  # it is sent back
        note.write_text(f"{url}\n{mark}\n", "utf-8")
        with part.open("ab" if have else "wb") as file:
            while chunk := answer.read(CHUNK):
                have += len(chunk)
                if have > limit:
                    raise UsageError(f"'{url}' sends more than {limit} bytes; the download was stopped.")
                file.write(chunk)
                watch("downloading", have, total or limit)
            file.flush()
            os.fsync(file.fileno())
    if total is not None and have < total:
        raise http.client.IncompleteRead(b"", total - have)


def _limit(total: int | None, known: Sequence[Archive], part: Path) -> int:
    """As many bytes as may come: the known length, or what the disk has room for."""
    limit = max((archive.size or MOST for archive in known), default=MOST)
    free = shutil.disk_usage(part.parent).free
    if total is not None and total - (part.stat().st_size if part.is_file() else 0) > free:
        raise UsageError(f"The download needs {total} bytes, but {free} are free in '{part.parent}'. Set ODEDM_DATA.")
    return min(limit, MOST)


def _note_of(part: Path) -> Path:
    return part.with_name(part.name + ".of")


def _note(note: Path, url: str) -> str | None:
    """What the server called the file of which a part is here; None if that was another file or is not known."""
    try:
        of, mark = note.read_text("utf-8").splitlines()[:2]
    except (OSError, ValueError):
        return None
    return mark or None if of == url else None


def _forget(part: Path) -> None:
    part.unlink(missing_ok=True)
    _note_of(part).unlink(missing_ok=True)


def _matches(path: Path, known: Sequence[Archive]) -> bool:
    """Whether a file is one of those that are known; anything is, where none is."""
    for archive in known:
        if archive.size in (None, path.stat().st_size):
            kind, wanted = ("sha256", archive.sha256) if archive.sha256 else ("md5", archive.md5)
            if wanted is None or _digest(path, kind) == wanted:
                return True
    return not known


def _digest(path: Path, kind: str) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, lambda: hashlib.new(kind, usedforsecurity=False)).hexdigest()
