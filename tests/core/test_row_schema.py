"""Rows from outside are read by one class: what the first were, all later ones must be."""

import datetime

import numpy as np
import pandas as pd
import pytest
import torch

from odedm import DualMemory, Learner, UsageError, from_arrays, from_batches
from odedm.core.array_inputs import as_array, as_labels
from odedm.core.row_schema import RowSchema

X = np.random.default_rng(0).random((8, 3)).astype(np.float32)
Y = np.arange(8) % 2
DAYS = pd.date_range("2020-01-01", periods=8)


def learner(**settings):
    return Learner("er", memory=20, net="mlp", batch=8, **settings)


@pytest.mark.parametrize("labels", [np.uint64([7, 9] * 4), np.uint8([0, 200] * 4), torch.tensor([3, 4] * 4)])
def test_unsigned_labels_come_back_as_whole_numbers_and_are_scored(labels):
    model = learner(options={"lr": 0.3})
    for _ in range(60):
        model.partial_fit(X, labels)
    assert model.predict(X).dtype == np.int64
    assert model.score(X, labels) > 0.5
    assert set(model.predict(X).tolist()) <= set(labels.tolist())


@pytest.mark.parametrize("labels", [np.uint64([1, 2**63] * 4), [1, 2**63] * 4, [1, 2**70] * 4])
def test_labels_that_numpy_would_change_are_refused_everywhere(labels):
    for read in (
        lambda: learner().partial_fit(X, labels),
        lambda: from_arrays(X, labels, tasks=1),
        lambda: from_batches([(X, labels)]),
        lambda: DualMemory(5).add(X, labels),
    ):
        with pytest.raises(UsageError, match=r"The label of row 1 of .*labels are text, whole numbers of 64 bits"):
            read()


@pytest.mark.parametrize(
    "frame",
    [
        pd.DataFrame({"day": DAYS}),
        pd.DataFrame({"a": X[:, 0], "day": DAYS}),
        pd.DataFrame({"a": X[:, 0], "day": DAYS - DAYS[0]}),
        pd.DataFrame({"a": X[:, 0], "day": DAYS.tz_localize("UTC")}),
    ],
)
def test_a_column_of_dates_is_no_column_of_numbers(frame):
    for read in (lambda: learner().partial_fit(frame, Y), lambda: from_arrays(frame, Y, tasks=1)):
        with pytest.raises(UsageError, match="The column 'day' does not hold numbers alone"):
            read()


@pytest.mark.parametrize(
    "dates",
    [DAYS.to_numpy()[:, None], DAYS.to_numpy()[:, None].astype(object), [[np.datetime64("2020-01-01"), 1.5]]],
)
def test_an_array_of_dates_is_no_array_of_numbers(dates):
    with pytest.raises(UsageError, match="x must hold numbers"):
        as_array(dates, "x")
    with pytest.raises(UsageError, match="x must hold numbers"):
        as_array([[datetime.datetime(2020, 1, 1)]], "x")  # noqa: DTZ001


def test_what_becomes_infinite_in_the_first_rows_type_is_refused(tmp_path):
    memory = DualMemory(20, k=2, selection="random")
    memory.add(torch.zeros(4, 2, dtype=torch.float16), torch.zeros(4, dtype=torch.int64), at=torch.zeros(4).half())
    large = torch.full((4, 2), 1e5)
    with pytest.raises(UsageError, match="images has a NaN or an infinity in 4 of 4 rows, first in row 0, stored as f"):
        memory.add(large, torch.zeros(4, dtype=torch.int64), at=torch.zeros(4))
    with pytest.raises(UsageError, match="at has a NaN or an infinity in 4 of 4 rows"):
        memory.add(large / 1e5, torch.zeros(4, dtype=torch.int64), at=large[:, 0])
    memory.add(large / 10, torch.ones(4, dtype=torch.int64), at=torch.zeros(4))
    with pytest.raises(UsageError, match="at has a NaN or an infinity"):
        memory.end_task(annotate=lambda image: {"at": large[:1, 0].expand(len(image))})
    memory.end_task()
    assert DualMemory.load(memory.save(tmp_path / "memory")).rows()["images"].isfinite().all()


def test_labels_are_read_alike_whatever_holds_them():
    for labels in (["a", "b"], np.array(["a", "b"]), np.array(["a", "b"], object), pd.Series(["a", "b"]), ("a", "b")):
        assert as_labels(labels).tolist() == ["a", "b"]
    for labels in ([1, 2], np.int8([1, 2]), np.uint64([1, 2]), torch.tensor([1, 2]), range(1, 3), [np.int64(1), 2]):
        assert as_labels(labels).dtype == np.int64
        assert as_labels(labels).tolist() == [1, 2]
    assert as_labels([True, False]).dtype == bool
    for labels in ([1, "a"], [1, None], [1, True], [b"a"], np.array([b"a"]), [[1], [2]], {1, 2}, 3):
        with pytest.raises(UsageError):
            as_labels(labels)


def test_a_frame_with_a_name_twice_is_a_sentence():
    schema, _ = RowSchema.of_inputs(pd.DataFrame(X[:, :2], columns=["a", "b"]))
    for names in (["a", "b", "b"], ["a", "a", "b"]):
        with pytest.raises(UsageError, match="another order"):
            schema.read_inputs(pd.DataFrame(X, columns=names))


def test_images_are_stored_as_bytes_or_floats_with_their_channels_first():
    for labels, shape, dtype in (
        (np.zeros((2, 5, 4, 3), np.uint8), (3, 5, 4), torch.uint8),
        (np.zeros((2, 5, 4)), (1, 5, 4), torch.float32),
        (torch.zeros(2, 3, 8, 8, dtype=torch.bfloat16), (3, 8, 8), torch.float32),
        (np.zeros((2, 7), np.uint8), (7,), torch.float32),
    ):
        schema, rows = RowSchema.of_inputs(labels)
        assert (schema.shape, schema.dtype) == (shape, dtype)
        assert schema.read_inputs(labels).equal(rows)
