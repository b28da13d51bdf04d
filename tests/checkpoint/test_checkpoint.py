"""Every way in which a checkpoint can be wrong, and what each gets; what survives a full disk and a killed writer."""

import errno
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch
from driver import Driver
from equal_states import equal_states
from safetensors.torch import save_file

from odedm import ODEDM, Reservoir, UsageError, blobs
from odedm.checkpoint import checkpoint
from odedm.checkpoint.checkpoint import (
    Meta,
    Position,
    clear,
    latest_look,
    load_latest,
    restore,
    save,
    working_folder,
)
from odedm.checkpoint.state_tree import state_tree
from odedm.core.tensor_archive import archive_checksum, read_whole, write_archive

META = Meta({"method": {"name": "er", "lr": 0.1}, "seed": 0, "dac": (3, 4)}, "c0ffee", {"torch": "2.13.0"})


def a_state(number):
    return state_tree({"x": torch.full((64,), float(number)), "number": number})


def write(work, *steps, meta=META):
    work.mkdir(exist_ok=True)
    for step in steps:
        save(work, a_state(step), meta, Position(0, step, 8 * step))
    return work / "checkpoints"


def number(checkpoint):
    holder = {"x": torch.zeros(64), "number": 0}
    restore(holder, checkpoint)
    assert holder["x"].tolist() == [float(holder["number"])] * 64
    return holder["number"]


def names(folder):
    return sorted(path.name.removesuffix(".safetensors") for path in folder.iterdir())


def reseal(path, change):
    """A head that someone changed and sealed again: hostile, not broken."""
    head, tensors = read_whole(path, checkpoint.SCHEMA)
    change(head)
    write_archive(path, head, tensors)


def flip(path, place, bit=0):
    content = bytearray(path.read_bytes())
    content[place] ^= 1 << bit
    path.write_bytes(bytes(content))


def respelled(path, old, new):
    content = path.read_bytes()
    assert old in content
    path.write_bytes(content.replace(old, new))


def becomes_fifo(path):
    path.unlink()
    os.mkfifo(path)


def headed(text):
    """A file with a text of anyone's in the place of its head, sealed."""
    return lambda path: save_file({}, path, {"odedm": text, "checksum": archive_checksum(text, {})})


def set_(**values):
    return lambda path: reseal(path, lambda head: head.update(values))


DAMAGE = {
    # torn files
    "truncated": (lambda f: os.truncate(f, 100), "it is not whole"),
    "tensors truncated": (lambda f: os.truncate(f, f.stat().st_size - 3), "it is not whole"),
    "empty": (lambda f: os.truncate(f, 0), "it is not whole"),
    "longer": (lambda f: os.truncate(f, 10_000), "it is not whole"),
    "a bit of a tensor flipped": (lambda f: flip(f, -5), "its checksum is another"),
    "a bit of the head flipped": (lambda f: flip(f, 3), "it is not whole"),
    "zeroed": (lambda f: f.write_bytes(bytes(f.stat().st_size)), "it is not whole"),
    "a digit of the head changed": (
        lambda f: respelled(f, rb'\"rows\": 24', rb'\"rows\": 25'), "its checksum is another"),
    "a pipe": (becomes_fifo, "not a regular file"),
    # foreign ones
    "a later format": (set_(schema="odedm.checkpoint/9"), "its format is 'odedm.checkpoint/9'"),
    "an earlier format": (
        set_(schema="odedm.checkpoint/1", versions={"odedm": "0.1.0", "commit": "abc"}),
        "odedm 0.1.0, commit abc' wrote it"),
    "no format": (lambda f: reseal(f, lambda head: head.pop("schema")), "its format is None"),
    "another configuration": (
        lambda f: reseal(f, lambda head: head.update(configuration={**head["configuration"], "seed": 7})),
        "another configuration: seed=7 there, 0 here"),
    "other data": (set_(data_checksum="beef"), "made on other data"),
    "the step of another": (set_(position={"task": 0, "step": 9, "rows": 9}), "lies under another name"),
    # hostile ones, sealed again
    "a list": (headed("[]"), "its head is no object"),
    "nested without end": (headed('{"a":' * 100_000), "it is not whole"),
    "an endless number": (headed('{"a": ' + "9" * 10_000 + "}"), "it is not whole"),
    "NaN": (headed('{"a": NaN}'), "it is not whole"),
    "a position beyond numbers": (set_(position={"task": 0, "step": 3, "rows": 10**30}), "its head is malformed"),
    "a position below zero": (set_(position={"task": -1, "step": 3, "rows": 1}), "its head is malformed"),
    "a position of words": (set_(position={"task": "0", "step": 3, "rows": 1}), "its head is malformed"),
    "a position of truths": (set_(position={"task": True, "step": 3, "rows": 1}), "its head is malformed"),
    "no position": (set_(position=None), "its head is malformed"),
    "versions of numbers": (set_(versions={"torch": 2}), "its head is malformed"),
    "a configuration that is a list": (set_(configuration=[]), "its head is malformed"),
    "no tree": (lambda f: reseal(f, lambda head: head.pop("tree")), "its head is malformed"),
    "a head of exabytes": (lambda f: f.write_bytes(b"\xff" * 8 + b"{}"), "it is not whole"),
}  # fmt: skip


@pytest.mark.parametrize("kind", DAMAGE)
def test_damage_is_seen_told_and_passed_over(kind, tmp_path):
    spoil, sentence = DAMAGE[kind]
    folder = write(tmp_path / "work", 2, 3)
    spoil(folder / "step-00000003.safetensors")
    checkpoint = load_latest(tmp_path / "work", META)
    assert number(checkpoint) == 2, "the one before is used"
    assert checkpoint.warnings[0].startswith("The checkpoint 'step-00000003' cannot be used: ")
    assert sentence in checkpoint.warnings[0]
    assert checkpoint.warnings[1] == "Going on from 'step-00000002', the one before."
    (folder / "step-00000002.safetensors").unlink()
    with pytest.raises(UsageError, match="--restart") as refused:
        load_latest(tmp_path / "work", META)
    assert sentence in str(refused.value), "and where there is no other, that is why nothing is done"
    write(tmp_path / "work", 3)
    checkpoint = load_latest(tmp_path / "work", META)
    assert number(checkpoint) == 3, "a run that comes there again replaces it"
    assert checkpoint.warnings == ()


def test_every_single_bit_counts(tmp_path):
    """Any one flipped bit is seen; no state is ever wrong."""
    (path,) = write(tmp_path / "work", 3).iterdir()
    size = path.stat().st_size
    for place in range(0, size, max(1, size // 120)):
        flip(path, place, place % 8)
        with pytest.raises(UsageError):
            load_latest(tmp_path / "work", META)
        flip(path, place, place % 8)
    assert number(load_latest(tmp_path / "work", META)) == 3


def test_every_truncation_is_seen(tmp_path):
    (path,) = write(tmp_path / "work", 3).iterdir()
    whole = path.read_bytes()
    for size in range(0, len(whole), max(1, len(whole) // 60)):
        path.write_bytes(whole[:size])
        with pytest.raises(UsageError):
            load_latest(tmp_path / "work", META)


def test_the_last_two_are_kept_and_nothing_else(tmp_path):
    folder = write(tmp_path / "work", 1, 2, 5, 7)
    assert names(folder) == ["step-00000005", "step-00000007"]
    write(tmp_path / "work", 6)
    assert names(folder) == ["step-00000005", "step-00000006"], "what lies beyond the run is of a broken future"
    clear(tmp_path / "work")
    assert names(folder) == []
    assert load_latest(tmp_path / "work", META) is None
    assert load_latest(tmp_path / "nowhere", META) is None


def test_left_overs_of_dead_writers_are_swept(tmp_path):
    folder = write(tmp_path / "work", 1)
    (folder / ".step-00000002.safetensors.999.0123abcd").write_bytes(b"half")
    (folder / "notes.txt").write_text("mine")
    assert number(load_latest(tmp_path / "work", META)) == 1
    assert names(folder) == ["notes.txt", "step-00000001"], "what is not ours stays"


def test_one_of_the_same_step_is_replaced(tmp_path):
    """After a task's last step and after its border the number of steps is the same."""
    work = tmp_path / "work"
    folder = write(work, 4)
    save(work, a_state(5), META, Position(1, 4, 32))
    checkpoint = load_latest(work, META)
    assert checkpoint.position == Position(1, 4, 32)
    assert number(checkpoint) == 5
    assert names(folder) == ["step-00000004"]


def test_a_checkpoint_says_whose_it_is(tmp_path):
    work = tmp_path / "work"
    write(work, 4)
    position, meta = latest_look(work)
    assert position == Position(0, 4, 32)
    assert meta.configuration["dac"] == [3, 4]
    assert load_latest(work, META).warnings == (), "a tuple is the list it became"
    with pytest.raises(UsageError, match=r"method\.lr=0\.1 there, 0\.2 here; width=nothing there, 3 here"):
        load_latest(work, Meta({"method": {"name": "er", "lr": 0.2}, "seed": 0, "dac": [3, 4], "width": 3}, "c0ffee"))
    newer = Meta(META.configuration, "c0ffee", {"torch": "2.11.0"})
    assert load_latest(work, newer).warnings == (
        "The checkpoint was computed by others: torch 2.13.0 then, 2.11.0 now.",
    )
    with pytest.raises(UsageError, match="no checkpoint in"):
        latest_look(tmp_path / "nowhere")


def test_a_state_of_other_code_is_refused_by_its_place(tmp_path):
    write(tmp_path / "work", 4)
    checkpoint = load_latest(tmp_path / "work", META)
    with pytest.raises(UsageError, match=r"does not fit this version of the code: .* start anew with --restart"):
        restore(torch.nn.Linear(1, 1), checkpoint)


def test_a_deleted_working_folder_is_not_made_again(tmp_path):
    work = tmp_path / "work"
    write(work, 1)
    shutil.rmtree(work)
    with pytest.raises(UsageError, match="Cannot write the checkpoint"):
        save(work, a_state(2), META, Position(0, 2, 16))
    assert not work.exists()


@pytest.mark.parametrize(
    "failing",
    ["safetensors.torch.save_file", "odedm.core.files.sync_file", "odedm.core.tensor_archive.archive_checksum"],
)
@pytest.mark.parametrize("number_", [errno.ENOSPC, errno.EROFS, errno.EIO, errno.EDQUOT])
def test_a_failing_disk_leaves_the_checkpoints_that_were(tmp_path, monkeypatch, failing, number_):
    folder = write(tmp_path / "work", 1)

    def fail(*_, **__):
        raise OSError(number_, os.strerror(number_))

    with monkeypatch.context() as patch:
        patch.setattr(failing, fail)
        with pytest.raises(UsageError, match=os.strerror(number_)):
            save(tmp_path / "work", a_state(2), META, Position(0, 2, 16))
    assert names(folder) == ["step-00000001"], "nothing half-written"
    assert number(load_latest(tmp_path / "work", META)) == 1


FILE_LIMIT = """
import resource, sys
from pathlib import Path
import torch
from odedm.core.errors import UsageError
from odedm.checkpoint.checkpoint import Meta, Position
from odedm.checkpoint.checkpoint import save
from odedm.checkpoint.state_tree import State
resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
try:
    save(Path(sys.argv[1]), State({"x": torch.zeros(1 << 18)}, None), Meta({}, ""), Position(0, 2, 2))
except UsageError as error:
    print(error)
"""


def test_the_kernel_refusing_to_write_leaves_the_checkpoints_that_were(tmp_path):
    """A real failing write, in the middle of the tensors: the process may not write files above 64 KiB."""
    folder = write(tmp_path / "work", 1)
    done = subprocess.run(
        [sys.executable, "-c", FILE_LIMIT, str(tmp_path / "work")], capture_output=True, text=True, check=True
    )
    assert "Cannot write the checkpoint" in done.stdout
    assert names(folder) == ["step-00000001"]


WRITER = """
import sys
from pathlib import Path
import torch
from odedm.checkpoint.checkpoint import Meta, Position
from odedm.checkpoint.checkpoint import save
from odedm.checkpoint.state_tree import state_tree
for step in range(1, 100000):
    state = state_tree({"x": torch.full((1 << 16,), float(step)), "number": step})
    save(Path(sys.argv[1]), state, Meta({}, "data"), Position(0, step, step))
    print(step, flush=True)
"""


def test_a_writer_killed_at_any_moment_leaves_a_good_checkpoint(tmp_path):
    """SIGKILL at many moments of writing: what is found is whole, and one of the last two that were made."""
    for delay in (0.0, 0.007, 0.017):
        work = tmp_path / f"work {delay}"
        work.mkdir()
        writer = subprocess.Popen([sys.executable, "-c", WRITER, str(work)], stdout=subprocess.PIPE, text=True)
        for _ in range(3):
            last = int(writer.stdout.readline())
        time.sleep(delay)
        writer.send_signal(signal.SIGKILL)
        last = max([last, *map(int, writer.stdout.read().split())])
        writer.wait()
        writer.stdout.close()
        checkpoint = load_latest(work, Meta({}, "data"))
        holder = {"x": torch.zeros(1 << 16), "number": 0}
        restore(holder, checkpoint)
        assert holder["number"] in (last, last + 1)
        assert (holder["x"] == holder["number"]).all()
        assert not [name for name in names(work / "checkpoints") if name.startswith(".")]


@pytest.mark.parametrize("memory", [Reservoir(1), Reservoir(20), ODEDM(24, k=1, candidates=4, annotate="stream")])
def test_a_run_through_the_files_goes_on_bit_for_bit(tmp_path, memory):
    data, work = blobs(per_class=16), working_folder(tmp_path / "seed-0")
    work.mkdir()
    options = {"method": "icarl", "options": {"momentum": 0.5}, "batch": 8}
    straight = Driver(memory, data, **options)
    straight.go()
    done = 0
    for steps in (3, 4, 5):
        part = Driver(memory, data, **options)
        meta = Meta(part.run.experiment.describe(), data.checksum)
        checkpoint = load_latest(work, meta)
        assert (checkpoint.position.step if checkpoint else 0) == done
        if checkpoint:
            restore(part.roots, checkpoint, part.external_tensors)
        part.go(steps)
        done += steps
        save(work, part.capture(), meta, Position(part.run.progress.task, done, part.run.progress.rows))
    last = Driver(memory, data, **options)
    restore(last.roots, load_latest(work, meta), last.external_tensors)
    last.go()
    for state in (straight, last):
        state.run.timer.seconds.clear()
    assert equal_states(straight.capture(), last.capture()) == []


def test_an_empty_state_and_odd_names_are_files_like_others(tmp_path):
    tmp_path.joinpath("w").mkdir()
    for step, content in enumerate(({}, {"ä b/..\n": torch.zeros(0, 3), "__metadata__": torch.ones(()), "": 1})):
        save(tmp_path / "w", state_tree(content), META, Position(0, step, 0))
        new, checkpoint = {}, load_latest(tmp_path / "w", META)
        assert checkpoint.position.step == step
        restore(new, checkpoint)
        assert list(new) == list(content)


def test_names_and_places():
    assert working_folder(Path("a/b")) == Path("a/.b.work")
    assert checkpoint.NAME.fullmatch("step-00000001.safetensors")
    assert not checkpoint.NAME.fullmatch("step-../x.safetensors")
