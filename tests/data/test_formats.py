"""What is decoded is what was put in: pixels, labels, names and order, of every format."""

import io
import re
import sys
import tempfile
from itertools import chain
from pathlib import Path

import numpy as np
import pytest
from forge import (
    cifar10_binary,
    cifar10_python,
    cifar100_binary,
    cifar100_python,
    cifar_rows,
    folder,
    noise,
    pets,
    png,
    small,
    tar,
    tiny_imagenet,
    zipped,
)

from odedm import UsageError, from_arrays
from odedm.data import formats
from odedm.data.images import Fit, decode, probe
from odedm.data.published import PUBLISHED


def read(path, *args, **options):
    return formats.read(path, Path(tempfile.mkdtemp(dir=path.parent)), *args, **options)


FORGERIES = {
    "cifar10": ((50, 10), cifar10_binary, cifar10_python),
    "cifar100": ((200, 100), cifar100_binary, cifar100_python),
}


@pytest.mark.parametrize("name", FORGERIES)
@pytest.mark.parametrize("version", [1, 2], ids=["binary", "python"])
@pytest.mark.parametrize("packed", [True, False], ids=["archive", "folder"])
def test_both_versions_of_cifar_packed_or_not(name, version, packed, tmp_path, monkeypatch):
    rows, *makers = FORGERIES[name]
    known = small(monkeypatch, name, rows)
    files = makers[version - 1]()
    path = tar(tmp_path / "c.tar.gz", files) if packed else folder(tmp_path / "c", files)
    contents = read(path, name)
    assert contents.published is known
    assert contents.class_names == known.class_names
    assert contents.image.shape == (rows[0], 3, 32, 32)
    assert contents.test_image.shape == (rows[1], 3, 32, 32)
    first_rows = rows[0] // (5 if name == "cifar10" else 1)
    image, label = cifar_rows(first_rows, known.classes, 0 if name == "cifar10" else rows[0])
    np.testing.assert_array_equal(contents.image[:first_rows].reshape(first_rows, -1), image)
    np.testing.assert_array_equal(contents.label[:first_rows], label)
    test_image, test_label = cifar_rows(rows[1], known.classes, 5 if name == "cifar10" else rows[1])
    np.testing.assert_array_equal(contents.test_image.reshape(rows[1], -1), test_image)
    np.testing.assert_array_equal(contents.test_label, test_label)


def test_the_published_names_are_the_official_ones():
    assert PUBLISHED["cifar10"].class_names[:3] == ("airplane", "automobile", "bird")
    fine = PUBLISHED["cifar100"].class_names
    assert len(fine) == 100
    assert list(fine) == sorted(fine)
    assert (fine[0], fine[1], fine[99]) == ("apple", "aquarium_fish", "worm")
    for known in PUBLISHED.values():
        assert known.classes % known.tasks == 0


def test_tiny_imagenet_follows_wnids_and_tests_on_the_annotated_pictures(tmp_path, monkeypatch):
    small(monkeypatch, "tiny-imagenet", (6, 4), classes=2)
    contents = read(zipped(tmp_path / "t.zip", tiny_imagenet()))
    assert contents.class_names == ("Egyptian cat", "reel"), "the order of wnids.txt, not of the numbers"
    assert contents.rows == (6, 4)
    assert [{name.split("/")[2] for name in names} for names in contents.train] == [{"n00000002"}, {"n00000001"}]
    assert contents.test[0][0].endswith("val/images/val_0.JPEG")
    assert [*map(len, contents.test)] == [2, 2]


def test_imagenet_r_is_split_by_the_seed_in_fifths(tmp_path, monkeypatch):
    small(monkeypatch, "imagenet-r", (16, 4), classes=2)
    files = {f"imagenet-r/{wnid}/{n}.jpg": png(form="JPEG") for wnid in ("n00000009", "n00000003") for n in range(10)}
    files["imagenet-r/README.txt"] = b"All of them:\nn00000003 goldfish\nn00000009 great white shark\n"
    path = tar(tmp_path / "r.tar", files, packed=False)
    first, again, other = (read(path, "imagenet-r", seed=seed) for seed in (0, 0, 1))
    assert first.class_names == ("goldfish", "great white shark")
    assert first.test == again.test != other.test
    assert [*map(len, first.test)] == [2, 2]
    assert not {*chain(*first.train)} & {*chain(*first.test)}
    assert (first.size, first.resize) == (224, 256)


FOLDERS = {
    "train and test": (pets(), (8, 4)),
    "train and val": ({name.replace("test/", "val/"): content for name, content in pets().items()}, (8, 4)),
    "train alone": ({name: content for name, content in pets(train=5).items() if "train" in name}, (8, 2)),
    "classes alone": ({name[6:]: content for name, content in pets(train=5).items() if "train" in name}, (8, 2)),
    "wrapped twice": ({f"a/b/{name}": content for name, content in pets().items()}, (8, 4)),
    "folders inside classes": ({name.replace("/0", "/x/y/0"): content for name, content in pets().items()}, (8, 4)),
}


@pytest.mark.parametrize("case", FOLDERS)
def test_image_folders_of_every_layout(case, tmp_path):
    files, rows = FOLDERS[case]
    contents = read(folder(tmp_path / "x", files))
    assert contents.class_names == ("ant", "bee")
    assert contents.rows == rows
    for part in (contents.train, contents.test):
        assert all(word in name for word, names in zip(("ant", "bee"), part, strict=True) for name in names)


def test_what_is_no_picture_is_skipped_and_counted(tmp_path):
    junk = ["README.md", ".DS_Store", "train/ant/notes.txt", "train/ant/._0.png", "__MACOSX/train/ant/0.png"]
    contents = read(zipped(tmp_path / "x.zip", pets() | dict.fromkeys(junk, b"junk")))
    assert contents.skipped == len(junk) - 1, "whole folders of it are not looked into"
    assert contents.rows[0] == 8


def test_known_classes_come_in_official_order_whatever_the_folders_are_called(tmp_path, monkeypatch):
    small(monkeypatch, "cifar10", (20, 10))
    names = ["Airplane", "car", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "TRUCK"]
    contents = read(folder(tmp_path / "x", pets(names, 2, 1, (32, 32))), "cifar10")
    assert contents.class_names == PUBLISHED["cifar10"].class_names
    assert [pictures[0].split("/")[1] for pictures in contents.train] == names
    numbered = read(folder(tmp_path / "y", pets([str(n) for n in range(10)], 2, 1, (32, 32))), "cifar10")
    assert numbered.class_names == PUBLISHED["cifar10"].class_names


def test_folders_made_of_links_are_read(tmp_path):
    """As subsets of ImageNet are often made: a folder of links to class folders, or to pictures."""
    whole = folder(tmp_path / "whole", pets(("ant", "bee", "cow")))
    for part in ("train", "test"):
        (tmp_path / "part" / part).mkdir(parents=True)
        (tmp_path / "part" / part / "bee").symlink_to(whole / part / "bee", target_is_directory=True)
        (tmp_path / "part" / part / "cow").mkdir()
        for path in (whole / part / "cow").iterdir():
            (tmp_path / "part" / part / "cow" / path.name).symlink_to(path)
    contents = read(tmp_path / "part")
    assert contents.class_names == ("bee", "cow")
    assert contents.rows == (8, 4)
    assert decode(contents.folder.path / contents.train[0][0], Fit(3, 8, 8)).shape == (3, 8, 8)


def test_a_link_back_to_a_folder_above_is_no_endless_way(tmp_path):
    path = folder(tmp_path / "x", pets())
    (path / "train" / "ant" / "again").symlink_to(path, target_is_directory=True)
    with pytest.raises(UsageError, match="a link back to a folder above it"):
        read(path)


def test_an_official_folder_may_lie_below_a_folder_called_like_its_file(tmp_path, monkeypatch):
    small(monkeypatch, "cifar100", (200, 100))
    files = {f"training/{name}": content for name, content in cifar100_python().items()}
    assert read(folder(tmp_path / "x", files)).kind == "cifar100 (python version)"


def test_arrays_of_five_dimensions_are_not_called_corrupt(tmp_path):
    np.savez(tmp_path / "v.npz", x=np.zeros((10, 2, 3, 4, 4), np.uint8), y=[0, 1] * 5)
    with pytest.raises(UsageError, match=r"x must be vectors \[n, d\] or images .* its shape is \[10, 2, 3, 4, 4\]"):
        read(tmp_path / "v.npz")


def test_numbered_folders_are_in_the_order_of_their_numbers(tmp_path):
    contents = read(folder(tmp_path / "x", pets([str(number) for number in range(12)])))
    assert contents.class_names == tuple(str(number) for number in range(12))


def test_a_picture_is_decoded_to_its_own_pixels():
    content, array = noise(1, (5, 7))
    assert probe(content) == (3, 7, 5)
    np.testing.assert_array_equal(decode(content, Fit(3, 7, 5)), array.transpose(2, 0, 1))
    content, array = noise(1, (5, 7), channels=1)
    np.testing.assert_array_equal(decode(content, Fit(1, 7, 5))[0], array)


@pytest.mark.parametrize(
    ("mode", "colour", "expected"),
    [("L", 9, (9, 9, 9)), ("RGBA", (1, 2, 3, 0), (1, 2, 3)), ("P", 0, (0, 0, 0)), ("1", 1, (255, 255, 255))],
)
def test_other_modes_become_colour(mode, colour, expected):
    assert decode(png(colour, mode=mode), Fit(3, 8, 8))[:, 0, 0].tolist() == list(expected)


def test_cmyk_becomes_colour():
    assert decode(png((0, 0, 0, 0), mode="CMYK", form="JPEG"), Fit(3, 8, 8)).min() > 250


def test_another_size_keeps_proportions_and_the_middle():
    from PIL import Image

    array = np.zeros((10, 30, 3), np.uint8)
    array[:, 10:20] = 200
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    assert decode(file.getvalue(), Fit(3, 10, 10, 10)).min() == 200, "the middle third and nothing else"
    assert decode(file.getvalue(), Fit(3, 5, 5, 5)).shape == (3, 5, 5)
    assert decode(file.getvalue(), Fit(3, 7, 7, 8)).shape == (3, 7, 7)


X, Y = np.arange(60, dtype=np.uint8).reshape(10, 2, 3), np.arange(10) % 2
ARRAYS = {
    "x and y": {"x": X, "y": Y},
    "with a test part": {"x": X, "y": Y, "x_test": X[:2], "y_test": Y[:2]},
    "as Keras does": {"x_train": X, "y_train": Y, "x_test": X[:2], "y_test": Y[:2]},
    "as here": {"image": X, "label": Y, "test_image": X[:2], "test_label": Y[:2]},
    "labels in a column": {"train_images": X, "train_labels": Y[:, None], "test_images": X[:2], "test_labels": Y[:2]},
    "columns first": {"x": np.asfortranarray(X), "y": Y},
}


@pytest.mark.parametrize("case", ARRAYS)
def test_arrays_by_every_name(case, tmp_path):
    arrays = ARRAYS[case]
    np.savez_compressed(tmp_path / "a.npz", **arrays)
    (tmp_path / "folder").mkdir()
    for name, array in arrays.items():
        np.save(tmp_path / "folder" / f"{name}.npy", array)
    first = next(iter(arrays))
    for contents in (
        read(tmp_path / "a.npz"),
        read(tmp_path / "folder"),
        read(tmp_path / "folder" / f"{first}.npy"),
    ):
        assert contents.class_names == ("0", "1")
        rows = {tuple(row.ravel()) for row in (*contents.image, *contents.test_image)}
        assert rows == {tuple(row.ravel()) for row in X}
        for row, label in zip(contents.image, contents.label, strict=True):
            assert Y[row.ravel()[0] // 6] == label


def test_vectors_and_class_names_from_arrays(tmp_path):
    np.savez(tmp_path / "v.npz", x=np.random.default_rng(0).normal(size=(10, 4)), y=Y, class_names=["no", "yes"])
    contents = read(tmp_path / "v.npz")
    assert contents.image.dtype == np.float32
    assert contents.class_names == ("no", "yes")


@pytest.mark.parametrize("labels", [Y - 1, Y * 5, Y[:, None] * 5.0, np.array(["a", "b"])[Y]])
def test_labels_of_a_file_mean_what_they_mean_in_python(labels, tmp_path):
    np.savez(tmp_path / "a.npz", x=X, y=labels)
    contents, data = read(tmp_path / "a.npz"), from_arrays(X, np.ravel(labels), tasks=1)
    assert contents.class_names == data.class_names
    assert contents.label.tolist() == data.label.tolist()


@pytest.mark.parametrize(
    ("shape", "message"), [((10, 4), "vectors of 4 numbers"), ((10, 6, 5), "rows of shape (1, 6, 5)")]
)
def test_a_size_that_arrays_cannot_have_is_refused(tmp_path, shape, message):
    np.savez(tmp_path / "v.npz", x=np.zeros(shape, np.uint8), y=[0, 1] * 5)
    with pytest.raises(UsageError, match=re.escape(f"has {message}, which stay as they are; 8 was given")):
        read(tmp_path / "v.npz", size=8)
    np.savez(tmp_path / "v.npz", x=np.zeros((10, 8, 8), np.uint8), y=[0, 1] * 5)
    assert read(tmp_path / "v.npz", size=8).image.shape[1:] == (1, 8, 8)


def test_a_missing_package_is_named(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "PIL.Image", None)
    monkeypatch.setitem(sys.modules, "PIL", None)
    with pytest.raises(UsageError, match="pip install pillow"):
        read(folder(tmp_path / "y", {"a/b.png": b""}))
