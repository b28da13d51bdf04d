"""Commands whose help shows a switch as a switch, without a value that nobody can give, and that repeat a wrong one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import typer
import typer.core

from odedm.cli.dotted_settings import spelling

F = TypeVar("F", bound=Callable[..., Any])


class _PlainSwitches:
    """Takes the type away from options that are there or not; `--help` itself is one."""

    def get_params(self, ctx: Any) -> list[Any]:
        """The parameters as help prints them."""
        parameters: list[Any] = super().get_params(ctx)  # type: ignore[misc]
        for parameter in parameters:
            if getattr(parameter, "is_flag", False) and parameter.metavar is None:
                parameter.metavar = " "
        return parameters


class HelpfulCommand(_PlainSwitches, typer.core.TyperCommand):
    """A command that says how a setting is given which is no option of its own."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """The words of the command line as values of the parameters."""
        try:
            return super().parse_args(ctx, args)
        except Exception as error:  # that there is no such option is an exception of click, which typer brings itself
            name = str(getattr(error, "option_name", "")).lstrip("-").replace("-", "_")
            flag = spelling(name)
            if name and flag.startswith("--set") and any(parameter.name == "set_" for parameter in self.params):
                raise typer.BadParameter(f"No such option; give {flag}=… in its place.") from None
            raise


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
