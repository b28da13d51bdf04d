"""What a backend is given to do, and what it tells of it: jobs and events, as data that can cross a pipe."""

from __future__ import annotations

import json
import sysconfig
import traceback
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import NamedTuple, Protocol

from odedm.checkpoint.schedule import Schedule
from odedm.core.errors import UsageError, is_infrastructure_error
from odedm.core.processes import PACKAGE
from odedm.training.experiment import Experiment, content_key
from odedm.training.observation import Observation

TRIES = 3
"""How often a job whose worker dies on this machine is tried from the same checkpoint."""
INSTALLED = [Path(sysconfig.get_path(name)) for name in ("stdlib", "platstdlib", "purelib", "platlib")]
"""Folders of Python itself and of installed packages."""


@dataclass(frozen=True)
class RunOptions:
    """How a run is kept: `restart` forgets the checkpoints there are, `overwrite` replaces a finished run.

    `resumed` goes on from checkpoints of any version of the user's own code, as `odedm resume` does; else a run whose
    code was edited since starts anew. `observation` is what a run is to look at; None: what its checkpoint does, where
    there is one, and else nothing. `chosen` says how its constants were chosen, for its provenance; "" where they were
    not.
    """

    schedule: Schedule = field(default_factory=Schedule)
    restart: bool = False
    overwrite: bool = False
    observation: Observation | None = None
    resumed: bool = False
    chosen: str = ""


@dataclass(frozen=True)
class Job:
    """A resolved experiment to be run into a folder.

    `key` is its content hash, by which everyone speaks of it; `checksum` that of the data it must be done on.
    """

    key: str
    experiment: Experiment
    folder: Path = Path()
    options: RunOptions = field(default_factory=RunOptions)
    checksum: str | None = None

    @property
    def content(self) -> str:
        """Return the content hash without the code from outside that is to make the run."""
        return content_key(self.experiment.describe(), self.checksum)

    @property
    def name(self) -> str:
        """Return the folder of a run as events name it."""
        return f"{self.folder.parent.name}/{self.folder.name}"

    @property
    def title(self) -> str:
        """Return a few words for people."""
        plan = self.experiment
        rho = getattr(plan.memory, "rho", None)
        share = "" if rho is None else f" ρ={rho:g}"
        memory = getattr(plan.memory, "policy", None) or plan.memory.name
        return f"{plan.method} · {memory}{share} · λ={plan.memory.capacity} · seed {plan.seed}"

    def retry(self) -> Job:
        """Return the same after a loss: it goes on from its own checkpoint."""
        return replace(self, options=replace(self.options, restart=False))

    def to_text(self) -> str:
        """Return one line of JSON."""
        observation = self.options.observation
        plain = {
            "key": self.key,
            "experiment": self.experiment.describe(),
            "folder": str(self.folder),
            "options": asdict(self.options) | {"observation": None if observation is None else observation.to_dict()},
            "checksum": self.checksum,
        }
        return json.dumps(plain)

    @classmethod
    def from_text(cls, text: str) -> Job:
        """Return the job again.

        >>> job = Job("key", Experiment(), Path("runs"), RunOptions(restart=True, observation=Observation()))
        >>> Job.from_text(job.to_text()) == job
        True
        """
        plain = json.loads(text)
        options, observation = plain["options"], plain["options"]["observation"]
        options |= {"schedule": Schedule(**options["schedule"])}
        options |= {"observation": None if observation is None else Observation.from_dict(observation)}
        experiment, folder = Experiment.from_dict(plain["experiment"]), Path(plain["folder"])
        return cls(plain["key"], experiment, folder, RunOptions(**options), plain["checksum"])


class KeyedJob(Protocol):
    """A job of any kind."""

    @property
    def key(self) -> str:
        """Return what events call it by."""
        ...


class ProgressReport(NamedTuple):
    """A job has seen `done` of `total` rows; `metrics` has its last loss and rate by name."""

    key: str
    done: int
    total: int
    metrics: Mapping[str, float] = {}


class TaskFinished(NamedTuple):
    """A job has learned a task and was tested; `metrics` are by name, in per cent."""

    key: str
    task: int
    metrics: Mapping[str, float]


class CheckpointSaved(NamedTuple):
    """A job's state is on the disk: from here it goes on if its worker dies."""

    key: str


class Done(NamedTuple):
    """A job is over: its folder is written."""

    key: str


class Failed(NamedTuple):
    """A job failed, and why; trying again would not help.

    `infrastructure`: the machine is to blame, as for a full disk, and all other jobs would fail like this.
    """

    key: str
    error: str
    infrastructure: bool = False

    @classmethod
    def by(cls, job: KeyedJob, error: BaseException) -> Failed:
        """Return what an error that ended a job comes to."""
        return cls(job.key, sentence(error), is_infrastructure_error(error))


class WorkerLost(NamedTuple):
    """The worker of a job died, and how.

    `shared`: another job on the same GPU may be to blame; `was_killed`: someone else ended it, and no fault of its own.
    """

    key: str
    error: str
    shared: bool = False
    was_killed: bool = False


class Message(NamedTuple):
    """A line for the user from a job."""

    key: str
    line: str


Event = ProgressReport | TaskFinished | CheckpointSaved | Done | Failed | WorkerLost | Message
Emit = Callable[[Event], None]

KINDS: dict[str, Callable[..., Event]] = {
    kind.__name__: kind for kind in (ProgressReport, TaskFinished, CheckpointSaved, Done, Failed, WorkerLost, Message)
}


def event_to_text(event: Event) -> str:
    """Return one line of JSON."""
    return json.dumps([type(event).__name__, *event])


def event_from_text(text: str | bytes) -> Event:
    """Return the event again.

    >>> event_from_text(event_to_text(Done("key")))
    Done(key='key')
    """
    name, *values = json.loads(text)
    return KINDS[name](*values)


def sentence(error: BaseException) -> str:
    """Return an error of any kind in one line; of one that nobody foresaw, where in whose code it was raised."""
    text = " ".join(str(error).split()) or "no reason was given"
    if isinstance(error, UsageError):
        return text
    return " ".join([f"{type(error).__name__}: {text}{_place(error)}", *getattr(error, "__notes__", ())])


def _place(error: BaseException) -> str:
    """Return the innermost line that an error passed through of the user's own code, or of this package's."""
    frames = [
        frame
        for frame in traceback.extract_tb(error.__traceback__)
        if not any(Path(frame.filename).is_relative_to(folder) for folder in INSTALLED) or _is_ours(frame)
    ]
    if not frames:
        return ""
    last = next((frame for frame in reversed(frames) if not _is_ours(frame)), frames[-1])
    line = f": {last.line[:80]}" if last.line else ""
    return f" ({Path(last.filename).name}, line {last.lineno}, in {last.name}{line})."


def _is_ours(frame: traceback.FrameSummary) -> bool:
    return Path(frame.filename).is_relative_to(PACKAGE)
