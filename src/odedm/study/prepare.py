"""From a study to pieces of work: data found, defaults filled in, impossible wishes refused before the first minute."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING

from odedm.core.errors import UsageError
from odedm.core.registry import METHODS
from odedm.execute.job import Work
from odedm.study.identity import content_key
from odedm.training.experiment import Experiment
from odedm.training.observation import Looks

if TYPE_CHECKING:
    from odedm.stream.dataset import Dataset


@dataclass(frozen=True)
class Prepared:
    """Pieces of work, the rows of a stream by data set, and for each data set that is not here why."""

    works: list[Work]
    rows: dict[str, int] = field(default_factory=dict)
    missing: dict[str, str] = field(default_factory=dict)


def prepare(
    plans: Sequence[Experiment],
    folder: Path,
    *,
    device: str = "auto",
    threads: int = 1,
    elsewhere: bool = False,
    lenient: bool = False,
    looks: Looks | None = None,
) -> Prepared:
    """Each experiment resolved, with its content hash and its folder; those that turn out to be the same once.

    `elsewhere` plans for other machines: then `device` is what they have, "cpu" or "cuda". With `lenient` a data set
    that is not here is noted, and its experiments stay as they are.
    """
    from odedm.training.resolve import load_data

    found: dict[str, Work] = {}
    data: dict[str, Dataset] = {}
    missing: dict[str, str] = {}
    for name in dict.fromkeys(plan.data for plan in plans):
        try:
            data[name] = load_data(name)
        except UsageError as error:
            if not lenient:
                raise
            missing[name] = str(error)
    for plan in plans:
        own = replace(plan, device=device, threads=threads)
        checksum = None
        if plan.data in data:
            own, checksum = _resolved(own, data[plan.data], elsewhere=elsewhere), data[plan.data].checksum
        key = content_key(own, checksum)
        place = folder / own.slug() / f"seed-{own.seed}"
        found.setdefault(key, Work(key, own, place, checksum=checksum, looks=looks or Looks()))
    return Prepared(list(found.values()), {name: len(each.label) for name, each in data.items()}, missing)


def _resolved(plan: Experiment, data: Dataset, *, elsewhere: bool) -> Experiment:
    from odedm.training.resolve import resolve

    asked = replace(plan, device="cpu", precision="fp32") if elsewhere else plan
    try:
        own = resolve(asked, data)
    except UsageError as error:
        rho = getattr(plan.memory, "rho", None)
        share = "" if rho is None else f", ρ={rho:g}"
        what = f"{plan.method} with {plan.memory.name} (λ={plan.memory.capacity}{share}) on '{plan.data}'"
        raise UsageError(f"{what} cannot be run: {error}") from None
    if not elsewhere:
        return own
    precision = plan.precision
    if precision == "auto":  # what a GPU of today takes; this machine may have none to ask
        exacting = METHODS[plan.method].load().exacting
        precision = "fp32" if plan.device != "cuda" else "tf32" if exacting else "bf16"
    return replace(own, device="cuda" if plan.device == "cuda" else "cpu", precision=precision)
