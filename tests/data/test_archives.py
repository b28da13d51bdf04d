"""Folders, tars and zips hold the same names and bytes, and nothing that leads elsewhere."""

import gzip
import tarfile
import tracemalloc

import pytest
from forge import bomb_header, folder, odd_tar, pets, png, tar, zipped

from odedm import UsageError
from odedm.data.archives import ArchiveLimits, Tar, open_tree, safe_name


def everything(tree):
    return tree.contents(list(tree.sizes), tree.limits.file_bytes)


def test_a_folder_and_its_archives_hold_the_same(tmp_path):
    files = pets()
    trees = [
        open_tree(folder(tmp_path / "folder", files)),
        open_tree(tar(tmp_path / "a.tar.gz", files)),
        open_tree(tar(tmp_path / "a.tar", files, packed=False)),
        open_tree(zipped(tmp_path / "a.zip", files)),
    ]
    for tree in trees:
        assert everything(tree) == files
        assert list(tree.sizes) == sorted(files)
        assert tree.folders == {"train", "test", "train/ant", "train/bee", "test/ant", "test/bee"}


def test_the_first_bytes_count_not_the_name(tmp_path):
    files = {"a/b.png": png()}
    assert everything(open_tree(zipped(tmp_path / "says.tar.gz", files))) == files
    assert everything(open_tree(tar(tmp_path / "says.zip", files))) == files


def test_empty_folders_are_seen(tmp_path):
    assert "train/empty" in folders_of(open_tree(folder(tmp_path / "x", {"train/empty": None, "a.txt": b"1"})))


def folders_of(tree):
    _ = tree.sizes
    return tree.folders


def test_nothing_is_written_while_an_archive_is_read(tmp_path):
    path = tar(tmp_path / "a.tar.gz", pets())
    everything(open_tree(path))
    assert list(tmp_path.iterdir()) == [path]


LIMITS = {
    "files": (ArchiveLimits(entries=3), "more than 3 files"),
    "bytes of one file": (ArchiveLimits(file_bytes=20), "0 to 20 are allowed"),
    "bytes in all": (ArchiveLimits(total_bytes=300), "an archive bomb"),
    "growth": (ArchiveLimits(growth=1, growth_from=100), "an archive bomb"),
}


@pytest.mark.parametrize("case", LIMITS)
@pytest.mark.parametrize("make", [tar, zipped], ids=["tar", "zip"])
def test_limits_hold_in_every_archive(case, make, tmp_path):
    limits, sentence = LIMITS[case]
    path = make(tmp_path / "a", {f"a/{number}.bin": bytes(1000) for number in range(50)})
    with pytest.raises(UsageError, match=sentence):
        _ = open_tree(path, limits).sizes


def test_a_bomb_is_refused_while_it_is_still_small(tmp_path):
    plain = tar(tmp_path / "a.tar", {"a": b"1"}, packed=False)
    path = tmp_path / "a.tar.gz"
    path.write_bytes(gzip.compress(plain.read_bytes() + bytes(8 << 20)))  # behind its end, where no header says so
    with pytest.raises(UsageError, match="would unpack to more than 1[0-9]{6} bytes"):
        _ = Tar(path, ArchiveLimits(growth=10, growth_from=1 << 20)).sizes


def test_a_header_of_gigabytes_is_not_read_into_memory(tmp_path):
    with pytest.raises(UsageError, match="header of 4294967296 bytes"):
        _ = open_tree(bomb_header(tmp_path / "a.tar.gz")).sizes


@pytest.mark.parametrize("name", ["/etc/a", "../a", "a/../../b", "C:/a", "c:a", "a\\b", "a\nb", "a\0b", "a" * 2000])
def test_names_that_lead_elsewhere_are_refused(name):
    with pytest.raises(UsageError):
        safe_name(name, "archive")


@pytest.mark.parametrize("name", ["a/b.png", "./a//b.png", "a/./b.png", "a/...b/c", "ä/日本.png"])
def test_names_inside_are_cleaned(name):
    assert safe_name(name, "archive") == name.removeprefix("./").replace("//", "/").replace("/./", "/")


def test_two_spellings_of_one_name_are_one_name(tmp_path):
    path = odd_tar(tmp_path / "a.tar.gz", name="train//./ant/1.png")
    with pytest.raises(UsageError, match="'train/ant/1.png' twice"):
        _ = open_tree(path).sizes


def test_a_file_that_grew_since_the_listing_is_not_read_whole(tmp_path):
    tree = open_tree(folder(tmp_path / "x", {"a": b"12"}), ArchiveLimits(file_bytes=10))
    _ = tree.sizes
    (tmp_path / "x" / "a").write_bytes(bytes(100))
    with pytest.raises(UsageError, match="more than 10 bytes"):
        everything(tree)


def test_a_link_that_took_a_files_place_is_not_followed(tmp_path):
    tree = open_tree(folder(tmp_path / "x", {"a": b"12"}))
    _ = tree.sizes
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "x" / "a").unlink()
    (tmp_path / "x" / "a").symlink_to(tmp_path / "secret")
    with pytest.raises(OSError, match="symbolic"):
        everything(tree)


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
def test_a_size_that_leads_nowhere_is_refused_and_no_endless_loop(size, name, packed, tmp_path):
    fields = {"pax_headers": {"size": "-1536"}} if size == "pax" else {"size": size}
    path = headers(tmp_path / "a", ("b", {}), (name, fields), packed=packed)
    with pytest.raises(UsageError, match="of -?[0-9]+ bytes"):
        _ = open_tree(path).sizes


@pytest.mark.timeout(20)
def test_a_packed_archive_is_not_read_on_behind_its_end(tmp_path):
    path = headers(tmp_path / "a", (".", {"size": 8 << 30}), packed=True)
    with pytest.raises(UsageError, match="it ends early"):
        _ = open_tree(path).sizes


@pytest.mark.parametrize("key", ["GNU.sparse.map", "GNU.sparse.size", "GNU.sparse.major"])
def test_the_list_of_holes_of_a_sparse_file_is_not_read(key, tmp_path):
    fields = {"pax_headers": {key: "1", "GNU.sparse.minor": "0"}}
    path = headers(tmp_path / "a", ("a", fields), packed=False)
    path.write_bytes(path.read_bytes()[:-10240] + b"9" * 512 + b"\n" * 10240)
    with pytest.raises(UsageError, match="sparse"):
        _ = open_tree(path).sizes


@pytest.mark.timeout(20)
def test_deep_names_fill_no_memory(tmp_path):
    deep = headers(tmp_path / "a", *(("a/" * 400 + str(each), {}) for each in range(2000)), packed=True)
    with pytest.raises(UsageError, match="401 parts; 1024 and 32 are the most"):
        _ = open_tree(deep).sizes
    long = ("/".join(f"{each:05d}" + "b" * 25 for _ in range(30)) for each in range(400))
    wide = headers(tmp_path / "b", *((name, {}) for name in long), packed=True)
    tracemalloc.start()
    with pytest.raises(UsageError, match="names have more than 1000000 letters"):
        _ = open_tree(wide, ArchiveLimits(letters=1_000_000)).sizes
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()


def test_members_without_a_name_are_counted_as_well(tmp_path):
    path = headers(tmp_path / "a", *[(".", {"type": tarfile.DIRTYPE})] * 50, packed=True)
    with pytest.raises(UsageError, match="more than 20 files and folders"):
        _ = open_tree(path, ArchiveLimits(entries=20)).sizes


def test_header_bytes_are_bounded_in_all(tmp_path, monkeypatch):
    monkeypatch.setattr("odedm.data.archive_guards.HEADERS", 20_000)
    tagged = [(f"a{each}", {"pax_headers": {"comment": "c" * 900}}) for each in range(40)]
    with pytest.raises(UsageError, match="an archive bomb"):
        _ = open_tree(headers(tmp_path / "a.tar", *tagged, packed=False)).sizes
    with pytest.raises(UsageError, match="list of members has"):
        _ = open_tree(zipped(tmp_path / "a.zip", {f"a/{each}": b"" for each in range(1000)})).sizes


def test_a_zip_that_lies_about_a_size_is_not_unpacked(tmp_path):
    path = zipped(tmp_path / "a.zip", {"a.png": bytes(100 << 20)})
    content = path.read_bytes()
    path.write_bytes(content.replace((100 << 20).to_bytes(4, "little"), (10).to_bytes(4, "little")))
    tracemalloc.start()
    with pytest.raises(UsageError, match="corrupt"):
        everything(open_tree(path))
    assert tracemalloc.get_traced_memory()[1] < 10_000_000
    tracemalloc.stop()
