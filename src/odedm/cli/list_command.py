"""`odedm list`: the names that other commands take, and every setting with its default."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from odedm.cli.console import echo, print_rows
from odedm.cli.dotted_settings import PARTS, spelling
from odedm.cli.generated_options import Plugins, meaning, shown_default
from odedm.core import choices, registry
from odedm.core.configuration import settings_of
from odedm.core.errors import choose
from odedm.core.options import options_of
from odedm.core.plugin_modules import load_plugins
from odedm.core.plugins import discover
from odedm.core.registry import METHODS, NETS, POLICIES, RETRIEVALS, typed
from odedm.execute.backend import BACKENDS, ExecutionConfig
from odedm.memory.settings import KINDS
from odedm.paper.studies import READY
from odedm.recipes.recommendations import recipe_lines, recipes
from odedm.training.experiment import Experiment
from odedm.training.observation import Observation

LISTS: dict[str, dict[str, Any]] = {
    "methods": registry.METHODS,
    "memories": registry.MEMORIES,
    "policies": registry.POLICIES,
    "retrievals": registry.RETRIEVALS,
    "data": registry.DATASETS,
    "distances": registry.DISTANCES,
    "nets": registry.NETS,
    "optimizers": registry.OPTIMIZERS,
    "transforms": registry.TRANSFORMS,
    "stream-losses": choices.STREAM_LOSSES,
    "predictions": choices.PREDICTIONS,
    "views": choices.VIEWS,
    "imbalances": choices.IMBALANCES,
    "domains": choices.DOMAINS,
    "replays": {"auto": choices.AUTO_REPLAY, **choices.REPLAYS},
    "gamma-rules": choices.GAMMA_RULES,
    "spaces": choices.SPACES,
    "grounds": choices.GROUNDS,
    "class-orders": choices.CLASS_ORDERS,
    "precisions": choices.PRECISIONS,
    "backends": BACKENDS,
    "recipes": recipe_lines(),
    "studies": READY,
}
SETTINGS = "settings"


def list_(
    what: Annotated[
        str | None, typer.Argument(help=f"{' | '.join([*LISTS, SETTINGS])}.", show_default="all names, briefly")
    ] = None,
    plugin: Plugins = None,
) -> None:
    """Show the names that the other commands take; of one kind with a line on each."""
    load_plugins(plugin or ())
    discover()
    if what is None:
        names = {title: ", ".join(typed(names)) for title, names in (LISTS | {"recipes": recipes()}).items()}
        print_rows(names | {SETTINGS: "every setting of a run with its default, and how a command spells it"})
        echo("With a line on each name: odedm list NAME, e.g. odedm list methods.")
    elif what == SETTINGS:
        print_rows(_settings() | _declared_options(), what)
    else:
        names = choose("list", what, LISTS)
        print_rows({name: entry if isinstance(entry, str) else entry.about for name, entry in names.items()}, what)


def _settings() -> dict[str, str]:
    """Return every setting as a command spells it, with what it is and its default."""
    rows = {}
    for kind in (Experiment, *reversed(KINDS.values()), Observation, ExecutionConfig):
        for name, setting in settings_of(kind).items():
            if name not in PARTS.values():
                default = shown_default(kind, name, setting)
                rows[spelling(name)] = meaning(setting) + (f" [{default}]" if default else "")
    return rows


def _declared_options() -> dict[str, str]:
    """Return what methods, nets, retrievals and memory policies declare themselves, by how a command spells it."""
    from odedm.memory.build_context import policy_options
    from odedm.methods.hyperparameters import hyperparameters
    from odedm.nets.build import options

    declared: dict[str, dict[str, Mapping[str, Any]]] = {
        "method": {name: hyperparameters(entry.load()) for name, entry in METHODS.items()},
        "net": {name: options(name) for name in NETS},
        "retrieval": {name: options_of(entry.load()) for name, entry in RETRIEVALS.items()},
        "policy": {name: policy_options(name) for name in POLICIES},
    }
    rows = {}
    for part, options_by_name in declared.items():
        lines = [
            f"{name}: {', '.join(f'{key}={value}' for key, value in values.items())}"
            for name, values in options_by_name.items()
            if values
        ]
        rows[f"{spelling(PARTS[part])}{' ' if part == 'method' else '.'}NAME"] = "\n".join(
            [f"An option of the {part}.", *lines]
        )
    return rows
