"""From words on the command line to parts of an experiment: NAME=VALUE pairs and the memory with its wishes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from odedm.core.errors import UsageError
from odedm.training.experiment import ODEDM, Native, Reservoir


def pairs(flag: str, what: str, example: str, given: Sequence[str], options: dict[str, Any]) -> dict[str, Any]:
    """NAME=VALUE pairs of a repeatable option, added to the options that are there already."""
    for pair in given:
        name, sign, value = pair.partition("=")
        if not sign or not name:
            raise UsageError(f"{flag} takes NAME=VALUE, e.g. {flag} {example}; '{pair}' was given.")
        if name in options:
            raise UsageError(f"The {what} '{name}' was given twice; give it once.")
        options[name] = value
    return options


def memory(name: str, capacity: int, policy: str | None, wishes: dict[str, Any]) -> Reservoir | Native | ODEDM:
    """The memory by its name; what was wished for (by option, without dashes) must belong to it."""
    if policy is not None and name != "native":
        hint = "use --short for the short-term part of odedm" if name == "odedm" else "leave it out, or --memory native"
        raise UsageError(f"--policy: for the native memory alone, not for '{name}'; {hint}.")
    if name != "odedm":
        if wishes:
            names = ", ".join(f"--{each}" for each in wishes)
            raise UsageError(f"{names}: for the odedm memory alone, not for '{name}'. Leave out, or --memory odedm.")
        return Reservoir(capacity) if name == "reservoir" else Native(capacity, policy)
    if "dac" in wishes and wishes.pop("no-dac", False):
        raise UsageError("--dac and --no-dac exclude each other; give one.")
    if wishes.pop("no-dac", False):
        wishes["dac"] = None
    elif "dac" in wishes:
        wishes["dac"] = _dac(wishes["dac"])
    if "candidates" in wishes and wishes["candidates"] != "task":
        wishes["candidates"] = _number("--candidates takes 'task' or a number of rows per class", wishes["candidates"])
    if "rho" not in wishes and "k" not in wishes:
        wishes["rho"] = 0.25
    if "rho" in wishes and "k" in wishes:
        raise UsageError("--rho and --k both set the size of the long-term memory; give one.")
    return ODEDM(capacity, **{each.replace("-", "_"): value for each, value in wishes.items()})


def _dac(text: str) -> tuple[int, int]:
    clusters, _, depth = text.partition(",")
    what = "--dac takes K,DEPTH, two whole numbers such as 3,4"
    return _number(what, clusters, text), _number(what, depth, text)


def _number(what: str, text: str, given: str | None = None) -> int:
    try:
        return int(text)
    except ValueError:
        raise UsageError(f"{what}; '{given or text}' was given.") from None
