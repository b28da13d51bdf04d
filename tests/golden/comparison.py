"""What of a case's outcome is compared: bit for bit on one machine, or in a form that holds on other machines too."""

from __future__ import annotations

import hashlib
import json
import math
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import torch
from torch import Tensor

LISTED = 64
"""Whole numbers of a tensor up to which they are listed; more have a checksum."""
PRINTED = ("rows", "memory index")
"""Parts whose whole numbers are always listed."""
TOLERANCE = 1e-4
"""Of floats on another machine, relative to their size."""
ONE_MACHINE = ("class_il", "task_il", "anytime", "predicted", "evidence feature.data", "evidence feature.memory")
"""Parts that follow from others, or where a last bit may turn a whole answer over: not held on other machines."""


def digest(*tensors: Tensor) -> str:
    """A checksum of tensors, bit for bit."""
    found = hashlib.blake2b(digest_size=12)
    for tensor in tensors:
        found.update(f"{tuple(tensor.shape)} {tensor.dtype}".encode())
        found.update(tensor.detach().contiguous().cpu().view(-1).view(torch.uint8).numpy().tobytes())
    return found.hexdigest()


def exact(value: Any) -> Any:
    """A part as plain data in which every bit counts; the order of the weights in a list of them does not."""
    if isinstance(value, np.ndarray):
        value = value.tolist() if value.dtype.kind in "UO" else torch.from_numpy(np.ascontiguousarray(value))
    if isinstance(value, Tensor):
        return _numbers(value) if _listed(value) else digest(value)
    if isinstance(value, Mapping):
        return {str(name): exact(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        if value and all(isinstance(entry, Tensor) for entry in value):
            return hashlib.blake2b("".join(sorted(map(digest, value))).encode(), digest_size=12).hexdigest()
        return [exact(entry) for entry in value]
    return value if value is None or isinstance(value, str | bool | int) else _float(value)


def lasting(parts: Mapping[str, Any]) -> dict[str, Any]:
    """All parts as plain data that holds on any machine: whole numbers to the letter, floats by two sums of them."""
    found = {name: _lasting(value) for name, value in parts.items() if name not in ONE_MACHINE}
    return {name: value if name in PRINTED else _packed(value) for name, value in found.items()}


def _lasting(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        value = value.tolist() if value.dtype.kind in "UO" else torch.from_numpy(np.ascontiguousarray(value))
    if isinstance(value, Tensor):
        return _sums([value]) if value.is_floating_point() else exact(value)
    if isinstance(value, Mapping):
        return {str(name): _lasting(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        if value and all(isinstance(entry, Tensor) for entry in value):
            return _sums(value)
        return [_lasting(entry) for entry in value]
    return value if value is None or isinstance(value, str | bool | int) else _float(value)


def _packed(value: Any) -> Any:
    """A checksum in the place of many whole numbers and words; floats stay."""
    text = json.dumps(value, separators=(",", ":"))
    return value if len(text) <= LISTED or "." in text else hashlib.blake2b(text.encode(), digest_size=9).hexdigest()


def _sums(tensors: Any) -> list[float]:
    """The length of all the numbers, and their sum by weights that no symmetry cancels."""
    square, turned = 0.0, 0.0
    for tensor in tensors:
        flat = tensor.detach().double().flatten().cpu().nan_to_num(nan=3.0, posinf=2.0, neginf=-2.0)
        place = torch.arange(1, len(flat) + 1, dtype=torch.float64)
        square += float(flat @ flat)
        turned += float(flat @ (place * place).sin())
    return [_short(math.sqrt(square)), _short(turned)]


def _short(number: float) -> float:
    return float(f"{number:.6g}")


def _float(number: Any) -> Any:
    number = float(number)
    return number if math.isfinite(number) else str(number)


def _listed(tensor: Tensor) -> bool:
    return not tensor.is_floating_point() and tensor.numel() <= LISTED


def _numbers(tensor: Tensor) -> Any:
    return tensor.tolist()


def same(one: Any, other: Any, scale: float = 1.0) -> bool:
    """Whether two lasting parts are equal, floats to within the tolerance of the largest beside them."""
    if isinstance(one, float) and isinstance(other, float):
        return abs(one - other) <= TOLERANCE * max(1.0, scale)
    if type(one) is not type(other):
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(same(one[name], other[name]) for name in one)
    if isinstance(one, list):
        largest = max((abs(number) for number in one if isinstance(number, float)), default=1.0)
        return len(one) == len(other) and all(same(a, b, largest) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def different(then: Mapping[str, Any], now: Mapping[str, Any], equal: Any = None) -> list[str]:
    """The parts in which a case's outcomes differ, by equality unless another `equal` is given."""
    alike = equal or (lambda one, other: one == other)
    return [name for name in [*then, *(now.keys() - then.keys())] if not _both(then, now, name, alike)]


def _both(then: Mapping[str, Any], now: Mapping[str, Any], name: str, alike: Any) -> bool:
    return name in then and name in now and bool(alike(then[name], now[name]))


@dataclass(frozen=True)
class Intended:
    """A difference that was meant: cases and parts by patterns, and the cause."""

    cases: str
    part: str
    cause: str

    def matches(self, case: str, part: str) -> bool:
        """Whether it is about a part of a case."""
        return fnmatchcase(case, self.cases) and fnmatchcase(part, self.part)


class IntendedList:
    """The differences that were meant, and which of them were seen."""

    def __init__(self, path: Path) -> None:
        entries = tomllib.loads(path.read_text(encoding="utf-8")).get("difference", [])
        self.entries = [Intended(**entry) for entry in entries]
        self.seen: set[Intended] = set()

    def unexpected(self, case: str, parts: list[str]) -> list[str]:
        """Those of the differing parts that nobody meant."""
        found = []
        for part in parts:
            meant = [entry for entry in self.entries if entry.matches(case, part)]
            self.seen.update(meant)
            if not meant:
                found.append(part)
        return found

    def idle(self) -> Iterator[Intended]:
        """Entries that nothing differed by."""
        return (entry for entry in self.entries if entry not in self.seen)


def read_numbers(path: Path) -> dict[str, dict[str, Any]]:
    """Recorded cases, by name."""
    found: dict[str, dict[str, Any]] = json.loads(path.read_text(encoding="utf-8"))
    return found


def write_numbers(path: Path, numbers: Mapping[str, Any]) -> None:
    """Record cases, a line each."""
    lines = ",\n".join(
        f"{json.dumps(name)}:{json.dumps(parts, separators=(',', ':'))}" for name, parts in numbers.items()
    )
    path.write_text(f"{{\n{lines}\n}}\n", encoding="utf-8")
