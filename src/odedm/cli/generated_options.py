"""Options of commands, made from settings that describe themselves: a setting that is added is an option at once."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated, Any

import typer

from odedm.cli.dotted_settings import PARTS, Given, group_of, in_its_type, merged, read_dotted, spelling
from odedm.core.configuration import IN_SIGHT, Setting, default_of, settings_of
from odedm.core.errors import UsageError, choose
from odedm.core.plugin_modules import load_plugins, name_in_file
from odedm.core.registry import MEMORIES, POLICIES, WITHOUT_CLUSTERS
from odedm.core.validators import Bool, Choice, Float, Int, NamedValues, refused
from odedm.memory.settings import KINDS, ODEDM, OF_TERM, AnyMemory, memory_from_flat
from odedm.selection.flat_settings import beside
from odedm.training.experiment import Experiment

METAVARS: dict[type, str] = {Int: "N", Float: "X", Choice: "NAME", Bool: " "}
"""What stands for a value in help."""
PANELS = ("What", "Stream", "Method", "Memory", "Choices", "Protocol", "Run", "Observe", "How")
"""The headings of help, in their order."""
UNDER = {"ODEDM": "Memory", "Where": "Run"}
"""Headings of settings that help joins with others."""
FIRST = ("data", "method", "memory", "seeds", "seed")
"""Options that begin their panel."""


def opt(help: str, panel: str | None = None, *names: str, default: str | None = None, **more: Any) -> Any:
    """Return an option of one command alone: its help, its heading, its spelling, its default in words."""
    shown = True if default is None else default
    return typer.Option(*names, help=help, rich_help_panel=panel, show_default=shown, **more)


Log = Annotated[
    list[str] | None,
    opt("tensorboard[:FOLDER] | jsonl[:FILE] | wandb[:PROJECT]. Repeatable.", "Observe", "--log", metavar="NAME[:…]"),
]
AsJson = Annotated[bool, opt("Print JSON, and nothing else, on stdout.", None, "--json")]
Plugins = Annotated[
    list[str] | None,
    opt("Import a module, whose registered names are then known.", "What", "--plugin", metavar="MODULE"),
]
Only = Annotated[list[str] | None, opt("Only these, e.g. method=er,derpp.", "What", metavar="NAME=VALUE")]
DryRun = Annotated[bool, opt("Say what would be run, and run nothing.", "How", "--dry-run")]
Budget = Annotated[str | None, opt("Stop after this time; the same command goes on, e.g. 30m.", "How", metavar="TIME")]
Retry = Annotated[bool, opt("Run again what failed before.", "How", "--retry")]
WithResults = Annotated[
    list[Path] | None, opt("Packed results of other machines, which count as done.", "How", metavar="FILE.jsonl.gz")
]
Checkpoints = Annotated[str, opt("task | N steps | N seconds | never | auto.", "Run", metavar="WHEN")]
SetOption = Annotated[
    list[str] | None,
    opt(
        "A hyper-parameter of the method, or GROUP.NAME=VALUE of any other setting: odedm list settings. Repeatable.",
        "Method",
        "--set",
        metavar="NAME=VALUE",
    ),
]
MAX_NAMES = 5
"""Names that help says of a setting; odedm list has them all."""


def meaning(setting: Setting) -> str:
    """Return a setting's help, and the names it takes where these are few."""
    known = setting.validator.names if isinstance(setting.validator, Choice) else []
    return setting.help + (f" {' | '.join(known)}." if 0 < len(known) <= MAX_NAMES else "")


def shown_default(kind: Any, name: str, setting: Setting) -> str:
    """Return the default in words; empty where there is none to speak of.

    >>> shown_default(Experiment, "replay_batch", settings_of(Experiment)["replay_batch"])
    'as many as batch'
    """
    default = default_of(kind, name)
    if setting.default_words is not None or default is None:
        return setting.default_words or ""
    if isinstance(setting.validator, NamedValues) or default is False:
        return ""
    if isinstance(default, tuple):
        return ",".join(map(str, default))
    return f"{default:g}" if isinstance(default, float) else str(default)


def _parameter(kind: Any, name: str, setting: Setting) -> inspect.Parameter:
    """Return an option that hands over text, which the setting's own validator reads; a switch hands over a bool."""
    names = ["-j", spelling(name)] if name == "workers" else [spelling(name)]
    default = shown_default(kind, name, setting)
    option = typer.Option(
        *names,
        metavar=setting.metavar or METAVARS.get(type(setting.validator), "TEXT"),
        help=meaning(setting) + (f" [dim]\\[{default}][/]" if default else ""),
        rich_help_panel=UNDER.get(setting.panel, setting.panel),
        show_default=False,
    )
    kind_of_value: Any = bool if isinstance(setting.validator, Bool) else str
    annotation: Any = Annotated[kind_of_value | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def with_settings(*sources: Any, dotted: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the settings of some kinds; it gets those that were given as its first argument.

    A source is a kind, whose settings in sight are options and whose others are given by `--set`, or a pair of one and
    the names of the settings that are wanted as options. Where two share a setting, it is one option. Options are
    ordered by their panels, the command's own among them. Every such command takes --plugin, and --set if `dotted`.
    """
    generated: dict[str, inspect.Parameter] = {}
    settings: dict[str, Setting] = {}
    known: dict[str, None] = {}
    for source in sources:
        kind, names = source if isinstance(source, tuple) else (source, [*IN_SIGHT & {*settings_of(source)}])
        known |= dict.fromkeys(names if isinstance(source, tuple) else settings_of(source))
        for name, setting in settings_of(kind).items():
            if name in names and name not in generated:
                settings[name], generated[name] = setting, _parameter(kind, name, setting)
    groups = [group for name in known if (group := group_of(name))]
    groups += [part for part, table in PARTS.items() if table in known]

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        _, *parameters = inspect.signature(command, eval_str=True).parameters.values()

        @functools.wraps(command)
        def wrapper(**values: Any) -> None:
            load_plugins(values.pop("plugin", None) or ())
            texts = values.pop("set_", None) or [] if dotted else []
            options = {name: values.pop(name) for name in generated}
            given = {name: _read(name, settings[name], v) for name, v in options.items() if v is not None}
            usual = "" if values.get("again") or values.get("recipe") else Experiment().method
            given = merged(given, read_dotted(texts, given.get("method", usual), dict.fromkeys(groups)))
            command(given, **values)

        common = {"plugin": Plugins, **({"set_": SetOption} if dotted else {})}
        beside = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in common.items()
        ]
        parameters = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in parameters]
        every = sorted([*beside, *generated.values(), *parameters], key=_place)
        wrapper.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
        return wrapper

    return wrap


def _read(name: str, setting: Setting, value: Any) -> Any:
    """Return the value of an option in its own type."""
    if name == "net":
        value = name_in_file(value)
    return value if isinstance(value, bool) else in_its_type(name, setting, value)


def _place(parameter: inspect.Parameter) -> tuple[int, int]:
    """Return where a parameter stands: arguments first, then options by their panels, each with its first ones."""
    info = next(iter(getattr(parameter.annotation, "__metadata__", ())), None)
    panel = getattr(info, "rich_help_panel", None)
    first = FIRST.index(parameter.name) if parameter.name in FIRST else len(FIRST)
    return (PANELS.index(panel), first) if panel in PANELS else (-1, 0)


def experiment_from(given: Given, before: Mapping[str, Any] | None = None) -> Experiment:
    """Return the experiment that was asked for; settings of `before`, a described one, hold where none was given."""
    settings = {name: value for name, value in given.items() if name in settings_of(Experiment)}
    if before is None:
        return Experiment(memory_from(given), **settings)
    for part in ("method", "net", "retrieval"):
        table = PARTS[part]
        if not isinstance(before.get(table, {}), Mapping):
            raise refused(f"'{table}' of a stored experiment", NamedValues.expected, before[table])
        kept = {} if settings.get(part, before.get(part)) != before.get(part) else before.get(table, {})
        settings[table] = {**kept, **settings.get(table, {})}  # not those of another method or net
    return replace(Experiment.from_dict({**before, **settings}), memory=memory_from(given, before["memory"]))


def with_paper_memory(given: Given) -> Given:
    """Return what was given, and beside it every setting of ODEDM as `ODEDM.paper` has it.

    >>> memory_from(with_paper_memory({"rho": 0.5})) == ODEDM.paper(100, rho=0.5)
    True
    """
    if given.get("memory", ODEDM.name) != ODEDM.name:
        raise UsageError(f"--paper is for the memory 'odedm'; '{given['memory']}' was given. Leave one of them out.")
    sizes = {name: given[name] for name in ("rho", "distance") if given.get(name) not in (None, *WITHOUT_CLUSTERS)}
    preset = ODEDM.paper(given.get("capacity", default_of(ODEDM, "capacity")), **sizes).flat()
    idle = {*(["rho"] if "k" in given else []), *(OF_TERM if given.get("replay") == "union" else [])}
    # a sample of None is a choice, that of all rows; other settings without a value are not there
    known = {n: v for n, v in preset.items() if n not in idle and (v is not None or n == "dac_sample")}
    return {**beside(known, given), **given}


def memory_from(given: Given, before: Mapping[str, Any] | None = None) -> AnyMemory:
    """Return the memory by its name; what was given must be settings of it."""
    name = given.get("memory", before["name"] if before else "odedm")
    if name not in MEMORIES and name in POLICIES:
        raise UsageError(f"'{name}' is a memory policy: give --memory native --set memory.policy={name}.")
    choose("memory", name, MEMORIES)
    kind: Any = KINDS[name]
    for other in KINDS.values():
        for setting in settings_of(other):
            if setting in given and setting not in settings_of(kind):
                flag, owner = spelling(setting), other.name
                raise UsageError(
                    f"{flag} is for the memory '{owner}', not for '{name}'. Leave it out, or give --memory {owner}."
                )
    values = {setting: given[setting] for setting in settings_of(kind) if setting in given}
    if "rho" in values and "k" in values and before is None:
        raise UsageError("--rho and --k both set the size of the long-term memory; give one.")
    rest = {setting: value for setting, value in (before or {}).items() if setting in settings_of(kind)}
    for policy in ("policy", "short_policy"):
        if values.get(policy, rest.get(policy)) != rest.get(policy):
            rest.pop("policy_options", None)  # those of another policy
    if "rho" in values or "k" in values:  # they decide one size: what is given replaces both
        rest |= {"rho": None, "k": None}
    reading = values.get("replay", rest.get("replay"))
    if reading == "union" or values.get("replay") == "auto":  # a weight asks for a term, and this one nobody has given
        rest = {setting: value for setting, value in rest.items() if setting not in OF_TERM}
    return memory_from_flat(kind, {**beside(rest, values), **values})
