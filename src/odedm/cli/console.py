"""Where commands print, and how they end when something is wrong: a sentence and an exit code."""

from __future__ import annotations

import functools
import signal
from collections.abc import Callable
from typing import ParamSpec, TypeVar

import typer
from rich.console import Console

from odedm.core.errors import UsageError

P = ParamSpec("P")
R = TypeVar("R")

out, err = Console(emoji=False), Console(stderr=True, emoji=False)  # a :x: in a file name is no emoji

REFUSED = 2


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
    err.print(sentence, markup=False, highlight=False, soft_wrap=True)
