"""Finds out which picture belongs to which class and part, in image folders, Tiny-ImageNet and ImageNet-R."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np

from odedm.core.errors import UsageError
from odedm.core.files import read_bytes
from odedm.core.held_out_rows import hold_out
from odedm.data.contents import DataFolder, LabelledPictures, PictureList, is_junk
from odedm.data.images import MAX_BYTES, is_picture_name
from odedm.data.published import OTHER_NAMES, PublishedDataset

TESTS = ("test", "val", "valid", "validation")
"""What the folder for testing is called; the first that is there counts."""
WNID = re.compile(r"n\d{8}")


def image_folder(
    folder: DataFolder, published: PublishedDataset | None, *, size: int | None, seed: int, test_share: float
) -> LabelledPictures:
    """Read `train/<class>/*` with `test/<class>/*`, or one folder of classes of which a seeded share is held out."""
    root = _root(folder)
    subfolders = folder.subfolders(root)
    tests = [name for name in TESTS if name in subfolders and "train" in subfolders]
    train = _by_class(folder, f"{root}train/" if "train" in subfolders else root)
    names = class_order(train, published)
    if tests:
        test = _by_class(folder, f"{root}{tests[0]}/")
        _check_same(set(train), set(test), f"{root}{tests[0]}/")
        kept, held_out = (PictureList([part[name] for name in names]) for part in (train, test))
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
    for wnid, name in _pictures_below(folder, f"{root}train/"):
        if wnid not in train:
            raise UsageError(f"'{name}' belongs to '{wnid}', which '{listed}' does not list.")
        train[wnid].append(name)
    test: dict[str, list[str]] = {wnid: [] for wnid in wnids}
    files = set(folder.files)
    for row, line in enumerate(_text(folder, annotated).splitlines()):
        picture, wnid, *_ = (*line.split("\t"), "")
        if wnid not in test or f"{root}val/images/{picture}" not in files:
            raise UsageError(f"'{annotated}', line {row + 1}: {line[:60]!r} names no picture with a listed class.")
        test[wnid].append(f"{root}val/images/{picture}")
    words = dict(line.split("\t")[:2] for line in _text(folder, f"{root}words.txt").splitlines() if "\t" in line)
    shown = tuple(words.get(wnid, wnid).split(",")[0] for wnid in wnids)
    parts = (PictureList(list(part.values())) for part in (train, test))
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
) -> tuple[PictureList, PictureList]:
    """Divide the pictures of the named classes: what stays, and a share of each that the seed draws."""
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
    kept, held_out = zip(*parts, strict=True)
    return PictureList(kept), PictureList(held_out)


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold().replace("_", " ").replace("-", " ")


def _root(folder: DataFolder) -> str:
    """Return where the classes begin: past folders that hold one folder of folders and nothing else to see."""
    root = ""
    while len(subfolders := folder.subfolders(root)) == 1 and subfolders != ["train"]:
        deeper = f"{root}{subfolders[0]}/"
        pictures = any(is_picture_name(entry.name) for entry in (folder.path / deeper).iterdir())
        if pictures or not folder.subfolders(deeper):
            break
        root = deeper
    return root


def _pictures_below(folder: DataFolder, root: str) -> Iterator[tuple[str, str]]:
    """Yield every picture below a root: the folder right below the root that it is in, and its name."""
    for name in folder.files:
        if name.startswith(root) and is_picture_name(name) and not is_junk(name):
            yield name[len(root) :].split("/")[0], name


def _by_class(folder: DataFolder, root: str) -> dict[str, list[str]]:
    """Return the pictures of every class folder below a root, sorted."""
    classes = folder.subfolders(root)
    if len(classes) < 2:
        raise UsageError(
            f"'{folder.source}/{root}' holds {len(classes)} class folders; two or more are needed, each with pictures "
            "of one class: train/<class>/*.png and test/<class>/*.png, or <class>/*.png."
        )
    pictures: dict[str, list[str]] = {name: [] for name in classes}
    for class_name, name in _pictures_below(folder, root):
        if class_name in pictures:
            pictures[class_name].append(name)
    if empty := [name for name, names in pictures.items() if not names]:
        raise UsageError(
            f"The class folder '{folder.source}/{root}{empty[0]}' holds no pictures; fill it or remove it."
        )
    return pictures


def _check_same(train: set[str], test: set[str], root: str) -> None:
    unknown, missing = sorted(test - train), sorted(train - test)
    if unknown or missing:
        difference = f"has '{unknown[0]}', which train lacks" if unknown else f"lacks '{missing[0]}', which train has"
        raise UsageError(f"'{root}' {difference}: both parts must hold the same class folders.")


def _check_wnids(wnids: Sequence[str], source: str, published: PublishedDataset) -> None:
    wrong = [wnid for wnid in wnids if not WNID.fullmatch(wnid)]
    if wrong or len(set(wnids)) != published.classes or len(wnids) != published.classes:
        fault = f"'{wrong[0][:40]}' is no WordNet number" if wrong else f"it has {len(set(wnids))} different ones"
        raise UsageError(f"'{source}' must name {published.classes} WordNet numbers (n + 8 digits), but {fault}.")


def _text(folder: DataFolder, name: str) -> str:
    """Return the text of a file; an empty one where it is not there."""
    if not (folder.path / name).is_file():
        return ""
    try:
        return read_bytes(folder.path / name, MAX_BYTES).decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"'{name}' is not a text file (byte {error.start}).") from error
