"""`--set GROUP.NAME=VALUE`: settings that are no options of their own, and those that parts of a run declare."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from odedm.core.configuration import IN_SIGHT, Setting, settings_of
from odedm.core.errors import UsageError, choose
from odedm.core.registry import METHODS
from odedm.core.validators import refused
from odedm.execute.backend import ExecutionConfig
from odedm.memory.settings import KINDS
from odedm.training.experiment import Experiment
from odedm.training.observation import Observation

Given = dict[str, Any]
"""What was given on the command line, by the names of settings."""

PARTS = {
    "method": "options",
    "net": "net_options",
    "retrieval": "retrieval_options",
    "policy": "policy_options",
    "optimizer": "optimizer_options",
}
"""Groups whose names a part itself declares, and the setting that holds them. A bare name is one of the method."""


def grouped_settings() -> dict[str, dict[str, Setting]]:
    """Return every setting by the group that stands before its dot."""
    experiment = {name: setting for name, setting in settings_of(Experiment).items() if name not in PARTS.values()}
    memory = {name: setting for kind in KINDS.values() for name, setting in settings_of(kind).items()}
    return {
        "stream": {name: setting for name, setting in experiment.items() if setting.panel == "Stream"},
        "training": {name: setting for name, setting in experiment.items() if setting.panel != "Stream"},
        "memory": {name: setting for name, setting in memory.items() if name not in PARTS.values()},
        "observe": settings_of(Observation),
        "execution": settings_of(ExecutionConfig),
    }


def group_of(name: str) -> str | None:
    """Return the group of a setting; None where no group has it.

    >>> group_of("blur"), group_of("epsilon"), group_of("nonsense")
    ('stream', 'memory', None)
    """
    return next((group for group, settings in grouped_settings().items() if name in settings), None)


def spelling(name: str) -> str:
    """Return how a setting is spelled on the command line.

    >>> spelling("tasks"), spelling("task_classes"), spelling("net_options")
    ('--tasks', '--set stream.task_classes', '--set net')
    """
    part = next((group for group, table in PARTS.items() if table == name), None)
    if part is not None:
        return "--set" if part == "method" else f"--set {part}"
    if name not in IN_SIGHT and (group := group_of(name)) is not None:
        return f"--set {group}.{name}"
    return "--" + name.replace("_", "-")


def read_dotted(given: Sequence[str], method: str, groups: Iterable[str] | None = None) -> Given:
    """Return the settings that `--set` was given, each in its own type and by its own name.

    Args:
        given: texts NAME=VALUE or GROUP.NAME=VALUE.
        method: the method whose hyper-parameters bare names are.
        groups: those that the command has a use for; None: all.

    >>> read_dotted(["alpha=0.2", "stream.blur=0.1", "net.width=32"], "derpp")
    {'options': {'alpha': '0.2'}, 'blur': 0.1, 'net_options': {'width': '32'}}
    """
    settings: Given = {}
    for text, value in pairs("--set", "setting", given).items():
        group, dot, name = text.partition(".")
        if not dot:
            _check_bare(text, method)
            group, name = "method", text
        choose("group of --set", group, dict.fromkeys(groups if groups is not None else [*PARTS, *grouped_settings()]))
        if group in PARTS:
            options = settings.setdefault(PARTS[group], {})
            if name in options:  # once bare and once with its group
                raise UsageError(f"The setting '{text}' was given twice; give it once.")
            options[name] = value
            continue
        name = name.rpartition(".")[2] if group == "memory" else name
        setting = choose(f"setting of {group}", name, grouped_settings()[group])
        settings[name] = in_its_type(f"--set {text}", setting, value)
    return settings


def _check_bare(name: str, method: str) -> None:
    """Refuse a bare name that is no hyper-parameter of the method but a setting, and say how that is written."""
    group = group_of(name)
    if group is None or method not in METHODS:
        return
    from odedm.methods.hyperparameters import hyperparameters  # needs torch

    if name not in hyperparameters(METHODS[method].load()):
        flag = spelling(name)
        raise UsageError(
            f"'{name}' is no hyper-parameter of {method}, and a name without a group is one; give {flag}"
            f"{'=…' if flag.startswith('--set') else ''} in its place."
        )


def in_its_type(flag: str, setting: Setting, text: str) -> Any:
    """Return the value that text stands for; an error that begins with the flag where it is none."""
    try:
        return setting.validator.validate(flag, setting.validator.from_text(text))
    except UsageError:
        raise
    except Exception:  # a conversion may raise what it likes
        raise refused(flag, setting.validator.expected, text) from None


def pairs(
    flag: str, what: str, given: Sequence[str], takes: str = "NAME=VALUE, e.g. {} lr=0.1", once: str = "give it once"
) -> dict[str, str]:
    """Return the NAME=VALUE texts of an option that is given again and again; `takes` says how, with an example."""
    settings: dict[str, str] = {}
    for text in given:
        name, sign, value = text.partition("=")
        if not sign or not name:
            raise UsageError(f"{flag} takes {takes.format(flag)}; '{text}' was given.")
        if name in settings:
            raise UsageError(f"The {what} '{name}' was given twice; {once}.")
        settings[name] = value
    return settings


def merged(options: Mapping[str, Any], dotted: Mapping[str, Any]) -> Given:
    """Return what options and `--set` gave together; what both gave is refused."""
    for name in dotted:
        if name in options and name not in PARTS.values():
            raise UsageError(f"{spelling(name)} and --set both give '{name}'; give it once.")
    return {**options, **dotted}
