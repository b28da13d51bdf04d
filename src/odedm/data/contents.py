"""Describes what a path holds: arrays that are ready, or pictures still to be decoded, with their labels."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import cached_property
from typing import ClassVar

from odedm.data.archives import Tree
from odedm.data.images import Array
from odedm.data.published import PublishedDataset


@dataclass(frozen=True)
class LabelledArrays:
    """Rows in memory: images [n, c, h, w] (uint8 or float32) or vectors [n, d], labels [n] in 0..C-1."""

    kind: str
    class_names: tuple[str, ...]
    image: Array
    label: Array
    test_image: Array
    test_label: Array
    _: KW_ONLY
    published: PublishedDataset | None = None

    skipped: ClassVar[int] = 0

    @property
    def rows(self) -> tuple[int, int]:
        """How many there are for training and for testing."""
        return len(self.label), len(self.test_label)


@dataclass(frozen=True)
class PictureList:
    """Names of pictures in a tree, class by class; they are rows in this order.

    >>> pictures = PictureList([["a/1.png", "a/2.png"], ["b/1.png"]])
    >>> pictures.names, pictures.labels
    (['a/1.png', 'a/2.png', 'b/1.png'], [0, 0, 1])
    """

    classes: Sequence[Sequence[str]]

    @cached_property
    def names(self) -> list[str]:
        """The name of every row."""
        return [name for names in self.classes for name in names]

    @cached_property
    def labels(self) -> list[int]:
        """The label of every row."""
        return [label for label, names in enumerate(self.classes) for _ in names]


@dataclass(frozen=True)
class LabelledPictures:
    """Pictures of a tree, each with its label; `size` and `resize` ask for another size than they have."""

    kind: str
    class_names: tuple[str, ...]
    tree: Tree
    train: PictureList
    test: PictureList
    _: KW_ONLY
    published: PublishedDataset | None
    size: int | None = None
    resize: int | None = None

    @property
    def rows(self) -> tuple[int, int]:
        """How many there are for training and for testing."""
        return len(self.train.names), len(self.test.names)

    @property
    def skipped(self) -> int:
        """How many files of the tree are none of them."""
        return len(self.tree.sizes) - sum(self.rows)


Contents = LabelledArrays | LabelledPictures
