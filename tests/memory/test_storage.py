"""A memory whose rows are files: the same as one in RAM, and after a kill exactly its last save."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import DataLoader

import odedm
from odedm import DualMemory, Prototypes, UsageError

CHOICE = Prototypes(space="pixels", distance="l2", dac=None)


def feed(memory, calls, seed, rows=50, first=0):
    rng = np.random.default_rng(seed)
    for call in range(calls):
        number = first + call * rows + np.arange(rows)
        image = np.repeat(number[:, None], 6, 1).astype(np.float32)
        memory.add(image, rng.integers(0, 4, rows), tokens=np.stack([number, number + 1], 1), number=number)


def same(left, right):
    left, right = left.rows(), right.rows()
    return left.keys() == right.keys() and all(np.array_equal(left[name], right[name]) for name in left)


def pair(tmp_path, capacity=300, **settings):
    settings = {"k": 2, "selection": CHOICE, "seed": 3, **settings}
    return DualMemory(capacity, storage=tmp_path / "disk", **settings), DualMemory(capacity, **settings)


@pytest.mark.parametrize("settings", [{}, {"candidates": 5}, {"short_policy": "balanced-reservoir"}, {"k": 0}])
def test_it_keeps_and_draws_what_a_memory_in_ram_does(tmp_path, settings):
    disk, ram = pair(tmp_path, **settings)
    for memory in (disk, ram):
        feed(memory, 12, 0)
    assert same(disk, ram)
    if not settings:  # bounded candidates move rows on disk only where they must, so slots differ
        assert np.array_equal(disk.sample(9)["number"], ram.sample(9)["number"])
    for memory in (disk, ram):
        memory.end_task()
        feed(memory, 6, 1, first=600)
    assert same(disk, ram)
    assert disk.disk_nbytes > 300 * 48
    assert disk.nbytes < ram.nbytes


def test_releasing_and_resizing_keep_the_same_rows(tmp_path):
    disk, ram = pair(tmp_path)
    for memory in (disk, ram):
        feed(memory, 12, 0)
        memory.end_task()
        memory.release([1])
        memory.resize(120)
        memory.resize(500)
    assert same(disk, ram)


def test_a_load_returns_to_the_last_save_and_goes_on_as_the_saved_one(tmp_path):
    disk, ram = pair(tmp_path)
    for memory in (disk, ram):
        feed(memory, 12, 0)
        memory.end_task()
    assert disk.save() == tmp_path / "disk"
    ram.save(tmp_path / "ram")
    feed(disk, 20, 1)
    disk.release([0])
    disk.resize(100)
    disk.resize(900)
    feed(disk, 20, 2)
    disk.close()
    disk, ram = DualMemory.load(tmp_path / "disk"), DualMemory.load(tmp_path / "ram")
    assert same(disk, ram)
    for memory in (disk, ram):
        feed(memory, 9, 5)
        memory.end_task()
    assert same(disk, ram)


CHILD = """
import sys
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_storage import feed
from odedm import DualMemory
memory = DualMemory.load(sys.argv[2])
log = Path(sys.argv[3])
first = int(log.read_text().split()[-1]) if log.exists() else 0
while True:
    feed(memory, 3, first, rows=70, first=first)
    first += 210
    with log.open("a") as file:
        file.write(f"{first} ")
    memory.save()
    with log.open("a") as file:
        file.write(f"{first} ")
"""


def expected(saves):
    """The rows of a memory that was fed without a break."""
    memory = DualMemory(100, k=0, seed=0)
    memory.add(np.zeros((1, 6), np.float32), [0], tokens=np.array([[0, 1]]), number=[0])
    for number in range(saves):
        feed(memory, 3, number * 210, rows=70, first=number * 210)
    return memory


@pytest.mark.parametrize("kills", [int(os.environ.get("ODEDM_STORAGE_KILLS", "4"))])
def test_killed_at_any_time_it_is_as_it_was_at_a_save(tmp_path, kills):
    rng = random.Random(0)
    memory = DualMemory(100, k=0, seed=0, storage=tmp_path / "disk")
    memory.add(np.zeros((1, 6), np.float32), [0], tokens=np.array([[0, 1]]), number=[0])
    memory.save()
    memory.close()
    log = tmp_path / "log"
    for _ in range(kills):
        before = len(log.read_text().split()) if log.exists() else 0
        words = [sys.executable, "-c", CHILD, str(Path(__file__).parent), str(tmp_path / "disk"), str(log)]
        child = subprocess.Popen(words)
        while not log.exists() or len(log.read_text().split()) <= before:
            assert child.poll() is None
            time.sleep(0.005)
        time.sleep(rng.random() * 0.05)
        child.send_signal(signal.SIGKILL)
        child.wait()
        loaded = DualMemory.load(tmp_path / "disk")
        rows = loaded.rows()
        assert np.array_equal(rows["images"][:, 0], rows["number"])  # no row is torn
        assert np.array_equal(rows["tokens"][:, 1], rows["number"] + 1)
        seen = int(loaded._dual.buffer.num_seen)
        assert same(loaded, expected((seen - 1) // 210))
        done = log.read_text().split()
        assert seen - 1 in {int(done[-1]), int(done[-1]) - 210}
        log.write_text(f"{seen - 1} ")
        loaded.close()


def test_a_journal_that_is_not_whole_is_read_as_far_as_it_is(tmp_path):
    disk, ram = pair(tmp_path)
    for memory in (disk, ram):
        feed(memory, 12, 0)
    disk.save()
    feed(disk, 40, 1)
    disk.close()
    with (tmp_path / "disk" / "undo-1").open("ab") as file:
        file.write(b"undo\x05\x00\x00\x00")
    assert same(DualMemory.load(tmp_path / "disk"), ram)


def test_what_a_killed_save_left_is_swept(tmp_path):
    disk, ram = pair(tmp_path)
    for memory in (disk, ram):
        feed(memory, 12, 0)
    disk.save()
    disk.close()
    left = [tmp_path / "disk" / name for name in (".tmpfNI3t8", ".state.odedm.12.abcdef01")]
    for path in left:
        path.touch()
    assert same(DualMemory.load(tmp_path / "disk"), ram)
    assert not any(path.exists() for path in left)


def test_a_full_disk_refuses_rows_before_one_is_overwritten(tmp_path, monkeypatch):
    disk, _ = pair(tmp_path)
    feed(disk, 12, 0)
    disk.save()
    before = disk.rows()

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "write", full)
    with pytest.raises(UsageError, match="No space left"):
        feed(disk, 40, 1)
    monkeypatch.undo()
    disk.close()
    disk = DualMemory.load(tmp_path / "disk")
    assert all(np.array_equal(before[name], column) for name, column in disk.rows().items())


def test_a_folder_is_of_one_memory_and_one_process(tmp_path):
    disk, _ = pair(tmp_path)
    with pytest.raises(UsageError, match="in use"):
        DualMemory(10, storage=tmp_path / "disk")
    feed(disk, 2, 0)
    with pytest.raises(UsageError, match="without a path"):
        disk.save(tmp_path / "file")
    with pytest.raises(UsageError, match=r"call save\(\)"):
        disk.state_dict()
    disk.save()
    disk.close()
    with pytest.raises(UsageError, match="holds a saved memory"):
        DualMemory(10, storage=tmp_path / "disk")
    with pytest.raises(UsageError, match="load the folder"):
        DualMemory.load(tmp_path / "disk" / "state.odedm")
    (tmp_path / "mine").mkdir()
    with pytest.raises(UsageError, match="no saved memory"):
        DualMemory.load(tmp_path / "mine")
    (tmp_path / "mine" / "thesis.tex").write_text("")
    with pytest.raises(UsageError, match=r"'thesis\.tex'"):
        DualMemory(10, storage=tmp_path / "mine")
    with pytest.raises(UsageError, match="save needs a path"):
        DualMemory(10).save()


@pytest.mark.parametrize("harm", ["short", "missing", "link"])
def test_a_folder_with_other_files_than_were_saved_is_refused(tmp_path, harm):
    disk, _ = pair(tmp_path)
    feed(disk, 12, 0)
    disk.save()
    disk.close()
    column = tmp_path / "disk" / "column-0"
    if harm == "short":
        os.truncate(column, 10)
    else:
        column.rename(tmp_path / "moved")
        if harm == "link":
            column.symlink_to(tmp_path / "moved")
    with pytest.raises(UsageError, match="column-0 is missing or has fewer"):
        DualMemory.load(tmp_path / "disk")


def test_a_closed_or_torn_memory_leaves_the_last_save_as_it_is(tmp_path):
    disk, ram = pair(tmp_path)
    for memory in (disk, ram):
        feed(memory, 12, 0)
    disk.save()
    disk._broken = "it was interrupted"
    with pytest.raises(UsageError, match="it was interrupted"):
        disk.save()
    disk._broken = ""
    disk.close()
    for call in (disk.save, disk.rows, lambda: disk.sample(3), lambda: feed(disk, 1, 0)):
        with pytest.raises(UsageError, match="was closed; load it again"):
            call()
    assert same(DualMemory.load(tmp_path / "disk"), ram)


def test_a_thing_that_is_no_memory_is_not_merged():
    with pytest.raises(UsageError, match="Only another DualMemory can be merged; 5 was given"):
        DualMemory(10).merge(5)


def test_rows_may_have_no_labels():
    memory = DualMemory(20, k=3, selection=CHOICE)
    memory.add(torch.arange(120).view(30, 4))
    memory.end_task()
    assert sorted(memory.rows()) == ["images", "prototype"]
    assert memory.size("long") == 3
    with pytest.raises(UsageError, match="have labels, and the first rows had none"):
        memory.add(torch.arange(4).view(1, 4), [0])


def test_rows_are_drawn_by_class_and_by_weight():
    memory = DualMemory(400, k=0, seed=1)
    memory.add(np.zeros((400, 2)), np.arange(400) % 4, weight=np.where(np.arange(400) % 4 == 3, 0, np.arange(400) % 4))
    assert {*memory.sample(50, classes=[1, 2])["labels"].tolist()} == {1, 2}
    assert len(memory.sample(500, classes=3)["labels"]) == 100
    drawn = np.concatenate([memory.sample(1, weights="weight")["labels"] for _ in range(600)])
    assert 340 < (drawn == 2).sum() < 460
    assert not np.isin(drawn, [0, 3]).any()
    with pytest.raises(UsageError, match="single numbers"):
        memory.sample(3, weights="images")
    with pytest.raises(UsageError, match="Unknown column 'size'"):
        memory.sample(3, weights="size")


@pytest.mark.parametrize("storage", [False, True])
def test_it_is_a_sequence_of_rows(tmp_path, storage):
    memory = DualMemory(30, k=0, storage=tmp_path / "disk" if storage else None)
    feed(memory, 3, 0)
    rows = memory.rows()
    assert [int(row["number"]) for row in memory] == rows["number"].tolist()
    assert int(memory[-1]["number"]) == rows["number"][-1]
    assert np.array_equal(memory[2:8:3]["number"], rows["number"][2:8:3])
    with pytest.raises(UsageError, match="index must be"):
        memory[30]
    loader = DataLoader(memory, batch_size=8, collate_fn=lambda rows: [int(row["number"]) for row in rows])
    assert sorted(sum(loader, [])) == sorted(rows["number"].tolist())


def test_workers_read_the_rows_on_disk_and_skip_those_that_are_replaced(tmp_path):
    memory = DualMemory(40, k=0, seed=2, storage=tmp_path / "disk")
    memory.add(np.repeat(np.arange(40, dtype=np.float32)[:, None], 6, 1), np.arange(40))
    new = [(np.full(6, -1, np.float32), -1)] * 60
    stream = odedm.ReplayStream(new, memory, ratio=1.0)
    rows = [(x, int(y)) for x, y in DataLoader(stream, batch_size=None, num_workers=2, prefetch_factor=1)]
    assert sum(y >= 0 for _, y in rows) == 60
    assert all(float(x[0]) == y for x, y in rows)
    shown = []
    for x, y in stream:
        shown.append((float(x[0]), int(y)))
        memory.add(np.full((3, 6), 100, np.float32), [100] * 3)
    assert all(x == y for x, y in shown if y >= 0)
    assert 100 not in {y for _, y in shown}


def test_a_merged_sample_is_uniform_over_both_streams():
    kept = torch.zeros(200)
    for trial in range(800):
        memories = []
        for machine, (start, end, capacity) in enumerate([(0, 60, 20), (60, 200, 25)]):
            memory = DualMemory(capacity, k=0, seed=2 * trial + machine)
            memory.add(torch.arange(start, end).view(-1, 1), torch.zeros(end - start, dtype=torch.long))
            memories.append(memory)
        first, second = memories
        with pytest.raises(UsageError, match="same settings|larger one into"):
            second.merge(first)
        second.settings = first.settings if trial else second.settings
        first.merge(second)
        assert len(first) == 20
        kept[first.rows()["images"].view(-1)] += 1
        first.add(torch.arange(200, 300).view(-1, 1), torch.zeros(100, dtype=torch.long))
        assert len(first) == 20
    expected_count = 800 * 20 / 200
    chi_square = float(((kept - expected_count) ** 2 / expected_count).sum())
    assert 140 < chi_square < 265  # 199 degrees of freedom


def test_merged_prototypes_stay_within_the_shares():
    settings = {"rho": 0.5, "selection": CHOICE, "short_policy": "reservoir"}
    memories = [DualMemory(60, **settings, seed=seed) for seed in range(2)]
    for memory, classes in zip(memories, ([0, 1], [1, 2]), strict=True):
        memory.add(torch.rand(80, 3), torch.tensor(classes * 40))
        memory.end_task()
    memories[0].merge(memories[1])
    long = memories[0].rows("long")
    assert torch.bincount(long["labels"]).tolist() == [10, 10, 10]
    assert sorted(long["prototype"][long["labels"] == 1].tolist()) == [*range(10)]
    assert len(memories[0]) == 60
    assert memories[0].tasks == 2
    with pytest.raises(UsageError, match="the seed 0"):
        memories[0].merge(memories[0])
