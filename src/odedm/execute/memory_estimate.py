"""Estimates the memory of a run before it starts, and refuses what would not fit."""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any

import torch

from odedm.core.errors import UsageError
from odedm.core.registry import METHODS, NETS, RETRIEVALS
from odedm.memory.settings import ODEDM
from odedm.methods.base import Load, Method
from odedm.methods.rotation_task import TURNED, TURNS
from odedm.nets.build import build, build_on_meta
from odedm.selection.prototype_settings import Random, Sinkhorn
from odedm.stream.dataset import Dataset
from odedm.stream.tasks import ARRANGEMENT, task_labels
from odedm.training.evaluation import BATCH
from odedm.training.experiment import Experiment
from odedm.training.preparation import Prepared
from odedm.training.retrieval import Retrieval

MIB = 1 << 20
PROCESS = {"cpu": 350 * MIB, "cuda": 700 * MIB}
"""What a process takes before it does anything: libraries on the host, the driver's context on a GPU."""

SMALL_NET, SMALL_ROW = 64 * MIB, 3 * 64 * 64
"""Bytes of weights, and numbers in a row, up to which a forward of two rows takes milliseconds."""

WORDS = {
    "activations": "--batch or --replay-batch, or take a smaller --net",
    "data": "the images' size, or take a smaller data set",
    "memory": "--capacity",
    "network": "the net's width, or take a smaller --net",
    "consolidation": "the task's rows by --set memory.candidates=N, or choose by --set memory.space=features",
    "process": "--workers",
}


@dataclass(frozen=True)
class MemoryEstimate:
    """Bytes of one run by what they are for."""

    parts: dict[str, int]

    @property
    def total(self) -> int:
        """All of them."""
        return sum(self.parts.values())

    def __str__(self) -> str:
        shown = sorted(self.parts.items(), key=lambda part: -part[1])
        return ", ".join(f"{name} {gib(size)}" for name, size in shown if size * 50 > self.total)


@dataclass(frozen=True)
class Footprint:
    """Bytes a network holds of each row: `saved` for the way back, `largest` at one place; of its weights; features."""

    saved: int
    largest: int
    weights: int
    features: int


def check_room(run: Prepared, lanes: int = 1) -> None:
    """Refuse what would not fit into the memory that is free now, `lanes` such runs at a time."""
    device = torch.device(run.experiment.device)
    room, one = available(device), estimate(run)
    needed = lanes * one.total + _shared(device)
    if room is None or needed <= room:
        return
    largest = max(one.parts, key=lambda part: one.parts[part])
    what = "This run needs" if lanes == 1 else f"{lanes} runs side by side need"
    lower = WORDS[largest] if lanes == 1 or largest == "process" else f"--workers, or {WORDS[largest]}"
    where = "on the GPU" if device.type == "cuda" else "on this machine"
    each = "" if lanes == 1 else " each"
    raise UsageError(
        f"{what} about {gib(needed)} of memory ({one}{each}), and {gib(room)} are free {where}. Lower {lower}."
    )


def fitting_lanes(runs: Sequence[Prepared], lanes: int, *, given: bool) -> int:
    """How many of these runs go side by side: `lanes` where that fits, fewer unless the number was `given`.

    What does not fit alone, or not in the number that was given, is refused.
    """
    kinds = {run.experiment.slug(): run for run in runs}.values()  # seeds need the same
    if not given and lanes > 1:
        largest = max(kinds, key=lambda each: estimate(each).total)
        device = torch.device(largest.experiment.device)
        room = available(device)
        if room is not None:
            lanes = max(1, min(lanes, (room - _shared(device)) // estimate(largest).total))
    for run in kinds:
        check_room(run, lanes)
    return lanes


def _shared(device: torch.device) -> int:
    return PROCESS["cuda"] if device.type == "cuda" else 0


def estimate(run: Prepared) -> MemoryEstimate:
    """The bytes of one run by what they are for, at the moment when it holds most; on a CPU with its process."""
    plan, data = run.experiment, run.data
    net, cuda = footprint(run), plan.device == "cuda"
    looks = (plan.tasks or 1) if plan.domain in ("permuted", "rotated") else 1  # test rows as each task shows them
    rows = data.image.nbytes + looks * data.test_image.nbytes
    host = 0 if cuda or data.known_checksum is not None else rows  # a cached data set is mapped, not held
    step = _step_bytes(plan, net, _load(plan, net))
    look = 3 * net.largest * BATCH.get(plan.device, BATCH["cpu"])
    border = _border_bytes(plan, data, net) + look
    parts = {
        "data": rows + host,
        "memory": memory_bytes(run),
        "network": int(net.weights * _copies(plan, _load(plan, net))),
        "activations": max(step, look),
        "consolidation": max(0, border - max(step, look)),
    }
    return MemoryEstimate(parts if cuda else {**parts, "process": PROCESS["cpu"]})


def _load(plan: Experiment, net: Footprint) -> Load:
    draw, tasks = plan.replay_batch or plan.batch, plan.tasks or 1
    return Load(plan.batch, draw, plan.memory.capacity, tasks, net.weights, plan.device, plan.options)


def memory_bytes(run: Prepared) -> int:
    """The store of λ rows: the raw row, label, task, index, prototype and order, its key, and logits where kept."""
    per_row = run.data.image[:1].nbytes + 6 * 8 + 4 * run.data.classes
    return run.experiment.memory.capacity * per_row


def footprint(run: Prepared) -> Footprint:
    """What the network holds for each row, measured by a forward; of a large one, nothing is computed or allocated."""
    plan, data = run.experiment, run.data
    return _footprint(NETS[plan.net].load(), plan.net, data.shape, data.classes, tuple(plan.net_options.items()))


@lru_cache(maxsize=64)
def _footprint(
    _kind: object, name: str, shape: tuple[int, ...], classes: int, options: tuple[tuple[str, Any], ...]
) -> Footprint:
    rows = 2  # one row alone has no batch statistics
    net = build_on_meta(name, shape, classes, dict(options))
    if math.prod(shape) <= SMALL_ROW and sum(each.nbytes for each in net.parameters()) <= SMALL_NET:
        # a real one: for what happens on "meta" torch imports its compiler, which takes seconds
        net = build(name, shape, classes, seed=0, options=dict(options))
    x = torch.zeros(rows, *shape, device=next(net.parameters()).device)  # "meta", but for some nets from outside
    own = {each.untyped_storage()._cdata for each in (*net.parameters(), *net.buffers())}
    kept: dict[int, int] = {}

    def keep(tensor: torch.Tensor) -> torch.Tensor:
        storage = tensor.untyped_storage()
        if storage._cdata not in own:
            kept[storage._cdata] = storage.nbytes()
        return tensor

    with torch.enable_grad(), torch.autograd.graph.saved_tensors_hooks(keep, lambda tensor: tensor):
        features = net.features(x)
        logits = net.head(features)
    weights = sum(each.numel() * each.element_size() for each in net.parameters())
    sizes = [*kept.values(), logits.nbytes]
    return Footprint(sum(sizes) // rows, max(sizes) // rows, weights, features.flatten(1).shape[1])


def _step_bytes(plan: Experiment, net: Footprint, load: Load) -> int:
    """What the graphs of one step hold at once, and what the way back through the largest layer adds."""
    method: type[Method] = METHODS[plan.method].load()
    rows = method.rows_at_once(load) + (load.draw if plan.memory.replay != "union" else 0)
    rows += TURNS * (load.batch + load.draw) if plan.views in TURNED else 0
    thrice = 3 if method.exacting else 1  # a graph through a gradient holds about so many times as much
    size = rows * (net.saved + 2 * net.largest) * thrice // (2 if plan.precision == "bf16" else 1)
    size += size // 4  # workspaces of convolutions, and gaps between blocks
    captured = plan.device == "cuda" and plan.cuda_graph
    return 2 * size if captured else size  # a recorded step has a pool of its own, beside that of the steps before it


def _copies(plan: Experiment, load: Load) -> float:
    """How many times as much as its weights a network takes: gradients, momentum, and what the method keeps."""
    method: type[Method] = METHODS[plan.method].load()
    retrieval: type[Retrieval] = RETRIEVALS[plan.retrieval].load()
    own = 2.5 + bool(plan.options.get("momentum")) + (plan.weight_average is not None)
    return own + method.networks_at_once(load) + retrieval.spare_networks


def _border_bytes(plan: Experiment, data: Dataset, net: Footprint) -> int:
    """What choosing prototypes adds: points of a task, and the distances between the clusters of a class."""
    memory = plan.memory
    if not isinstance(memory, ODEDM) or isinstance(memory.selection, Random):
        return 0
    of_class = int(data.label.bincount(minlength=data.classes).max())
    of_class = min(of_class, plan.limit or of_class)
    if isinstance(memory.candidates, int):
        of_class = min(of_class, memory.candidates)
    wide = data.image[0].numel() if memory.selection.space == "pixels" else net.features
    arrangement = {name: getattr(plan, name) for name in ARRANGEMENT}
    points = 4 * of_class * max(map(len, task_labels(data, **arrangement))) * wide
    clouds = 4 * 4 * (of_class // 2) ** 2 if getattr(memory.selection, "dac", None) else 0
    ground = 3 * 8 * (wide if memory.selection.space == "features" else wide // max(1, data.shape[0])) ** 2
    return 3 * points + clouds + (ground if isinstance(getattr(memory.selection, "distance", None), Sinkhorn) else 0)


def available(device: torch.device) -> int | None:
    """Bytes that are free now on a device; None where the system does not say."""
    if device.type == "cuda":
        return int(torch.cuda.mem_get_info(device)[0])
    return host_room()


def host_room(proc: Path = Path("/proc"), groups: Path = Path("/sys/fs/cgroup")) -> int | None:
    """Free bytes of the machine, or of the container where that allows less."""
    found = [each for each in (_free_of_machine(proc), _free_of_group(proc, groups)) if each is not None]
    return min(found) if found else None


def _free_of_machine(proc: Path) -> int | None:
    try:
        for line in (proc / "meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except (OSError, ValueError, IndexError):
        pass
    try:
        return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") if proc == Path("/proc") else None
    except (AttributeError, ValueError, OSError):
        return None


def _free_of_group(proc: Path, groups: Path) -> int | None:
    """Limit minus use of the control group, its file cache not counted: that is given back when asked for."""
    try:
        lines = (proc / "self" / "cgroup").read_text().splitlines()
    except OSError:
        lines = []
    own = next((line.split(":", 2)[2].strip("/") for line in lines if line.startswith("0::")), "")
    rooms = []
    for folder in {groups / own, groups}:
        rooms.append(_room_of(folder / "memory.max", folder / "memory.current", folder / "memory.stat"))
    old = groups / "memory"
    rooms.append(_room_of(old / "memory.limit_in_bytes", old / "memory.usage_in_bytes", old / "memory.stat"))
    known = [each for each in rooms if each is not None]
    return min(known) if known else None


def _room_of(limit: Path, used: Path, table: Path) -> int | None:
    try:
        most = int(limit.read_text())  # "max" where there is no limit
        entries = dict(line.split() for line in table.read_text().splitlines())
        cache = int(entries.get("total_inactive_file", entries.get("inactive_file", 0)))
        return max(0, most - int(used.read_text()) + cache) if most < 1 << 60 else None
    except (OSError, ValueError):
        return None


def gib(size: int) -> str:
    """Bytes to read.

    >>> gib(3 << 29), gib(5 << 20)
    ('1.5 GiB', '5 MiB')
    """
    return f"{size / 2**30:.1f} GiB" if size >= 1 << 30 else f"{math.ceil(size / MIB)} MiB"
