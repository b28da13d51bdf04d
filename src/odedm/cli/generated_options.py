"""Options of commands, made from settings that describe themselves: a setting that is added is an option at once."""

from __future__ import annotations

import functools
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Annotated, Any

import typer

from odedm.cli.dotted_settings import PARTS, Given, group_of, merged, read_dotted, spelling
from odedm.core.configuration import Setting, default_of, settings_of
from odedm.core.errors import UsageError, choose
from odedm.core.option_names import IN_SIGHT
from odedm.core.options import options_of
from odedm.core.plugin_modules import load_plugins
from odedm.core.registry import MEMORIES, METHODS, NETS, POLICIES, RETRIEVALS
from odedm.core.validators import Bool, Choice, Float, Int, NamedValues, refused
from odedm.execute.backend import ExecutionConfig
from odedm.memory.settings import KINDS, OF_TERM, AnyMemory, memory_from_flat
from odedm.selection.flat_settings import beside
from odedm.training.experiment import Experiment
from odedm.training.observation import Observation

METAVARS: dict[type, str] = {Int: "N", Float: "X", Choice: "NAME", Bool: " "}
"""What stands for a value in help."""
PANELS = ("What", "Stream", "Method", "Memory", "ODEDM", "Choices", "Protocol", "Run", "How", "Observe", "Where")
"""The headings of help, in their order."""
QUOTED = r"(?<!\w)'.*?'(?!\w)|(?<!\w)\".*?\"(?!\w)"
"""What stands between quotes in a sentence; an apostrophe within a word or behind one opens none."""


def opt(help: str, panel: str | None = None, *names: str, default: str | None = None, **more: Any) -> Any:
    """An option of one command alone: its help, the heading it stands under, its spelling, its default in words."""
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


def words(kind: Any, name: str, own: Setting) -> str:
    """A setting's help: what it is, the names it takes, its default."""
    known = own.validator.names if isinstance(own.validator, Choice) else []
    names = f" {' | '.join(known)}." if 0 < len(known) <= MAX_NAMES else ""
    default = shown_default(kind, name, own)
    return f"{own.help}{names}" + (f" [dim]\\[{default}][/]" if default else "")


def shown_default(kind: Any, name: str, own: Setting) -> str:
    """The default in words; empty where there is none to speak of.

    >>> shown_default(Experiment, "replay_batch", settings_of(Experiment)["replay_batch"])
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


def settings_in_words() -> dict[str, str]:
    """Return every setting as a command spells it, with what it is and its default; then what parts declare."""
    kinds: tuple[Any, ...] = (Experiment, *reversed(KINDS.values()), Observation, ExecutionConfig)
    tables = {*PARTS.values()}
    rows = {
        spelling(name, own): re.sub(r"\[/?dim\]|\[/\]", "", words(kind, name, own)).replace("\\", "")
        for kind in kinds
        for name, own in settings_of(kind).items()
        if name not in tables
    }
    return rows | {f"--set {part}.NAME" if part != "method" else "--set NAME": said for part, said in _declared()}


def _declared() -> Iterator[tuple[str, str]]:
    """Options that methods, nets, retrievals and memory policies declare, by the kind of part."""
    from odedm.memory.build_context import TOLD
    from odedm.methods.hyperparameters import hyperparameters
    from odedm.nets.build import options

    methods = {name: hyperparameters(entry.load()) for name, entry in METHODS.items()}
    nets = {name: options(name) for name in NETS}
    retrievals = {name: options_of(entry.load()) for name, entry in RETRIEVALS.items()}
    policies = {name: options_of(entry.load(), TOLD) for name, entry in POLICIES.items()}
    for part, own in {"method": methods, "net": nets, "retrieval": retrievals, "policy": policies}.items():
        lines = [
            f"{name}: {', '.join(f'{key}={value}' for key, value in values.items())}"
            for name, values in own.items()
            if values
        ]
        yield part, "\n".join([f"An option of the {part}.", *lines])


def _parameter(kind: Any, name: str, own: Setting) -> inspect.Parameter:
    given: Any = own.validator.cli_type
    names = ["-j", spelling(name, own)] if name == "workers" else [spelling(name, own)]
    option = typer.Option(
        *names,
        metavar=own.metavar or METAVARS.get(type(own.validator), "TEXT"),
        help=words(kind, name, own),
        rich_help_panel=own.panel,
        show_default=False,
    )
    annotation: Any = Annotated[given | None, option]
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)


def with_settings(*sources: Any, dotted: bool = True) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Give a command the settings of some kinds; it gets those that were given as its first argument.

    A source is a kind, whose settings in sight are options and whose others are given by `--set`, or a pair of one and
    the names of the settings that are wanted as options. Where two share a setting, it is one option. Options are
    ordered by their panels, the command's own among them. Every such command takes --plugin, and --set if `dotted`.
    """
    generated: dict[str, inspect.Parameter] = {}
    known: dict[str, None] = {}
    for source in sources:
        kind, names = source if isinstance(source, tuple) else (source, [*IN_SIGHT & {*settings_of(source)}])
        known |= dict.fromkeys(names if isinstance(source, tuple) else settings_of(source))
        for name in (each for each in settings_of(kind) if each in names):
            generated.setdefault(name, _parameter(kind, name, settings_of(kind)[name]))
    groups = [group for name in known if (group := group_of(name))]
    groups += [part for part, table in PARTS.items() if table in known]

    def wrap(command: Callable[..., None]) -> Callable[..., None]:
        _, *own = inspect.signature(command, eval_str=True).parameters.values()

        @functools.wraps(command)
        def wrapper(**values: Any) -> None:
            load_plugins(values.pop("plugin", None) or ())
            texts = values.pop("set_", None) or [] if dotted else []
            options = {name: values.pop(name) for name in generated}
            given = {name: value for name, value in options.items() if value is not None}
            usual = "" if values.get("again") or values.get("recipe") else Experiment().method
            given = merged(given, read_dotted(texts, given.get("method", usual), dict.fromkeys(groups)))
            try:
                command(given, **values)
            except UsageError as error:
                raise UsageError(as_options(str(error), known)) from error

        common = {"plugin": Plugins, **({"set_": SetOption} if dotted else {})}
        beside = [
            inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=kind)
            for name, kind in common.items()
        ]
        own = [parameter.replace(kind=inspect.Parameter.KEYWORD_ONLY) for parameter in own]
        every = sorted([*beside, *generated.values(), *own], key=_place)
        wrapper.__signature__ = inspect.Signature(every)  # type: ignore[attr-defined]
        wrapper.__annotations__ = {parameter.name: parameter.annotation for parameter in every}
        return wrapper

    return wrap


def as_options(sentence: str, names: Iterable[str]) -> str:
    """A sentence of the library with settings as the command line spells them; plain words stay, as they are both.

    So does what stands between quotes: it is a name or a path of the user's.

    >>> as_options("task_classes must add up to 10, and batch to 3.", ["task_classes", "batch"])
    '--set stream.task_classes must add up to 10, and batch to 3.'
    """
    spelled = {name: spelling(name) for name in names if "_" in name}
    pattern = rf"{QUOTED}|(?<![\w.'/-])({'|'.join(spelled)})(?![\w'/])" if spelled else r"(?!)"
    return re.sub(pattern, lambda found: spelled[found[1]] if found[1] else found[0], sentence)


def _place(parameter: inspect.Parameter) -> int:
    """Where a parameter stands: arguments first, then options by their panels."""
    info = next(iter(getattr(parameter.annotation, "__metadata__", ())), None)
    panel = getattr(info, "rich_help_panel", None)
    return PANELS.index(panel) if panel in PANELS else -1


def experiment_from(given: Given, before: Mapping[str, Any] | None = None) -> Experiment:
    """The experiment that was asked for; `before` is a described one whose settings hold where nothing was given."""
    own = {name: value for name, value in given.items() if name in settings_of(Experiment)}
    if before is None:
        return Experiment(memory_from(given), **own)
    for part in ("method", "net", "retrieval"):
        table = PARTS[part]
        if not isinstance(before.get(table, {}), Mapping):
            raise refused(f"'{table}' of a stored experiment", NamedValues.expected, before[table])
        kept = {} if own.get(part, before.get(part)) != before.get(part) else before.get(table, {})
        own[table] = {**kept, **own.get(table, {})}  # not those of another method or net
    return replace(Experiment.from_dict({**before, **own}), memory=memory_from(given, before["memory"]))


def memory_from(given: Given, before: Mapping[str, Any] | None = None) -> AnyMemory:
    """The memory by its name; what was given must be settings of it."""
    name = given.get("memory", before["name"] if before else "odedm")
    if name not in MEMORIES and name in POLICIES:
        raise UsageError(f"'{name}' is a memory policy: give --memory native --set memory.policy={name}.")
    choose("memory", name, MEMORIES)
    kind: Any = KINDS[name]
    for other in KINDS.values():
        for setting in settings_of(other):
            if setting in given and setting not in settings_of(kind):
                flag, theirs = spelling(setting), other.name
                raise UsageError(
                    f"{flag} is for the memory '{theirs}', not for '{name}'. Leave it out, or give --memory {theirs}."
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
