"""Commands whose help shows a switch as a switch, without a value that nobody can give, and that repeat a wrong one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

import typer
import typer.core

from odedm.cli.console import REFUSED, handle_errors, log_error
from odedm.cli.dotted_settings import spelling

F = TypeVar("F", bound=Callable[..., Any])


class _Helpful:
    """Shows switches, `--help` itself among them, without a type, and refuses wrong words in one sentence."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Return the parameters as help prints them."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = " "
        return parameters

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Read the words of the command line as values of the parameters."""
        with _refusals(ctx):
            words: list[str] = super().parse_args(ctx, args)  # type: ignore[misc]
            return words


class HelpfulCommand(_Helpful, typer.core.TyperCommand):
    """A command."""


class HelpfulGroup(_Helpful, typer.core.TyperGroup):
    """A command of commands."""

    def resolve_command(self, ctx: Any, args: list[str]) -> Any:
        """Find the command that words name."""
        with _refusals(ctx):
            return super().resolve_command(ctx, args)


@contextmanager
def _refusals(ctx: Any) -> Iterator[None]:
    """End what click finds wrong in one sentence, which says how a setting is given that is no option."""
    try:
        yield
    except Exception as error:  # of click, which typer brings itself, so that it cannot be named
        if not hasattr(error, "format_message") or type(error).__name__ == "NoArgsIsHelpError":
            raise
        problem: Any = error
        flag = spelling(str(getattr(error, "option_name", "")).lstrip("-").replace("-", "_"))
        dotted = flag.startswith("--set") and any(parameter.name == "set_" for parameter in ctx.command.params)
        sentence = problem.format_message().rstrip(".") + (f"; give {flag}=… in its place" if dotted else "")
        end = "" if sentence.endswith("?") else "."
        log_error(f"{sentence}{end} `{ctx.command_path} --help` says what it takes.")
        raise typer.Exit(REFUSED) from None


class CommandApp(typer.Typer):
    """An app all of whose commands are such, and end what users can cause in one sentence.

    `after_interrupt` is what they say when they are interrupted.
    """

    def __init__(self, *, after_interrupt: str, **more: Any) -> None:
        self.after_interrupt = after_interrupt
        super().__init__(
            cls=HelpfulGroup,
            no_args_is_help=True,
            pretty_exceptions_enable=False,
            rich_markup_mode="rich",
            **more,
        )

    def command(self, name: str | None = None, *, after_interrupt: str = "", **more: Any) -> Callable[[F], F]:
        """Make a function a command of this app."""
        add = super().command(name, cls=HelpfulCommand, **more)
        handled: Any = handle_errors(after_interrupt or self.after_interrupt)
        return lambda function: add(handled(function))
