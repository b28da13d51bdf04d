"""Makes small data sets on disk, honest ones and hostile ones."""

import gzip
import io
import struct
import tarfile
import zipfile
from dataclasses import replace

import numpy as np
from PIL import Image

from odedm.data.published import PUBLISHED


def png(colour=(10, 20, 30), size=(8, 8), mode="RGB", form="PNG", **options):
    file = io.BytesIO()
    Image.new(mode, size, colour).save(file, form, **options)
    return file.getvalue()


def noise(seed, size=(8, 8), channels=3):
    shape = (size[1], size[0], 3) if channels == 3 else (size[1], size[0])
    array = np.random.default_rng(seed).integers(0, 256, shape, dtype=np.uint8)
    file = io.BytesIO()
    Image.fromarray(array).save(file, "PNG")
    return file.getvalue(), array


def folder(path, files):
    """Write files given as {name: bytes}; None makes an empty folder."""
    for name, content in files.items():
        place = path / name
        if content is None:
            place.mkdir(parents=True)
        else:
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_bytes(content)
    return path


def pets(classes=("ant", "bee"), train=4, test=2, size=(8, 8), channels=3):
    """{name: bytes} of a folder with train and test parts."""
    return {
        f"{part}/{name}/{number}.png": noise(hash_of(part, name, number), size, channels)[0]
        for part, rows in (("train", train), ("test", test))
        for name in classes
        for number in range(rows)
    }


def hash_of(*words):
    return sum(ord(letter) * (place + 1) for place, letter in enumerate("/".join(map(str, words))))


def tar(path, files, packed=True, change=lambda info: info):
    with tarfile.open(path, "w:gz" if packed else "w") as archive:
        for name, content in files.items():
            info = tarfile.TarInfo(name)
            info.size = len(content)
            info = change(info)
            archive.addfile(info, io.BytesIO(content))
    return path


def odd_tar(path, **fields):
    """A tar with one good picture and one odd member."""
    info = tarfile.TarInfo(fields.pop("name", "odd"))
    for field, value in fields.items():
        setattr(info, field, value)
    with tarfile.open(path, "w:gz") as archive:
        good = tarfile.TarInfo("train/ant/1.png")
        good.size = len(png())
        archive.addfile(good, io.BytesIO(png()))
        archive.addfile(info)
    return path


def zipped(path, files, packing=zipfile.ZIP_DEFLATED):
    with zipfile.ZipFile(path, "w", packing) as archive:
        for name, content in files.items():
            archive.writestr(name, content)
    return path


def damaged(path, at, change=lambda byte: byte ^ 0xFF):
    """Change one byte, counted from the end where `at` is negative."""
    content = bytearray(path.read_bytes())
    content[at] = change(content[at])
    path.write_bytes(content)
    return path


def cut(path, keep):
    path.write_bytes(path.read_bytes()[:keep])
    return path


def bomb_header(path):
    """A gzipped tar whose first header announces a name of 4 GiB."""
    info = tarfile.TarInfo("././@LongLink")
    info.type, info.size = tarfile.GNUTYPE_LONGNAME, 4 << 30
    with gzip.open(path, "wb") as file:
        file.write(info.tobuf(tarfile.GNU_FORMAT) + bytes(1 << 20))
    return path


def small(monkeypatch, name, rows, **changes):
    """Make a published data set small enough to forge."""
    known = replace(PUBLISHED[name], rows=rows, tolerance=None, **changes)
    monkeypatch.setitem(PUBLISHED, name, known)
    return known


def cifar_rows(rows, classes, seed=0):
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (rows, 3072), dtype=np.uint8), rng.permutation(np.arange(rows) % classes)


def cifar10_binary(per_batch=10, label=lambda labels: labels):
    files = {}
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        image, labels = cifar_rows(per_batch, 10, number)
        records = np.concatenate([label(labels)[:, None].astype(np.uint8), image], 1)
        files[f"cifar-10-batches-bin/{name}.bin"] = records.tobytes()
    return files


def cifar10_python(per_batch=10, pickled=None):
    files = {}
    for number, name in enumerate([*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]):
        image, labels = cifar_rows(per_batch, 10, number)
        files[f"cifar-10-batches-py/{name}"] = (pickled or old_pickle)(image, labels.tolist())
    files["cifar-10-batches-py/batches.meta"] = b"(dp1\n."
    return files


def cifar100_binary(train=200, test=100):
    files = {}
    for name, rows in (("train", train), ("test", test)):
        image, labels = cifar_rows(rows, 100, rows)
        records = np.concatenate([labels[:, None] % 20, labels[:, None], image], 1).astype(np.uint8)
        files[f"cifar-100-binary/{name}.bin"] = records.tobytes()
    return files


def cifar100_python(train=200, test=100):
    files = {"cifar-100-python/meta": b"."}
    for name, rows in (("train", train), ("test", test)):
        image, labels = cifar_rows(rows, 100, rows)
        files[f"cifar-100-python/{name}"] = old_pickle(image, labels.tolist(), key="fine_labels")
    return files


def word(text):
    return b"U" + bytes([len(text)]) + text.encode()


def old_pickle(image, labels, key="labels", kind="u1", name=b"cnumpy\nndarray\n", before=b""):
    """A batch file as Python 2 wrote them: protocol 2, byte strings, an array by `_reconstruct` and BUILD, names."""
    raw = image.tobytes()
    array = (
        b"cnumpy.core.multiarray\n_reconstruct\nq\x07" + name + b"q\x08K\x00\x85" + word("b") + b"\x87Rq\t"
        b"(K\x01" + b"J" + struct.pack("<i", image.shape[0]) + b"M" + struct.pack("<H", image.shape[1]) + b"\x86"
        b"cnumpy\ndtype\nq\n" + word(kind) + b"K\x00K\x01\x87Rq\x0b(K\x03" + word("|")
        + b"NNNJ\xff\xff\xff\xffJ\xff\xff\xff\xff"
        b"K\x00tb\x89T" + struct.pack("<i", len(raw)) + raw + b"tb"
    )  # fmt: skip
    batches = (labels[start : start + 4] for start in range(0, len(labels), 4))  # as Python appends a thousand at once
    listed = b"]q\x05" + b"".join(b"(" + b"".join(b"K" + bytes([label]) for label in batch) + b"e" for batch in batches)
    files = b"]q\x0c(" + b"".join(word(f"labels_{number}.png") for number in range(len(labels))) + b"e"
    coarse = word("coarse_labels") + b"q\x0d]q\x0e(K\x01K\x02e" if key == "fine_labels" else b""
    return (
        b"\x80\x02}q\x01(" + before + word("batch_label") + b"q\x02" + word("training batch 1 of 5") + b"q\x03"
        + word(key) + b"q\x04" + listed + coarse + word("data") + b"q\x06" + array
        + word("filenames") + b"q\x0f" + files + b"u."
    )  # fmt: skip


def tiny_imagenet(wnids=("n00000002", "n00000001"), train=3, test=2):
    files = {"tiny-imagenet-200/wnids.txt": "\n".join(wnids).encode()}
    files["tiny-imagenet-200/words.txt"] = b"n00000001\treel\nn00000002\tEgyptian cat, tabby\n"
    lines = []
    for wnid in wnids:
        for number in range(train):
            files[f"tiny-imagenet-200/train/{wnid}/images/{wnid}_{number}.JPEG"] = png(form="JPEG", size=(64, 64))
        files[f"tiny-imagenet-200/train/{wnid}/{wnid}_boxes.txt"] = b"0"
        for number in range(test):
            name = f"val_{len(lines)}.JPEG"
            mode, colour = ("L", 7) if number else ("RGB", (1, 2, 3))
            files[f"tiny-imagenet-200/val/images/{name}"] = png(colour, (64, 64), mode, "JPEG")
            lines.append(f"{name}\t{wnid}\t0\t0\t63\t63")
    files["tiny-imagenet-200/val/val_annotations.txt"] = "\n".join(lines).encode()
    files["tiny-imagenet-200/test/images/test_0.JPEG"] = png(form="JPEG", size=(64, 64))
    return files
