"""`odedm data …`: list, get, import, verify and show data sets."""

from __future__ import annotations

import json
import shutil
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer
from rich.progress import (
    BarColumn,
    Progress,
    TaskID,
    TaskProgressColumn,
    TextColumn,
    TimeElapsedColumn,
    TimeRemainingColumn,
)
from rich.table import Table

from odedm.cli.console import echo, echo_json, err, out, print_rows
from odedm.cli.dotted_settings import Given
from odedm.cli.generated_options import AsJson, opt, with_settings
from odedm.cli.help_page import CommandApp
from odedm.core.errors import UsageError, choose
from odedm.core.files import expand_user
from odedm.core.registry import DATASETS
from odedm.execute.backend import ExecutionConfig

if TYPE_CHECKING:
    from odedm.data.cache import Manifest
    from odedm.data.contents import OnProgress

app = CommandApp(
    name="data",
    help="Data sets: get, import, check and show them.",
    add_completion=False,
    after_interrupt="Nothing half-made was left behind.",
)


Name = Annotated[str, typer.Argument(help="The data set's name.")]
Overwrite = Annotated[bool, opt("Replace a data set of that name.", None, "--overwrite")]


@contextmanager
def progress() -> Iterator[OnProgress]:
    """Show a bar on a terminal, nothing elsewhere, for whatever reports (what, done, total)."""
    columns = (TextColumn("{task.description}", markup=False), BarColumn(28), TaskProgressColumn())
    times = (TimeElapsedColumn(), TimeRemainingColumn())
    bar = Progress(*columns, *times, console=err, transient=True, disable=not err.is_terminal)
    tasks: dict[str, TaskID] = {}

    def on_progress(what: str, done: int, total: int) -> None:
        if what not in tasks:
            tasks[what] = bar.add_task(what, total=total)
        bar.update(tasks[what], completed=done, total=total)

    with bar:
        yield on_progress


def import_if_path(data: str) -> str:
    """Return the name of a data set that is then certain to be here: a path is imported first, with a bar."""
    from odedm.data.opening import find_or_import

    if data in DATASETS:
        return data
    with progress() as on_progress:
        return find_or_import(data, on_progress=on_progress).name


@app.command("list")
def list_(as_json: AsJson = False) -> None:
    """List what can be used: embedded, published, imported."""
    from odedm.data import cache
    from odedm.data.published import PUBLISHED

    imported = cache.cached()
    rows = [(name, "built in", entry.about) for name, entry in DATASETS.items()]
    for name, known in PUBLISHED.items():
        state = _state(imported.pop(name, None))
        rows.append((name, state or f"odedm data get {name}", known.about))
    rows += [(name, _state(manifest) or "", _about(manifest)) for name, manifest in imported.items()]
    if as_json:
        echo_json([dict(zip(("name", "state", "about"), row, strict=True)) for row in rows])
        return
    table = Table("name", "state", "about", box=None, padding=(0, 2, 0, 0))
    for row in rows:
        table.add_row(*row)
    out.print(table)
    echo(f"Imported data sets live in {cache.root()} (set ODEDM_DATA to change it).")


def _state(manifest: Manifest | str | None) -> str | None:
    return manifest if manifest is None else "broken" if isinstance(manifest, str) else "here"


def _about(manifest: Manifest | str) -> str:
    if isinstance(manifest, str):
        return manifest
    rows = f"{manifest.rows[0]} + {manifest.rows[1]} rows {_shape(manifest)}"
    return f"{rows}, {len(manifest.class_names)} classes, from {manifest.source}."


def _shape(manifest: Manifest) -> str:
    return "×".join(map(str, manifest.shape))


@app.command()
def get(
    name: Name,
    url: Annotated[str | None, opt("A mirror of the official archive.")] = None,
    keep: Annotated[bool, opt("Keep the archive after the import.", None, "--keep")] = False,
    overwrite: Overwrite = False,
) -> None:
    """Download a published data set and import it."""
    from odedm.data import cache
    from odedm.data.download import download
    from odedm.data.importer import data_folder, import_as
    from odedm.data.published import PUBLISHED

    known = choose("published data set", name, PUBLISHED)
    if cache.is_cached(name) and not overwrite:
        cache.load_manifest(name)
        echo(f"'{name}' is here already; `odedm data verify {name}` checks it.")
        return
    official = known.archives[0]
    folder = data_folder(".downloads", *([name] if known.together else []))
    bring = f"the folder with {len(known.archives)} such files" if known.together else official.file
    manual = (
        f"By hand: get {official.file} from {official.url} on any machine, bring it here, and run "
        f"`odedm data import {bring} --as {name}`."
    )
    with progress() as on_progress:
        if known.together:  # those that are here already are not asked for again
            for archive in known.archives:
                place = f"{url.rstrip('/')}/{archive.file}" if url else archive.url
                download(place, folder / archive.file, [archive], on_progress, manual=manual)
            path = folder
        else:
            path = download(url or official.url, folder / official.file, known.archives, on_progress, manual=manual)
        manifest = import_as(path, name, overwrite=overwrite, on_progress=on_progress)
    if not keep:
        shutil.rmtree(path) if known.together else path.unlink(missing_ok=True)
    _done(manifest)


@app.command("import")
def import_(
    path: Annotated[Path, typer.Argument(help="An archive, a folder, or an array file.")],
    name: Annotated[str, opt("The name it gets.", None, "--as", metavar="NAME")],
    size: Annotated[int | None, opt("Make pictures N×N.", default="as they are", min=1)] = None,
    tasks: Annotated[int | None, opt("Default number of tasks.", default="by classes", min=1)] = None,
    seed: Annotated[int, opt("Decides what is held out if there is no test part.", min=0)] = 0,
    test_share: Annotated[float, opt("How much is held out then.")] = 0.2,
    flip: Annotated[
        bool | None, opt("Mirror in training.", None, "--flip/--no-flip", default="published sets only")
    ] = None,
    overwrite: Overwrite = False,
) -> None:
    """Import an official archive, its folder, a folder of pictures, or arrays."""
    from odedm.data.importer import import_as

    with progress() as on_progress:
        manifest = import_as(
            expand_user(path),
            name,
            size=size,
            seed=seed,
            test_share=test_share,
            tasks=tasks,
            flip=flip,
            overwrite=overwrite,
            on_progress=on_progress,
        )
    _done(manifest)


@app.command(after_interrupt="What was embedded stays: the same command goes on from there.")
@with_settings((ExecutionConfig, ("workers", "backend")), dotted=False)
def embed(
    given: Given,
    data: Annotated[str, typer.Argument(help="A data set, a path, or a table of texts (.csv, .tsv, .jsonl).")],
    net: Annotated[str, opt("timm:NAME, torchvision:NAME, sentence-transformers:NAME, a net, or FILE.py:NAME.", None)],
    name: Annotated[str, opt("The name it gets.", None, "--out", metavar="NAME")],
    weights: Annotated[str, opt("A safetensors file, or pretrained: the library's own.", metavar="FILE")] = "",
    size: Annotated[int | None, opt("Make images N×N.", default="the network's", min=1)] = None,
    text_column: Annotated[str | None, opt("Texts of a table are embedded.", metavar="COLUMN")] = None,
    label_column: Annotated[str, opt("The labels of a table.", metavar="COLUMN")] = "label",
    test: Annotated[Path | None, opt("A table to test on.", default="a fifth of each class")] = None,
    batch: Annotated[int, opt("Rows at once.", min=1)] = 64,
    device: Annotated[str, opt("Where to compute: auto, cpu, cuda.")] = "auto",
    overwrite: Overwrite = False,
) -> None:
    """Make a data set of features: every row once through a network."""
    from odedm.data import cache
    from odedm.data.texts import read_texts
    from odedm.execute.embedding import embed as embed_data

    tables: list[Any] = [data, None]
    if text_column is not None:
        tables = [path and read_texts(path, text_column, label_column) for path in (data, test)]
    elif test is not None:
        raise UsageError("--test is for tables of texts, whose column --text-column names.")
    with progress() as on_progress:
        options: dict[str, Any] = {
            "weights": weights,
            "size": size,
            "batch": batch,
            "device": device,
            "overwrite": overwrite,
        }
        execution = ExecutionConfig(**given)
        embed_data(tables[0], net, name=name, test=tables[1], execution=execution, on_progress=on_progress, **options)
    _done(cache.load_manifest(name))


@app.command()
def verify(name: Name) -> None:
    """Read every byte of an imported data set and compare it with its checksum."""
    from odedm.data import cache

    manifest = cache.verify(name)
    echo(f"'{name}' is sound: checksum {manifest.checksum}.")


@app.command()
def show(name: Name, as_json: AsJson = False) -> None:
    """Show what a data set holds that is built in or was imported."""
    from odedm.data import cache

    if name in DATASETS:
        _show_built_in(name, as_json=as_json)
        return
    manifest = cache.find(name)
    if as_json:
        echo_json(json.loads(manifest.to_json()))
        return
    print_rows(
        {
            "name": manifest.name,
            "from": f"{manifest.source} ({manifest.kind})",
            **_rows(manifest.rows, manifest.shape, manifest.dtype == "uint8", manifest.class_names, manifest.tasks),
            "training views": f"pad {manifest.pad}, {'mirrored half of the time' if manifest.flip else 'not mirrored'}",
            "mean": _numbers(manifest.mean),
            "deviation": _numbers(manifest.deviation),
            "skipped files": str(manifest.skipped),
            "checksum": manifest.checksum,
            "folder": f"{cache.root() / manifest.name} ({sum(manifest.file_bytes) / 1e6:.1f} MB)",
        }
    )


def _show_built_in(name: str, *, as_json: bool) -> None:
    """Open what is built in, or given by code from outside, and count it: it has no manifest."""
    from odedm.data.opening import load_dataset

    data = load_dataset(name)
    rows = (len(data.label), len(data.test_label))
    if as_json:
        plain = {"name": name, "rows": list(rows), "shape": list(data.shape), "class_names": list(data.class_names)}
        echo_json({**plain, "tasks": data.tasks, "checksum": data.checksum})
        return
    facts = _rows(rows, data.shape, not data.image.is_floating_point(), data.class_names, data.tasks)
    print_rows({"name": name, "from": f"built in: {DATASETS[name].about}", **facts, "checksum": data.checksum})


def _rows(
    rows: Sequence[int], shape: Sequence[int], is_bytes: bool, names: Sequence[str], tasks: int | None
) -> dict[str, str]:
    """Return what is said of every data set."""
    return {
        "rows": f"{rows[0]} for training, {rows[1]} for testing",
        "row": f"{'×'.join(map(str, shape))} {'bytes' if is_bytes else 'numbers'}",
        "classes": _classes(names),
        "tasks": str(tasks),
    }


def _classes(names: Sequence[str]) -> str:
    return f"{len(names)}: {', '.join(names[:10])}" + (" …" if len(names) > 10 else "")


def _done(manifest: Manifest) -> None:
    skipped = f" {manifest.skipped} other files were skipped." if manifest.skipped else ""
    echo(f"Imported '{manifest.name}': {_about(manifest)}{skipped}")
    echo(f"Use it: odedm run --data {manifest.name} --tasks {manifest.tasks}")


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(f"{value:.4f}" for value in values[:4]) + (" …" if len(values) > 4 else "")
