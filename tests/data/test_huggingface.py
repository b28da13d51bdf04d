"""Saved Hugging Face data sets: by the real package where it is installed, and by a stand-in of it everywhere."""

import importlib
import sys

import numpy as np
import pytest
import stand_in_datasets
from forge import noise
from test_formats import read

from odedm import UsageError


@pytest.fixture(params=["real", "stand-in"])
def datasets(request, monkeypatch):
    if request.param == "stand-in":
        monkeypatch.setitem(sys.modules, "datasets", stand_in_datasets)
        return stand_in_datasets
    pytest.importorskip("datasets")
    return importlib.import_module("datasets")


NOISES = [noise(seed) for seed in range(10)]


def pictures(datasets, cells=None, names=("cat", "ant")):
    features = datasets.Features({"img": datasets.Image(), "label": datasets.ClassLabel(names=list(names))})
    cells = cells or [{"bytes": content, "path": None} for content, _ in NOISES]
    return datasets.Dataset.from_dict({"img": cells, "label": [row % 2 for row in range(10)]}, features=features)


def test_pictures_with_a_test_part(datasets, tmp_path):
    part = pictures(datasets)
    datasets.DatasetDict({"train": part, "test": part.select(range(4))}).save_to_disk(str(tmp_path / "hf"))
    contents = read(tmp_path / "hf")
    assert contents.class_names == ("cat", "ant"), "names in the order of their labels"
    np.testing.assert_array_equal(contents.image, np.stack([array.transpose(2, 0, 1) for _, array in NOISES]))
    assert contents.label.tolist() == [0, 1] * 5
    assert len(contents.test_label) == 4


def test_a_share_is_held_out_and_pictures_are_resized(datasets, tmp_path):
    pictures(datasets).save_to_disk(str(tmp_path / "one"))
    contents = read(tmp_path / "one", size=4)
    assert contents.image.shape == (8, 3, 4, 4)
    assert len(contents.test_label) == 2


def test_vectors(datasets, tmp_path):
    features = datasets.Features({"x": datasets.Sequence(datasets.Value("float32")), "label": datasets.Value("int64")})
    rows = np.random.default_rng(0).normal(size=(10, 4)).astype(np.float32)
    part = datasets.Dataset.from_dict({"x": rows.tolist(), "label": [row % 2 for row in range(10)]}, features=features)
    part.save_to_disk(str(tmp_path / "v"))
    contents = read(tmp_path / "v")
    assert contents.image.dtype == np.float32
    assert {tuple(row) for row in (*contents.image, *contents.test_image)} == {tuple(row) for row in rows}


def test_what_cannot_be_read_is_a_sentence(datasets, tmp_path):
    datasets.DatasetDict({"test": pictures(datasets)}).save_to_disk(str(tmp_path / "no-train"))
    with pytest.raises(UsageError, match="has the parts test; 'train' is needed"):
        read(tmp_path / "no-train")
    pictures(datasets, names=("cat", "ant", "owl")).save_to_disk(str(tmp_path / "names"))
    with pytest.raises(UsageError, match="the labels in 'label' are not all of 0 to 2"):
        read(tmp_path / "names")
    broken = [{"bytes": b"no picture", "path": None}] * 10
    pictures(datasets, broken).save_to_disk(str(tmp_path / "broken"))
    with pytest.raises(UsageError, match="column 'img': a picture is not a picture of a known kind"):
        read(tmp_path / "broken")


def test_pictures_that_lie_outside_are_refused(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "datasets", stand_in_datasets)
    cells = [{"bytes": None, "path": "/etc/passwd"}] * 10
    pictures(stand_in_datasets, cells).save_to_disk(str(tmp_path / "outside"))
    with pytest.raises(UsageError, match="column 'img', row 0: the picture lies outside; embed it and save again"):
        read(tmp_path / "outside")
