"""Where commands print, and how they end when something is wrong: a sentence and an exit code."""

from __future__ import annotations

import functools
import json
import signal
import sys
from collections.abc import Callable
from typing import Any, ParamSpec, TypeVar

import typer
from rich.console import Console
from rich.progress import BarColumn, Progress, ProgressColumn, TextColumn

from odedm.core.errors import UsageError
from odedm.core.text import printable

P = ParamSpec("P")
R = TypeVar("R")

out, err = Console(emoji=False), Console(stderr=True, emoji=False)  # a :x: in a file name is no emoji

SOME_FAILED, REFUSED = 1, 2
LONGEST = 10_000


def tell(line: object) -> None:
    """A line on standard output, as it is: names in it are no markup, and what a terminal would obey is left out."""
    out.print(printable(line, LONGEST), markup=False, highlight=False, soft_wrap=True)


def say(line: object) -> None:
    """A line on the error stream, for whoever looks on: results can be piped without it."""
    err.print(printable(line, LONGEST), markup=False, highlight=False, soft_wrap=True)


def tell_json(plain: Any) -> None:
    """Plain data on standard output, and nothing else."""
    sys.stdout.write(json.dumps(plain, indent=1, ensure_ascii=False) + "\n")


def guarded(after_interrupt: str) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Turn what users can cause into one sentence and an exit code; a traceback is for our own defects."""

    def wrap(command: Callable[P, R]) -> Callable[P, R]:
        @functools.wraps(command)
        def wrapper(*args: P.args, **kwargs: P.kwargs) -> R:
            try:
                return command(*args, **kwargs)
            except UsageError as error:
                _say_error(str(error))
            except OSError as error:
                where = f" ('{error.filename}')" if error.filename else ""
                _say_error(f"The system refused: {error.strerror or error}{where}.")
            except KeyboardInterrupt as interrupt:
                signal.signal(signal.SIGINT, signal.SIG_IGN)  # impatience must not interrupt the cleaning up
                err.print(f"[yellow]Interrupted.[/] {after_interrupt}")
                raise typer.Exit(128 + getattr(interrupt, "signal", signal.SIGINT)) from None
            raise typer.Exit(REFUSED)

        return wrapper

    return wrap


def _say_error(sentence: str) -> None:
    err.print("[bold red]Error:[/]", end=" ")
    say(sentence)


def bars(screen: Console, width: int, *columns: ProgressColumn, hidden: bool = False) -> Progress:
    """Bars of work that goes on, each with what it is and some columns; on a terminal alone."""
    shown = (TextColumn("{task.description}"), BarColumn(bar_width=width), *columns)
    return Progress(*shown, console=screen, transient=True, disable=hidden or not screen.is_terminal)
