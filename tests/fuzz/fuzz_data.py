"""Hostile data: archives, pictures, array files and pickled CIFAR batches."""

import bz2
import gzip
import io
import lzma
import struct
import sys
import tarfile
import tempfile
import warnings
import zlib
from dataclasses import replace
from itertools import chain
from pathlib import Path

import numpy as np
from fuzzing import Fuzzer, mutated
from hypothesis import strategies as st

sys.path.insert(0, str(Path(__file__).parents[1] / "data"))
from forge import cifar_rows, old_pickle, pets, png, tar, word, zipped

from odedm import UsageError
from odedm.data import cifar, formats
from odedm.data.contents import DataFolder, LabelledPictures
from odedm.data.images import BadPicture, Fit, decode, probe
from odedm.data.published import PUBLISHED

NAMES = st.sampled_from(
    [".", "/", "a", "a/", "./a", "..", "train/a/1.png", "b" * 120, "c/" * 60, "\x1b[2J", "ü", "wnids.txt"]
)
SIZES = st.one_of(st.integers(-1024, 2048), st.sampled_from([-(1 << 62), -1, 1 << 33, 1 << 40, 1 << 62]))
KINDS = st.sampled_from([b"0", b"5", b"1", b"2", b"3", b"7", b"S", b"x", b"g", b"X", b"L", b"K", b"\0", b"V", b"Z"])
KEYS = st.sampled_from(["size", "path", "linkpath", "GNU.sparse.major", "GNU.sparse.map", "GNU.sparse.size",
                        "GNU.sparse.realsize", "GNU.sparse.name", "hdrcharset", "mtime", "comment"])  # fmt: skip
VALUES = st.sampled_from(["-512", "0", "1", "1,2", "x", "9" * 30, "nan", "BINARY", "a/b", "\x1b"])


def read_all(path):
    """What an import does before it writes columns: it unpacks, finds the layout, and decodes every picture."""
    with tempfile.TemporaryDirectory() as scratch:
        before = set(path.parent.iterdir())
        try:
            contents = formats.read(path, Path(scratch))
            if isinstance(contents, LabelledPictures):
                for name in chain.from_iterable(contents.train):
                    read_picture(contents.folder.path / name, name)
        finally:
            if set(path.parent.iterdir()) != before or set(Path(scratch).iterdir()) - {Path(scratch) / "unpacked"}:
                raise AssertionError("files were written outside of the folder for them")


def read_picture(content, name=""):
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            probe(content)
            decode(content, Fit(3, 8, 8, 8))
            decode(content, Fit(1, 8, 8, 8))
    except BadPicture as error:
        raise UsageError(f"'{name}' {error}.") from error


def tar_of(members, packed, tail):
    blocks = []
    for name, size, kind, pax, content in members:
        info = tarfile.TarInfo(name)
        info.size, info.type, info.pax_headers = size, kind, pax
        if pax:
            info.size = max(0, size)  # what a pax archive can write; its own `size` may say otherwise
        blocks += [info.tobuf(tarfile.PAX_FORMAT if pax else tarfile.GNU_FORMAT), content]
    plain = b"".join(blocks) + tail
    return gzip.compress(plain, 1) if packed else plain


def repacked(module):
    return module.compress(made(tar, pets(), False))


def made(maker, *files):
    with tempfile.TemporaryDirectory() as place:
        return maker(Path(place) / "a", *files).read_bytes()


def npy(descr, shape, order, content):
    header = f"{{'descr': {descr!r}, 'fortran_order': {order}, 'shape': {shape!r}, }}".encode()
    return b"\x93NUMPY\x01\x00" + struct.pack("<H", len(header) + 1) + header + b"\n" + content


def npz_of(arrays):
    return made(zipped, arrays)


def repaired(content):
    """A PNG with right checksums, so that its chunks are looked at."""
    out, at = bytearray(content), 8
    while at + 12 <= len(out):
        (length,) = struct.unpack_from(">I", out, at)
        if at + 12 + length > len(out):
            break
        struct.pack_into(">I", out, at + 8 + length, zlib.crc32(out[at + 4 : at + 8 + length]))
        at += 12 + length
    return bytes(out)


def read_pickle(path):
    cifar._python(DataFolder(path.parent, path), path.name, replace(PUBLISHED["cifar10"], rows=(50, 10)), 10)


def saved(array):
    file = io.BytesIO()
    np.save(file, array)
    return file.getvalue()


MEMBERS = st.tuples(
    NAMES, SIZES, KINDS, st.dictionaries(KEYS, VALUES, max_size=2),
    st.sampled_from([b"", bytes(512), b"1\n" * 256, b"19 path=a/../../bcdef\n" + bytes(490)]),
)  # fmt: skip
ENDS = st.sampled_from([bytes(1024), b"", bytes(10240)])
TARS = st.builds(tar_of, st.lists(MEMBERS, max_size=5), st.booleans(), ENDS)
X, Y = saved(np.arange(160, dtype=np.uint8).reshape(10, 4, 4)), saved(np.arange(10) % 2)
TYPES = st.sampled_from(
    ["|u1", "|V0", "<U0", "<U2", ">U1", "|O", "<f2", "<f16", "<M8[s]", "|S3", "|b1", ">i8", [("a", "|O")]]
)
SHAPES = st.lists(st.sampled_from([0, 1, 2, 4, 10, -1, 1 << 40, 1 << 70]), max_size=5).map(tuple)
BYTES = st.sampled_from([b"", bytes(40), b"\xff" * 160, bytes(range(160))])
PARTS = st.one_of(
    mutated(X, Y, saved(np.array(["ant", "bee"])), saved(np.arange(10.0))),
    st.builds(npy, TYPES, SHAPES, st.booleans(), BYTES),
)
PLACES = [f"{dot}{name}.npy" for dot in ("", "./") for name in ("x", "y", "x_test", "y_test", "class_names")]
ARRAYS = st.dictionaries(st.sampled_from(PLACES), PARTS, max_size=5).map(
    lambda arrays: npz_of({"x.npy": X, "y.npy": Y} | arrays)
)
IMAGE, LABELS = cifar_rows(10, 10)
CODES = [bytes([code]) for code in b"}])(t\x85\x86\x87aesuRb0N\x88"]
CODES += [b"q\x00", b"h\x00", b"K\x01", b"M\x0a\x00", b"J\xff\xff\xff\xff", word("data"), word("labels"), word("u1")]
CODES += [b"cnumpy\nndarray\n", b"cnumpy\ndtype\n", b"cnumpy.core.multiarray\n_reconstruct\n", b"cos\nsystem\n"]
CODES += [b"L99999999999L\n", b"\x8a\x09" + b"\xff" * 9, b"I1\n", b"X\x01\x00\x00\x00a", b"P1\n"]
OPCODES = st.lists(st.sampled_from(CODES), max_size=60).map(lambda codes: b"\x80\x02" + b"".join(codes) + b".")
PICTURES = [png(form=form) for form in ("PNG", "JPEG", "BMP", "GIF", "PPM", "WEBP", "TIFF")]
PICTURES += [png(7, mode="L"), png(3, mode="P"), png((1, 2, 3, 4), mode="RGBA", form="TIFF", compression="tiff_lzw")]

FUZZERS = {
    "tar": Fuzzer(st.one_of(TARS, mutated(made(tar, pets(), False), made(tar, pets()), repacked(bz2), repacked(lzma))),
                  read_all),
    "zip": Fuzzer(mutated(made(zipped, pets()), made(zipped, {"train/a/": b"", "a/1.png": png()})), read_all),
    "pictures": Fuzzer(st.one_of(mutated(*PICTURES), mutated(PICTURES[0], *PICTURES[-3:-1]).map(repaired)),
                       lambda path: read_picture(path.read_bytes())),
    "npz": Fuzzer(st.one_of(ARRAYS, mutated(npz_of({"x.npy": X, "y.npy": Y}))), read_all, "input.npz"),
    "pickles": Fuzzer(st.one_of(OPCODES, mutated(old_pickle(IMAGE, LABELS.tolist()))), read_pickle),
}  # fmt: skip
