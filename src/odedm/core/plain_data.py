"""Plain data, as JSON holds it: flat names, what differs between two of them, and a checksum."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any


def text_fingerprint(plain: Any) -> str:
    """The digest of plain data, whatever the order of its names.

    >>> text_fingerprint({"a": 1, "b": 2}) == text_fingerprint({"b": 2, "a": 1})
    True
    """
    text = json.dumps(plain, sort_keys=True, ensure_ascii=True)
    return hashlib.blake2b(text.encode(), digest_size=16).hexdigest()


def differences(own: Mapping[str, Any], other: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Fields in which two configurations differ: as `name=value` of the other, and the own value.

    >>> differences({"method": {"lr": 0.1}, "seed": 0}, {"method": {"lr": 0.2}, "seed": 0})
    [('method.lr=0.2', '0.1')]
    """
    flat, theirs = flatten(own), flatten(other)
    names = [*flat, *(name for name in theirs if name not in flat)]
    return [
        (f"{name[:60]}={_shown(theirs, name)}", _shown(flat, name))
        for name in names
        if name not in flat or name not in theirs or flat[name] != theirs[name]
    ]


def _shown(values: Mapping[str, Any], name: str) -> str:
    return json.dumps(values[name])[:60] if name in values else "nothing"


def flatten(plain: Mapping[str, Any], above: str = "") -> dict[str, Any]:
    """Nested names joined by dots.

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
