"""Commands whose help shows a switch as a switch, without a value that nobody can give."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import typer.core

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
    """A command."""


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
