"""Folders, tars and zips hold the same names and bytes, and nothing that leads elsewhere."""

import gzip

import pytest
from forge import bomb_header, folder, odd_tar, pets, png, tar, zipped

from odedm import UsageError
from odedm.data.archives import ArchiveLimits, Tar, open_tree, safe_name


def everything(tree):
    return tree.contents(list(tree.sizes))


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
    "files": (ArchiveLimits(files=3), "more than 3 files"),
    "bytes of one file": (ArchiveLimits(file_bytes=20), "20 are allowed"),
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
