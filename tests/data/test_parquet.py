"""Rows of Parquet files in batches."""

import numpy as np
import pytest

import odedm
from odedm import UsageError

arrow = pytest.importorskip("pyarrow", reason="needs the extra 'parquet'")
parquet = pytest.importorskip("pyarrow.parquet", reason="needs the extra 'parquet'")


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(0)
    y = np.arange(50) % 2
    rows = rng.normal(size=(50, 3)).astype(np.float32) + 3 * y[:, None].astype(np.float32)
    columns = {"a": rows[:, 0], "b": rows[:, 1], "pair": [*rows[:, 1:].tolist()], "kind": np.array(["no", "yes"])[y]}
    parquet.write_table(arrow.table(columns), tmp_path / "rows.parquet")
    return tmp_path, rows, y


def test_numbers_and_lists_of_numbers_become_vectors(table):
    path, rows, y = table
    pairs = list(odedm.parquet_batches(path / "rows.parquet", "kind", batch=20))
    assert [len(label) for _, label in pairs] == [20, 20, 10]
    x, label = (np.concatenate(parts) for parts in zip(*pairs, strict=True))
    assert np.array_equal(x, np.concatenate([rows[:, :2], rows[:, 1:]], 1))
    assert np.array_equal(label == "yes", y == 1)
    (x, _), *_ = odedm.parquet_batches(path, "kind", columns=["pair"])
    assert np.array_equal(x, rows[:, 1:])


def test_a_learner_and_a_stream_are_made_of_them(table):
    path, rows, y = table
    learner = odedm.Learner("er", memory=20).fit_stream(odedm.parquet_batches(path, "kind", columns=["a", "pair"]))
    assert learner.score(rows, np.array(["no", "yes"])[y]) > 0.9
    data = odedm.from_batches(odedm.parquet_batches(path, "kind", batch=25))
    assert (data.class_names, data.shape) == (("no", "yes"), (4,))


def test_what_cannot_be_read_is_refused(table):
    path, *_ = table
    for words, message in (
        ((path / "none.parquet", "kind"), "There is no Parquet file"),
        ((path, "sort"), "Unknown column of 'rows.parquet' 'sort'"),
    ):
        with pytest.raises(UsageError, match=message):
            list(odedm.parquet_batches(*words))
    with pytest.raises(UsageError, match="needs a column of x"):
        list(odedm.parquet_batches(path, "kind", columns=[]))
    with pytest.raises(UsageError, match="path must be a file"):
        odedm.parquet_batches(5, "kind")
    with pytest.raises(UsageError, match="must hold numbers"):
        list(odedm.parquet_batches(path, "a"))
    (path / "bad.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(UsageError, match="no Parquet file that can be read"):
        list(odedm.parquet_batches(path / "bad.parquet", "kind"))
