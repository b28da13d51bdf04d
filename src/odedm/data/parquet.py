"""Rows of Parquet files in batches, read as they are needed: for tables larger than memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from odedm.core.array_inputs import Array
from odedm.core.errors import UsageError, short_repr, unknown_name_error
from odedm.core.files import as_path
from odedm.core.validators import Int


def parquet_batches(
    path: str | Path | Sequence[str | Path],
    label: str,
    *,
    columns: Sequence[str] | None = None,
    batch: int = 1024,
) -> Iterator[tuple[Array, Array]]:
    """Iterate over pairs (x, y) of rows and labels, for `Learner.fit_stream` or `odedm.from_batches`.

    Args:
        path: a Parquet file, a folder of them, or several, which are read one after the other.
        label: the column of labels, text or numbers.
        columns: those of x, numbers or lists of equally many numbers; all but the labels unless given.
        batch: rows of a pair at most.

    Yields:
        Vectors [n, d], float32, and their labels [n].
    """
    try:
        import pyarrow
        from pyarrow import parquet
    except ImportError as error:
        raise UsageError("Parquet files need the extra 'parquet': pip install 'odedm[parquet]'.") from error
    size = Int(1).validate("batch", batch)
    if not isinstance(path, str | Path | Sequence):
        raise UsageError(f"path must be a file, a folder, or several; {short_repr(path)} was given.")
    paths = [path] if isinstance(path, str | Path) else [*path]
    files = [file for given in paths for file in _files(as_path(given))]
    return _batches(pyarrow, parquet, files, label, columns, size)


def _files(path: Path) -> list[Path]:
    files = sorted(path.rglob("*.parquet")) if path.is_dir() else [path]
    if not files or not files[0].exists():
        raise UsageError(f"There is no Parquet file '{path}'. Give a file, or a folder with *.parquet files.")
    return files


def _batches(
    pyarrow: Any, parquet: Any, files: list[Path], label: str, columns: Sequence[str] | None, size: int
) -> Iterator[tuple[Array, Array]]:
    for path in files:
        try:
            with parquet.ParquetFile(path) as file:
                names = file.schema_arrow.names
                used = [name for name in names if name != label] if columns is None else [*columns]
                if not used:
                    raise UsageError(f"'{path}' needs a column of x beside '{label}'; it has {', '.join(names)}.")
                for name in (label, *used):
                    if name not in names:
                        raise unknown_name_error(f"column of '{path.name}'", name, names)
                for rows in file.iter_batches(batch_size=size, columns=[*dict.fromkeys((*used, label))]):
                    x = np.concatenate([_numbers(rows.column(name), name) for name in used], axis=1)
                    yield x, _labels(rows.column(label), label)
        except (OSError, pyarrow.ArrowException) as error:
            raise UsageError(f"'{path}' is no Parquet file that can be read: {short_repr(str(error), 200)}.") from error


def _numbers(column: Any, name: str) -> Array:
    """Return a column of numbers, or of lists of equally many numbers, as rows [n, d]."""
    if column.null_count:
        raise UsageError(f"The column '{name}' lacks {column.null_count} values; fill or drop such rows first.")
    try:
        if hasattr(column, "flatten") and hasattr(column.type, "value_type"):
            flat = np.asarray(column.flatten().to_numpy(zero_copy_only=False), np.float32)
            return flat.reshape(len(column), -1)
        return np.asarray(column.to_numpy(zero_copy_only=False), np.float32)[:, None]
    except (TypeError, ValueError) as error:
        raise UsageError(
            f"The column '{name}' must hold numbers, or lists of equally many numbers; it is of type {column.type}."
        ) from error


def _labels(column: Any, name: str) -> Array:
    if column.null_count:
        raise UsageError(f"The column of labels, '{name}', lacks {column.null_count} values.")
    labels: Array = column.to_numpy(zero_copy_only=False)
    return labels.astype(str) if labels.dtype == object else labels
