"""Finished runs that nobody ran, an engine that does as it is told, and a watcher that remembers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from typer.testing import CliRunner

from odedm.cli.app import app
from odedm.execute.job import Done, Event, Failed, Work
from odedm.results.result import Result
from odedm.training.experiment import ODEDM, Experiment, Reservoir

SMALL = Experiment(Reservoir(20), method="er", data="blobs", batch=16, device="cpu")
DUAL = Experiment(ODEDM(20, rho=0.5), method="er", data="blobs", batch=16, device="cpu")


def result_of(plan: Experiment, checksum: str, *, seconds: float = 4.0, acc: float = 50.0) -> Result:
    """What a run of a resolved plan would leave."""
    plain = plan.describe()
    memory = plain["memory"]
    plain |= {"replay": memory.pop("replay", None), "gamma": memory.pop("gamma", None)}
    plain |= {"method": {"name": plan.method, **plain.pop("options")}, "classes": [str(each) for each in range(10)]}
    matrix = [[acc] * (task + 1) for task in range(plan.tasks or 5)]
    return Result.measure(
        experiment=plain,
        class_il=matrix,
        task_il=matrix,
        seconds={"train": seconds},
        census=[],
        provenance={"odedm": "0.1.0", "commit": "abc", "data_checksum": checksum},
    )


class Puppet:
    """An engine whose work is over at once: well, or with the sentence that is set for its key."""

    def __init__(self, write: Callable[..., Path], lanes: int = 2) -> None:
        self.lanes, self.write = lanes, write
        self.failing: dict[str, str] = {}
        self.started: list[Work] = []
        self.under_way: list[tuple[int, Work]] = []
        self.most = 0
        self.closed = False

    def fits(self, work: Work) -> bool:
        return len(self.under_way) < self.lanes

    def start(self, number: int, work: Work) -> None:
        self.started.append(work)
        self.under_way.append((number, work))
        self.most = max(self.most, len(self.under_way))

    def events(self, timeout: float) -> Iterator[Event]:
        over, self.under_way = self.under_way, []
        for number, work in over:
            if work.key in self.failing:
                yield Failed(number, self.failing[work.key])
            elif work.kind == "trial":
                yield Done(number, 42.0)
            else:
                self.write(work)
                yield Done(number)

    def close(self) -> None:
        self.closed = True


class Notes:
    """A watcher that remembers."""

    def __init__(self) -> None:
        self.lines: list[tuple[str, object]] = []

    def __getattr__(self, name: str) -> Callable[..., None]:
        return lambda *words: self.lines.append((name, words))


def odedm(*words: object, code: int = 0) -> str:
    """What a command says, which must end with this code."""
    done = CliRunner().invoke(app, [str(word) for word in words], env={"COLUMNS": "200"})
    assert done.exit_code == code, done.output + str(done.exception)
    return done.output
