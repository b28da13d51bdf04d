"""Which pictures belong to which class and part: image folders, Tiny-ImageNet, ImageNet-R."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterable, Sequence

import numpy as np

from odedm.core.errors import UsageError
from odedm.data.archives import Tree, is_junk
from odedm.data.decoded import Part, Pictures
from odedm.data.images import picture_name
from odedm.data.published import OTHER_NAMES, Published

TESTS = ("test", "val", "valid", "validation")
"""What the folder for testing is called; the first that is there counts."""
WNID = re.compile(r"n\d{8}")


def image_folder(
    tree: Tree, published: Published | None = None, *, size: int | None = None, seed: int = 0, test_share: float = 0.2
) -> Pictures:
    """`train/<class>/*` with `test/<class>/*`, or one folder of classes of which a seeded share is held out."""
    root = _root(tree)
    inside = _children(tree, root)
    train_at, test_at = root, None
    if "train" in inside:
        train_at = f"{root}train/"
        test_at = next((f"{root}{name}/" for name in TESTS if name in inside), None)
    train = _by_class(tree, train_at)
    names = class_order(train, published)
    if test_at is None:
        kept, held = hold_out([train[name] for name in names], names, test_share, seed)
    else:
        test = _by_class(tree, test_at)
        _check_same(set(train), set(test), test_at)
        kept, held = [train[name] for name in names], [test[name] for name in names]
    shown = published.class_names if published and published.class_names else tuple(names)
    return _pictures("image folder", tree, kept, held, shown, published, size=size, resize=size)


def tiny_imagenet(tree: Tree, root: str, published: Published) -> Pictures:
    """Classes in the order of `wnids.txt`; the annotated validation pictures are the test part."""
    lists = [f"{root}wnids.txt", f"{root}val/val_annotations.txt"]
    words = [f"{root}words.txt"] if f"{root}words.txt" in tree.sizes else []
    texts = {name: _text(content, name) for name, content in tree.contents(lists + words).items()}
    wnids = [line.strip() for line in texts[lists[0]].splitlines() if line.strip()]
    _check_wnids(wnids, lists[0], published)
    number = {wnid: index for index, wnid in enumerate(wnids)}
    train: list[list[str]] = [[] for _ in wnids]
    for name in tree.sizes:
        parts = name.removeprefix(f"{root}train/").split("/")
        if name.startswith(f"{root}train/") and picture_name(name) and not is_junk(name):
            if parts[0] not in number:
                raise UsageError(f"'{name}' belongs to '{parts[0]}', which '{lists[0]}' does not list.")
            train[number[parts[0]]].append(name)
    test: list[list[str]] = [[] for _ in wnids]
    for row, line in enumerate(texts[lists[1]].splitlines()):
        cells = line.split("\t")
        if len(cells) < 2 or cells[1] not in number or f"{root}val/images/{cells[0]}" not in tree.sizes:
            raise UsageError(f"'{lists[1]}', line {row + 1}: {line[:60]!r} names no picture with a listed class.")
        test[number[cells[1]]].append(f"{root}val/images/{cells[0]}")
    said = dict(line.split("\t")[:2] for line in texts[words[0]].splitlines() if "\t" in line) if words else {}
    shown = tuple(said.get(wnid, wnid).split(",")[0] for wnid in wnids)
    return _pictures("Tiny-ImageNet", tree, train, test, shown, published)


def imagenet_r(tree: Tree, published: Published, *, seed: int = 0) -> Pictures:
    """200 folders by WordNet number; a seeded fifth of each is the test part; 256 on the shorter side, cut to 224."""
    root = _root(tree)
    train = _by_class(tree, root)
    wnids = sorted(train)
    _check_wnids(wnids, str(tree.path), published)
    kept, held = hold_out([train[wnid] for wnid in wnids], wnids, 0.2, seed)
    readme = [name for name in (f"{root}README.txt",) if name in tree.sizes]
    text = "".join(_text(content, name) for name, content in tree.contents(readme).items())
    said = {found[1]: found[2].strip() for found in re.finditer(r"^(n\d{8})\s+(.+)$", text, re.MULTILINE)}
    shown = tuple(said.get(wnid, wnid) for wnid in wnids)
    side = published.shape[1]
    return _pictures("ImageNet-R", tree, kept, held, shown, published, size=side, resize=round(side * 8 / 7))


def find_root(tree: Tree, mark: str) -> str | None:
    """The folder (with a slash, or empty) below which a file of this name lies, at most two folders deep."""
    for name in tree.sizes:
        if (name == mark or name.endswith(f"/{mark}")) and name.count("/") - mark.count("/") <= 2:
            return name.removesuffix(mark)
    return None


def class_order(names: Iterable[str], published: Published | None) -> list[str]:
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
        strange = sorted(name for name, index in said.items() if index is None)
        if strange:
            raise UsageError(
                f"{published.name} has no class '{strange[0]}'; it has {', '.join(published.class_names[:4])} … "
                "Rename the folder, or import it under another name (--as)."
            )
        return sorted(given, key=lambda name: said[name] or 0)
    return sorted(given)


def hold_out(
    classes: Sequence[list[str]], names: Sequence[str], share: float, seed: int
) -> tuple[list[list[str]], list[list[str]]]:
    """The same rows split in two, class by class: what stays, and a share drawn by the seed.

    >>> hold_out([["a", "b", "c", "d", "e"]], ["x"], 0.2, 0)[1] in [[[each]] for each in "abcde"]
    True
    """
    if not 0 < share < 1:
        raise UsageError(f"The test share must lie between 0 and 1; {share} was given.")
    kept, held = [], []
    for number, (name, rows) in enumerate(zip(names, classes, strict=True)):
        if len(rows) < 2:
            raise UsageError(
                f"Class '{name}' has a single picture, so none can be held out; add some, or a test folder."
            )
        cut = min(max(1, round(share * len(rows))), len(rows) - 1)
        chosen = set(np.random.default_rng((seed, number)).permutation(len(rows))[:cut].tolist())
        held.append([row for index, row in enumerate(rows) if index in chosen])
        kept.append([row for index, row in enumerate(rows) if index not in chosen])
    return kept, held


def _plain(name: str) -> str:
    return unicodedata.normalize("NFC", name).casefold().replace("_", " ").replace("-", " ")


def _root(tree: Tree) -> str:
    """Past folders that hold one folder of folders and nothing else to see."""
    root = ""
    while True:
        inside = _children(tree, root)
        if len(inside) != 1 or inside[0] == "train":
            return root
        deeper = f"{root}{inside[0]}/"
        if not _children(tree, deeper) or any(
            picture_name(name) and "/" not in name[len(deeper) :] for name in tree.sizes if name.startswith(deeper)
        ):
            return root
        root = deeper


def _children(tree: Tree, root: str) -> list[str]:
    """The folders right below a root, without what systems leave behind."""
    _ = tree.sizes  # the listing finds the folders
    found = {name[len(root) :].split("/")[0] for name in tree.folders if name.startswith(root) and name != root[:-1]}
    return sorted(name for name in found if name and not is_junk(name))


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
    for name in tree.sizes:
        if name.startswith(root) and "/" in name[len(root) :] and picture_name(name) and not is_junk(name):
            found[name[len(root) :].split("/")[0]].append(name)
    empty = [name for name, pictures in found.items() if not pictures]
    if empty:
        raise UsageError(f"The class folder '{tree.path}/{root}{empty[0]}' holds no pictures; fill it or remove it.")
    return found


def _check_same(train: set[str], test: set[str], where: str) -> None:
    strange, missing = sorted(test - train), sorted(train - test)
    if strange or missing:
        which = f"has '{strange[0]}', which train lacks" if strange else f"lacks '{missing[0]}', which train has"
        raise UsageError(f"'{where}' {which}: both parts must hold the same class folders.")


def _check_wnids(wnids: Sequence[str], where: str, published: Published) -> None:
    wrong = [wnid for wnid in wnids if not WNID.fullmatch(wnid)]
    if wrong or len(set(wnids)) != published.classes or len(wnids) != published.classes:
        what = f"'{wrong[0][:40]}' is no WordNet number" if wrong else f"it has {len(set(wnids))} different ones"
        raise UsageError(f"'{where}' must name {published.classes} WordNet numbers (n + 8 digits), but {what}.")


def _text(content: bytes, name: str) -> str:
    try:
        return content.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UsageError(f"'{name}' is not a text file (byte {error.start}).") from error


def _pictures(
    kind: str,
    tree: Tree,
    train: Sequence[list[str]],
    test: Sequence[list[str]],
    class_names: tuple[str, ...],
    published: Published | None,
    *,
    size: int | None = None,
    resize: int | None = None,
) -> Pictures:
    """Pictures class by class as rows; every file that is none of them counts as skipped."""
    kept, held = _part(train), _part(test)
    skipped = len(tree.sizes) - len(kept.names) - len(held.names)
    return Pictures(kind, tree, kept, held, class_names, published, skipped, size=size, resize=resize)


def _part(classes: Sequence[list[str]]) -> Part:
    return Part(
        [name for names in classes for name in names],
        [label for label, names in enumerate(classes) for _ in names],
    )
