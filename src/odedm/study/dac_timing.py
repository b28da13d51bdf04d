"""Times choices of prototypes with and without divide-and-conquer, one after the other, with nothing beside them."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from odedm.core.errors import UsageError
from odedm.core.rng import derive_seed, generator
from odedm.core.rows import ModelView, Rows
from odedm.core.timer import Timer
from odedm.data.opening import load_dataset
from odedm.memory.settings import ODEDM, Reservoir, consolidator
from odedm.results.provenance import provenance
from odedm.selection.prototype_settings import DAC, Prototypes
from odedm.study.dac_timing_plan import Measured, Runtime, Timing, TimingCell, expected
from odedm.training.engine import resolve_device
from odedm.training.experiment import Experiment
from odedm.training.model_view import MethodView
from odedm.training.numerics import process_numerics, settle
from odedm.training.run import Run

BLOBS = 16
"""Clusters of the synthetic class."""
TIMED = ("reduce", "centre", "select")
"""What divide-and-conquer changes; features are there already, and nothing is annotated."""
EVERY = 1.0
"""Seconds between two writings of the file: a kill costs no more than what was timed in them."""
PLACE = ("device", "threads", "torch", "odedm", "commit")
"""Half a measurement goes on only where all of these are as they were."""


class _AsTheyAre:
    """Rows that are features already; a choice asks for nothing else of a network."""

    def embed(self, image: Tensor) -> Tensor:
        return image

    def annotate(self, rows: Rows) -> Rows:  # noqa: ARG002 - nothing is added, whatever they are
        return {}


def features(n: int, dimension: int, *, seed: int, device: torch.device | str = "cpu") -> Tensor:
    """Rows [n, dimension] as a last hidden layer might give them: blobs with noise, negative parts cut off.

    They are drawn on the CPU, so that every device has the same.

    >>> bool((features(5, 3, seed=1) == features(5, 3, seed=1)).all()), float(features(5, 3, seed=1).min()) >= 0
    (True, True)
    """
    rng = generator(seed, "synthetic features")
    centre = torch.randn(BLOBS, dimension, generator=rng)
    which = torch.randint(BLOBS, (n,), generator=rng)
    return torch.relu(centre[which] + torch.randn(n, dimension, generator=rng)).to(device)


def check(plan: Runtime) -> None:
    """Refuse what cannot be chosen by, before anything runs."""
    for cell in plan.cells():
        consolidator(_memory(cell))


def time_one(cell: TimingCell, points: Tensor, *, seed: int) -> float:
    """Seconds of one choice, as a run would make it at the end of a task with one class."""
    choose = consolidator(_memory(cell))
    if choose is None:
        raise ValueError("a choice of no prototypes cannot be timed")
    rows = {"image": points, "label": torch.zeros(len(points), dtype=torch.int64, device=points.device)}
    timer = Timer(settle(points.device))
    choose(rows, [0], cast(ModelView, _AsTheyAre()), rng=generator(seed, "timed choice"), timer=timer)
    return sum(timer.seconds.get(phase, 0.0) for phase in TIMED)


def measure(
    before: Measured,
    folder: Path,
    *,
    device: str,
    threads: int,
    until: float | None = None,
    tell: Callable[[int, TimingCell], None] = lambda *_: None,
) -> Measured:
    """Go on from what was measured before, as far as the time allows; the file is written every second.

    `until` is on the monotonic timer; `tell` is told how many are left and what comes next.
    """
    place = resolve_device(device)
    source = f"the first class of '{before.plan.data}'" if before.plan.data else "synthetic"
    here = {**provenance(place, ""), "threads": threads, "features": source}
    del here["data_checksum"]
    same = all(before.provenance.get(name) == here[name] for name in PLACE)  # seconds of two machines make no curve
    found = replace(before, timings=before.timings if same else (), provenance=here)
    todo = found.missing()
    warm: set[object] = set()
    saved = time.monotonic()
    try:
        points = points_of(found.plan, device, threads) if todo else None
        with process_numerics(threads):
            for number, (cell, repeat) in enumerate(todo):
                if _late(cell, found.timings, until):
                    continue
                tell(len(todo) - number, cell)
                took = _timed(
                    cell, drawn(cell, points, derive_seed(found.plan.seed, f"repeat {repeat}"), place), repeat, warm
                )
                found = replace(found, timings=(*found.timings, Timing(cell, repeat, took)))
                if time.monotonic() - saved > EVERY:
                    found.save(folder)
                    saved = time.monotonic()
    finally:
        if found.timings:
            found.save(folder)
    return found


def points_of(plan: Runtime, device: str, threads: int) -> Tensor | None:
    """The features of all rows of the data's first class, by a network that has learned the first task; None without.

    Sizes that the class or the network does not have are refused.
    """
    if not plan.data:
        return None
    data = load_dataset(plan.data)
    classes = data.classes // data.tasks
    first, tested = data.label < classes, data.test_label < classes
    task = replace(
        data,
        image=data.image[first],
        label=data.label[first],
        test_image=data.test_image[tested],
        test_label=data.test_label[tested],
        class_names=data.class_names[:classes],
        tasks=1,
        known_checksum=None,
    )
    own: dict[str, Any] = {"seed": plan.seed, "device": device, "threads": threads}
    learned = Run(
        Experiment(Reservoir(200), method="derpp", options={"lr": 0.03}, data=data.name, **own), task
    ).finish()
    image = task.image[task.label == 0].to(next(learned.method.net.parameters()).device)
    found = MethodView(learned.method, task.transform).embed(image)
    if max(plan.rows) > len(found) or set(plan.dimension) != {found.shape[1]}:
        raise UsageError(
            f"The first class of '{plan.data}' has {len(found)} rows of {found.shape[1]} features, but [runtime] asks "
            f"for up to {max(plan.rows)} rows of {', '.join(map(str, plan.dimension))}. Change rows or dimension there."
        )
    return found


def drawn(cell: TimingCell, points: Tensor | None, seed: int, device: torch.device) -> Tensor:
    """The rows of one measurement: of the class's features so many, by the seed, or synthetic ones."""
    if points is None:
        return features(cell.n, cell.dimension, seed=seed, device=device)
    return points[torch.randperm(len(points), generator=generator(seed, "drawn features"))[: cell.n].to(points.device)]


def _timed(cell: TimingCell, points: Tensor, repeat: int, warm: set[object]) -> float:
    """One measurement; the first of a kind is made twice, since it pays for what is loaded and compiled."""
    try:
        if cell[:3] not in warm:
            warm.add(cell[:3])
            time_one(cell, points, seed=repeat)
        return time_one(cell, points, seed=repeat)
    except (RuntimeError, MemoryError) as error:
        advice = "Take fewer rows, prototypes or dimensions in [runtime]."
        raise UsageError(f"Timing {cell.title} failed: {error}. {advice}") from error


def _memory(cell: TimingCell) -> ODEDM:
    return ODEDM(cell.k, k=cell.k, selection=Prototypes(cell.distance, cell.dac and DAC(*cell.dac, sample=None)))


def _late(cell: TimingCell, timings: tuple[Timing, ...], until: float | None) -> bool:
    """Whether a measurement is not expected to be over in time; of what nothing is known the first may start."""
    rest = math.inf if until is None else until - time.monotonic()
    return rest <= 0 or (expected(cell, timings) or 0.0) > rest
