"""Plain data, as JSON holds it: read from files of anyone's, its flat names, what differs, and a checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from odedm.core.errors import InvalidFileError, require
from odedm.core.files import read_bytes

ABSENT = object()
"""What stands for a value that is not there."""

DEEPEST = 32
"""Levels of lists and objects in each other that no file of ours has; some hundreds more are too many for Python."""


def read_json(path: Path, limit: int) -> Any:
    """Return what a JSON file of at most `limit` bytes holds; InvalidFileError where it is none."""
    content = read_bytes(path, limit)
    require(content, f"{path.name} is empty")
    try:
        return parse_json(content)
    except ValueError as error:
        raise InvalidFileError(f"{path.name} cannot be read ({type(error).__name__}: {str(error)[:120]})") from error


def parse_json(text: str | bytes, deepest: int = DEEPEST) -> Any:
    """Return what a text of anyone's holds; ValueError where it is no JSON, or lies deeper in itself.

    >>> parse_json("[NaN]")
    Traceback (most recent call last):
    ValueError: NaN is no JSON
    """
    try:
        plain = json.loads(text, parse_constant=_refuse_constant)
    except RecursionError as error:
        raise ValueError("it lies too deep in itself") from error
    if _is_deeper(plain, deepest):
        raise ValueError(f"more than {deepest} levels of it lie in each other")
    return plain


def _refuse_constant(word: str) -> Any:
    """Refuse NaN and Infinity, which Python would read and others would not."""
    raise ValueError(f"{word} is no JSON")


def _is_deeper(plain: object, limit: int) -> bool:
    """Return whether lists and objects lie in each other beyond so many levels.

    >>> _is_deeper([[1]], 2), _is_deeper({"a": [[1]]}, 2)
    (False, True)
    """
    level: list[Any] = [plain]
    for _ in range(limit + 1):
        level = [part for part in level if isinstance(part, dict | list)]
        level = [value for part in level for value in (part.values() if isinstance(part, dict) else part)]
    return bool(level)


def json_hash(plain: Any, size: int = 16) -> str:
    """Return the digest of plain data in so many bytes, whatever the order of its names.

    >>> json_hash({"a": 1, "b": 2}) == json_hash({"b": 2, "a": 1})
    True
    """
    text = json.dumps(plain, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=size).hexdigest()


def differences(ours: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Return fields in which two configurations differ: as `name=value` of the other, and our value.

    >>> differences({"method": {"lr": 0.1}, "seed": 0}, {"method": {"lr": 0.2}, "seed": 0})
    [('method.lr=0.2', '0.1')]
    """
    return [(f"{name[:60]}={_shown(theirs)}", _shown(mine)) for name, mine, theirs in dict_diff(ours, other)]


def _shown(value: Any) -> str:
    return "nothing" if value is ABSENT else json.dumps(value)[:60]


def dict_diff(one: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return the flat names whose values differ, in the order of the first, with both values or ABSENT.

    >>> dict_diff({"method": {"lr": 0.1}, "seed": 0}, {"method": {"lr": 0.2}, "seed": 0})
    [('method.lr', 0.1, 0.2)]
    """
    a, b = flatten(one), flatten(other)
    both = [(name, a.get(name, ABSENT), b.get(name, ABSENT)) for name in {**a, **b}]
    return [(name, first, second) for name, first, second in both if first != second]


def flatten(plain: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Return nested names joined by dots.

    >>> flatten({"a": {"b": 1}, "c": [2]})
    {'a.b': 1, 'c': [2]}
    """
    flat: dict[str, Any] = {}
    for name, value in plain.items():
        if isinstance(value, Mapping) and value:
            flat |= flatten(value, f"{above}{name}.")
        else:
            flat[f"{above}{name}"] = value
    return flat
