"""One piece of a study's work: a run that fills a folder, or a trial that gives a score."""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Literal

from odedm.checkpoint.schedule import Schedule
from odedm.training.experiment import Experiment
from odedm.training.hold_out import Selection
from odedm.training.observation import Looks


@dataclass(frozen=True)
class Wishes:
    """How runs are to be kept: `fresh` forgets the checkpoints there are, `overwrite` replaces finished runs.

    `looks` is what a run is to look at; None: what its checkpoint does, where there is one, and else nothing.
    """

    schedule: Schedule = field(default_factory=Schedule)
    fresh: bool = False
    overwrite: bool = False
    looks: Looks | None = None


@dataclass(frozen=True)
class Work:
    """What an engine is given. `key` is its content hash, `checksum` that of the data it must be done on."""

    key: str
    experiment: Experiment
    folder: Path = Path()
    overwrite: bool = False
    kind: Literal["run", "trial"] = "run"
    select: Selection | None = None
    checksum: str | None = None
    looks: Looks = field(default_factory=Looks)

    def into(self, folder: Path, *, overwrite: bool) -> Work:
        """The same run into another folder."""
        return replace(self, folder=folder, overwrite=overwrite)

    @property
    def title(self) -> str:
        """A few words for people."""
        plan = self.experiment
        rho = getattr(plan.memory, "rho", None)
        share = "" if rho is None else f" ρ={rho:g}"
        what = "trial · " if self.kind == "trial" else ""
        return f"{what}{plan.method} · {plan.memory.name}{share} · λ={plan.memory.capacity} · seed {plan.seed}"


@dataclass(frozen=True)
class Progressed:
    """A piece of work has seen `done` of `total` rows; `process` is who does it."""

    number: int
    done: int
    total: int
    process: int = 0


@dataclass(frozen=True)
class Done:
    """A piece of work is over: a run's folder is written, or a trial has its score."""

    number: int
    score: float | None = None


@dataclass(frozen=True)
class Failed:
    """A piece of work failed, and why."""

    number: int
    error: str


@dataclass(frozen=True)
class Said:
    """A line for the user from one piece of work."""

    number: int
    line: str


Event = Progressed | Done | Failed | Said


def sentence(error: BaseException) -> str:
    """An error of any kind in one line."""
    text = " ".join(str(error).split()) or "no reason was given"
    return text if isinstance(error, ValueError) else f"{type(error).__name__}: {text}"
