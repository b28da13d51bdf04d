"""Tells what a path holds and picks its decoder: official archives, image folders, arrays, saved data sets."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

from odedm.core.errors import UsageError
from odedm.data import arrays, cifar, layouts
from odedm.data import huggingface as hugging
from odedm.data.archives import Tree, open_tree
from odedm.data.decoded import Arrays, Pictures
from odedm.data.images import need_pillow
from odedm.data.published import PUBLISHED, Published


def read(
    path: Path, name: str | None = None, *, size: int | None = None, seed: int = 0, test_share: float = 0.2
) -> Arrays | Pictures:
    """The content of a path. `name` may be a published data set's, whose class order and constants then hold.

    `size` asks for square pictures of that side; `seed` and `test_share` say what is held out where there is no test
    part.
    """
    if size is not None and size < 1:
        raise UsageError(f"size must be 1 or more; {size} was given.")
    if not path.exists():
        raise UsageError(f"There is no file or folder '{path}'.")
    asked = PUBLISHED.get(name or "")
    found: Arrays | Pictures | None = _arrays(path, size, seed, test_share)
    if found is None:
        found = _tree(open_tree(path), asked, size, seed, test_share)
    if asked and isinstance(found, Arrays) and found.published is None:
        found = _adopt(found, asked)
    _check(found, asked, path)
    return found


def _adopt(found: Arrays, asked: Published) -> Arrays:
    """Arrays under a published name, if their classes are in its order; rows, shape and means are checked later."""
    if asked.class_names and layouts.class_order(found.class_names, asked) != list(found.class_names):
        raise UsageError(f"The classes are not in the order of {asked.name}; import it under another name (--as).")
    return replace(found, published=asked, class_names=asked.class_names or found.class_names)


def _arrays(path: Path, size: int | None, seed: int, share: float) -> Arrays | None:
    if path.is_dir() and hugging.is_saved_dataset(path):
        return hugging.load_saved(path, size=size, seed=seed, test_share=share)
    if arrays.is_npy_folder(path) or (path.is_file() and path.suffix.lower() == ".npy"):
        return arrays.load_npy(path, seed=seed, test_share=share)
    if path.is_file() and path.suffix.lower() == ".npz":
        return arrays.load_npz(path, seed=seed, test_share=share)
    return None


def _tree(tree: Tree, asked: Published | None, size: int | None, seed: int, share: float) -> Arrays | Pictures:
    if not tree.sizes:
        raise UsageError(f"'{tree.path}' holds no files.")
    official = cifar.recognise(tree)
    if official:
        name, version, folder = official
        return cifar.load(tree, version, folder, PUBLISHED[name])
    need_pillow()
    tiny = layouts.find_root(tree, "wnids.txt")
    if tiny is not None and f"{tiny}val/val_annotations.txt" in tree.sizes:
        return layouts.tiny_imagenet(tree, tiny, PUBLISHED["tiny-imagenet"])
    if asked and asked.name == "imagenet-r":
        return layouts.imagenet_r(tree, asked, seed=seed)
    return layouts.image_folder(tree, asked, size=size, seed=seed, test_share=share)


def _check(found: Arrays | Pictures, asked: Published | None, path: Path) -> None:
    """A published name is for the published data alone: another set, or a part of it, wants another name."""
    is_ = found.published
    if asked and is_ is not asked:
        what = f"'{path}' is {is_.name}" if is_ else f"'{path}' holds {found.kind}"
        raise UsageError(f"{what}, not {asked.name}. Import it under another name (--as).")
    if is_ is None:
        return
    if isinstance(found, Arrays):
        rows = (len(found.label), len(found.test_label))
    else:
        rows = (len(found.train.names), len(found.test.names))
    same = sum(rows) == sum(is_.rows) if is_.name == "imagenet-r" else rows == is_.rows
    if len(found.class_names) != is_.classes or not same:
        raise UsageError(
            f"'{path}' has {rows[0]} + {rows[1]} rows, but {is_.name} has {is_.rows[0]} + {is_.rows[1]} "
            f"in {is_.classes} classes. Complete it, or import it under another name (--as)."
        )
