"""Finds out which picture belongs to which class and part, in image folders, Tiny-ImageNet and ImageNet-R."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from odedm.core.errors import UsageError
from odedm.core.held_out_rows import hold_out
from odedm.data.archives import Tree, is_junk
from odedm.data.contents import LabelledPictures, PictureList
from odedm.data.images import picture_name
from odedm.data.published import OTHER_NAMES, PublishedDataset

TESTS = ("test", "val", "valid", "validation")
"""What the folder for testing is called; the first that is there counts."""
WNID = re.compile(r"n\d{8}")
MOST_TEXT = 16 << 20
"""Bytes of a list of classes or pictures."""


def image_folder(
    tree: Tree, published: PublishedDataset | None, *, size: int | None, seed: int, test_share: float
) -> LabelledPictures:
    """`train/<class>/*` with `test/<class>/*`, or one folder of classes of which a seeded share is held out."""
    root = _root(tree)
    inside = _children(tree, root)
    tests = [name for name in TESTS if name in inside and "train" in inside]
    train = _by_class(tree, f"{root}train/" if "train" in inside else root)
    names = class_order(train, published)
    if tests:
        test = _by_class(tree, f"{root}{tests[0]}/")
        _check_same(set(train), set(test), f"{root}{tests[0]}/")
        kept, held = (PictureList([part[name] for name in names]) for part in (train, test))
    else:
        kept, held = _hold_out(train, names, test_share, seed)
    shown = published.class_names if published and published.class_names else tuple(names)
    return LabelledPictures("image folder", shown, tree, kept, held, published=published, size=size, resize=size)


def tiny_imagenet(tree: Tree, root: str, published: PublishedDataset) -> LabelledPictures:
    """Classes in the order of `wnids.txt`; the annotated validation pictures are the test part."""
    listed, annotated = f"{root}wnids.txt", f"{root}val/val_annotations.txt"
    list_text, test_text, words = _texts(tree, listed, annotated, f"{root}words.txt")
    wnids = [line.strip() for line in list_text.splitlines() if line.strip()]
    _check_wnids(wnids, listed, published)
    train: dict[str, list[str]] = {wnid: [] for wnid in wnids}
    for folder, name in _pictures_below(tree, f"{root}train/"):
        if folder not in train:
            raise UsageError(f"'{name}' belongs to '{folder}', which '{listed}' does not list.")
        train[folder].append(name)
    test: dict[str, list[str]] = {wnid: [] for wnid in wnids}
    for row, line in enumerate(test_text.splitlines()):
        picture, wnid, *_ = (*line.split("\t"), "")
        if wnid not in test or f"{root}val/images/{picture}" not in tree.sizes:
            raise UsageError(f"'{annotated}', line {row + 1}: {line[:60]!r} names no picture with a listed class.")
        test[wnid].append(f"{root}val/images/{picture}")
    said = dict(line.split("\t")[:2] for line in words.splitlines() if "\t" in line)
    shown = tuple(said.get(wnid, wnid).split(",")[0] for wnid in wnids)
    parts = (PictureList(list(part.values())) for part in (train, test))
    return LabelledPictures("Tiny-ImageNet", shown, tree, *parts, published=published)


def imagenet_r(tree: Tree, published: PublishedDataset, *, seed: int) -> LabelledPictures:
    """200 folders by WordNet number; a seeded fifth of each is the test part; 256 on the shorter side, cut to 224."""
    root = _root(tree)
    train = _by_class(tree, root)
    wnids = sorted(train)
    _check_wnids(wnids, str(tree.path), published)
    kept, held = _hold_out(train, wnids, 0.2, seed)
    (readme,) = _texts(tree, f"{root}README.txt")
    said = dict(re.findall(r"^(n\d{8})\s+(.+)$", readme, re.MULTILINE))
    shown = tuple(said.get(wnid, wnid).strip() for wnid in wnids)
    side = published.shape[1]
    sizes = {"size": side, "resize": round(side * 8 / 7)}
    return LabelledPictures("ImageNet-R", shown, tree, kept, held, published=published, **sizes)


def find_root(tree: Tree, mark: str) -> str | None:
    """The folder (with a slash, or empty) below which a file of this name lies, at most two folders deep."""
    found = [name for name in tree.sizes if f"/{name}".endswith(f"/{mark}") and name.count("/") <= 2]
    return found[0].removesuffix(mark) if found else None


def class_order(names: Iterable[str], published: PublishedDataset | None) -> list[str]:
    """Class folders in label order: the published one where the names tell it, by number, or by name.

    >>> class_order(["10", "9", "2"], None)
    ['2', '9', '10']
    >>> from odedm.data.published import PUBLISHED
    >>> class_order(["truck", "plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship"],
    ...             PUBLISHED["cifar10"])[:3]
    ['plane', 'car', 'bird']
    """
    given = list(names)
    if all(name.isascii() and name.isdigit() for name in given):
        return sorted(given, key=lambda name: (int(name), name))
    if published and published.class_names:
        place = {_plain(name): index for index, name in enumerate(published.class_names)}
        said = {name: place.get(_plain(OTHER_NAMES.get(_plain(name), name))) for name in given}
        if strange := sorted(name for name, index in said.items() if index is None):
            raise UsageError(
                f"{published.name} has no class '{strange[0]}'; it has {', '.join(published.class_names[:4])} … "
                "Rename the folder, or import it under another name (--as)."
            )
        return sorted(given, key=lambda name: said[name] or 0)
    return sorted(given)


def _hold_out(
    train: Mapping[str, list[str]], names: Sequence[str], share: float, seed: int
) -> tuple[PictureList, PictureList]:
    """The pictures of the named classes in two parts: what stays, and a share of each that the seed draws."""
    if not 0 < share < 1:
        raise UsageError(f"The test share must lie between 0 and 1; {share} was given.")
    parts = []
    for number, name in enumerate(names):
        shuffled = np.random.default_rng((seed, number)).permutation(len(train[name]))
        parts.append(hold_out([train[name][row] for row in shuffled], share))
        if not parts[-1][1]:
            raise UsageError(
                f"Class '{name}' has a single picture, so none can be held out; add some, or a test folder."
            )
    kept, held = zip(*parts, strict=True)
    return PictureList(kept), PictureList(held)


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold().replace("_", " ").replace("-", " ")


def _root(tree: Tree) -> str:
    """Past folders that hold one folder of folders and nothing else to see."""
    root = ""
    while len(inside := _children(tree, root)) == 1 and inside != ["train"]:
        deeper = f"{root}{inside[0]}/"
        if not _children(tree, deeper) or any(
            picture_name(name) and "/" not in name[len(deeper) :] for name in tree.sizes if name.startswith(deeper)
        ):
            break
        root = deeper
    return root


def _children(tree: Tree, root: str) -> list[str]:
    """The folders right below a root, without what systems leave behind."""
    _ = tree.sizes  # the listing finds the folders
    found = {name[len(root) :].split("/")[0] for name in tree.folders if name.startswith(root) and name != root[:-1]}
    return sorted(name for name in found if name and not is_junk(name))


def _pictures_below(tree: Tree, root: str) -> Iterator[tuple[str, str]]:
    """Every picture below a root: the folder right below the root that it is in, and its name."""
    for name in tree.sizes:
        if name.startswith(root) and picture_name(name) and not is_junk(name):
            yield name[len(root) :].split("/")[0], name


def _by_class(tree: Tree, root: str) -> dict[str, list[str]]:
    """The pictures of every class folder below a root, sorted."""
    classes = _children(tree, root)
    if len(classes) < 2:
        raise UsageError(
            f"'{tree.path}/{root}' holds {len(classes)} class folders; two or more are needed, each with pictures of "
            "one class: train/<class>/*.png and test/<class>/*.png, or <class>/*.png."
        )
    seen: dict[str, str] = {}
    for name in classes:
        twin = seen.setdefault(_plain(name), name)
        if twin != name:
            raise UsageError(
                f"The class folders '{twin}' and '{name}' differ by case or spelling only; which is meant?"
            )
    found: dict[str, list[str]] = {name: [] for name in classes}
    for folder, name in _pictures_below(tree, root):
        if folder in found:
            found[folder].append(name)
    if empty := [name for name, pictures in found.items() if not pictures]:
        raise UsageError(f"The class folder '{tree.path}/{root}{empty[0]}' holds no pictures; fill it or remove it.")
    return found


def _check_same(train: set[str], test: set[str], where: str) -> None:
    strange, missing = sorted(test - train), sorted(train - test)
    if strange or missing:
        which = f"has '{strange[0]}', which train lacks" if strange else f"lacks '{missing[0]}', which train has"
        raise UsageError(f"'{where}' {which}: both parts must hold the same class folders.")


def _check_wnids(wnids: Sequence[str], where: str, published: PublishedDataset) -> None:
    wrong = [wnid for wnid in wnids if not WNID.fullmatch(wnid)]
    if wrong or len(set(wnids)) != published.classes or len(wnids) != published.classes:
        what = f"'{wrong[0][:40]}' is no WordNet number" if wrong else f"it has {len(set(wnids))} different ones"
        raise UsageError(f"'{where}' must name {published.classes} WordNet numbers (n + 8 digits), but {what}.")


def _texts(tree: Tree, *names: str) -> Iterator[str]:
    """Text files of the tree; an empty one for each that is not there."""
    contents = tree.contents([name for name in names if name in tree.sizes], MOST_TEXT)
    for name in names:
        try:
            yield contents.get(name, b"").decode("utf-8")
        except UnicodeDecodeError as error:
            raise UsageError(f"'{name}' is not a text file (byte {error.start}).") from error
