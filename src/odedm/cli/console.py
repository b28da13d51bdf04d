"""Where commands print, and how they end when something is wrong: a sentence and an exit code."""

from __future__ import annotations

import functools
import json
import signal
import sys
from collections.abc import Callable, Iterable, Mapping
from typing import Any, ParamSpec, TypeVar

import typer
from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment
from rich.table import Table
from rich.text import Text

from odedm.core.errors import UsageError, is_out_of_memory
from odedm.core.text import LONGEST, printable

P = ParamSpec("P")
R = TypeVar("R")

SOME_FAILED, REFUSED = 1, 2


class PlainConsole(Console):
    """Prints names as they are: nothing in them is markup or an emoji, and nothing reaches a terminal as a command."""

    def __init__(self, **options: Any) -> None:
        super().__init__(markup=False, emoji=False, **options)

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for piece in super().render(renderable, options):
            if piece.control or piece.text.isprintable():
                yield piece
            else:
                lines = (printable(line, len(line)) for line in piece.text.split("\n"))
                yield Segment("\n".join(lines), piece.style)


out, err = PlainConsole(), PlainConsole(stderr=True)


def echo(line: object) -> None:
    """Print a line on standard output."""
    out.print(printable(line, LONGEST), highlight=False, soft_wrap=True)


def log(line: object) -> None:
    """Print a line on the error stream, for whoever looks on: results can be piped without it."""
    err.print(printable(line, LONGEST), highlight=False, soft_wrap=True)


def echo_json(plain: Any) -> None:
    """Print plain data on standard output, and nothing else."""
    text = json.dumps(plain, indent=1, ensure_ascii=False)
    sys.stdout.write((text if text.replace("\n", "").isprintable() else json.dumps(plain, indent=1)) + "\n")


def print_rows(rows: Mapping[str, str], title: str | None = None) -> None:
    """Print names in bold, and what is to be said of each."""
    table = Table(title=title, title_justify="left", show_header=False, box=None, padding=(0, 2))
    for name, words in rows.items():
        table.add_row(Text(name, style="bold"), Text(words))
    out.print(table, highlight=False)


def handle_errors(after_interrupt: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Turn what users can cause into one sentence and an exit code; a traceback is for our own defects."""

    def wrap(command: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(command)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return command(*args, **kwargs)
            except UsageError as error:
                log_error(str(error))
            except (MemoryError, RuntimeError, ImportError) as error:
                if not is_out_of_memory(error):
                    raise
                reason = f": {' '.join(str(error).split())}".rstrip(".: ")
                log_error(f"There is no memory left{reason}. Free some, raise the limit (ulimit -v), or ask for less.")
            except OSError as error:
                where = f" ('{error.filename}')" if error.filename else ""
                log_error(f"The system refused: {error.strerror or error}{where}.")
            except KeyboardInterrupt as interrupt:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # impatience must not interrupt the cleaning up
                err.print("Interrupted.", style="yellow", end=" ")
                log(after_interrupt)
                raise typer.Exit(128 + getattr(interrupt, "signal", signal.SIGINT)) from None
            raise typer.Exit(REFUSED)

        return wrapper

    return wrap


def log_error(sentence: str) -> None:
    """Write an error on the error stream."""
    err.print("Error:", style="bold red", end=" ")
    log(sentence)
