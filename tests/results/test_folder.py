"""A run's folder: written whole or not at all, and never over what is not a run."""

import os
import shutil

import pytest
from file_faults import FAULTS, with_fault

from odedm import Reservoir, UsageError, train
from odedm.core.errors import InfrastructureError
from odedm.core.files import remove_stale, writable_folder, write_text
from odedm.results.folder import check_free
from odedm.results.result import Result
from odedm.results.verification import is_valid, verify


def test_a_run_is_saved_whole_or_not_at_all(tmp_path, monkeypatch):
    outcome = train("blobs", memory=Reservoir(10))
    folder = outcome.save(tmp_path / "run")
    files = ["checksums.json", "memory.safetensors", "model.safetensors", "result.json"]
    assert sorted(path.name for path in folder.iterdir()) == files
    with pytest.raises(UsageError, match=r"holds a run already.*in Python overwrite=True; on the command line"):
        outcome.save(folder)
    before = (folder / "result.json").read_bytes()

    def fail(*_):
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr("odedm.results.folder.write_text", fail)
        with pytest.raises(InfrastructureError, match="No space"):
            outcome.save(folder, overwrite=True)
    assert (folder / "result.json").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["run"], "nothing half-written stays"
    outcome.save(folder, overwrite=True)
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_at_any_operation_leaves_the_old_run_or_the_new_one(kind, tmp_path):
    place = tmp_path / "place"
    old, new = (train("blobs", memory=Reservoir(10), seed=seed) for seed in (0, 1))
    old.save(tmp_path / "before" / "run")
    shutil.copytree(tmp_path / "before", place)
    count, _ = with_fault(place, -1, kind, lambda: new.save(place / "run", overwrite=True))
    assert count > 15
    seeds = set()
    for at in range(count):
        shutil.rmtree(place)
        shutil.copytree(tmp_path / "before", place)
        _, ended_well = with_fault(place, at, kind, lambda: new.save(place / "run", overwrite=True))
        remove_stale(place / "run")  # as the next run there does, which holds the lock
        assert [path.name for path in place.iterdir()] == ["run"], at
        assert is_valid(verify(place / "run")), at
        seed = Result.load(place / "run" / "result.json").experiment["seed"]
        if ended_well or kind == "an error":
            assert seed == ended_well, f"{at}: what says that it failed changed nothing"
        seeds.add(seed)
    assert seeds == {0, 1}


def test_only_runs_are_overwritten(tmp_path):
    precious = tmp_path / "precious"
    precious.mkdir()
    (precious / "thesis.txt").write_text("years of work")
    with pytest.raises(UsageError, match="not a run's folder"):
        check_free(precious, overwrite=True)
    check_free(tmp_path / "new", overwrite=False)


def test_files_are_written_whole(tmp_path, monkeypatch):
    path = tmp_path / "file"
    write_text(path, "old")

    def fail(*_):
        raise OSError(5, "Input/output error")

    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(InfrastructureError, match="Input/output"):
        write_text(path, "new")
    assert path.read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_folders_that_cannot_be_written_are_named(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(UsageError, match="Cannot write into the folder"):
        writable_folder(blocked / "below")
