"""Commands whose help shows a switch as a switch, without a value that nobody can give, and that repeat a wrong one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any, TypeVar

import typer
import typer.core

from odedm.cli.dotted_settings import spelling
from odedm.core.errors import short_repr

F = TypeVar("F", bound=Callable[..., Any])


class _PlainSwitches:
    """Takes the type away from options that are there or not; `--help` itself is one."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters as help prints them."""
        found: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for each in found:
            if getattr(each, "is_flag", False) and each.metavar is None:
                each.metavar = " "
        return found


class HelpfulCommand(_PlainSwitches, typer.core.TyperCommand):
    """A command that repeats a value which it refuses: typer says what it should be, and not always what it is."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The words of the command line as values of the parameters."""
        words = list(args)
        try:
            return super().parse_args(ctx, args)
        except typer.BadParameter as error:
            options = [name for name in getattr(error.param, "opts", []) if name.startswith("-")]
            given = _given(words, options)
            if given is not None and repr(given) not in error.message:
                error.message = f"{error.message.rstrip('.')}; {short_repr(given)} was given."
            raise
        except Exception as error:  # that there is no such option is an exception of click, which typer brings itself
            name = str(getattr(error, "option_name", "")).lstrip("-").removeprefix("no-").replace("-", "_")
            flag = spelling(name)
            if name and flag.startswith("--set") and any(parameter.name == "set_" for parameter in self.params):
                raise typer.BadParameter(f"No such option; give {flag}=… in its place.") from None
            raise


def _given(words: list[str], names: Sequence[str]) -> str | None:
    """The value that an option has on the command line, the last one where it is there several times.

    >>> _given(["--lr", "a", "--lr=b"], ["--lr"]), _given(["--lr"], ["--lr"])
    ('b', None)
    """
    after = [value for word, value in pairwise(words) if word in names]
    joined = [word.partition("=")[2] for word in words if "=" in word and word.partition("=")[0] in names]
    return next(reversed([*after, *joined]), None)


class HelpfulGroup(_PlainSwitches, typer.core.TyperGroup):
    """A command of commands."""


class CommandApp(typer.Typer):
    """An app all of whose commands are such."""

    def __init__(self, **more: Any) -> None:
        super().__init__(
            cls=HelpfulGroup,
            no_args_is_help=True,
            pretty_exceptions_enable=False,
            rich_markup_mode="rich",
            **more,
        )

    def command(self, name: str | None = None, **more: Any) -> Callable[[F], F]:
        """A command of this app."""
        return super().command(name, cls=HelpfulCommand, **more)
