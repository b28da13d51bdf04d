"""MNIST and Fashion-MNIST from idx files: forged ones of the true layout, got file by file, and damaged ones."""

import gzip
import hashlib
import http.server
import struct
import threading
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from commands import odedm as command

import odedm
from odedm import UsageError
from odedm.data.idx import FILES
from odedm.data.importer import import_as
from odedm.data.published import PUBLISHED, Archive

RNG = np.random.default_rng(0)


def idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


@pytest.fixture
def files(tmp_path, monkeypatch):
    monkeypatch.setenv("ODEDM_DATA", str(tmp_path / "data"))
    (tmp_path / "www").mkdir()
    arrays = {}
    for images, labels, rows in ((*FILES[:2], 60), (*FILES[2:], 20)):
        arrays[images] = RNG.integers(0, 256, (rows, 28, 28), dtype=np.uint8)
        arrays[labels] = (np.arange(rows) % 10).astype(np.uint8)
    for name, array in arrays.items():
        (tmp_path / "www" / f"{name}.gz").write_bytes(gzip.compress(idx(array)))
    return arrays


@pytest.fixture
def server(tmp_path, files, monkeypatch):
    """A server of these files for "mnist", and which were asked for."""
    asked = []

    class Handler(http.server.SimpleHTTPRequestHandler):
        def do_GET(self):
            asked.append(self.path[1:])
            super().do_GET()

        def log_message(self, *_):
            pass

    handler = partial(Handler, directory=tmp_path / "www")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    paths = [tmp_path / "www" / f"{name}.gz" for name in FILES]
    place = f"http://127.0.0.1:{server.server_address[1]}/"
    archives = tuple(Archive(place + path.name, None, hashlib.md5(path.read_bytes()).hexdigest()) for path in paths)
    known = replace(PUBLISHED["mnist"], rows=(60, 20), archives=archives, tolerance=None)
    monkeypatch.setitem(PUBLISHED, "mnist", known)
    yield asked
    server.shutdown()
    server.server_close()


def test_get_goes_on_after_a_file_that_was_missing(server, files, tmp_path):
    last = tmp_path / "www" / f"{FILES[3]}.gz"
    last.rename(tmp_path / "away")
    assert "cannot be had" in command("data", "get", "mnist", code=2)
    (tmp_path / "away").rename(last)
    first = len(server)
    command("data", "get", "mnist")
    assert server[first:] == [last.name]
    data = odedm.load_dataset("mnist")
    assert (data.shape, data.tasks, data.class_names) == ((1, 28, 28), 5, tuple("0123456789"))
    for column, name in ((data.image[:, 0], 0), (data.label, 1), (data.test_image[:, 0], 2), (data.test_label, 3)):
        assert (column.numpy() == files[FILES[name]]).all()
    assert not list((tmp_path / "data" / ".downloads").iterdir())


def test_an_unpacked_folder_is_imported_under_any_name(files, tmp_path):
    (tmp_path / "mine").mkdir()
    for name, array in files.items():
        (tmp_path / "mine" / name).write_bytes(idx(array))
    assert import_as(tmp_path / "mine", "digits-of-mine").rows == (60, 20)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda content: content[:-1], "is no idx file of bytes, or is cut short"),
        (lambda content: b"<html>", "is no idx file of bytes"),
        (lambda content: b"", "is no idx file of bytes"),
        (lambda content: b"\0\0\x08\x03\xff\xff\xff\xff" + content[8:], "is no idx file of bytes"),
        (lambda content: idx(np.zeros((59, 28, 28), np.uint8)), "with one label each"),
    ],
)
def test_what_is_not_sound_is_refused(change, message, files, tmp_path):
    path = tmp_path / "www" / f"{FILES[0]}.gz"
    path.write_bytes(gzip.compress(change(idx(files[FILES[0]]))))
    with pytest.raises(UsageError, match=message):
        import_as(tmp_path / "www", "mine")
    path.write_bytes(path.read_bytes()[:-9])
    with pytest.raises(UsageError, match="is no sound gzip file|is no idx file"):
        import_as(tmp_path / "www", "mine")
