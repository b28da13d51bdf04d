"""What a decoder hands to the cache: arrays that are ready, or pictures still to be decoded."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np

from odedm.data.archives import Tree
from odedm.data.published import Published

Array = np.ndarray[Any, Any]


@dataclass(frozen=True)
class Arrays:
    """Rows in memory: images [n, c, h, w] (uint8 or float32) or vectors [n, d], labels [n] in 0..C-1."""

    kind: str
    image: Array
    label: Array
    test_image: Array
    test_label: Array
    class_names: tuple[str, ...]
    published: Published | None = None
    skipped: int = 0


@dataclass(frozen=True)
class Part:
    """Names of pictures in a tree in row order, and the label of each."""

    names: list[str] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)


@dataclass(frozen=True)
class Pictures:
    """Pictures of a tree, each with its label; `size` and `resize` ask for another size than they have."""

    kind: str
    tree: Tree
    train: Part
    test: Part
    class_names: tuple[str, ...]
    published: Published | None = None
    skipped: int = 0
    size: int | None = None
    resize: int | None = None
