"""Hostile and broken files: each gets one sentence that names it, and none leaves a trace in the data folder."""

import errno
import io
import re
import struct
import tarfile
import tracemalloc
import zipfile

import numpy as np
import pytest
from forge import (
    bomb_header,
    cifar10_binary,
    cifar10_python,
    cut,
    damaged,
    folder,
    odd_tar,
    old_pickle,
    pets,
    png,
    small,
    tar,
    tiny_imagenet,
    word,
    zipped,
)
from PIL import Image

from odedm import UsageError
from odedm.data import cache, formats
from odedm.data.importer import import_as
from odedm.data.published import PUBLISHED

PETS = pets()
X, Y = np.zeros((10, 4, 4), np.uint8), np.arange(10) % 2


def with_picture(content, name="train/ant/0.png"):
    return lambda tmp: folder(tmp / "x", PETS | {name: content})


def arrays(**columns):
    def make(tmp):
        np.savez(tmp / "a.npz", **columns)
        return tmp / "a.npz"

    return make


def tiny(name, content):
    """Tiny-ImageNet with another content of one file."""
    return lambda tmp: zipped(tmp / "t.zip", tiny_imagenet() | {f"tiny-imagenet-200/{name}": content})


def lying_array(tmp):
    file = io.BytesIO()
    np.lib.format.write_array_header_1_0(file, {"descr": "|u1", "fortran_order": False, "shape": (1 << 40,)})
    return zipped(tmp / "a.npz", {"x.npy": file.getvalue(), "y.npy": file.getvalue()})


def compressed(tmp):
    np.savez_compressed(tmp / "a.npz", x=np.arange(160, dtype=np.uint8).reshape(10, 4, 4), y=Y)
    return tmp / "a.npz"


def encrypted(tmp):
    path = zipped(tmp / "a.zip", PETS)
    content = bytearray(path.read_bytes())
    for mark, offset in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        for match in re.finditer(re.escape(mark), bytes(content)):
            content[match.start() + offset] |= 1
    path.write_bytes(content)
    return path


def zip_link(tmp):
    with zipfile.ZipFile(tmp / "a.zip", "w") as archive:
        info = zipfile.ZipInfo("train/ant/0.png")
        info.external_attr = 0o120777 << 16
        archive.writestr(info, "/etc/passwd")
    return tmp / "a.zip"


def looped(tmp):
    path = folder(tmp / "x", PETS)
    (path / "train" / "cow").symlink_to(path / "train", target_is_directory=True)
    return path


def animated(form):
    file = io.BytesIO()
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    frames[0].save(file, form, save_all=True, append_images=frames[1:])
    return file.getvalue()


def deep_grey():
    file = io.BytesIO()
    Image.fromarray(np.zeros((8, 8), np.uint16)).save(file, "PNG")
    return file.getvalue()


def bomb_picture():
    """A PNG whose header promises 60000 × 60000 pixels, its checksum right."""
    import zlib

    content = bytearray(png())
    content[16:24] = (60000).to_bytes(4, "big") * 2
    content[29:33] = zlib.crc32(bytes(content[12:29])).to_bytes(4, "big")
    return bytes(content)


def packed_texts(count, size):
    """A PNG with texts of zeros, each of which unpacks to so many bytes."""
    import zlib

    text = b"zTXtcomment\0\0" + zlib.compress(bytes(size))
    chunk = struct.pack(">I", len(text) - 4) + text + struct.pack(">I", zlib.crc32(text))
    content = png()
    return content[:33] + chunk * count + content[33:]


def deep_colour(kind=2, channels=3):
    """A PNG with 16 bits in each of its channels."""
    import zlib

    def chunk(name, content):
        return struct.pack(">I", len(content)) + name + content + struct.pack(">I", zlib.crc32(name + content))

    head = struct.pack(">IIBBBBB", 8, 8, 16, kind, 0, 0, 0)
    pixels = zlib.compress((b"\0" + bytes(8 * channels * 2)) * 8)
    return b"\x89PNG\r\n\x1a\n" + chunk(b"IHDR", head) + chunk(b"IDAT", pixels) + chunk(b"IEND", b"")


def odd_array(descr, shape, name="y", content=bytes(400), header=None):
    """An array file with one array of which the header says strange things."""

    def make(tmp):
        file = io.BytesIO()
        np.lib.format.write_array_header_1_0(file, {"descr": descr, "fortran_order": False, "shape": shape})
        np.savez(tmp / "a.npz", **{key: array for key, array in (("x", X), ("y", Y)) if key != name})
        with zipfile.ZipFile(tmp / "a.npz", "a") as archive:
            archive.writestr(f"./{name}.npy", header or file.getvalue() + content)
        return tmp / "a.npz"

    return make


def cifar(change=lambda files: files, maker=cifar10_binary):
    return lambda tmp: tar(tmp / "c.tar.gz", change(maker()))


def shorter(files):
    first = next(iter(files))
    return files | {first: files[first][:-1]}


def fewer(files):
    return {name: content for name, content in files.items() if "data_batch_3" not in name}


def pickled(**changes):
    return cifar(maker=lambda: cifar10_python(pickled=lambda image, labels: old_pickle(image, labels, **changes)))


SHAPELESS = (
    b"\x80\x02}" + word("data") + b"cnumpy.core.multiarray\n_reconstruct\n)R(K\x01N"
    b"cnumpy\ndtype\n" + word("u1") + b"\x85R\x89" + word("a") + b"tbs."
)  # fmt: skip
ENDLESS_SHAPE = (
    b"\x80\x02}" + word("data") + b"cnumpy.core.multiarray\n_reconstruct\n)R(K\x01" + b"K\x01" + b"q\x00h\x00\x86" * 60
    + b"cnumpy\ndtype\n" + word("u1") + b"\x85R\x89" + word("a") + b"tbs."
)  # fmt: skip
"""A pair of pairs of pairs …: short in the file, and without end if it were printed."""

HOSTILE = {
    "tar: absolute name": (lambda tmp: odd_tar(tmp / "a.tar.gz", name="/etc/a"), "leads outside"),
    "tar: name with ..": (lambda tmp: odd_tar(tmp / "a.tar.gz", name="train/../../a"), "leads outside"),
    "tar: symbolic link": (
        lambda tmp: odd_tar(tmp / "a.tar.gz", type=tarfile.SYMTYPE, linkname="/etc/passwd"),
        "holds 'odd', which is a link",
    ),
    "tar: hard link": (
        lambda tmp: odd_tar(tmp / "a.tar.gz", type=tarfile.LNKTYPE, linkname="a"),
        "holds 'odd', which is a link",
    ),
    "tar: device": (lambda tmp: odd_tar(tmp / "a.tar.gz", type=tarfile.CHRTYPE), "a link, a device, a pipe"),
    "tar: pipe": (lambda tmp: odd_tar(tmp / "a.tar.gz", type=tarfile.FIFOTYPE), "a link, a device, a pipe"),
    "tar: sparse file": (
        lambda tmp: odd_tar(tmp / "a.tar.gz", pax_headers={"GNU.sparse.size": "99", "GNU.sparse.map": "0,0"}),
        "a sparse file",
    ),
    "tar: the same name twice": (lambda tmp: odd_tar(tmp / "a.tar.gz", name="./train/ant//1.png"), "twice"),
    "tar: header of 4 GiB": (lambda tmp: bomb_header(tmp / "a.tar.gz"), "an archive bomb"),
    "tar.gz: 2 GiB of zeros": (lambda tmp: odd_tar(tmp / "a.tar.gz", name="z", size=2 << 30), "an archive bomb"),
    "tar.gz: truncated": (lambda tmp: cut(tar(tmp / "a.tar.gz", PETS), 900), "truncated or corrupt"),
    "tar.gz: a byte changed": (lambda tmp: damaged(tar(tmp / "a.tar.gz", PETS), 700), "truncated or corrupt"),
    "tar.gz: wrong checksum": (lambda tmp: damaged(tar(tmp / "a.tar.gz", PETS), -8), "truncated or corrupt"),
    "tar: truncated": (lambda tmp: cut(tar(tmp / "a.tar", PETS, packed=False), 1500), "truncated"),
    "tar: cut between two files": (
        lambda tmp: cut(tar(tmp / "a.tar", PETS, packed=False), 2048),
        "end mark is missing",
    ),
    "zip: name with ..": (lambda tmp: zipped(tmp / "a.zip", {"../a.png": b"1"}), "leads outside"),
    "zip: drive letter": (lambda tmp: zipped(tmp / "a.zip", {"C:/a.png": b"1"}), "leads outside"),
    "zip: backslashes": (lambda tmp: zipped(tmp / "a.zip", {"..\\a.png": b"1"}), "a backslash or control"),
    "zip: symbolic link": (zip_link, "which is a link"),
    "zip: encrypted": (encrypted, "is encrypted"),
    "zip: wrong checksum": (
        lambda tmp: damaged(zipped(tmp / "a.zip", PETS, zipfile.ZIP_STORED), 60),
        "Bad CRC-32",
    ),
    "zip: truncated": (lambda tmp: cut(zipped(tmp / "a.zip", PETS), 900), "truncated or corrupt"),
    "zip: unusual packing": (lambda tmp: zipped(tmp / "a.zip", PETS, zipfile.ZIP_LZMA), "packed in an unusual way"),
    "archive: a web page": (lambda tmp: folder(tmp, {"a.zip": b"<!DOCTYPE html>"}) / "a.zip", "looks like a web page"),
    "archive: something else": (
        lambda tmp: folder(tmp, {"a.tar": b"#!/bin/sh"}) / "a.tar",
        "is not an archive this reads",
    ),
    "archive: empty file": (lambda tmp: folder(tmp, {"a.tar": b""}) / "a.tar", "is not an archive"),
    "folder: link to a folder above it": (looped, "a link back to a folder above it"),
    "folder: empty": (lambda tmp: folder(tmp, {"x": None}) / "x", "holds no files"),
    "folder: one class": (lambda tmp: folder(tmp / "x", pets(["ant"])), "holds 1 class folders"),
    "folder: no classes": (lambda tmp: folder(tmp / "x", {"a.png": png()}), "holds 0 class folders"),
    "folder: class missing in test": (
        lambda tmp: folder(tmp / "x", PETS | {"train/cow/0.png": png()}),
        "lacks 'cow', which train has",
    ),
    "folder: class missing in train": (
        lambda tmp: folder(tmp / "x", PETS | {"test/cow/0.png": png()}),
        "has 'cow', which train lacks",
    ),
    "folder: one picture, none to hold out": (
        lambda tmp: folder(tmp / "x", {"a/0.png": png(), "b/0.png": png()}),
        "single picture",
    ),
    "picture: empty file": (with_picture(b""), r"train/ant/0.png' is empty"),
    "picture: not a picture": (with_picture(b"hello"), "is not a picture of a known kind"),
    "picture: truncated": (with_picture(PETS["train/ant/0.png"][:-40]), r"train/ant/0.png' cannot be decoded"),
    "picture: another size": (with_picture(png(size=(9, 8)), "train/bee/1.png"), r"9×8 where .*--size"),
    "picture: 60000 × 60000 pixels": (with_picture(bomb_picture()), "far more than 64000000 pixels"),
    "picture: 16 bits a channel": (with_picture(deep_grey()), "more than 8 bits"),
    "picture: 16 bits a channel, in colour": (with_picture(deep_colour()), "more than 8 bits"),
    "picture: 16 bits a channel, grey with transparency": (with_picture(deep_colour(4, 2)), "more than 8 bits"),
    "picture: 16 bits a channel, PPM": (
        with_picture(b"P6 8 8 65535\n" + bytes(8 * 8 * 6), "train/ant/0.ppm"),
        "more than 8 bits",
    ),
    "picture: animated PNG": (with_picture(animated("PNG")), "has 2 frames"),
    "picture: animated GIF": (with_picture(animated("GIF"), "train/ant/0.gif"), "has 2 frames"),
    "picture: PostScript": (with_picture(b"%!PS-Adobe-3.0 EPSF-3.0\n"), "is not a picture of a known kind"),
    "npz: objects": (arrays(x=np.array([{}, []], object), y=Y[:2]), "no sound array .*Python objects"),
    "npz: no y": (arrays(x=X), "it needs x and y"),
    "npz: NaN": (arrays(x=np.full((10, 3), np.nan), y=Y), "NaN or an infinity"),
    "npz: names that are no words": (arrays(x=X, y=Y, class_names=[1, 2]), "class_names must be a list of names"),
    "npz: lengths differ": (arrays(x=X, y=Y[:7]), "10 rows but y has 7"),
    "npz: shape larger than the file": (lying_array, "'x.npy' of .* is no sound array"),
    "npz: elements without bytes": (
        odd_array("|V0", (10,)),
        "y must hold whole numbers, numbers, text, or true and false; it holds",
    ),
    "npz: more dimensions than arrays have": (odd_array("|u1", (1,) * 70), "is no sound array"),
    "npz: a dimension beyond all numbers": (odd_array("|u1", (1 << 70, 0)), "is no sound array"),
    "npz: letters that do not exist": (odd_array("<U1", (10,), content=b"\xff" * 40), "no sound array"),
    "npz: a header that is no header": (
        odd_array("|u1", (1,), header=b"\x93NUMPY\x01\x00\x06\x00{'a':("),
        "is no sound array",
    ),
    "npz: a byte changed": (lambda tmp: damaged(compressed(tmp), 60), "a.npz' is truncated or corrupt"),
    "npz: not a zip": (lambda tmp: folder(tmp, {"a.npz": b"PK no"}) / "a.npz", "is not an archive"),
    "npy: without labels": (lambda tmp: (np.save(tmp / "z.npy", X), tmp / "z.npy")[1], "alone has no labels"),
    "CIFAR binary: a byte missing": (cifar(shorter), "data_batch_1.bin' has 30729 bytes; 10 records of 3073"),
    "CIFAR binary: a file missing": (cifar(fewer), "lacks cifar-10-batches-bin/data_batch_3.bin"),
    "CIFAR binary: label 200": (
        cifar(maker=lambda: cifar10_binary(label=lambda labels: labels + 195 * (labels == 5))),
        "labels out of range in 1 of 10 records: 200",
    ),
    "CIFAR python: calls os.system": (
        pickled(before=word("x") + b"cos\nsystem\n(" + word("touch PWNED") + b"tR"),
        "the instruction GLOBAL os system",
    ),
    "CIFAR python: calls eval": (pickled(name=b"cbuiltins\neval\n"), "the instruction GLOBAL builtins eval"),
    "CIFAR python: array of objects": (pickled(kind="O8"), "an array that is not of bytes"),
    "CIFAR python: columns first": (
        cifar(
            maker=lambda: {name: content.replace(b"tb\x89T", b"tb\x88T") for name, content in cifar10_python().items()}
        ),
        "an array that is not of bytes, row by row",
    ),
    "CIFAR python: fewer labels": (
        cifar(maker=lambda: cifar10_python(pickled=lambda image, labels: old_pickle(image, labels[:-1]))),
        "30720 bytes of images and 9 labels; 10 × 3072 and 10 were expected",
    ),
    "CIFAR python: label 200": (
        cifar(maker=lambda: cifar10_python(pickled=lambda image, labels: old_pickle(image, [200, *labels[1:]]))),
        "labels out of range in 1 of 10 records: 200 in record 0",
    ),
    "CIFAR python: array without a shape": (
        cifar(maker=lambda: dict.fromkeys(cifar10_python(), SHAPELESS)),
        "holds no images",
    ),
    "CIFAR python: array with an endless shape": (
        cifar(maker=lambda: dict.fromkeys(cifar10_python(), ENDLESS_SHAPE)),
        "holds no images",
    ),
    "CIFAR python: other instructions": (pickled(before=word("x") + b"P1\n"), "the instruction PERSID 1"),
    "CIFAR python: truncated": (
        cifar(maker=lambda: {name: content[:-9] for name, content in cifar10_python().items()}),
        "no sound batch of CIFAR's python version: expected 12 bytes in a string1",
    ),
    "CIFAR python: a newer pickle": (
        cifar(maker=lambda: dict.fromkeys(cifar10_python(), b"\x80\x04}.")),
        "the instruction PROTO 4",
    ),
    "npz: one class": (arrays(x=X, y=Y * 0), "holds the single class '0'; two or more are needed"),
    "Tiny-ImageNet: a folder that is not listed": (
        tiny("train/n00000009/a.JPEG", png()),
        "which 'tiny-.*' does not list",
    ),
    "Tiny-ImageNet: a picture of no class": (
        tiny("val/val_annotations.txt", b"val_0.JPEG\tn00000009\n"),
        "line 1: .* names no picture with a listed class",
    ),
    "Tiny-ImageNet: a list that is no text": (tiny("wnids.txt", b"\xff\xfe"), "is not a text file"),
    "path: not there": (lambda tmp: tmp / "nothing", "There is no file or folder"),
}


def left(data_folder):
    """What is in the data folder but for its lock."""
    return [path.name for path in data_folder.iterdir() if path.name != ".lock"]


@pytest.mark.parametrize("case", HOSTILE)
def test_hostile_files_get_one_sentence_and_leave_nothing(case, tmp_path, data_folder, monkeypatch):
    monkeypatch.chdir(tmp_path)
    small(monkeypatch, "cifar10", (50, 10))
    small(monkeypatch, "tiny-imagenet", (6, 4), classes=2)
    make, sentence = HOSTILE[case]
    (tmp_path / "in").mkdir()
    with pytest.raises(UsageError, match=sentence):
        import_as(make(tmp_path / "in"), "mine")
    assert left(data_folder) == []
    assert not (tmp_path / "PWNED").exists()


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (None, None),
        (list(PUBLISHED["cifar10"].class_names), None),
        (sorted(PUBLISHED["cifar10"].class_names, reverse=True), "The classes are not in the order of cifar10"),
    ],
)
def test_arrays_under_a_published_name_are_in_its_order(names, sentence, tmp_path, monkeypatch):
    small(monkeypatch, "cifar10", (50, 10))
    x, y = np.random.default_rng(0).integers(0, 251, (60, 32, 32, 3), np.uint8), np.arange(60) % 10
    named = {} if names is None else {"class_names": names}
    path = arrays(x=x[:50], y=y[:50], x_test=x[50:], y_test=y[50:], **named)(tmp_path)
    if sentence:
        with pytest.raises(UsageError, match=sentence):
            import_as(path, "cifar10")
    else:
        assert import_as(path, "cifar10").class_names == PUBLISHED["cifar10"].class_names


def test_a_size_beyond_reason_is_refused_before_a_picture_is_made(tmp_path):
    with pytest.raises(UsageError, match="size must be 1 to 8000 pixels; 30000 was given"):
        import_as(folder(tmp_path / "x", PETS), "mine", size=30000)


def test_memory_is_bounded_by_bytes_and_not_by_the_number_of_pictures(tmp_path):
    path = folder(tmp_path / "x", PETS)
    tracemalloc.start()
    manifest = import_as(path, "mine", size=2000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert manifest.rows == (8, 4)
    assert peak < 120 << 20  # 12 rows of 12 MB, and their sums in double precision
    assert cache.verify("mine") == manifest


@pytest.mark.timeout(30)
@pytest.mark.parametrize(("count", "size"), [(1, 256 << 20), (400, 1 << 20)])
def test_texts_packed_into_a_picture_fill_no_memory(count, size, tmp_path):
    path = folder(tmp_path / "x", PETS | {"train/ant/0.png": packed_texts(count, size)})
    tracemalloc.start()
    with pytest.raises(UsageError, match="'train/ant/0.png' "):
        import_as(path, "mine")
    assert tracemalloc.get_traced_memory()[1] < 100 << 20
    tracemalloc.stop()


def test_a_published_name_is_for_that_data_alone(tmp_path, monkeypatch):
    path = folder(tmp_path / "x", PETS)
    with pytest.raises(UsageError, match="cifar10 has no class 'ant'"):
        import_as(path, "cifar10")
    small(monkeypatch, "cifar10", (20, 10))
    names = [str(number) for number in range(10)]
    with pytest.raises(UsageError, match=r"has 30 \+ 10 rows, but cifar10 has 20 \+ 10"):
        import_as(folder(tmp_path / "y", pets(names, 3, 1, (32, 32))), "cifar10")
    with pytest.raises(UsageError, match=r"rows of shape \(3, 8, 8\)"):
        import_as(folder(tmp_path / "z", pets(names, 2, 1)), "cifar10")
    small(monkeypatch, "cifar10", (50, 10))
    with pytest.raises(UsageError, match="not cifar100"):
        import_as(tar(tmp_path / "c.tar.gz", cifar10_binary()), "cifar100")


def test_other_pictures_under_a_published_name_are_found_out_by_their_means(tmp_path, monkeypatch):
    from dataclasses import replace

    from odedm.data.published import PUBLISHED

    monkeypatch.setitem(PUBLISHED, "cifar10", replace(PUBLISHED["cifar10"], rows=(50, 10)))
    with pytest.raises(UsageError, match="channel means are 0.5"):
        import_as(tar(tmp_path / "c.tar.gz", cifar10_binary()), "cifar10")


def test_a_folder_that_changes_while_it_is_read(tmp_path, monkeypatch):
    path = folder(tmp_path / "x", PETS)
    real = formats.read

    def late(*args, **options):
        contents = real(*args, **options)
        (path / "train" / "bee" / "1.png").unlink()
        return contents

    monkeypatch.setattr(formats, "read", late)
    with pytest.raises(UsageError, match="'train/bee/1.png' cannot be read: 1.png is missing"):
        import_as(path, "mine")


def test_a_file_that_may_not_be_read(tmp_path, monkeypatch):
    path = folder(tmp_path / "x", PETS)
    real = io.open

    def guarded(file, *rest, **options):  # file modes would not do: root reads everything
        if str(file).endswith("train/ant/2.png"):
            raise PermissionError(errno.EACCES, "Permission denied", file)
        return real(file, *rest, **options)

    monkeypatch.setattr(io, "open", guarded)
    with pytest.raises(UsageError, match="'train/ant/2.png' cannot be read: 2.png cannot be read .Permission denied"):
        import_as(path, "mine")
