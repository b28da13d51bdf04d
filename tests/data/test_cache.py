"""A cache is whole or not there, opens at once, says when it was harmed, and bears two writers."""

import errno
import json
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
from dataclasses import replace

import numpy as np
import pytest
import torch
from forge import cifar10_binary, folder, noise, pets, png, small, tar, tiny_imagenet, zipped

from odedm import UsageError
from odedm.data import cache, cache_writer
from odedm.data import importer as importing
from odedm.data.importer import import_as, import_path
from odedm.data.opening import load_dataset


@pytest.fixture
def flowers(tmp_path):
    return folder(tmp_path / "My Flowers", pets(("rose", "tulip"), train=6, test=2))


def left(folder):
    return sorted(path.name for path in folder.iterdir() if path.name != ".lock")


def test_what_comes_out_is_what_went_in(flowers):
    import_as(flowers, "flowers")
    data = load_dataset("flowers")
    assert data.class_names == ("rose", "tulip")
    assert data.image.shape == (12, 3, 8, 8)
    assert data.label.tolist() == [0] * 6 + [1] * 6
    for row, (name, number) in enumerate((name, n) for name in ("rose", "tulip") for n in range(6)):
        content = (flowers / "train" / name / f"{number}.png").read_bytes()
        from PIL import Image

        array = np.asarray(Image.open(flowers / "train" / name / f"{number}.png"))
        assert content
        np.testing.assert_array_equal(data.image[row], array.transpose(2, 0, 1))
    assert torch.bincount(data.test_label).tolist() == [2, 2]


def test_constants_come_from_the_training_part(flowers):
    import_as(flowers, "flowers")
    data = load_dataset("flowers")
    x = data.transform.normalize(data.image).double()
    assert x.mean((0, 2, 3)).abs().max() < 1e-5
    assert (x.std((0, 2, 3), correction=0) - 1).abs().max() < 1e-5
    assert (data.transform.pad, data.transform.flip) == (1, False)


def test_the_checksum_is_the_data_sets_own(flowers):
    data = load_dataset(import_as(flowers, "flowers").name)
    assert replace(data, known_checksum=None).checksum == data.checksum == cache.find("flowers").checksum


def test_a_folder_its_archives_and_many_threads_make_the_same_rows(tmp_path, monkeypatch):
    files = pets(("rose", "tulip"), train=40, test=10)
    paths = [folder(tmp_path / "f", files), tar(tmp_path / "f.tar.gz", files), zipped(tmp_path / "f.zip", files)]
    alone = {import_path(path).checksum for path in paths}
    monkeypatch.setattr(cache_writer, "BLOCK_PICTURES", 7)
    monkeypatch.setattr(cache_writer, "cores", lambda: 3)
    together = {import_as(path, f"n{number}").checksum for number, path in enumerate(paths)}
    assert len(alone) == 1
    assert together == alone


def test_threads_name_the_broken_picture_and_leave_nothing(tmp_path, monkeypatch, data_folder):
    monkeypatch.setattr(cache_writer, "BLOCK_PICTURES", 5)
    path = folder(tmp_path / "x", pets(train=20) | {"train/bee/7.png": b"not a picture"})
    with pytest.raises(UsageError, match=r"'train/bee/7.png' is not a picture"):
        import_as(path, "mine")
    assert left(data_folder) == []
    assert threading.active_count() == 1


def test_no_more_blocks_are_decoded_than_can_be_written(tmp_path, monkeypatch):
    decoded, ahead = [], []
    real = cache_writer.decode_rows

    def decode_rows(folder, names, fit):
        decoded.extend(names)
        return real(folder, names, fit)

    monkeypatch.setattr(cache_writer, "decode_rows", decode_rows)
    monkeypatch.setattr(cache_writer, "BLOCK_PICTURES", 1)
    monkeypatch.setattr(cache_writer, "cores", lambda: 2)
    path = folder(tmp_path / "x", pets(train=50))
    import_as(path, "mine", on_progress=lambda _what, done, _total: ahead.append(len(decoded) - done))
    assert max(ahead) <= 4


def test_grey_stays_grey_and_a_mixture_becomes_colour(tmp_path):
    grey = import_as(folder(tmp_path / "g", pets(channels=1)), "grey")
    assert grey.shape == (1, 8, 8)
    mixed = pets(channels=1) | {"train/bee/3.png": noise(5)[0]}
    import_as(folder(tmp_path / "m", mixed), "mixed")
    data = load_dataset("mixed")
    assert data.shape == (3, 8, 8)
    assert data.image[0, 0].equal(data.image[0, 1])
    assert not data.image[7, 0].equal(data.image[7, 1])


def test_size_makes_pictures_of_any_size_one(tmp_path):
    path = folder(tmp_path / "x", pets() | {"train/ant/0.png": png(size=(20, 9)), "test/bee/1.png": png(size=(5, 30))})
    assert load_dataset(path, size=6).shape == (3, 6, 6)
    with pytest.raises(UsageError, match="--size"):
        load_dataset(path)


def test_published_data_comes_with_published_constants(tmp_path, monkeypatch):
    known = small(monkeypatch, "cifar10", (50, 10))
    path = tar(tmp_path / "cifar-10-binary.tar.gz", cifar10_binary())
    import_as(path, "cifar10")
    for data in (load_dataset("cifar10"), load_dataset(path)):
        assert data.tasks == 5
        assert (data.transform.pad, data.transform.flip) == (4, True)
        mean = data.transform.shift.flatten() / 255
        assert torch.allclose(mean, torch.tensor(known.mean), atol=1e-6)
        assert data.class_names == known.class_names


def test_tiny_imagenet_with_grey_pictures_among_the_others(tmp_path, monkeypatch):
    small(monkeypatch, "tiny-imagenet", (6, 4), classes=2)
    import_as(zipped(tmp_path / "t.zip", tiny_imagenet()), "tiny-imagenet")
    data = load_dataset("tiny-imagenet")
    assert data.shape == (3, 64, 64)
    assert data.tasks == 10
    assert data.test_image[1, :, 0, 0].tolist() == [7, 7, 7], "a grey picture in all three channels"


def test_a_path_is_imported_once_and_named_by_its_content(flowers, tmp_path, monkeypatch):
    first = load_dataset(flowers)
    assert re.fullmatch("my-flowers-[0-9a-f]{8}", first.name)
    calls = []
    monkeypatch.setattr(importing, "write", lambda *args: calls.append(args))
    assert load_dataset(str(flowers)).name == first.name, "nothing is decoded the second time"
    assert load_dataset(first.name).name == first.name
    assert not calls
    monkeypatch.undo()
    monkeypatch.setenv("ODEDM_DATA", str(tmp_path / "cache"))
    copy = shutil.copytree(flowers, tmp_path / "elsewhere" / "My Flowers")
    assert load_dataset(copy).name == first.name
    (flowers / "train" / "rose" / "0.png").write_bytes(png((1, 1, 1)))
    assert load_dataset(flowers).name != first.name, "a changed folder is another data set"


def test_the_seed_decides_what_is_held_out(tmp_path):
    path = folder(tmp_path / "x", {name[6:]: content for name, content in pets(train=10).items() if "train" in name})
    first, again, other = (load_dataset(path, seed=seed) for seed in (0, 0, 1))
    assert first.test_image.equal(again.test_image)
    assert not first.test_image.equal(other.test_image)
    assert torch.bincount(first.test_label).tolist() == [2, 2]


def test_tasks_and_size_are_checked_against_the_cache(flowers):
    import_as(flowers, "flowers", tasks=2, flip=True)
    data = load_dataset("flowers")
    assert (data.tasks, data.transform.flip) == (2, True)
    assert load_dataset("flowers", tasks=1).tasks == 1
    assert load_dataset("flowers", size=8).shape == (3, 8, 8)
    with pytest.raises(UsageError, match="not at size 9"):
        load_dataset("flowers", size=9)


def test_arrays_are_cached_too(tmp_path):
    x, y = np.random.default_rng(0).normal(3, 2, (40, 5)).astype(np.float32), np.arange(40) % 4
    np.savez(tmp_path / "v.npz", x=x, y=y)
    data = load_dataset(tmp_path / "v.npz")
    assert data.image.dtype == torch.float32
    assert (data.shape, data.classes, data.tasks) == ((5,), 4, 2)
    assert data.transform.normalize(data.image).mean(0).abs().max() < 1e-5


def test_an_open_cache_cannot_be_written_through(flowers):
    import_as(flowers, "flowers")
    load_dataset("flowers").image.zero_()
    cache.verify("flowers")


def test_names_that_are_not_there_say_what_to_do(flowers):
    import_as(flowers, "flowers")
    for name, sentence in {
        "flower": "did you mean 'flowers'",
        "cifar10": "odedm data get cifar10",
        "cifar1": "did you mean 'cifar10",
        "../flowers": "Unknown data set",
    }.items():
        with pytest.raises(UsageError, match=sentence):
            load_dataset(name)


@pytest.mark.parametrize("name", ["", ".", "..", "a/b", "A", "-a", "a b", "a" * 99, "blobs", ".hidden", "a\n"])
def test_bad_names_are_refused(name, flowers):
    with pytest.raises(UsageError):
        import_as(flowers, name)


def test_a_name_is_not_taken_twice_unless_asked(flowers, tmp_path):
    import_as(flowers, "flowers")
    old = load_dataset("flowers")
    other = folder(tmp_path / "other", pets(("rose", "tulip", "lily")))
    with pytest.raises(UsageError, match="--overwrite"):
        import_as(other, "flowers")
    import_as(other, "flowers", overwrite=True)
    assert load_dataset("flowers").classes == 3
    assert old.image.float().mean() > 0, "who has the old one open keeps it"


HARM = {
    "manifest: not JSON": ("manifest.json", lambda content: b"{", "cannot be used"),
    "manifest: a class renamed": ("manifest.json", lambda content: content.replace(b"rose", b"nose"), "was changed"),
    "manifest: a list": ("manifest.json", lambda content: b"[]", "schema"),
    "manifest: binary": ("manifest.json", lambda content: b"\xff\xfe\x00", "cannot be used"),
    "manifest: deep nesting": ("manifest.json", lambda content: b"[" * 100_000, "cannot be used"),
    "manifest: of the version before": (
        "manifest.json",
        lambda content: content.replace(b"data/3", b"data/2"),
        "another version of odedm",
    ),
    "arrays: truncated": ("test_image.npy", lambda content: content[:-1], "truncated"),
    "arrays: longer": ("image.npy", lambda content: content + b"1", "instead of"),
    "arrays: gone": ("label.npy", None, "is missing"),
}


@pytest.mark.parametrize("case", HARM)
def test_a_harmed_cache_is_not_opened(case, flowers, data_folder):
    import_as(flowers, "flowers")
    file, change, sentence = HARM[case]
    path = data_folder / "flowers" / file
    content = path.read_bytes()
    path.unlink()
    if change:
        path.write_bytes(change(content))
    for use in (load_dataset, cache.verify):
        with pytest.raises(UsageError, match=sentence):
            use("flowers")


def test_verify_finds_one_changed_pixel_and_open_a_broken_head(flowers, data_folder):
    import_as(flowers, "flowers")
    cache.verify("flowers")
    path = data_folder / "flowers" / "image.npy"
    intact = path.read_bytes()
    path.write_bytes(intact[:-5] + bytes([intact[-5] ^ 1]) + intact[-4:])
    with pytest.raises(UsageError, match="changed after they were written"):
        cache.verify("flowers")
    path.write_bytes(b"\xff" * 8 + intact[8:])
    with pytest.raises(UsageError, match="cannot be read"):
        load_dataset("flowers")
    with pytest.raises(UsageError, match="changed after they were written"):
        cache.verify("flowers")


WRONG_COLUMNS = {
    "a label that no class has": ("label.npy", lambda label: label + 90),
    "a negative label": ("test_label.npy", lambda label: label - 1),
    "another type": ("image.npy", lambda image: image.view(np.int8)),
    "another shape": ("test_image.npy", lambda image: image.swapaxes(0, 1)),
    "objects": ("label.npy", lambda label: label.astype(object)),
}


@pytest.mark.parametrize("case", WRONG_COLUMNS)
def test_columns_that_are_not_what_the_manifest_says(case, flowers, data_folder):
    import_as(flowers, "flowers")
    name, change = WRONG_COLUMNS[case]
    path = data_folder / "flowers" / name
    length = path.stat().st_size
    with path.open("rb+") as file:
        column = np.lib.format.read_array(file)
        file.seek(0)
        np.lib.format.write_array(file, change(column))
        file.truncate(length)
    with pytest.raises(UsageError, match="not what its manifest says|cannot be read"):
        load_dataset("flowers")


@pytest.mark.parametrize("number", [errno.ENOSPC, errno.EDQUOT, errno.EIO])
def test_a_full_disk_ends_in_a_sentence_and_leaves_nothing(number, flowers, data_folder, monkeypatch):
    def fail(*_):
        raise OSError(number, os.strerror(number))

    for module, name in ((cache_writer.np, "save"), (cache_writer, "sync_file"), (importing, "write_text")):
        with monkeypatch.context() as patched:
            patched.setattr(module, name, fail)
            with pytest.raises(
                UsageError, match=f"{re.escape(os.strerror(number))}.* (Free some space|Make room|Mend that)"
            ):
                import_as(flowers, "flowers")
        assert left(data_folder) == []


def test_too_little_space_is_seen_before_the_first_picture(flowers, data_folder, monkeypatch):
    usage = shutil.disk_usage(data_folder.parent)._replace(free=1000)
    monkeypatch.setattr(shutil, "disk_usage", lambda _: usage)
    with pytest.raises(UsageError, match="1000 are free"):
        import_as(flowers, "flowers")
    assert left(data_folder) == []


def test_a_data_folder_that_cannot_be_made(flowers, tmp_path, monkeypatch):
    (tmp_path / "file").write_text("in the way")
    monkeypatch.setenv("ODEDM_DATA", str(tmp_path / "file" / "cache"))
    with pytest.raises(UsageError, match="Set ODEDM_DATA"):
        import_as(flowers, "flowers")


def test_an_interrupted_import_leaves_nothing(flowers, data_folder, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        import_as(flowers, "flowers", on_progress=interrupt)
    assert left(data_folder) == []
    import_as(flowers, "flowers")


def test_threads_stop_when_an_import_is_interrupted(tmp_path, data_folder, monkeypatch):
    def interrupt(*_):
        raise KeyboardInterrupt

    monkeypatch.setattr(cache_writer, "BLOCK_PICTURES", 5)
    monkeypatch.setattr(cache_writer, "cores", lambda: 2)
    with pytest.raises(KeyboardInterrupt):
        import_as(folder(tmp_path / "x", pets(train=20)), "mine", on_progress=interrupt)
    assert threading.active_count() == 1
    assert left(data_folder) == []


IMPORTER = (
    "import sys; from pathlib import Path; from odedm.data.importer import import_path\n"
    "print(import_path(Path(sys.argv[1])).name)"
)


def test_importers_at_once_do_not_harm_each_other(tmp_path, data_folder):
    path = folder(tmp_path / "x", pets(train=150, test=20))
    words = [sys.executable, "-c", IMPORTER, str(path)]
    running = [subprocess.Popen(words, stdout=subprocess.PIPE, text=True) for _ in range(4)]
    names = {process.communicate(timeout=60)[0].strip() for process in running}
    assert all(process.returncode == 0 for process in running)
    assert len(names) == 1
    assert left(data_folder) == [*names]
    cache.verify(names.pop())


def test_a_second_import_says_that_it_waits_for_the_first(flowers, data_folder):
    messages = []
    with importing._importing(importing.no_progress):
        thread = threading.Thread(
            target=import_as, args=(flowers, "flowers"), kwargs={"on_progress": lambda what, *_: messages.append(what)}
        )
        thread.start()
        while not messages:
            time.sleep(0.01)
        assert not cache.is_cached("flowers")
    thread.join(30)
    assert messages[0] == "waiting for another import"
    cache.verify("flowers")


def test_what_was_imported_opens_while_another_import_goes_on(flowers):
    first = load_dataset(flowers)
    with importing._importing(importing.no_progress):
        assert load_dataset(flowers).name == first.name


def test_a_killed_import_leaves_no_cache_and_does_not_block_the_next(tmp_path, data_folder):
    path = folder(tmp_path / "x", pets(train=10))
    code = (
        "import sys, time; from pathlib import Path; from odedm.data import importer\n"
        "wait = lambda *_: (print('now', flush=True), time.sleep(60))\n"
        "importer.import_as(Path(sys.argv[1]), 'mine', on_progress=wait)"
    )
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE) as process:
        assert process.stdout.readline()
        process.kill()
    assert not cache.is_cached("mine")
    assert len(left(data_folder)) == 1
    import_as(path, "mine")
    assert left(data_folder) == ["mine"], "and the next import sweeps up after it"


def test_where_the_cache_lives(monkeypatch, tmp_path):
    monkeypatch.delenv("ODEDM_DATA")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setattr(cache.sys, "platform", "linux")
    assert cache.root() == tmp_path / "odedm" / "data"
    monkeypatch.setattr(cache.sys, "platform", "darwin")
    assert cache.root().parts[-4:] == ("Library", "Caches", "odedm", "data")
    monkeypatch.setattr(cache.sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path / "local"))
    assert cache.root() == tmp_path / "local" / "odedm" / "data"


def test_sixty_thousand_rows_open_in_a_moment(tmp_path):
    np.savez(tmp_path / "big.npz", x=np.zeros((60_000, 1, 28, 28), np.uint8), y=np.arange(60_000) % 10)
    name = import_path(tmp_path / "big.npz").name
    start = time.perf_counter()
    data = load_dataset(name)
    assert time.perf_counter() - start < 1
    assert len(data.image) == 48_000


def test_the_manifest_is_plain_json(flowers, data_folder):
    import_as(flowers, "flowers")
    plain = json.loads((data_folder / "flowers" / "manifest.json").read_text())
    assert plain["schema"] == "odedm.data/3"
    assert plain["source"] == "My Flowers", "a name, not where it lay on somebody's disk"
    assert plain["rows"] == [12, 4]


def test_pictures_of_equal_length_and_time_are_not_the_same_pictures(flowers, tmp_path):
    path = flowers / "train" / "rose" / "0.bmp"
    (flowers / "train" / "rose" / "0.png").unlink()
    path.write_bytes(png((1, 2, 3), form="BMP"))
    first, before = import_path(flowers), path.stat()
    (tmp_path / "other").write_bytes(png((200, 2, 3), form="BMP"))
    os.replace(tmp_path / "other", path)
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    second = import_path(flowers)
    assert first.checksum != second.checksum
    path.write_bytes(png((1, 2, 3), form="BMP"))  # what was there at first, in another file
    os.utime(path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert import_path(flowers) == first


def test_an_archive_of_equal_length_and_time_is_not_the_same_archive(tmp_path):
    def made(colour):
        files = {f"{class_name}/{row}.bmp": png(colour, form="BMP") for class_name in "ab" for row in (1, 2)}
        return tar(tmp_path / "a.tar", files, packed=False)

    path = made((1, 2, 3))
    first, before = import_path(path), path.stat()
    os.utime(made((3, 2, 1)), ns=(before.st_atime_ns, before.st_mtime_ns))
    assert path.stat().st_size == before.st_size
    assert import_path(path).checksum != first.checksum


def test_a_renamed_class_is_not_hidden_by_equal_pictures(flowers):
    first = import_path(flowers)
    for part in ("train", "test"):
        (flowers / part / "rose").rename(flowers / part / "peony")
    second = import_path(flowers)
    assert (first.checksum, second.class_names) == (second.checksum, ("peony", "tulip"))
    assert load_dataset(first.name).class_names == ("rose", "tulip")
    assert import_path(flowers) == second


def killed_at(place, flowers):
    code = (
        "import os, signal, sys; from pathlib import Path\n"
        "from odedm.core import files; from odedm.data import importer\n"
        "kill = lambda *_, **__: os.kill(os.getpid(), signal.SIGKILL)\n"
        f"{place} = kill\n"
        "importer.import_as(Path(sys.argv[1]), 'mine', overwrite=True)"
    )
    done = subprocess.run([sys.executable, "-c", code, str(flowers)], check=False)
    assert done.returncode == -signal.SIGKILL


@pytest.mark.parametrize("place", ["importer.write", "importer._put_in_place", "importer.write_text"])
def test_the_next_import_clears_up_after_a_killed_one_of_other_data(place, flowers, data_folder):
    killed_at(place, flowers)
    assert left(data_folder)
    manifest = import_path(flowers)
    assert left(data_folder) == [manifest.name]


def test_a_replacement_that_is_killed_halfway_loses_nothing(flowers, data_folder, tmp_path):
    old = import_as(folder(tmp_path / "other", pets(("rose", "tulip", "lily"))), "mine")
    killed_at("files.shutil.rmtree = files.sync_folder = importer.write_text", flowers)
    assert cache.load_manifest("mine") == old
    moved = data_folder / ".mine.1234.0123abcd.old"  # as a process leaves it that is killed between two renames
    (data_folder / "mine").rename(moved)
    assert load_dataset("mine").checksum == old.checksum
    (data_folder / "mine").rename(moved)
    import_as(flowers, "flowers")
    assert cache.verify("mine") == old
    assert left(data_folder) == ["flowers", "mine"]


def test_nothing_piles_up_beside_the_data_sets(flowers, data_folder):
    for colour in range(5):
        (flowers / "train" / "rose" / "0.png").write_bytes(png((colour, 1, 1)))
        manifest = import_path(flowers)
        shutil.rmtree(data_folder / manifest.name)
        import_as(flowers, f"flowers{colour}")
        shutil.rmtree(data_folder / f"flowers{colour}")
    assert left(data_folder) == []


def test_a_data_set_of_another_version_is_made_anew_from_its_path(flowers, data_folder):
    first = import_path(flowers)
    path = data_folder / first.name / "manifest.json"
    path.write_text(path.read_text().replace("odedm.data/3", "odedm.data/1"))
    with pytest.raises(UsageError, match="another version of odedm wrote it. Remove '.*' and import it again"):
        load_dataset(first.name)
    assert import_path(flowers) == first
    assert load_dataset(first.name).checksum == first.checksum


def test_a_lock_that_is_a_link_is_refused(flowers, data_folder, tmp_path):
    data_folder.mkdir()
    (data_folder / cache.LOCK).symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UsageError, match=r"The import into '.*' failed: .*\.lock"):
        import_as(flowers, "flowers")
    assert not (tmp_path / "elsewhere").exists()


def test_classes_that_share_a_name_are_numbered(tmp_path, monkeypatch):
    wnids = ("n00000002", "n00000001")
    files = tiny_imagenet(wnids) | {"tiny-imagenet-200/words.txt": b"n00000001\tcrane\nn00000002\tcrane, bird\n"}
    small(monkeypatch, "tiny-imagenet", (6, 4), classes=2)
    assert import_as(tar(tmp_path / "a.tar", files), "tiny-imagenet").class_names == ("crane", "crane (2)")
    np.savez(tmp_path / "a.npz", x=np.zeros((10, 4, 4), np.uint8), y=np.arange(10) % 2, class_names=["a\x1b", "a\x9b"])
    assert import_path(tmp_path / "a.npz").class_names == ("a�", "a� (2)")


def test_names_that_are_not_utf8(tmp_path):
    os.makedirs(os.fsencode(tmp_path) + b"/f\xfcr")
    place = folder(tmp_path / os.fsdecode(b"f\xfcr"), pets((os.fsdecode(b"m\xfc\xdfe"), "b"), train=700))
    manifest = import_path(place)
    assert manifest.class_names == ("b", "m��e")
    assert load_dataset(place).class_names == manifest.class_names
    assert import_path(tar(tmp_path / "a.tar", {os.fsdecode(b"m\xfc/") + f"{n}.png": png() for n in "12"}
                           | {f"b/{n}.png": png() for n in "12"})).class_names == ("b", "m�")  # fmt: skip


def test_without_a_home_there_is_a_sentence(flowers, monkeypatch):
    import pwd

    def nobody(_):
        raise KeyError

    monkeypatch.delenv("ODEDM_DATA")
    monkeypatch.delenv("XDG_CACHE_HOME", raising=False)
    monkeypatch.delenv("HOME", raising=False)
    monkeypatch.setattr(pwd, "getpwuid", nobody)
    for call in (
        lambda: import_as(flowers, "mine"),
        lambda: load_dataset("~/x"),
        lambda: load_dataset("~nobody-here/x"),
    ):
        with pytest.raises(UsageError, match="There is no home folder for '~.*Set HOME, or ODEDM_DATA"):
            call()
    assert load_dataset("blobs").classes
