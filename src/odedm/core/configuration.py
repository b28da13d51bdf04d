"""Settings that describe themselves: help, legal values, default. Every door to the library is made from them.

A field of `Experiment` or of a memory is written once, with `setting_field`. The command line's options, the axes of a
study, the keywords of `train` and the reference tables are read off it, and so are its check and its place in files.
"""

from __future__ import annotations

import dataclasses
import functools
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from typing import Any, TypeVar

from odedm.core.errors import UsageError, short_repr
from odedm.core.validators import Validator

T = TypeVar("T")
IN_SIGHT = frozenset(
    {
        *("data", "tasks", "imbalance", "limit"),
        *("method", "net", "batch", "epochs"),
        *("memory", "capacity", "rho", "k", "distance", "dac", "replay"),
        *("seed", "device", "threads", "evidence", "anytime", "keep_model"),
        *("workers", "backend"),
    }
)
"""Settings that are options of the command line; the others are given as `--set GROUP.NAME=VALUE`."""


@dataclass(frozen=True)
class Setting:
    """What a field says of itself.

    `panel` is the heading it stands under in help. `default_words` says what a default of None stands for.
    `speed_only`: it sets how fast a run is, not what it is. `axis`: a study can vary it. `if_given`: stored data hold
    it only where it is given, so that what was stored before the setting existed stays what it is.
    """

    validator: Validator
    help: str
    panel: str = ""
    default_words: str | None = None
    metavar: str | None = None
    optional: bool = False
    speed_only: bool = False
    axis: bool = True
    if_given: bool = False


def setting_field(validator: Validator, default: Any, help: str, **more: Any) -> Any:
    """Return a field of a data class that describes itself: see `Setting`.

    >>> from odedm.core.validators import Int
    >>> @dataclass(frozen=True)
    ... class Plan:
    ...     batch: int = setting_field(Int(1), 32, "Rows per step.")
    >>> settings_of(Plan)["batch"].help
    'Rows per step.'
    """
    setting = Setting(validator, help, optional=default is None or more.pop("optional", False), **more)
    if callable(default):
        return dataclasses.field(default_factory=default, hash=False, metadata={"setting": setting})  # tables have none
    return dataclasses.field(default=default, metadata={"setting": setting})


def _settings_of(kind: Any) -> dict[str, Setting]:
    """Return the settings of a data class in its order; one without a panel stands under the class's `PANEL`.

    A class with settings in parts of its own has them side by side: `flat_settings()` names them, `flat()` gives an
    object's, and `from_flat(**settings)` makes one of them.
    """
    flat: Callable[[], dict[str, Setting]] | None = getattr(kind, "flat_settings", None)
    return flat() if flat else field_settings(kind)


def field_settings(kind: Any) -> dict[str, Setting]:
    """Return the settings that are fields of a data class itself."""
    settings = {field.name: field.metadata["setting"] for field in fields(kind) if "setting" in field.metadata}
    panel = getattr(kind, "PANEL", "")
    return {
        name: setting if setting.panel else dataclasses.replace(setting, panel=panel)
        for name, setting in settings.items()
    }


settings_of: Callable[[Any], dict[str, Setting]] = functools.cache(_settings_of)  # large studies ask for every run


def check_settings(plan: Any) -> None:
    """Put every setting of a data class into its own type, or refuse it; for `__post_init__`."""
    for name, setting in field_settings(type(plan)).items():
        value = getattr(plan, name)
        if value is not None or not setting.optional:
            object.__setattr__(plan, name, setting.validator.validate(name, value))


def default_of(kind: Any, name: str) -> Any:
    """Return the default of a field, or of a setting in a part; MISSING where it has none."""
    field = next((field for field in fields(kind) if field.name == name), None)
    if field is None:
        return kind().flat()[name]
    return field.default if field.default_factory is MISSING else field.default_factory()


def values_of(plan: Any) -> dict[str, Any]:
    """Return the settings of a data class by name, those of its parts side by side with its own."""
    flat: Callable[[], dict[str, Any]] | None = getattr(plan, "flat", None)
    return flat() if flat else {name: getattr(plan, name) for name in settings_of(type(plan))}


def repr_without_defaults(plan: Any, always: Sequence[str] = ()) -> str:
    """Return the repr of a data class without defaults, but for the names in `always`.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Plan:
    ...     batch: int = 32
    ...     seed: int = 0
    >>> repr_without_defaults(Plan(seed=3)), repr_without_defaults(Plan(), always=["batch"])
    ('Plan(seed=3)', 'Plan(batch=32)')
    """
    values = {field.name: getattr(plan, field.name) for field in fields(plan) if field.repr}
    shown = {name: value for name, value in values.items() if name in always or value != default_of(type(plan), name)}
    return f"{type(plan).__name__}({', '.join(f'{name}={short_repr(value, 200)}' for name, value in shown.items())})"


def to_dict(plan: Any) -> dict[str, Any]:
    """Return the settings of a data class as plain data, as a file will give them back.

    >>> from odedm.core.validators import Pair
    >>> @dataclass(frozen=True)
    ... class Plan:
    ...     dac: tuple[int, int] | None = setting_field(Pair(), (3, 4), "…", optional=True)
    >>> to_dict(Plan())
    {'dac': [3, 4]}
    """
    settings = settings_of(type(plan))
    values = {
        name: value for name, value in values_of(plan).items() if value is not None or not settings[name].if_given
    }
    plain: dict[str, Any] = json.loads(json.dumps(values, default=str))
    return plain


def from_dict(kind: Callable[..., T], what: str, plain: Mapping[str, Any], **parts: Any) -> T:
    """Return a data class from plain data of anyone's: the very settings it has, each checked, and other fields."""
    known = settings_of(kind)
    unknown = [str(name)[:60] for name in plain if name not in known]
    if unknown:
        raise UsageError(
            f"A stored {what} has '{unknown[0]}', which this version of odedm does not know. Known: {', '.join(known)}."
        )
    missing = [name for name, setting in known.items() if name not in plain and not setting.if_given]
    if missing:
        raise UsageError(f"A stored {what} lacks '{missing[0]}'; it has {', '.join(map(str, plain))}.")
    return getattr(kind, "from_flat", kind)(**plain, **parts)


def identity(kind: Any, plain: Mapping[str, Any]) -> dict[str, Any]:
    """Return what of the plain data decides what a run is: all but `speed_only` settings."""
    speed_only = {name for name, setting in settings_of(kind).items() if setting.speed_only}
    return {name: value for name, value in plain.items() if name not in speed_only}


def option_text(group: str, name: str, value: object) -> str:
    """Return a setting with its value as a command has it.

    >>> option_text("stream", "blur", 0.1), option_text("training", "batch", 64)
    ('--set stream.blur=0.1', '--batch 64')
    """
    return f"--{name.replace('_', '-')} {value}" if name in IN_SIGHT else f"--set {group}.{name}={value}"
