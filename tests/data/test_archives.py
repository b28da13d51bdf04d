"""Archives of every kind unpack to the same files, below one folder, and to no more than was allowed."""

import bz2
import gzip
import lzma
import random
import shutil
import tarfile
import tracemalloc
from pathlib import Path

import pytest
from forge import bomb_header, odd_tar, pets, png, tar, zipped

from odedm import UsageError
from odedm.data.archives import ArchiveLimits, safe_name, unpack


@pytest.fixture
def target(tmp_path):
    (tmp_path / "in").mkdir()
    return tmp_path / "in" / "unpacked"


def files_below(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def packed_by(module):
    def make(path, files):
        path.write_bytes(module.compress(tar(path, files, packed=False).read_bytes()))
        return path

    return make


MAKERS = {
    "tar": lambda path, files: tar(path, files, packed=False),
    "tar.gz": tar,
    "tar.bz2": packed_by(bz2),
    "tar.xz": packed_by(lzma),
    "zip": zipped,
}


@pytest.mark.parametrize("kind", MAKERS)
def test_every_kind_unpacks_to_the_same_files_whatever_its_name_says(kind, tmp_path, target):
    files = pets() | {"./a//b.txt": b"", "ä/日本.png": b"1"}
    unpack(MAKERS[kind](tmp_path / "says.rar", files), target)
    assert files_below(target) == pets() | {"a/b.txt": b"", "ä/日本.png": b"1"}
    assert sorted(tmp_path.iterdir()) == [tmp_path / "in", tmp_path / "says.rar"], "and nothing beside them"


def test_members_that_are_folders_are_made(tmp_path, target):
    path = zipped(tmp_path / "a.zip", {"train/": b"", "train/empty/": b"", "a.txt": b"1"})
    unpack(path, target)
    assert (target / "train" / "empty").is_dir()
    shutil.rmtree(target)
    unpack(odd_tar(tmp_path / "a.tar.gz", name="train/empty", type=tarfile.DIRTYPE), target)
    assert (target / "train" / "empty").is_dir()


def test_modes_and_owners_of_strangers_are_not_taken_over(tmp_path, target):
    unpack(odd_tar(tmp_path / "a.tar.gz", name="tool", mode=0o6777), target)
    assert (target / "tool").stat().st_mode & 0o7111 == 0


LIMITS = {
    "files": (ArchiveLimits(entries=3), "more than 3 files"),
    "bytes in all": (ArchiveLimits(total_bytes=300), "an archive bomb"),
    "growth": (ArchiveLimits(growth=1, growth_from=100), "an archive bomb"),
}


@pytest.mark.parametrize("case", LIMITS)
@pytest.mark.parametrize("kind", ["tar.gz", "tar.bz2", "tar.xz", "zip"])
def test_limits_hold_in_every_archive(case, kind, tmp_path, target):
    limits, sentence = LIMITS[case]
    path = MAKERS[kind](tmp_path / "a", {f"a/{number}.bin": bytes(1000) for number in range(50)})
    with pytest.raises(UsageError, match=sentence):
        unpack(path, target, limits)
    assert sum(map(len, files_below(target).values())) <= 20_000


def test_folders_that_names_imply_count_as_well(tmp_path, target):
    path = tar(tmp_path / "a.tar.gz", {"/".join(f"{number}{part}" for part in "abcdefgh"): b"" for number in range(9)})
    with pytest.raises(UsageError, match="more than 20 files and folders"):
        unpack(path, target, ArchiveLimits(entries=20))


def test_a_file_that_the_disk_has_no_room_for_is_not_begun(tmp_path, target, monkeypatch):
    usage = shutil.disk_usage(tmp_path)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    for make in (tar, zipped):
        with pytest.raises(UsageError, match="'a' in '.*' needs 5000 bytes, but 1000 are free"):
            unpack(make(tmp_path / "a", {"a": bytes(5000)}), target)
        assert files_below(target) == {}
        shutil.rmtree(target)


@pytest.mark.parametrize("module", [gzip, bz2, lzma])
def test_a_bomb_is_refused_while_it_is_still_small(module, tmp_path, target):
    plain = tar(tmp_path / "a.tar", {"a": b"1"}, packed=False)
    path = tmp_path / "a.tar.gz"
    path.write_bytes(module.compress(plain.read_bytes() + bytes(8 << 20)))  # behind its end, where no header says so
    with pytest.raises(UsageError, match="would unpack to [12][0-9]{6} bytes or more"):
        unpack(path, target, ArchiveLimits(growth=10, growth_from=1 << 20))


@pytest.mark.parametrize("kind", ["tar.gz", "tar.bz2", "tar.xz"])
def test_an_archive_cut_short_is_refused(kind, tmp_path, target):
    content = random.Random(0).randbytes(300_000)  # noise is packed in blocks that can be cut apart
    path = MAKERS[kind](tmp_path / "a", {"a": content})
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(UsageError, match="truncated or corrupt .*ended before the end-of-stream"):
        unpack(path, target)


def test_a_header_of_gigabytes_is_not_read_into_memory(tmp_path, target):
    path = bomb_header(tmp_path / "a.tar.gz")
    tracemalloc.start()
    with pytest.raises(UsageError, match="a header of more than 262144 bytes"):
        unpack(path, target)
    assert tracemalloc.get_traced_memory()[1] < 5_000_000
    tracemalloc.stop()


def test_a_wrong_header_is_not_taken_for_the_end(tmp_path, target):
    path = tar(tmp_path / "a.tar", {"a": b"1", "b": b"2"}, packed=False)
    content = bytearray(path.read_bytes())
    content[1024] ^= 1  # the second header: its checksum is wrong, and tarfile ends there without a word
    path.write_bytes(content)
    with pytest.raises(UsageError, match="its end mark is missing"):
        unpack(path, target)


@pytest.mark.parametrize("name", ["/etc/a", "../a", "a/../../b", "C:/a", "c:a", "a\\b", "a\nb", "a\0b", "a" * 2000])
def test_names_that_lead_elsewhere_are_refused(name):
    with pytest.raises(UsageError):
        safe_name(name, Path("archive"))


@pytest.mark.parametrize("name", ["a/b.png", "./a//b.png", "a/./b.png", "a/...b/c", "ä/日本.png"])
def test_names_inside_are_cleaned(name):
    assert safe_name(name, Path("archive")) == name.removeprefix("./").replace("//", "/").replace("/./", "/")


TWICE = {
    "two spellings": {"name": "train//./ant/1.png"},
    "a file that is a folder": {"name": "train/ant"},
    "a folder that is a file": {"name": "train/ant/1.png/2.png"},
    "a folder by the name of a file": {"name": "train/ant/1.png", "type": tarfile.DIRTYPE},
}


@pytest.mark.parametrize("case", TWICE)
def test_what_is_there_is_never_written_over(case, tmp_path, target):
    with pytest.raises(UsageError, match="twice"):
        unpack(odd_tar(tmp_path / "a.tar.gz", **TWICE[case]), target)
    assert files_below(target) == {"train/ant/1.png": png()}


def test_names_longer_than_a_disk_takes_are_a_sentence(tmp_path, target):
    with pytest.raises(UsageError, match="truncated or corrupt"):
        unpack(tar(tmp_path / "a.tar.gz", {"a" * 300: b"1"}), target)


def headers(path, *members, packed):
    """A tar of bare headers: names with sizes that nothing follows."""
    blocks = []
    for name, fields in members:
        info = tarfile.TarInfo(name)
        for field, value in fields.items():
            setattr(info, field, value)
        blocks.append(info.tobuf(tarfile.PAX_FORMAT if info.pax_headers else tarfile.GNU_FORMAT))
    content = b"".join(blocks) + bytes(10240)
    path.write_bytes(gzip.compress(content) if packed else content)
    return path


@pytest.mark.timeout(20)
@pytest.mark.parametrize("packed", [True, False])
@pytest.mark.parametrize("name", [".", "a", "a/"])
@pytest.mark.parametrize("size", [-512, -1, -(1 << 62), 1 << 62, "pax"])
def test_a_size_that_leads_nowhere_is_refused_and_no_endless_loop(size, name, packed, tmp_path, target):
    fields = {"pax_headers": {"size": "-1536"}} if size == "pax" else {"size": size}
    path = headers(tmp_path / "a", ("b", {}), (name, fields), packed=packed)
    with pytest.raises(UsageError, match="bytes|truncated or corrupt"):
        unpack(path, target)


@pytest.mark.parametrize("key", ["GNU.sparse.map", "GNU.sparse.size", "GNU.sparse.major"])
def test_sparse_files_are_refused(key, tmp_path, target):
    fields = {"pax_headers": {key: "1", "GNU.sparse.minor": "0"}}
    path = headers(tmp_path / "a", ("a", fields), packed=False)
    path.write_bytes(path.read_bytes()[:-10240] + b"9" * 512 + b"\n" * 10240)
    with pytest.raises(UsageError, match="sparse|truncated or corrupt"):
        unpack(path, target)


@pytest.mark.timeout(20)
def test_the_endless_list_of_holes_of_a_sparse_file_is_not_read(tmp_path, target):
    fields = {"pax_headers": {"GNU.sparse.major": "1", "GNU.sparse.minor": "0"}}
    path = headers(tmp_path / "a", ("a", fields), packed=False)
    path.write_bytes(gzip.compress(path.read_bytes()[:-10240] + b"99999999\n" + b"1\n" * (8 << 20)))
    with pytest.raises(UsageError, match="a header of more than 262144 bytes"):
        unpack(path, target)


@pytest.mark.timeout(20)
def test_deep_names_fill_no_memory(tmp_path, target):
    deep = headers(tmp_path / "a", *(("a/" * 400 + str(number), {}) for number in range(2000)), packed=True)
    with pytest.raises(UsageError, match="401 parts; 1024 and 32 are the most"):
        unpack(deep, target)
    long = ("/".join(f"{number:05d}" + "b" * 25 for _ in range(30)) for number in range(400))
    wide = headers(tmp_path / "b", *((name, {}) for name in long), packed=True)
    tracemalloc.start()
    with pytest.raises(UsageError, match="more than 2000 files and folders"):
        unpack(wide, target.with_name("wide"), ArchiveLimits(entries=2000))
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_members_without_a_name_are_counted_as_well(tmp_path, target):
    path = headers(tmp_path / "a", *[(".", {"type": tarfile.DIRTYPE})] * 50, packed=True)
    with pytest.raises(UsageError, match="more than 20 files and folders"):
        unpack(path, target, ArchiveLimits(entries=20))


def test_attributes_of_the_whole_archive_do_not_pile_up(tmp_path, target):
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w", format=tarfile.PAX_FORMAT) as archive:
        for number in range(40):
            info = tarfile.TarInfo(f"a{number}")
            name = f"comment{number}"
            archive.fileobj.write(tarfile.TarInfo.create_pax_global_header({name: "c" * 100_000}))
            archive.offset = archive.fileobj.tell()
            archive.addfile(info)
    tracemalloc.start()
    unpack(path, target)
    assert tracemalloc.get_traced_memory()[1] < 2_000_000
    tracemalloc.stop()
    assert len(files_below(target)) == 40


def test_a_zip_that_lies_about_a_size_writes_no_more_than_it_said(tmp_path, target):
    path = zipped(tmp_path / "a.zip", {"a.png": bytes(100 << 20)})
    content = path.read_bytes()
    path.write_bytes(content.replace((100 << 20).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    tracemalloc.start()
    with pytest.raises(UsageError, match="corrupt"):
        unpack(path, target)
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
    assert sum(map(len, files_below(target).values())) <= 10
