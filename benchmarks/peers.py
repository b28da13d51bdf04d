"""What a step of online experience replay costs here, in CapyMOA, in Avalanche, and in a loop written by hand.

    python benchmarks/peers.py [--cases mlp,cnn] [--steps 500] [--repeats 3] [--out FILE.json] [--table]

Rows arrive in batches, and each step learns one batch and as many replayed rows: `mlp` with a network 784-256-256-10
and batches of 10 rows, `cnn` with two convolutions on 28×28 pixels and batches of 32. All keep 500 rows and compute on
one thread. Five of ten classes come first and fill the memory, untimed; then ODEDM consolidates, untimed; the steps on
the other five are timed. Contestants take turns of 20 steps; what counts is processor time, and the median over turns
of its ratio to the loop by hand in the same turn, for the machine has other work, too. Then the prediction of one row
is timed in the same way, beside the network's own forward. Peers that are not installed are left out
(`pip install capymoa avalanche-lib`). `--table` prints the tables of a finished file.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import threading
import time
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from importlib.metadata import PackageNotFoundError, version
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

        def batches(amount: int, first: int) -> Batches:
            labels = torch.randint(first, first + CLASSES // 2, (amount, self.batch), generator=rng)
            return [(centers[y] + torch.randn(self.batch, *self.shape, generator=rng), y) for y in labels]

        return batches(WARM, 0), batches(steps, CLASSES // 2)


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


Predict = Callable[[Tensor], Any]
Contest = Callable[[Case, Batches, Batches, "Turns"], Predict]


class Turns(threading.Thread):
    """A contestant in a thread of its own, of which one at a time runs: 20 timed steps, then it waits for its turn."""

    def __init__(self, contest: Contest, case: Case, warm: Batches, batches: Batches) -> None:
        super().__init__(daemon=True)
        self._contest = partial(contest, case, warm, batches, self)
        self._go, self._rest = threading.Semaphore(0), threading.Semaphore(0)
        self._steps, self._begun = 0, 0.0
        self.seconds: list[float] = []
        """Processor seconds of a step, by turn."""
        self.predict: Predict | None = None
        self.error: BaseException | None = None

    def run(self) -> None:
        """Wait for the first turn, then do it all."""
        self._go.acquire()
        try:
            self.predict = self._contest()
        except BaseException as error:  # shown by the main thread
            self.error = error
        self._rest.release()

    def take(self) -> None:
        """Let it run until its turn is over."""
        self._go.release()
        self._rest.acquire()
        if self.error is not None:
            raise self.error

    def ready(self) -> None:
        """Say that all that is not timed is done."""
        self._pass_on()

    def step(self) -> None:
        """Say that a timed step is over."""
        self._steps += 1
        if self._steps % STRETCH == 0:
            self.seconds.append((time.process_time() - self._begun) / STRETCH)
            self._pass_on()

    def _pass_on(self) -> None:
        self._rest.release()
        self._go.acquire()
        self._begun = time.process_time()


def loop(step: Callable[[Tensor, Tensor], Any], warm: Batches, batches: Batches, turns: Turns) -> None:
    """Make the untimed steps and the timed ones."""
    for x, y in warm:
        step(x, y)
    turns.ready()
    for x, y in batches:
        step(x, y)
        turns.step()


def by_hand(case: Case, warm: Batches, batches: Batches, turns: Turns) -> Predict:
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

    loop(step, warm, batches, turns)
    return partial(predicted, net)


def predicted(net: nn.Module, x: Tensor) -> Tensor:
    """Return the labels of rows."""
    net.eval()
    with torch.no_grad():
        return net(x).argmax(1)


def learner(memory: Any, scaling: Any, case: Case, warm: Batches, batches: Batches, turns: Turns) -> Predict:
    """`odedm.Learner`, a call and one update for each batch."""
    settings: dict[str, Any] = {"batch": case.batch, "updates": 1, "patience": None}
    model = Learner("er", memory=memory, net=case.net(), lr=RATE, scaling=scaling, **settings)
    model.partial_fit(*warm[0], classes=range(CLASSES))
    for x, y in warm[1:]:
        model.partial_fit(x, y)
    model.consolidate()
    loop(model.partial_fit, [], batches, turns)
    return model.predict


class Watch:
    """Counts the steps of a loop that is another's: the first task is untimed, and the border behind it."""

    def __init__(self, turns: Turns) -> None:
        self._turns, self._steps = turns, 0

    def count(self) -> None:
        """Say that a step is over."""
        self._steps += 1
        if self._steps == WARM + 1:
            self._turns.ready()
        elif self._steps > WARM + 1:
            self._turns.step()


def train(memory: Any, case: Case, warm: Batches, batches: Batches, turns: Turns) -> Predict:
    """`odedm.train` on two tasks, of which the second is timed."""
    x, y = (torch.cat(column) for column in zip(*warm, *batches, strict=True))
    test = tuple(torch.cat([part[i] for part in (*warm[:2], *batches[:2])]) for i in (0, 1))
    data = odedm.from_arrays(x, y, tasks=2, test=test)
    watch = Watch(turns)

    class Counting:
        def after_step(self, _run: Any) -> None:
            watch.count()

    settings = {"method": "er", "memory": memory, "net": case.net(), "batch": case.batch, "options": {"lr": RATE}}
    predict: Predict = odedm.train(data, **settings, callbacks=[Counting()], progress=False).predict
    return predict


def capymoa(case: Case, warm: Batches, batches: Batches, turns: Turns) -> Predict:
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

    loop(step, warm, batches, turns)
    return lambda x: model.batch_predict_proba(x.flatten(1)).argmax(1)


def avalanche(case: Case, warm: Batches, batches: Batches, turns: Turns) -> Predict:
    """Avalanche's `Replay` on two experiences, of which the second is timed; its memory is filled between them."""
    from avalanche.benchmarks import tensors_benchmark
    from avalanche.core import SupervisedPlugin
    from avalanche.training.plugins import EvaluationPlugin
    from avalanche.training.supervised import Replay

    watch = Watch(turns)

    class Counting(SupervisedPlugin):
        def after_training_iteration(self, *_args: Any, **_settings: Any) -> None:
            watch.count()

    parts = [tuple(torch.cat(column) for column in zip(*part, strict=True)) for part in (warm, batches)]
    stream = tensors_benchmark(train_tensors=parts, test_tensors=parts[:1], task_labels=[0, 0])
    net = case.net()
    model = Replay(
        model=net, optimizer=torch.optim.SGD(net.parameters(), lr=RATE), criterion=nn.CrossEntropyLoss(),
        mem_size=CAPACITY, train_mb_size=case.batch, plugins=[Counting()], evaluator=EvaluationPlugin(loggers=[]),
    )  # fmt: skip
    for experience in stream.train_stream:
        model.train(experience)
    return partial(predicted, net)


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


def contestants() -> dict[str, Contest]:
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


def compared(seconds: dict[str, list[float]], base: str) -> dict[str, list[float]]:
    """Return the median milliseconds over turns, and the median of the ratio to the base in the same turn."""
    return {
        name: [
            round(1e3 * statistics.median(milliseconds), 4),
            round(statistics.median(one / other for one, other in zip(milliseconds, seconds[base], strict=True)), 3),
        ]
        for name, milliseconds in seconds.items()
    }


def measure(case: Case, steps: int) -> dict[str, dict[str, list[float]]]:
    """Return milliseconds and ratios of a step and of predicting one row, by contestant."""
    warm, batches = case.batches(steps + 1)  # a loop of another's passes one step untimed
    threads = {name: Turns(contest, case, warm, batches) for name, contest in contestants().items()}
    for turns in threads.values():
        turns.start()
    for _ in range(steps // STRETCH + 1):
        for turns in threads.values():
            turns.take()
    for turns in threads.values():
        while turns.predict is None:
            turns.take()
    learned = {name: turns.seconds[: steps // STRETCH] for name, turns in threads.items()}
    forward, row = torch.no_grad()(case.net().eval()), batches[0][0][:1]
    answers = {FORWARD: forward, **{name: turns.predict for name, turns in threads.items()}}
    asked: dict[str, list[float]] = {name: [] for name in answers}
    for _ in range(steps // STRETCH):
        for name, predict in answers.items():
            begun = time.process_time()
            for _ in range(5 * STRETCH):
                predict(row)
            asked[name].append((time.process_time() - begun) / (5 * STRETCH))
    return {"step": compared(learned, BY_HAND), "predict": compared(asked, FORWARD)}


def report(cases: list[str], steps: int, repeats: int) -> dict[str, Any]:
    """Return what was measured, each case so often, and how."""
    figures: dict[str, list[Any]] = {name: [] for name in cases}
    for repeat in range(repeats):
        for name in cases:
            torch.manual_seed(repeat)
            figures[name].append(measure(CASES[name], steps))
            print(f"{name}, {repeat + 1} of {repeats}:\n{table(figures[name][-1:])}\n", flush=True)
    packages = ("torch", "capymoa", "avalanche-lib")
    versions = {package: version for package in packages if (version := installed(package))}
    made = {"commit": commit(), "device": processor(), **versions}
    return {"settings": {"steps": steps, "repeats": repeats, "capacity": CAPACITY}, "made": made, "cases": figures}


def table(repeats: list[Any]) -> str:
    """Return Markdown: medians over repeats; of each pair of numbers, milliseconds and the ratio."""
    lines = ["| | ms a step | × by hand | ms to predict a row | × the forward |", "|---|--:|--:|--:|--:|"]
    for name in {**repeats[0]["step"], **repeats[0]["predict"]}:
        cells = []
        for what in ("step", "predict"):
            pairs = [repeat[what][name] for repeat in repeats if name in repeat[what]]
            milliseconds, ratio = (
                (statistics.median(column) for column in zip(*pairs, strict=True)) if pairs else (0, 0)
            )
            cells += [f"{milliseconds:.3f}", f"{ratio:.2f}"] if pairs else ["", ""]
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
        args.out.write_text(json.dumps(report(args.cases.split(","), args.steps, args.repeats), indent=1) + "\n")
    finished = json.loads(args.out.read_text())
    for name, repeats in finished["cases"].items():
        print(f"\n{name}:\n{table(repeats)}", flush=True)
    os._exit(0)  # CapyMOA's Java may never end
