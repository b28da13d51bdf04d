"""What a step of online experience replay costs here, in CapyMOA, in Avalanche, and in a loop written by hand.

    python benchmarks/peers.py [--cases mlp,cnn] [--steps 500] [--repeats 3] [--out FILE.json] [--table]

Rows arrive in batches, and each step learns one batch and as many replayed rows: `mlp` with a network 784-256-256-10
and batches of 10 rows, `cnn` with two convolutions on 28×28 pixels and batches of 32. All keep 500 rows and compute on
one thread. Five of ten classes come first and fill the memory, untimed; then ODEDM consolidates, untimed; the steps on
the other five are timed. Contestants take turns, `--repeats` times; what counts is processor time, the median over
stretches of 20 steps, and of the turns the least. Then the prediction of one row is timed, beside the
network's own forward. Peers that are not installed are left out (`pip install capymoa avalanche-lib`). `--table` prints
the tables of a finished file.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from itertools import pairwise
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn import functional as F

import odedm
from odedm import ODEDM, Learner, Reservoir
from odedm.results.provenance import commit, processor

CAPACITY, CLASSES, RATE, WARM, STRETCH = 500, 10, 0.03, 100, 20
BY_HAND, FORWARD = "a loop by hand", "the network's forward"
Batches = list[tuple[Tensor, Tensor]]


@dataclass(frozen=True)
class Case:
    """A network, the shape of its rows and how many arrive at once."""

    shape: tuple[int, ...]
    batch: int
    net: Callable[[], nn.Module]

    def batches(self, steps: int) -> tuple[Batches, Batches]:
        """Return those that fill the memory, of five classes, and those that are timed, of five others."""
        rng = torch.Generator().manual_seed(0)
        centers = torch.randn(CLASSES, *self.shape, generator=rng)

        def some(amount: int, first: int) -> Batches:
            labels = torch.randint(first, first + CLASSES // 2, (amount, self.batch), generator=rng)
            return [(centers[y] + torch.randn(self.batch, *self.shape, generator=rng), y) for y in labels]

        return some(WARM, 0), some(steps, CLASSES // 2)


def mlp() -> nn.Module:
    return nn.Sequential(
        nn.Linear(784, 256), nn.ReLU(), nn.Linear(256, 256), nn.ReLU(), nn.Linear(256, CLASSES)
    )  # fmt: skip


def cnn() -> nn.Module:
    return nn.Sequential(
        nn.Conv2d(1, 16, 3, 2, 1), nn.ReLU(), nn.Conv2d(16, 32, 3, 2, 1), nn.ReLU(), nn.Flatten(),
        nn.Linear(32 * 49, CLASSES),
    )  # fmt: skip


CASES = {"mlp": Case((784,), 10, mlp), "cnn": Case((1, 28, 28), 32, cnn)}


@dataclass
class Timed:
    """Processor seconds of a step, and what predicts a row afterwards."""

    seconds: float
    predict: Callable[[Tensor], Any]


def timed(step: Callable[[Tensor, Tensor], Any], batches: Batches) -> float:
    """Return the processor seconds of one step."""
    stamps = [time.process_time()]
    for x, y in batches:
        step(x, y)
        stamps.append(time.process_time())
    return of_one(stamps)


def of_one(stamps: list[float]) -> float:
    """Return the seconds between two stamps, as the median over stretches of them: the machine has other work, too."""
    marks = stamps[:: min(STRETCH, len(stamps) - 1)]
    return statistics.median(after - before for before, after in pairwise(marks)) / min(STRETCH, len(stamps) - 1)


def by_hand(case: Case, warm: Batches, batches: Batches) -> Timed:
    """Experience replay as one writes it: a reservoir in two tensors, filled row by row."""
    net = case.net()
    optimizer = torch.optim.SGD(net.parameters(), lr=RATE)
    memory_x, memory_y = torch.empty(CAPACITY, *case.shape), torch.empty(CAPACITY, dtype=torch.int64)
    seen = 0

    def step(x: Tensor, y: Tensor) -> None:
        nonlocal seen
        inputs, labels = x, y
        if seen:
            index = torch.randint(min(seen, CAPACITY), (len(y),))
            inputs, labels = torch.cat([x, memory_x[index]]), torch.cat([y, memory_y[index]])
        loss = F.cross_entropy(net(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        for row in range(len(y)):
            slot = seen if seen < CAPACITY else int(torch.randint(seen + 1, (1,)))
            if slot < CAPACITY:
                memory_x[slot], memory_y[slot] = x[row], y[row]
            seen += 1

    def predict(x: Tensor) -> Tensor:
        net.eval()
        with torch.no_grad():
            return net(x).argmax(1)

    timed(step, warm)
    return Timed(timed(step, batches), predict)


def learner(memory: Any, scaling: Any, case: Case, warm: Batches, batches: Batches) -> Timed:
    """`odedm.Learner`, a call for each batch."""
    model = Learner("er", memory=memory, net=case.net(), lr=RATE, scaling=scaling, batch=case.batch, patience=None)
    model.partial_fit(*warm[0], classes=range(CLASSES))
    timed(model.partial_fit, warm[1:])
    model.consolidate()
    return Timed(timed(model.partial_fit, batches), model.predict)


def train(memory: Any, case: Case, warm: Batches, batches: Batches) -> Timed:
    """`odedm.train` on two tasks, of which the second is timed."""
    x, y = (torch.cat(column) for column in zip(*warm, *batches, strict=True))
    test = tuple(torch.cat([part[i] for part in (*warm[:2], *batches[:2])]) for i in (0, 1))
    data = odedm.from_arrays(x, y, tasks=2, test=test)
    stamps: list[float] = []

    class Watch:
        def after_step(self, _run: Any) -> None:
            stamps.append(time.process_time())

    settings = {"method": "er", "memory": memory, "net": case.net(), "batch": case.batch, "options": {"lr": RATE}}
    outcome = odedm.train(data, **settings, callbacks=[Watch()], progress=False)
    stamps = stamps[WARM:]
    return Timed(of_one(stamps), outcome.predict)


def capymoa(case: Case, warm: Batches, batches: Batches) -> Timed:
    """CapyMOA's `ExperienceReplay` around `Finetune`; it takes vectors, so the net folds them."""
    from capymoa.classifier import Finetune
    from capymoa.ocl.strategy import ExperienceReplay
    from capymoa.stream import Schema

    size = torch.Size(case.shape).numel()
    names = [f"f{i}" for i in range(size)]
    schema = Schema.from_custom([*names, "class"], "class", {"class": [str(label) for label in range(CLASSES)]})
    net = nn.Sequential(nn.Unflatten(1, case.shape), case.net()) if len(case.shape) > 1 else case.net()
    model = ExperienceReplay(Finetune(schema, net, partial(torch.optim.SGD, lr=RATE)), CAPACITY)

    def step(x: Tensor, y: Tensor) -> None:
        model.batch_train(x.flatten(1), y)

    timed(step, warm)
    return Timed(timed(step, batches), lambda x: model.batch_predict_proba(x.flatten(1)).argmax(1))


def avalanche(case: Case, warm: Batches, batches: Batches) -> Timed:
    """Avalanche's `Replay` on two experiences, of which the second is timed; its memory is filled between them."""
    from avalanche.benchmarks import tensors_benchmark
    from avalanche.core import SupervisedPlugin
    from avalanche.training.plugins import EvaluationPlugin
    from avalanche.training.supervised import Replay

    stamps: list[float] = []

    class Watch(SupervisedPlugin):
        def after_training_iteration(self, *_args: Any, **_settings: Any) -> None:
            stamps.append(time.process_time())

    parts = [tuple(torch.cat(column) for column in zip(*part, strict=True)) for part in (warm, batches)]
    stream = tensors_benchmark(train_tensors=parts, test_tensors=parts[:1], task_labels=[0, 0])
    net = case.net()
    model = Replay(
        model=net, optimizer=torch.optim.SGD(net.parameters(), lr=RATE), criterion=nn.CrossEntropyLoss(),
        mem_size=CAPACITY, train_mb_size=case.batch, plugins=[Watch()], evaluator=EvaluationPlugin(loggers=[]),
    )  # fmt: skip
    for experience in stream.train_stream:
        stamps.clear()
        model.train(experience)

    def predict(x: Tensor) -> Tensor:
        net.eval()
        with torch.no_grad():
            return net(x).argmax(1)

    return Timed(of_one(stamps), predict)


def load_torchvision() -> None:
    """Let torchvision's wheel for CUDA be imported beside a torch for CPUs: it lacks two operators, unused here."""
    library = torch.library.Library("torchvision", "DEF")
    try:
        for name in ("nms", "qnms"):
            library.define(f"{name}(Tensor dets, Tensor scores, float iou_threshold) -> Tensor")
        import torchvision  # noqa: F401
    except (ImportError, RuntimeError):
        return
    load_torchvision.library = library  # type: ignore[attr-defined]  # it must live as long as the process


Contestant = Callable[[Case, Batches, Batches], Timed]


def contestants() -> dict[str, Contestant]:
    """Return all that can run here, the loop by hand first."""
    reservoir, dual = Reservoir(CAPACITY), ODEDM(CAPACITY, candidates=CAPACITY // 20)
    return {
        BY_HAND: by_hand,
        **({"CapyMOA ExperienceReplay": capymoa} if installed("capymoa") else {}),
        **({"Avalanche Replay": avalanche} if installed("avalanche-lib") else {}),
        "odedm.train, reservoir": partial(train, reservoir),
        "odedm.train, ODEDM": partial(train, ODEDM(CAPACITY)),
        "odedm.Learner, reservoir": partial(learner, reservoir, None),
        "odedm.Learner, reservoir, scaling='auto'": partial(learner, reservoir, "auto"),
        "odedm.Learner, ODEDM": partial(learner, dual, None),
        "odedm.Learner, ODEDM, scaling='auto'": partial(learner, dual, "auto"),
    }


def installed(package: str) -> str | None:
    """Return the version of a package, None where it is not there."""
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def one_row(predict: Callable[[Tensor], Any], row: Tensor, times: int) -> float:
    """Return the processor seconds of predicting one row."""
    stamps = []
    for _ in range(times):
        predict(row)
        stamps.append(time.process_time())
    return of_one(stamps)


def turns(case: Case, steps: int, repeats: int) -> Iterator[tuple[str, float, float]]:
    """Let contestants take turns; yield name, seconds of a step and of predicting a row."""
    warm, batches = case.batches(steps)
    for turn in range(repeats):
        for name, contest in contestants().items():
            torch.manual_seed(turn)
            found = contest(case, warm, batches)
            yield name, found.seconds, one_row(found.predict, batches[0][0][:1], 2 * steps)
        net = case.net().eval()
        with torch.no_grad():
            yield FORWARD, float("nan"), one_row(net, batches[0][0][:1], 2 * steps)


def measure(cases: list[str], steps: int, repeats: int) -> dict[str, Any]:
    """Return milliseconds of every turn, by case and contestant."""
    figures: dict[str, dict[str, dict[str, list[float]]]] = {}
    for case in cases:
        rows = figures[case] = {}
        for name, step, predict in turns(CASES[case], steps, repeats):
            row = rows.setdefault(name, {"step": [], "predict": []})
            row["step"] += [] if name == FORWARD else [round(1e3 * step, 4)]
            row["predict"].append(round(1e3 * predict, 4))
            print(f"{case:4} {name:44} {1e3 * step:8.3f} ms a step, {1e3 * predict:.4f} ms a prediction", flush=True)
    versions = {package: installed(package) for package in ("torch", "capymoa", "avalanche-lib")}
    made = {"commit": commit(), "device": processor(), **{name: each for name, each in versions.items() if each}}
    return {"settings": {"steps": steps, "repeats": repeats, "capacity": CAPACITY}, "made": made, "ms": figures}


def table(report: dict[str, Any], case: str) -> str:
    """Return Markdown: the least of the turns, also as a ratio to the loop by hand or to the network's forward."""
    rows = report["ms"][case]
    lines = ["| | ms a step | × by hand | ms to predict a row | × the forward |", "|---|--:|--:|--:|--:|"]
    for name, row in rows.items():
        cells = []
        for what, base in (("step", BY_HAND), ("predict", FORWARD)):
            least = min(row[what], default=0.0)
            cells += [f"{least:.3f}", f"{least / min(rows[base][what]):.2f}"] if least else ["", ""]
        lines.append(f"| {name} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", default="mlp,cnn")
    parser.add_argument("--steps", type=int, default=500)
    parser.add_argument("--repeats", type=int, default=3)
    parser.add_argument("--out", type=Path, default=Path("docs/results/peers.json"))
    parser.add_argument("--table", action="store_true", help="print the tables of a finished file")
    args = parser.parse_args()
    if not args.table:
        warnings.simplefilter("ignore")
        torch.set_num_threads(1)
        load_torchvision()
        args.out.write_text(json.dumps(measure(args.cases.split(","), args.steps, args.repeats), indent=1) + "\n")
    finished = json.loads(args.out.read_text())
    for name in finished["ms"]:
        print(f"\n{name}:\n{table(finished, name)}")
