"""Packs results: many runs in one compressed file, a line of JSON each; files may be anyone's, so they are checked."""

from __future__ import annotations

import gzip
import io
import json
import zlib
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from odedm.core.errors import InvalidFileError, UsageError, require
from odedm.core.files import read_bytes, writable_folder, write_bytes
from odedm.core.plain_data import json_hash, parse_json
from odedm.results.folder import PACKED, FinishedRun, find_runs
from odedm.results.result import Result
from odedm.results.verification import check_metrics, first_fault, verify

MAX_FILE, MAX_LINE, MAX_TEXT, MAX_RUNS = 1 << 27, 1 << 22, 1 << 30, 200_000
"""Bytes of a file, of a line and of all lines, and how many there are at most: far more than any ledger has."""


def is_packed(path: Path) -> bool:
    """Return whether this is a file of packed results, by its name."""
    return path.name.endswith(PACKED) and not path.is_dir()


def check_runs(paths: Sequence[Path]) -> list[FinishedRun]:
    """Return the finished runs at or below folders, if all are sound: packed, nobody can check their files any more."""
    folders = find_runs(paths)
    for folder in folders:
        fault = first_fault(verify(folder))
        if fault is not None:
            raise UsageError(f"'{folder}' is broken and is not packed: {fault}. Leave it out, or run it again.")
    return [FinishedRun.load(folder) for folder in folders]


def read_packed(path: Path) -> list[FinishedRun]:
    """Read every run of a file; each has its line in the place of a folder."""
    runs = []
    for number, line in enumerate(_lines(path), start=1):
        try:
            require(number <= MAX_RUNS, f"the file has more than {MAX_RUNS} runs")
            runs.append(FinishedRun(Path(f"{path}:{number}"), _from_line(line)))
        except UsageError as fault:
            raise UsageError(
                f"Line {number} of '{path}' is no packed result: {str(fault).rstrip('.')}. Pack its run anew."
            ) from None
    if not runs:
        raise UsageError(f"'{path}' holds no result. Make such a file with `odedm runs pack`.")
    return runs


def write_packed(path: Path, results: Iterable[Result]) -> None:
    """Write results, whole or not at all; the same ones give the same bytes, whatever their order."""
    content = io.BytesIO()
    # Without a name and a time in its head the file depends on nothing but its lines.
    with gzip.GzipFile(filename="", mode="wb", compresslevel=9, fileobj=content, mtime=0) as file:
        # A name of bytes that are no UTF-8, as file names may be, is written as it is, and JSON reads it so.
        file.write("".join(sorted(map(to_line, results))).encode(errors="surrogatepass"))
    writable_folder(path.parent)
    write_bytes(path, content.getvalue())


def check_target(path: Path, inputs: Sequence[Path] = ()) -> None:
    """Refuse a file that is not named as one of packed results, or that exists and is no input."""
    if not path.name.endswith(PACKED):
        raise UsageError(f"Packed results are written to a file that ends in {PACKED}; '{path}' was given as --out.")
    is_input = path.exists() and any(file.exists() and file.samefile(path) for file in inputs)
    if (path.exists() or path.is_symlink()) and not is_input:
        raise UsageError(
            f"'{path}' is there already. Give another --out, or bring both together: "
            f"`odedm runs merge {path} OTHER{PACKED} --out {path}`."
        )


def to_line(result: Result) -> str:
    """Return a result as a line of JSON, its keys sorted, with a checksum."""
    plain = result.to_dict()
    line = {"checksum": json_hash(plain), "result": plain}
    return json.dumps(line, sort_keys=True, ensure_ascii=False, allow_nan=False, separators=(",", ":")) + "\n"


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a compressed file, and never more of it than there may be; a link is followed."""
    try:
        content = read_bytes(path, MAX_FILE)
    except InvalidFileError as fault:
        raise UsageError(f"Cannot read the packed results '{path}': {fault}.") from None
    total, number = 0, 0
    with gzip.GzipFile(fileobj=io.BytesIO(content)) as file:
        while True:
            number += 1
            try:
                line = file.readline(MAX_LINE + 1)
            except (OSError, EOFError, zlib.error) as error:
                raise UsageError(
                    f"'{path}' is damaged or no gzip file at line {number} ({error}). Copy or pack it anew."
                ) from None
            if not line:
                return
            total += len(line)
            if len(line) > MAX_LINE or total > MAX_TEXT:
                raise UsageError(f"Line {number} of '{path}' goes on beyond what packed results may have.")
            yield line


def _from_line(line: bytes) -> Result:
    try:
        plain = parse_json(line)
    except ValueError as error:
        raise InvalidFileError(f"it is not JSON ({str(error)[:80]})") from None
    require(isinstance(plain, dict) and set(plain) == {"checksum", "result"}, "it is not a 'checksum' and a 'result'")
    same = json_hash(plain["result"]) == plain["checksum"]
    require(same, "it has changed since it was packed: its checksum is another")
    result = Result.from_dict(plain["result"], "in this line")
    check_metrics(result)
    return result
