"""Tells what a path holds and reads it: official archives, image folders, arrays, saved data sets."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from odedm.core.errors import UsageError
from odedm.data import cifar, layouts
from odedm.data.archives import Tree, open_tree
from odedm.data.arrays import is_array_path, load_arrays
from odedm.data.contents import Contents, LabelledArrays
from odedm.data.huggingface import is_saved_dataset, load_saved
from odedm.data.images import MOST_PIXELS, need_pillow
from odedm.data.published import PUBLISHED, PublishedDataset


def read(
    path: Path, name: str | None = None, *, size: int | None = None, seed: int = 0, test_share: float = 0.2
) -> Contents:
    """The content of a path. `name` may be a published data set's, whose class order and constants then hold.

    `size` asks for square pictures of that side; `seed` and `test_share` say what is held out where there is no test
    part.
    """
    if size is not None and not 1 <= size * size <= MOST_PIXELS:
        raise UsageError(f"size must be 1 to {math.isqrt(MOST_PIXELS)} pixels; {size} was given.")
    asked = PUBLISHED.get(name or "")
    found: Contents
    if is_saved_dataset(path):
        found = load_saved(path, size=size, seed=seed, test_share=test_share)
    elif is_array_path(path):
        found = load_arrays(path, seed=seed, test_share=test_share)
    else:
        found = _read_tree(open_tree(path), asked, size, seed, test_share)
    if asked and isinstance(found, LabelledArrays) and found.published is None:
        found = _adopted(found, asked)
    _check_published(found, asked, path)
    if size is not None:
        _check_size(found, size, path)
    return found


def _read_tree(tree: Tree, asked: PublishedDataset | None, size: int | None, seed: int, test_share: float) -> Contents:
    if not tree.sizes:
        raise UsageError(f"'{tree.path}' holds no files.")
    if official := cifar.recognise(tree):
        name, version, folder = official
        return cifar.load(tree, version, folder, PUBLISHED[name])
    need_pillow()
    tiny = layouts.find_root(tree, "wnids.txt")
    if tiny is not None and f"{tiny}val/val_annotations.txt" in tree.sizes:
        return layouts.tiny_imagenet(tree, tiny, PUBLISHED["tiny-imagenet"])
    if asked and asked.name == "imagenet-r":
        return layouts.imagenet_r(tree, asked, seed=seed)
    return layouts.image_folder(tree, asked, size=size, seed=seed, test_share=test_share)


def _adopted(found: LabelledArrays, asked: PublishedDataset) -> LabelledArrays:
    """Arrays under a published name, if their classes are in its order; rows, shape and means are checked later."""
    if asked.class_names and layouts.class_order(found.class_names, asked) != list(found.class_names):
        raise UsageError(f"The classes are not in the order of {asked.name}; import it under another name (--as).")
    return replace(found, published=asked, class_names=asked.class_names or found.class_names)


def _check_size(found: Contents, size: int, path: Path) -> None:
    """A size is for pictures that are read one by one; arrays and published sets have one already."""
    shape = found.published.shape if found.published else None
    if isinstance(found, LabelledArrays):
        shape = found.image.shape[1:]
    if shape is not None and tuple(shape[1:]) != (size, size):
        what = f"rows of shape {tuple(shape)}" if len(shape) > 1 else f"vectors of {shape[0]} numbers"
        raise UsageError(
            f"A size is for folders of pictures: '{path}' has {what}, which stay as they are; {size} was given. Leave "
            "the size out (--size)."
        )


def _check_published(found: Contents, asked: PublishedDataset | None, path: Path) -> None:
    """A published name is for the published data alone: another set, or a part of it, wants another name."""
    known, rows = found.published, found.rows
    if asked and known is not asked:
        what = f"'{path}' is {known.name}" if known else f"'{path}' holds {found.kind}"
        raise UsageError(f"{what}, not {asked.name}. Import it under another name (--as).")
    if known is None:
        return
    same = sum(rows) == sum(known.rows) if known.name == "imagenet-r" else rows == known.rows
    if len(found.class_names) != known.classes or not same:
        raise UsageError(
            f"'{path}' has {rows[0]} + {rows[1]} rows, but {known.name} has {known.rows[0]} + {known.rows[1]} "
            f"in {known.classes} classes. Complete it, or import it under another name (--as)."
        )
