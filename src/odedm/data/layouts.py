"""Finds out which picture belongs to which class and part, in image folders, Tiny-ImageNet and ImageNet-R."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from odedm.core.errors import UsageError
from odedm.core.files import read_bytes
from odedm.core.held_out_rows import hold_out
from odedm.core.validators import Share
from odedm.data.contents import DataFolder, LabelledPictures
from odedm.data.images import MAX_BYTES
from odedm.data.published import OTHER_NAMES, PublishedDataset

TESTS = ("test", "val", "valid", "validation")
"""What the folder for testing is called; the first that is there counts."""
WNID = re.compile(r"n\d{8}")


def image_folder(
    folder: DataFolder, published: PublishedDataset | None, *, size: int | None, seed: int, test_share: float
) -> LabelledPictures:
    """Read `train/<class>/*` with `test/<class>/*`, or one folder of classes of which a seeded share is held out."""
    root = _root(folder)
    parts = _subfolders(folder, root)
    tests = [name for name in TESTS if name in parts and "train" in parts]
    train = _by_class(folder, f"{root}train/" if "train" in parts else root)
    names = class_order(train, published)
    if tests:
        test = _by_class(folder, f"{root}{tests[0]}/")
        _check_same(set(train), set(test), f"{root}{tests[0]}/")
        kept, held_out = ([part[name] for name in names] for part in (train, test))
    else:
        kept, held_out = _hold_out(train, names, test_share, seed)
    shown = published.class_names if published and published.class_names else tuple(names)
    return LabelledPictures("image folder", shown, folder, kept, held_out, published=published, size=size, resize=size)


def tiny_imagenet(folder: DataFolder, root: str, published: PublishedDataset) -> LabelledPictures:
    """Read classes in the order of `wnids.txt`; the annotated validation pictures are the test part."""
    listed, annotated = f"{root}wnids.txt", f"{root}val/val_annotations.txt"
    wnids = [line.strip() for line in _text(folder, listed).splitlines() if line.strip()]
    _check_wnids(wnids, listed, published)
    train: dict[str, list[str]] = {wnid: [] for wnid in wnids}
    for wnid, names in _subfolders(folder, f"{root}train/").items():
        if wnid not in train:
            raise UsageError(f"'{names[0]}' belongs to '{wnid}', which '{listed}' does not list.")
        train[wnid] = names
    test: dict[str, list[str]] = {wnid: [] for wnid in wnids}
    files = set(folder.files)
    for row, line in enumerate(_text(folder, annotated).splitlines()):
        picture, wnid, *_ = (*line.split("\t"), "")
        if wnid not in test or f"{root}val/images/{picture}" not in files:
            raise UsageError(f"'{annotated}', line {row + 1}: {line[:60]!r} names no picture with a listed class.")
        test[wnid].append(f"{root}val/images/{picture}")
    words = dict(line.split("\t")[:2] for line in _text(folder, f"{root}words.txt").splitlines() if "\t" in line)
    shown = tuple(words.get(wnid, wnid).split(",")[0] for wnid in wnids)
    parts = [[*train.values()], [*test.values()]]
    return LabelledPictures("Tiny-ImageNet", shown, folder, *parts, published=published)


def imagenet_r(folder: DataFolder, published: PublishedDataset, *, seed: int) -> LabelledPictures:
    """Read 200 folders by WordNet number; a seeded fifth of each is the test part; 256 on the shorter side, cut to 224.

    The published shape says which size is cut out.
    """
    root = _root(folder)
    train = _by_class(folder, root)
    wnids = sorted(train)
    _check_wnids(wnids, str(folder.source), published)
    kept, held_out = _hold_out(train, wnids, 0.2, seed)
    words = dict(re.findall(r"^(n\d{8})\s+(.+)$", _text(folder, f"{root}README.txt"), re.MULTILINE))
    shown = tuple(words.get(wnid, wnid).strip() for wnid in wnids)
    side = published.shape[1]
    sizes = {"size": side, "resize": round(side * 8 / 7)}
    return LabelledPictures("ImageNet-R", shown, folder, kept, held_out, published=published, **sizes)


def find_root(folder: DataFolder, mark: str) -> str | None:
    """Return the folder (with a slash, or empty) in which a file of this name lies, at most two folders deep."""
    marked = [name for name in folder.files if f"/{name}".endswith(f"/{mark}") and name.count("/") <= 2]
    return marked[0].removesuffix(mark) if marked else None


def class_order(names: Iterable[str], published: PublishedDataset | None) -> list[str]:
    """Return class folders in label order: the published one where the names tell it, by number, or by name.

    >>> class_order(["10", "9", "2"], None)
    ['2', '9', '10']
    >>> from odedm.data.published import PUBLISHED
    >>> class_order(["truck", "plane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship"],
    ...             PUBLISHED["cifar10"])[:3]
    ['plane', 'car', 'bird']
    """
    names = list(names)
    if all(name.isascii() and name.isdigit() for name in names):
        return sorted(names, key=lambda name: (int(name), name))
    if published and published.class_names:
        labels = {_plain(name): label for label, name in enumerate(published.class_names)}
        label_of = {name: labels.get(_plain(OTHER_NAMES.get(_plain(name), name))) for name in names}
        if unknown := sorted(name for name, label in label_of.items() if label is None):
            raise UsageError(
                f"{published.name} has no class '{unknown[0]}'; it has {', '.join(published.class_names[:4])} … "
                "Rename the folder, or import it under another name (--as)."
            )
        return sorted(names, key=lambda name: label_of[name] or 0)
    return sorted(names)


def _hold_out(
    train: Mapping[str, list[str]], names: Sequence[str], share: float, seed: int
) -> tuple[list[list[str]], list[list[str]]]:
    """Divide the pictures of the named classes: what stays, and a share of each that the seed draws."""
    Share().validate("test_share", share)
    kept, held_out = [], []
    for number, name in enumerate(names):
        shuffled = np.random.default_rng((seed, number)).permutation(len(train[name]))
        trained, tested = hold_out([train[name][row] for row in shuffled], share)
        if not tested:
            raise UsageError(
                f"Class '{name}' has a single picture, so none can be held out; add some, or a test folder."
            )
        kept.append(trained)
        held_out.append(tested)
    return kept, held_out


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold().replace("_", " ").replace("-", " ")


def _root(folder: DataFolder) -> str:
    """Return where the classes begin: past folders that hold one folder of folders and no picture."""
    root = ""
    while len(subfolders := _subfolders(folder, root)) == 1:
        deeper = f"{root}{next(iter(subfolders))}/"
        if deeper.endswith("train/") or any("/" not in name[len(deeper) :] for name in folder.pictures):
            break
        root = deeper
    return root


def _subfolders(folder: DataFolder, root: str) -> dict[str, list[str]]:
    """Return the pictures at any depth of every folder right below a root, sorted."""
    subfolders: dict[str, list[str]] = {}
    for picture in folder.pictures:
        name, slash, _ = picture.removeprefix(root).partition("/")
        if picture.startswith(root) and slash:
            subfolders.setdefault(name, []).append(picture)
    return subfolders


def _by_class(folder: DataFolder, root: str) -> dict[str, list[str]]:
    """Return the pictures of every class below a root; a folder without pictures is none."""
    classes = _subfolders(folder, root)
    if len(classes) < 2:
        raise UsageError(
            f"'{folder.source}/{root}' holds {len(classes)} class folders; two or more are needed, each with pictures "
            "of one class: train/<class>/*.png and test/<class>/*.png, or <class>/*.png."
        )
    return classes


def _check_same(train: set[str], test: set[str], root: str) -> None:
    unknown, missing = sorted(test - train), sorted(train - test)
    if unknown or missing:
        difference = f"has '{unknown[0]}', which train lacks" if unknown else f"lacks '{missing[0]}', which train has"
        raise UsageError(f"'{root}' {difference}: both parts must hold the same class folders.")


def _check_wnids(wnids: Sequence[str], source: str, published: PublishedDataset) -> None:
    known = {wnid for wnid in wnids if WNID.fullmatch(wnid)}
    if not len(known) == len(wnids) == published.classes:
        raise UsageError(
            f"'{source}' must name {published.classes} different WordNet numbers (n + 8 digits); it has {len(known)}, "
            f"and {len(wnids)} names in all."
        )


def _text(folder: DataFolder, name: str) -> str:
    """Return the text of a file; an empty one where it is not there."""
    if not (folder.path / name).is_file():
        return ""
    try:
        return read_bytes(folder.path / name, MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"'{name}' is not a text file (byte {error.start}).") from error
