"""One file for tensors and a head: written without copies in memory, whole or not at all."""

import errno
import os
import subprocess
import sys

import pytest
import torch

from odedm.core import tensor_archive
from odedm.core.tensor_archive import archive_checksum, read_archive, write_archive

HEAD = {"schema": "odedm.model/1"}
GROWTH = """
import resource, sys
from pathlib import Path
import torch
from odedm.core.tensor_archive import write_archive
tensors = {"a": torch.zeros(1 << 27, dtype=torch.uint8), "b": torch.zeros(1 << 25)}
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
write_archive(Path(sys.argv[1]), {"schema": "odedm.model/1"}, tensors)
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


def read(path):
    return read_archive(path, HEAD["schema"], "model", "outcome.save")


def test_what_is_written_is_read(tmp_path):
    flat, wide = torch.arange(6.0), torch.rand(3, 4).t()
    tensors = {"flat": flat, "view": flat.view(2, 3), "part": flat[2:4], "wide": wide, "none": torch.zeros(0, 2)}
    tensors |= {
        "one": torch.ones(3, 4)[:1, :1].t(),
        "weight": torch.nn.Parameter(torch.ones(2)),
        "x": torch.tensor(True),
    }
    write_archive(tmp_path / "file", HEAD, tensors)
    head, again = read(tmp_path / "file")
    assert head == HEAD
    assert again.keys() == tensors.keys()
    assert all(again[name].equal(tensor) for name, tensor in tensors.items())
    assert (tmp_path / "file").stat().st_mode & 0o777 == 0o666 & ~umask()


def umask():
    before = os.umask(0)
    os.umask(before)
    return before


def test_the_checksum_is_of_contents_not_of_layouts():
    x = torch.rand(3, 4)
    assert archive_checksum("{}", {"x": x}) == archive_checksum("{}", {"x": x.t().contiguous().t()})
    assert archive_checksum("{}", {"x": x}) != archive_checksum("{}", {"x": x.t()})
    assert archive_checksum("{}", {"x": x[:1, :1]}) == archive_checksum("{}", {"x": x[:1, :1].clone()})


def test_a_large_file_takes_no_second_copy_in_memory(tmp_path):
    """256 MiB of tensors; pages of the file itself may be counted while it is written."""
    words = [sys.executable, "-c", GROWTH, str(tmp_path / "file")]
    grown = int(subprocess.run(words, capture_output=True, text=True, check=True).stdout)
    assert grown < 64 << 10, f"{grown >> 10} MiB"


@pytest.mark.parametrize(
    "message", ["IoError(Os { code: 28 }): No space left on device (os error 28)", "Broken header"]
)
def test_a_write_that_fails_is_an_error_of_the_system(tmp_path, monkeypatch, message):
    def fail(*_):
        raise tensor_archive.SafetensorError(message)

    monkeypatch.setattr("safetensors.torch.save_file", fail)
    with pytest.raises(OSError, match=r"No space left|Broken header") as caught:
        tensor_archive._save_tensors(tmp_path / "other", {"x": torch.ones(2)}, {})
    assert caught.value.errno == (errno.ENOSPC if "28" in message else errno.EIO)
    with pytest.raises((OSError, ValueError)):
        write_archive(tmp_path / "file", HEAD, {"x": torch.ones(2)})
    assert not (tmp_path / "file").exists()
    assert not list(tmp_path.glob(".file*"))
