"""Times the choice of prototypes with divide-and-conquer (DAC) and without, on real features: Figure 3b of the paper.

Each timing is a line of `dac_timing.csv`, written when it is made: the same command goes on after an interruption.
"""

from __future__ import annotations

import csv
import time
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, cast

import torch
from torch import Tensor

from odedm.core.errors import UsageError
from odedm.core.files import append_line, read_bytes, writable_folder
from odedm.core.rng import derive_seed, generator
from odedm.core.rows import ModelView, Rows
from odedm.core.timer import Timer
from odedm.data.opening import load_dataset
from odedm.memory.settings import ODEDM, Reservoir, prototype_selector
from odedm.report.wording import csv_text
from odedm.results.provenance import provenance
from odedm.selection.prototype_settings import DAC, Prototypes
from odedm.training.experiment import Experiment
from odedm.training.model_view import MethodView
from odedm.training.numerics import deterministic_numerics, synchronizer
from odedm.training.preparation import resolve_device
from odedm.training.run import Run

FILE = "dac_timing.csv"
MAX_BYTES, MAX_SECONDS = 1 << 24, 1e9
PHASES = ("reduce", "centre", "select")
"""What DAC changes; features are there already, and nothing is annotated."""
NO_DAC = "none"


class Timing(NamedTuple):
    """Seconds to choose `k` of `n` rows, with a DAC such as "3x4" or none, and where they were measured.

    On a CPU they are the process's own, so that other work on the machine does not count; on a GPU those of the clock.
    """

    data: str
    n: int
    k: int
    dac: str
    repeat: int
    device: str
    threads: int
    torch: str
    commit: str
    seconds: float = 0.0

    @property
    def choice(self) -> tuple[object, ...]:
        """What was chosen from what."""
        return self[1:5]

    @property
    def origin(self) -> tuple[object, ...]:
        """Where it was measured."""
        return self[5:9]

    @property
    def whole(self) -> bool:
        """Whether the rows are those of all classes."""
        return self.data == EMBEDDED.data and self.choice in EMBEDDED.cells()


@dataclass(frozen=True)
class TimingPlan:
    """Which choices are timed: each number of rows at the largest k, and each k at the largest number of rows.

    With `whole` rows of all classes stand for those of one, where no class has as many.

    >>> plan = TimingPlan("cifar10", rows=(100, 200), k=(3, 6), repeats=1)
    >>> [(n, k, dac) for n, k, dac, _ in plan.cells()][:4]
    [(100, 6, 'none'), (100, 6, '3x2'), (100, 6, '3x4'), (100, 6, '5x3')]
    """

    data: str
    rows: tuple[int, ...]
    k: tuple[int, ...]
    dac: tuple[str, ...] = ("3x2", "3x4", "5x3")
    repeats: int = 5
    whole: bool = False

    def cells(self) -> list[tuple[int, int, str, int]]:
        """Return rows, k, DAC and repeat of every timing: all cells once, small ones first, then all a second time."""
        sizes = {(n, max(self.k)) for n in self.rows} | {(max(self.rows), k) for k in self.k}
        ordered = sorted(sizes, key=lambda size: (size[0] * size[1], size))
        return [(n, k, dac, i) for i in range(self.repeats) for n, k in ordered for dac in (NO_DAC, *self.dac)]


PAPER = TimingPlan("cifar10", rows=(625, 1250, 2500, 5000), k=(6, 13, 19, 47, 160, 320, 480))
"""A class of CIFAR-10; k from λ = 200 at 25 % to λ = 5120 at 75 %, and the three DACs that the paper has for them."""
EMBEDDED = TimingPlan("fashion-mini", rows=(375, 750, 1500, 3000), k=(6, 13, 19, 47, 160, 320, 480), whole=True)
"""The same k where CIFAR-10 is not here: all embedded pictures stand for one class."""
MINI = TimingPlan("fashion-mini", rows=(75, 150, 300), k=(2, 6, 24), repeats=2)


class _Features:
    """Stands for a network where rows are features already."""

    def embed(self, image: Tensor) -> Tensor:
        return image

    def annotate(self, rows: Rows) -> Rows:  # noqa: ARG002 - nothing is added, whatever they are
        return {}


def measure(
    plan: TimingPlan,
    folder: Path,
    *,
    device: str = "auto",
    threads: int = 1,
    until: float | None = None,
    report: Callable[[int], None] = lambda _: None,
) -> list[Timing]:
    """Time what is missing in this process, until a time of the monotonic clock; `report` gets how many are left."""
    place = resolve_device(device)
    made = provenance(place, "")
    origin = (str(made["device"]), threads, str(made["torch"]), str(made.get("commit") or ""))
    timings = [timing for timing in load(folder) if timing.origin == origin and timing.data == plan.data]
    done = {timing.choice for timing in timings}
    todo = [cell for cell in plan.cells() if cell not in done]
    if not todo:
        return timings
    points = class_features(plan, device, threads)
    path = writable_folder(folder) / FILE
    if not path.exists():
        append_line(path, ",".join(Timing._fields))
    warm: set[str] = set()
    with deterministic_numerics(threads):
        for left, (n, k, dac, repeat) in zip(range(len(todo), 0, -1), todo, strict=True):
            if until is not None and time.monotonic() >= until:
                break
            report(left)
            seed = derive_seed(0, f"repeat {repeat}")
            rows = points[torch.randperm(len(points), generator=generator(seed, "drawn features"))[:n].to(place)]
            if dac not in warm:  # the first pays for what is loaded and compiled
                time_choice(rows, k, dac, seed=repeat)
                warm.add(dac)
            timing = Timing(plan.data, n, k, dac, repeat, *origin, time_choice(rows, k, dac, seed=repeat))
            timings.append(timing)
            append_line(path, csv_text([], [timing]).strip())
    return timings


def class_features(plan: TimingPlan, device: str, threads: int) -> Tensor:
    """Return the features of the first class's rows, or of all, by a network that has learned the first task."""
    data = load_dataset(plan.data)
    run = Run(
        Experiment(
            Reservoir(200),
            method="derpp",
            options={"lr": 0.03},
            data=data.name,
            class_order="natural",
            first_tasks=1,
            device=device,
            threads=threads,
        ),
        data,
    )
    learned = run.finish()
    image = data.image if plan.whole else data.image[data.label == 0]
    if max(plan.rows) > len(image):
        whose = f"'{plan.data}'" if plan.whole else f"The first class of '{plan.data}'"
        raise UsageError(f"{whose} has {len(image)} rows, and up to {max(plan.rows)} are to be timed.")
    place = next(learned.method.net.parameters()).device
    return MethodView(learned.method, data.transform).embed(image.to(place))


def time_choice(points: Tensor, k: int, dac: str, *, seed: int) -> float:
    """Return the seconds of one choice, as a run would make it at the end of a task with one class."""
    pair = None if dac == NO_DAC else cast(tuple[int, int], tuple(map(int, dac.split("x"))))
    choose = prototype_selector(ODEDM(k, k=k, selection=Prototypes(dac=pair and DAC(*pair, sample=None))))
    assert choose is not None
    rows = {"image": points, "label": torch.zeros(len(points), dtype=torch.int64, device=points.device)}
    timer = Timer(synchronizer(points.device))
    start = time.process_time()
    choose(rows, [0], cast(ModelView, _Features()), rng=generator(seed, "timed choice"), timer=timer)
    seconds = time.process_time() - start
    return seconds if points.device.type == "cpu" else sum(timer.seconds.get(phase, 0.0) for phase in PHASES)


def load(folder: Path) -> list[Timing]:
    """Return every timing in a folder; a line that a kill cut short, or someone changed, is passed over."""
    path = folder / FILE
    text = read_bytes(path, MAX_BYTES).decode(errors="replace") if path.exists() else ""
    timings = []
    for line in csv.DictReader(text.splitlines()):
        with suppress(KeyError, TypeError, ValueError):
            words = {name: line[name] for name in Timing._fields}
            numbers = {name: int(line[name]) for name in ("n", "k", "repeat", "threads")}
            timing = Timing(**{**words, **numbers, "seconds": float(line["seconds"])})  # type: ignore[arg-type]
            if 0 < timing.seconds < MAX_SECONDS and min(timing.n, timing.k) > 0:
                timings.append(timing)
    return timings


def latest(timings: Iterable[Timing], plan: TimingPlan) -> list[Timing]:
    """Return the timings of a plan that were made where the last of them was made."""
    planned = [timing for timing in timings if timing.data == plan.data and timing.choice in plan.cells()]
    return [timing for timing in planned if timing.origin == planned[-1].origin]


def shown_timings(folder: Path, *, mini: bool = False) -> list[Timing]:
    """Return what Figure 3b shows: timings on CIFAR-10 in a folder, else those on embedded pictures that ship."""
    if mini:
        return latest(load(folder), MINI)
    return latest(load(folder), PAPER) or latest([*load(Path(__file__).parent / "results"), *load(folder)], EMBEDDED)
