"""Reads texts with labels from tables: .csv, .tsv and .jsonl."""

from __future__ import annotations

import csv
import json
from pathlib import Path

from odedm.core.errors import UsageError
from odedm.core.files import expand_user


def read_texts(path: str | Path, text_column: str, label_column: str) -> tuple[list[str], list[str]]:
    r"""Return the texts and the labels of a table with a line of column names, or of objects in JSON.

    >>> import tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _ = Path(folder, "a.csv").write_text("text,intent\nhello there,greet\n")
    ...     read_texts(f"{folder}/a.csv", "text", "intent")
    (['hello there'], ['greet'])
    """
    place = expand_user(path)
    try:
        with place.open(encoding="utf-8-sig", newline="") as file:
            if place.suffix == ".jsonl":
                rows = [json.loads(line) for line in file if line.strip()]
            else:
                rows = list(csv.DictReader(file, delimiter="\t" if place.suffix == ".tsv" else ","))
    except (OSError, UnicodeDecodeError, ValueError, csv.Error) as error:
        raise UsageError(f"Cannot read texts from '{path}': {error}. Give a table as .csv, .tsv or .jsonl.") from error
    for number, row in enumerate(rows, start=1):
        for column in (text_column, label_column):
            if not isinstance(row, dict) or row.get(column) is None:
                known = ", ".join(map(str, row)) if isinstance(row, dict) else "no columns"
                raise UsageError(f"Row {number} of '{path}' has no '{column}'; it has {known}.")
    if not rows:
        raise UsageError(f"'{path}' has no rows.")
    return [str(row[text_column]) for row in rows], [str(row[label_column]) for row in rows]
