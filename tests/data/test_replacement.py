"""A data set that is replaced is the old one or the new one, whichever operation on files fails or is the last."""

import shutil

import numpy as np
import pytest
from file_faults import FAULTS, with_fault

from odedm import UsageError
from odedm.data import cache
from odedm.data.importer import import_as
from odedm.data.opening import load_dataset


def rows(path, classes):
    path.mkdir()
    np.save(path / "x.npy", np.arange(12 * 16, dtype=np.uint8).reshape(12, 4, 4))
    np.save(path / "y.npy", np.arange(12) % classes)
    return path


@pytest.mark.parametrize("kind", FAULTS)
def test_a_fault_at_any_operation_leaves_the_old_data_set_or_the_new_one(kind, tmp_path, data_folder):
    old, new, other = (rows(tmp_path / f"from-{classes}", classes) for classes in (2, 3, 4))
    after_it, before_it = (import_as(path, "mine", overwrite=True).checksum for path in (new, old))
    shutil.copytree(data_folder, tmp_path / "before")
    present, seen = set(), set()

    def replace():
        import_as(new, "mine", overwrite=True)

    count, _ = with_fault(data_folder, -1, kind, replace)
    assert count > 30
    for at in range(count):
        shutil.rmtree(data_folder)
        shutil.copytree(tmp_path / "before", data_folder)
        _, ended_well = with_fault(data_folder, at, kind, replace)
        present.add((data_folder / "mine").exists())
        checksum = load_dataset("mine").checksum if at % 2 else None
        import_as(other, "other", overwrite=True)
        assert checksum in (None, cache.verify("mine").checksum)
        checksum = cache.verify("mine").checksum
        if ended_well or kind == "an error":
            assert checksum == (after_it if ended_well else before_it), (
                f"{at}: what says that it failed changed nothing"
            )
        assert sorted(path.name for path in data_folder.iterdir() if path.name != ".lock") == ["mine", "other"], at
        seen.add(checksum)
    assert seen == {before_it, after_it}
    assert present == ({True} if kind == "an error" else {True, False}), "the moment between the two moves was tried"


@pytest.mark.parametrize("look", [cache.find, cache.verify, load_dataset])
def test_a_data_set_that_a_kill_left_aside_is_put_back_by_whoever_asks_for_it(look, tmp_path, data_folder):
    import_as(rows(tmp_path / "rows", 2), "mine")
    (data_folder / "mine").rename(data_folder / ".mine.4242.0123abcd.old")
    assert look("mine").name == "mine"
    with pytest.raises(UsageError, match="Unknown data set"):
        look("min")
