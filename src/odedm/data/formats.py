"""Tells what a path holds and reads it: official archives, image folders, arrays, saved data sets."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

from odedm.core.errors import UsageError
from odedm.data import cifar, idx, layouts
from odedm.data.archives import unpack
from odedm.data.arrays import NAMES, has_arrays, load_arrays
from odedm.data.contents import Contents, DataFolder, LabelledArrays
from odedm.data.images import MAX_PIXELS, require_pillow
from odedm.data.published import PUBLISHED, PublishedDataset


def read(
    path: Path,
    scratch: Path,
    name: str | None = None,
    *,
    size: int | None = None,
    seed: int = 0,
    test_share: float = 0.2,
) -> Contents:
    """Read the content of a path; pictures are listed, and decoded later.

    Args:
        path: a folder, an archive or an `.npy` file.
        scratch: an empty folder in which an archive is unpacked; its pictures are read from there.
        name: a published data set's, whose class order and constants then hold, or any other.
        size: asks for square pictures of that side.
        seed, test_share: what is held out where there is no test part.
    """
    if size is not None and not 1 <= size * size <= MAX_PIXELS:
        raise UsageError(f"size must be 1 to {math.isqrt(MAX_PIXELS)} pixels; {size} was given.")
    published = PUBLISHED.get(name or "")
    folder = _as_folder(path, scratch)
    contents: Contents
    if path.suffix.lower() == ".npz" or has_arrays(folder.path):
        contents = load_arrays(folder.path, path, seed=seed, test_share=test_share)
    else:
        contents = _read_pictures(folder, published, size, seed, test_share)
    if published and isinstance(contents, LabelledArrays) and contents.published is None:
        contents = _adopted(contents, published)
    _check_published(contents, published, path)
    if size is not None:
        _check_size(contents, size, path)
    return contents


def _as_folder(path: Path, scratch: Path) -> DataFolder:
    """Return the folder at a path, around an `.npy` file, or into which the archive at the path was unpacked."""
    if path.is_dir():
        return DataFolder(path, path)
    if not path.is_file():
        raise UsageError(f"There is no file or folder '{path}'.")
    if path.suffix.lower() == ".npy":
        if path.stem not in {names[0] for names in NAMES}:
            raise UsageError(f"'{path}' alone has no labels: name the files x.npy and y.npy (x_test.npy, y_test.npy).")
        return DataFolder(path.parent, path)
    unpack(path, scratch / "unpacked")
    return DataFolder(scratch / "unpacked", path)


def _read_pictures(
    folder: DataFolder, published: PublishedDataset | None, size: int | None, seed: int, test_share: float
) -> Contents:
    if not folder.files:
        raise UsageError(f"'{folder.source}' holds no files.")
    if official := cifar.recognise(folder):
        name, version, place = official
        return cifar.load(folder, version, place, PUBLISHED[name])
    if places := idx.recognise(folder):
        return idx.load(folder, places, published)
    require_pillow()
    tiny = layouts.find_root(folder, "wnids.txt")
    if tiny is not None and (folder.path / tiny / "val" / "val_annotations.txt").is_file():
        return layouts.tiny_imagenet(folder, tiny, PUBLISHED["tiny-imagenet"])
    if published and published.name == "imagenet-r":
        return layouts.imagenet_r(folder, published, seed=seed)
    return layouts.image_folder(folder, published, size=size, seed=seed, test_share=test_share)


def _adopted(arrays: LabelledArrays, published: PublishedDataset) -> LabelledArrays:
    """Return arrays under a published name, if their classes are in its order; the rest is checked later."""
    if published.class_names and layouts.class_order(arrays.class_names, published) != list(arrays.class_names):
        raise UsageError(f"The classes are not in the order of {published.name}; import it under another name (--as).")
    return replace(arrays, published=published, class_names=published.class_names or arrays.class_names)


def _check_size(contents: Contents, size: int, path: Path) -> None:
    """Refuse a size for arrays and published sets, which have one already."""
    shape = contents.published.shape if contents.published else None
    if isinstance(contents, LabelledArrays):
        shape = contents.image.shape[1:]
    if shape is not None and tuple(shape[1:]) != (size, size):
        rows = f"rows of shape {tuple(shape)}" if len(shape) > 1 else f"vectors of {shape[0]} numbers"
        raise UsageError(
            f"A size is for folders of pictures: '{path}' has {rows}, which stay as they are; {size} was given. Leave "
            "the size out (--size)."
        )


def _check_published(contents: Contents, asked: PublishedDataset | None, path: Path) -> None:
    """Refuse another data set, or a part of one, under a published name."""
    known, rows = contents.published, contents.rows
    if asked and known is not asked:
        kind = f"'{path}' is {known.name}" if known else f"'{path}' holds {contents.kind}"
        raise UsageError(f"{kind}, not {asked.name}. Import it under another name (--as).")
    if known is None:
        return
    same = sum(rows) == sum(known.rows) if known.name == "imagenet-r" else rows == known.rows
    if len(contents.class_names) != known.classes or not same:
        raise UsageError(
            f"'{path}' has {rows[0]} + {rows[1]} rows, but {known.name} has {known.rows[0]} + {known.rows[1]} "
            f"in {known.classes} classes. Complete it, or import it under another name (--as)."
        )
