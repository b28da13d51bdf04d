"""Errors: the one that users meet, those of broken disks and broken files, the sentence for a wrong name."""

from __future__ import annotations

import difflib
import errno
from collections.abc import Iterable, Mapping
from typing import TypeVar

from odedm.core.text import LONGEST, printable

T = TypeVar("T")


class UsageError(ValueError):
    """Something asked for cannot be done: says what is wrong, what was given, what is legal, what to do.

    Whatever names it quotes, from files, archives or servers, a terminal can show it without obeying it.
    """

    def __init__(self, sentence: object = "") -> None:
        super().__init__(printable(sentence, LONGEST))


UsageError.__module__ = "odedm"  # as users know it


class InfrastructureError(UsageError):
    """The machine failed, not the work: a disk that is full, broken or read-only, a cluster that is gone.

    Whatever comes next would fail for the same reason, so no run is marked as failed: it goes on when that is mended.
    """


FULL_DISK = frozenset({errno.ENOSPC, errno.EDQUOT})
INFRASTRUCTURE_ERRNOS = FULL_DISK | {errno.EIO, errno.EROFS, errno.ESTALE, errno.ENODEV, errno.ENFILE}
"""What the system says of a file system that is full, broken, read-only or gone, or when it has no open file left."""


def is_infrastructure_error(error: BaseException | None) -> bool:
    """Return whether the machine is to blame for an error, or for one that caused it.

    >>> is_infrastructure_error(OSError(errno.EIO, "Input/output error")), is_infrastructure_error(ValueError())
    (True, False)
    """
    while error is not None:
        if isinstance(error, InfrastructureError):
            return True
        if isinstance(error, OSError) and error.errno in INFRASTRUCTURE_ERRNOS:
            return True
        error = error.__cause__
    return False


NO_MEMORY = (
    "can't allocate memory",
    "Cannot allocate memory",
    "Storage size calculation overflowed",
    "can't start new thread",
    "failed to map segment from shared object",
)
"""How torch, Python and the system's loader say, where they have no error of its own, that there is no memory left."""


def is_out_of_memory(error: BaseException) -> bool:
    """Return whether an error says that there is no memory left, of a GPU or of the machine.

    >>> is_out_of_memory(MemoryError()), is_out_of_memory(RuntimeError("can't start new thread"))
    (True, True)
    >>> is_out_of_memory(RuntimeError("size mismatch"))
    False
    """
    if isinstance(error, MemoryError) or type(error).__name__ == "OutOfMemoryError":  # torch's, without its import
        return True
    return isinstance(error, RuntimeError | ImportError | OSError) and any(words in str(error) for words in NO_MEMORY)


def error_for(cause: BaseException, sentence: str) -> UsageError:
    """Return a `UsageError` with a sentence, or an `InfrastructureError` where the cause is one."""
    return InfrastructureError(sentence) if is_infrastructure_error(cause) else UsageError(sentence)


class LockedError(UsageError):
    """Another process is at it: nothing is wrong with what was asked for."""


class InvalidFileError(UsageError):
    """Something that was stored is not as it should be: half a sentence, to stand behind the thing's name."""


def short_repr(value: object, limit: int = 80) -> str:
    """Return a value as Python writes it, in one line of bounded length, whatever it is.

    >>> short_repr("x"), short_repr(10**5000), short_repr([1] * 99, 12)
    ("'x'", 'a int without words', '[1, 1, 1, 1…')
    """
    try:
        text = repr(value)
    except Exception:  # numbers of 5 000 digits have none, and objects of anyone's may raise what they like
        text = f"a {type(value).__name__} without words"
    text = " ".join(text.split())
    return text if len(text) <= limit else text[: limit - 1] + "…"


def describe_error(error: BaseException) -> str:
    """Return an error of anyone's code in half a sentence."""
    return f"{type(error).__name__}: {' '.join(str(error).split())[:300]}".rstrip(".")


def require(condition: object, fault: str) -> None:
    """Refuse what was stored where it is not fine.

    >>> require(1 > 2, "it has rows of no class")
    Traceback (most recent call last):
    odedm.core.errors.InvalidFileError: it has rows of no class
    """
    if not condition:
        raise InvalidFileError(fault)


def unknown_name_error(
    kind: str, name: str, legal: Iterable[str], titles: Mapping[str, str] | None = None
) -> UsageError:
    """Return the error for a name that is not in the list, with the nearest one that is.

    `titles` are names by how people write them, in small letters: who gives one means that name and no other.

    >>> str(unknown_name_error("method", "derp", ["er", "der", "derpp"]))
    "Unknown method 'derp': did you mean 'derpp'? Known: er, der, derpp."
    >>> str(unknown_name_error("method", "zzz", ["er"]))
    "Unknown method 'zzz'. Known: er."
    >>> str(unknown_name_error("method", "DER++", ["der", "derpp"], {"der++": "derpp"}))
    "Unknown method 'DER++': did you mean 'derpp'? Known: der, derpp."
    """
    names, name = list(legal), str(name)[:60]
    meant = (titles or {}).get(name.lower())
    near = [meant] if meant else difflib.get_close_matches(name.lower(), names, n=1, cutoff=0.5)
    hint = f": did you mean '{near[0]}'?" if near else "."
    return UsageError(f"Unknown {kind} '{name}'{hint} Known: {', '.join(names)}.")


def choose(kind: str, name: str, table: Mapping[str, T]) -> T:
    """Look a name up in a written table, or say which name was meant.

    >>> choose("colour", "red", {"red": 1})
    1
    """
    if name not in table:
        raise unknown_name_error(kind, name, table)
    return table[name]
