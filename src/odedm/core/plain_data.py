"""Plain data, as JSON holds it: flat names, what differs between two of them, and a checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

ABSENT = object()
"""What stands for a value that is not there."""

DEEPEST = 32
"""Levels of lists and objects in each other that no file of ours has; some hundreds more are too many for Python."""


def too_deep(plain: object, limit: int = DEEPEST) -> bool:
    """Return whether lists and objects lie in each other beyond so many levels.

    >>> too_deep([[1]]), too_deep({"a": [[1]]}, 2)
    (False, True)
    """
    if not isinstance(plain, dict | list):
        return False
    values = plain.values() if isinstance(plain, dict) else plain
    return limit == 0 or any(too_deep(value, limit - 1) for value in values)


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
