"""Options of commands, made from settings that describe themselves: a setting that is added is an option at once."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from odedm.core.configuration import Setting, default_of, settings_of
from odedm.core.errors import UsageError, choose
from odedm.core.plugin_modules import load_plugins
from odedm.core.registry import MEMORIES, POLICIES
from odedm.core.validators import Bool, Choice, Float, Int, NamedValues, refused
from odedm.memory.settings import KINDS, OF_TERM, AnyMemory, memory_from_flat
from odedm.selection.flat_settings import beside
from odedm.training.experiment import Experiment

SPELLING = {
    "options": "--set",
    "net_options": "--net-option",
    "policy_options": "--policy-set",
    "retrieval_options": "--retrieval-set",
}
"""Options that are not spelled as their settings."""
TABLES = {
    "options": ("method", "hyper-parameter"),
    "net_options": ("net", "net option"),
    "retrieval_options": ("retrieval", "retrieval option"),
}
"""Settings that are values by name: whose they are, and what one of them is called."""
TAKES = "NAME=VALUE, e.g. {} lr=0.1"
"""What such an option takes, in a sentence with its name."""
METAVARS: dict[type, str] = {Int: "N", Float: "X", Choice: "NAME", Bool: " "}
"""What stands for a value in help."""
PANELS = ("What", "Stream", "Method", "Memory", "ODEDM", "Choices", "Protocol", "Run", "How", "Observe", "Where")
"""The headings of help, in their order."""
QUOTED = r"(?<!\w)'.*?'(?!\w)|(?<!\w)\".*?\"(?!\w)"
"""What stands between quotes in a sentence; an apostrophe within a word or behind one opens none."""

Given = dict[str, Any]
"""What was given on the command line, by the names of settings."""


def opt(help: str, panel: str | None = None, *names: str, default: str | None = None, **more: Any) -> Any:
    """An option of one command alone: its help, the heading it stands under, its spelling, its default in words."""
    shown = True if default is None else default
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=shown, **more)


Events = Annotated[Path | None, opt("Add what happens as JSON lines, e.g. events.jsonl.", "Observe", metavar="FILE")]
Logs = Annotated[Path | None, opt("Write TensorBoard logs.", "Observe", metavar="FOLDER")]
AsJson = Annotated[bool, opt("Print JSON, and nothing else, on stdout.", None, "--json")]
Plugins = Annotated[
    list[str] | None,
    opt(
        "Import a module, whose registered names are then known. Again and again.",
        "What",
        "--plugin",
        metavar="MODULE|FILE.py",
    ),
]
Checkpoints = Annotated[
    str,
    opt(
        "Store the state after each 'task', every 'N steps' or 'N seconds', 'never'; 'auto': after each task while "
        "that takes no more than 2 % of the time.",
        "Run",
        metavar="WHEN",
    ),
]


def spelling(name: str, own: Setting) -> str:
    """How a setting is spelled on the command line.

    >>> spelling("class_order", settings_of(Experiment)["class_order"])
    '--class-order'
    """
    plain = SPELLING.get(name, "--" + name.replace("_", "-"))
    return f"{plain}/--no-{plain[2:]}" if isinstance(own.validator, Bool) else plain


def words(kind: Any, name: str, own: Setting) -> str:
    """A setting's help: what it is, the names it takes, its default."""
    names = f" {' | '.join(own.validator.names)}." if isinstance(own.validator, Choice) else ""
    again = " Again and again." if isinstance(own.validator, NamedValues) else ""
    default = shown_default(kind, name, own)
    return f"{own.help}{names}{again}" + (f" [dim]\\[{default}][/]" if default else "")


def shown_default(kind: Any, name: str, own: Setting) -> str:
    """The default in words; empty where there is none to speak of.

    >>> shown_default(Experiment, "draw", settings_of(Experiment)["draw"])
    'as many as batch'
    """
    default = default_of(kind, name)
    if own.default_words is not None or default is None:
        return own.default_words or ""
    if isinstance(own.validator, NamedValues) or default is False:
        return ""
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return f"{default:g}" if isinstance(default, float) else str(default)


def _parameter(kind: Any, name: str, own: Setting) -> inspect.Parameter:
    given: Any = list[str] if isinstance(own.validator, NamedValues) else own.validator.cli_type
    option = typer.Option(
        spelling(name, own),
        metavar=own.metavar or METAVARS.get(type(own.validator), "TEXT"),
        help=words(kind, name, own),
        rich_help_panel=own.panel,
        show_default=False,
    )
    annotation: Any = Annotated[given | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def with_settings(*sources: Any) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command an option for every setting of some kinds; it gets those that were given as its first argument.

    A source is a kind, or a pair of one and the names of the settings that are wanted. Where two share a setting, it is
    one option. Options are ordered by their panels, the command's own among them. Every such command takes --plugin.
    """
    plugin = inspect.Parameter("plugin", inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Plugins)
    generated: dict[str, inspect.Parameter] = {}
    for source in sources:
        kind, names = source if isinstance(source, tuple) else (source, settings_of(source))
        for name in names:
            generated.setdefault(name, _parameter(kind, name, settings_of(kind)[name]))

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(command, eval_str=True).parameters.values()

        @functools.wraps(command)
        def wrapper(**values: Any) -> None:
            load_plugins(values.pop("plugin", None) or ())
            given = {name: values.pop(name) for name in generated}
            try:
                command({name: value for name, value in given.items() if value is not None}, **values)
            except UsageError as error:
                raise UsageError(as_options(str(error), generated)) from error

        every = [plugin, *generated.values(), *(each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in own)]
        every.sort(key=_place)
        wrapper.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {each.name: each.annotation for each in every}
        return wrapper

    return wrap


def as_options(sentence: str, names: Iterable[str]) -> str:
    """A sentence of the library with settings as the command line spells them; plain words stay, as they are both.

    So does what stands between quotes: it is a name or a path of the user's.

    >>> as_options("task_classes must add up to 10, and batch to 3.", ["task_classes", "batch"])
    '--task-classes must add up to 10, and batch to 3.'
    """
    spelled = {name: SPELLING.get(name, "--" + name.replace("_", "-")) for name in names if "_" in name}
    pattern = rf"{QUOTED}|(?<![\w.'/-])({'|'.join(spelled)})(?![\w'/])" if spelled else r"(?!)"
    return re.sub(pattern, lambda found: spelled[found[1]] if found[1] else found[0], sentence)


def _place(parameter: inspect.Parameter) -> int:
    """Where a parameter stands: arguments first, then options by their panels."""
    info = next(iter(getattr(parameter.annotation, "__metadata__", ())), None)
    panel = getattr(info, "rich_help_panel", None)
    return PANELS.index(panel) if panel in PANELS else -1


def pairs(flag: str, what: str, given: Sequence[str], takes: str = TAKES, once: str = "give it once") -> dict[str, str]:
    """NAME=VALUE pairs of an option that is given again and again; `takes` says how, with an example."""
    found: dict[str, str] = {}
    for pair in given:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise UsageError(f"{flag} takes {takes.format(flag)}; '{pair}' was given.")
        if name in found:
            raise UsageError(f"The {what} '{name}' was given twice; {once}.")
        found[name] = value
    return found


def experiment_from(given: Given, before: Mapping[str, Any] | None = None) -> Experiment:
    """The experiment that was asked for; `before` is a described one whose settings hold where nothing was given."""
    own = {name: value for name, value in given.items() if name in settings_of(Experiment)}
    for table, (_, what) in TABLES.items():
        if table in own:
            own[table] = pairs(SPELLING[table], what, own[table])
    if before is None:
        return Experiment(memory_from(given), **own)
    for table, (owner, _) in TABLES.items():
        if not isinstance(before.get(table, {}), Mapping):
            raise refused(f"'{table}' of a stored experiment", NamedValues.expected, before[table])
        kept = {} if own.get(owner, before.get(owner)) != before.get(owner) else before.get(table, {})
        own[table] = {**kept, **own.get(table, {})}  # not those of another method or net
    return replace(Experiment.from_dict({**before, **own}), memory=memory_from(given, before["memory"]))


def memory_from(given: Given, before: Mapping[str, Any] | None = None) -> AnyMemory:
    """The memory by its name; what was given must be settings of it."""
    name = given.get("memory", before["name"] if before else "odedm")
    if name not in MEMORIES and name in POLICIES:
        raise UsageError(f"'{name}' is a memory policy, not a memory: give --memory native --policy {name}.")
    choose("memory", name, MEMORIES)
    kind: Any = KINDS[name]
    for other in KINDS.values():
        for each, own in settings_of(other).items():
            if each in given and each not in settings_of(kind):
                flag, theirs = spelling(each, own), other.name
                raise UsageError(
                    f"{flag} is for the memory '{theirs}', not for '{name}'. Leave it out, or give --memory {theirs}."
                )
    values = {each: given[each] for each in settings_of(kind) if each in given}
    if "policy_options" in values:
        values["policy_options"] = pairs(SPELLING["policy_options"], "policy option", values["policy_options"])
    if "rho" in values and "k" in values and before is None:
        raise UsageError("--rho and --k both set the size of the long-term memory; give one.")
    rest = {each: value for each, value in (before or {}).items() if each in settings_of(kind)}
    for policy in ("policy", "short_policy"):
        if values.get(policy, rest.get(policy)) != rest.get(policy):
            rest.pop("policy_options", None)  # those of another policy
    if "rho" in values or "k" in values:  # they decide one size: what is given replaces both
        rest |= {"rho": None, "k": None}
    reading = values.get("replay", rest.get("replay"))
    if reading == "union" or values.get("replay") == "auto":  # a weight asks for a term, and this one nobody has given
        rest = {each: value for each, value in rest.items() if each not in OF_TERM}
    return memory_from_flat(kind, {**beside(rest, values), **values})
