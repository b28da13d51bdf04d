"""What is lost without task borders: the learner, by trigger, against a run with borders on the same stream.

    python benchmarks/learner.py [--data fashion-mini] [--device cpu] [--method er] [--capacity 200] [--rho 0.25]
                                 [--seeds 5] [--first 0] [--streams sharp,blurry,gradual,recurring]
                                 [--out FILE.json] [--table] [--ingredients]

Four streams of the same rows, one pass each. `sharp`: tasks one after the other. `blurry`: 30 % of every class arrive
in other tasks, as by `odedm run --blur 0.3`. `gradual`: each row comes earlier or later by a normal number, half a task
wide, so classes fade in and out. `recurring`: every task comes in three visits. A run with borders is told where tasks
end and may look at all rows of a task again to choose prototypes; the learner has its λ rows alone. `by hand` calls
`consolidate` at the true borders, but the last. All learners scale rows by the constants of the data set, as the run
does. Accuracy is that on all test rows when the stream is over. `--table` prints the table of a finished file.
`--ingredients` compares learners with a reservoir and with several updates, other losses and other predictions instead.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

import odedm
from odedm import ODEDM, Dataset, Learner, Reservoir, Stream, Task
from odedm.core.rows import Rows, take
from odedm.results.provenance import commit, processor

BLUR, VISITS = 0.3, 3
PARTS = ("image", "label")


def visits(stream: Stream, kind: str, seed: int) -> list[Rows]:
    """The stream's rows in the order of a kind, cut where a user who knows the borders would consolidate."""
    tasks: list[Task] = list(stream.tasks)
    rows = [{name: task.rows[name] for name in PARTS} for task in tasks]
    if kind == "recurring":
        cut = [list(zip(*(each[name].tensor_split(VISITS) for name in PARTS), strict=True)) for each in rows]
        return [dict(zip(PARTS, each[visit], strict=True)) for visit in range(VISITS) for each in cut]
    if kind != "gradual":
        return rows
    whole = {name: torch.cat([each[name] for each in rows]) for name in PARTS}
    amount, rng = len(whole["label"]), torch.Generator().manual_seed(seed)
    time_of = torch.arange(amount) + torch.randn(amount, generator=rng) * amount / len(tasks) / 2
    return [take(whole, time_of.argsort().to(whole["label"].device))]


def with_borders(data: Dataset, kind: str, memory: Any, seed: int, plan: Any) -> float:
    """Accuracy of `odedm.train`."""
    settings = {"batch": plan.batch, "device": plan.device, "seed": seed, "blur": BLUR if kind == "blurry" else 0.0}
    outcome = odedm.train(data, method=plan.method, memory=memory, **settings)
    scores = outcome.probe.predict(data.test_image.to(outcome.probe.transform.shift.device))
    return 100 * float((scores.argmax(1).cpu() == data.test_label).double().mean())


def without(data: Dataset, kind: str, seed: int, plan: Any, *, hand: bool = False, **settings: Any) -> float:
    """Accuracy of a learner on the same rows in the same order."""
    stream = odedm.split(data, blur=BLUR if kind == "blurry" else 0.0, seed=seed)
    learner = Learner(
        plan.method, **{"patience": None, "batch": plan.batch, "device": plan.device, "seed": seed, **settings},
        scaling=data.transform,
    )  # fmt: skip
    parts = visits(stream, kind, seed)
    for number, part in enumerate(parts, start=1):
        learner.partial_fit(part["image"], part["label"])
        if hand and number < len(parts):
            learner.consolidate()
    assert learner.size() <= plan.capacity
    return 100 * learner.score(data.test_image, data.test_label)


INGREDIENTS: dict[str, dict[str, Any]] = {
    "learner, reservoir": {},
    "3 updates": {"updates": 3},
    "asymmetric": {"stream_loss": "asymmetric"},
    "nearest mean": {"predict_by": "nearest-mean"},
    "weights averaged by 0.95": {"weight_average": 0.95},
    "3 updates, averaged by 0.95": {"updates": 3, "weight_average": 0.95},
    "3 updates, asymmetric, nearest mean": {
        "updates": 3,
        "stream_loss": "asymmetric",
        "predict_by": "nearest-mean",
    },
}


def ways(data: Dataset, kind: str, plan: Any) -> Iterator[tuple[str, Any]]:
    """Everything that is compared on a stream: a name and a function of the seed."""
    if plan.ingredients:
        for name, own in INGREDIENTS.items():
            memory = Reservoir(plan.capacity)
            yield name, lambda seed, own=own, memory=memory: without(data, kind, seed, plan, memory=memory, **own)
        return
    dual, plain = ODEDM(plan.capacity, rho=plan.rho, replay="auxiliary"), Reservoir(plan.capacity)
    bounded = ODEDM(plan.capacity, rho=plan.rho, candidates=plan.candidates, replay="auxiliary")
    task = len(data.label) // data.tasks

    def learner(**settings: Any) -> Any:
        return lambda seed: without(data, kind, seed, plan, **settings)

    if kind in ("sharp", "blurry"):
        yield "borders: run, ODEDM", lambda seed: with_borders(data, kind, dual, seed, plan)
        yield "borders: run, reservoir", lambda seed: with_borders(data, kind, plain, seed, plan)
    k = odedm.prototypes_per_class(plan.rho, plan.capacity, tasks=data.tasks, classes=data.classes // data.tasks)
    memories = {
        "": dual,
        f", k={k}": ODEDM(plan.capacity, k=k, replay="auxiliary"),
        f", candidates={plan.candidates}": bounded,
    }
    for name, memory in memories.items():
        if kind != "gradual":
            yield f"learner, by hand{name}", learner(memory=memory, hand=True)
        for rows in (task // 10,) if name else (task // 10, task // 3):
            yield f"learner, patience={rows}{name}", learner(memory=memory, patience=rows)
    yield f"learner, every={task // 3}", learner(memory=dual, every=task // 3)
    yield "learner, reservoir", learner(memory=plain)


def measure(plan: Any) -> dict[str, Any]:
    """Every way on every stream with every seed."""
    data = odedm.load_dataset(plan.data)
    found: dict[str, dict[str, list[float]]] = {}
    started, of = time.process_time(), commit()
    device = torch.cuda.get_device_name() if plan.device == "cuda" else processor()
    about = {name: value for name, value in vars(plan).items() if name not in ("out", "table")}
    made = {"commit": of, "torch": str(torch.__version__), "device": device}
    report = {"settings": about, "made": made, "accuracy": found}
    for kind in plan.streams.split(","):
        for name, run in ways(data, kind, plan):
            found.setdefault(kind, {})[name] = [run(seed) for seed in range(plan.first, plan.first + plan.seeds)]
            print(f"{kind:10}{name:44}{statistics.mean(found[kind][name]):6.1f}", flush=True)
            report["cpu_seconds"] = round(time.process_time() - started)
            plan.out.write_text(json.dumps(report, indent=1) + "\n")  # what is done so far stays
    return report


def table(report: dict[str, Any]) -> str:
    """Markdown: the mean and its deviation over seeds on each stream, and how it differs from the first way on one."""
    accuracy = report["accuracy"]
    names = list(dict.fromkeys(name for each in accuracy.values() for name in each))
    kind, first = next(iter(accuracy)), names[0]
    against = "borders" if first.startswith("borders") else "the first"
    lines = [f"| | {' | '.join(accuracy)} | {kind} − {against} |", f"|---|{'--:|' * (len(accuracy) + 1)}"]
    for name in names:
        cells = [_cell(accuracy[each].get(name)) for each in accuracy]
        own, other = (accuracy[kind].get(each) for each in (name, first))
        change = _cell([a - b for a, b in zip(own, other, strict=True)], sign=True) if own and other else "–"
        lines.append(f"| {name} | {' | '.join(cells)} | {change if name != first else '–'} |")
    return "\n".join(lines)


def _cell(values: list[float] | None, *, sign: bool = False) -> str:
    if not values:
        return "–"
    spread = statistics.stdev(values) if len(values) > 1 else 0.0
    return f"{statistics.mean(values):{'+' if sign else ''}.1f} ± {spread:.1f}"


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--data", default="fashion-mini")
    parser.add_argument("--device", default="cpu")
    parser.add_argument("--method", default="er")
    parser.add_argument("--capacity", type=int, default=200)
    parser.add_argument("--rho", type=float, default=0.25)
    parser.add_argument("--candidates", type=int, default=15)
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--streams", default="sharp,blurry,gradual,recurring")
    parser.add_argument("--out", type=Path, default=Path("docs/results/learner.json"))
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--ingredients", action="store_true")
    given = parser.parse_args()
    if given.table:
        print(table(json.loads(given.out.read_text())))
    else:
        print(table(measure(given)))
