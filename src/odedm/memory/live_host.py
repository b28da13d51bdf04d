"""The works of a live memory: a host, rows to choose from, and prototypes pinned by k or by an equal share."""

from __future__ import annotations

from dataclasses import dataclass, replace

import torch
from torch import Tensor

from odedm.core.errors import UsageError
from odedm.core.registry import POLICIES
from odedm.core.rows import MemoryPart, Rows, Task, count
from odedm.core.timer import Timer
from odedm.core.validators import LARGEST
from odedm.memory.collected import AllRows, ClassReservoirs, Collected, among, fit, joined
from odedm.memory.given_rows import TASK, MemoryRowFormat
from odedm.memory.keyed import BorderMemory, KeyedMemory
from odedm.memory.live_parts import (
    Generators,
    LoopProbe,
    check_pins,
    choosing,
    class_list,
    pins,
    policy_name,
    prototypes_each,
)
from odedm.memory.settings import ODEDM, MemorySettings, Reservoir
from odedm.memory.site import build_policy


@dataclass
class LiveHost:
    """A host that has its format by now. The candidates, where bounded, and the host share the capacity."""

    settings: MemorySettings
    form: MemoryRowFormat
    host: KeyedMemory
    collected: Collected | None
    rngs: Generators

    @classmethod
    def build(
        cls,
        settings: MemorySettings,
        form: MemoryRowFormat,
        device: torch.device,
        rngs: Generators,
        capacity: int | None = None,
    ) -> LiveHost:
        """An empty one; rows are collected where any are chosen from them."""
        policy = policy_name(settings)
        border = issubclass(POLICIES[policy].load(), BorderMemory)
        fields = (*form.fields, TASK) if border else form.fields
        options = {} if isinstance(settings, Reservoir) else settings.policy_options
        room = settings.capacity if capacity is None else capacity
        host: KeyedMemory = build_policy(policy, room, fields, device, classes=None, options=options)
        collected: Collected | None = AllRows(fields, device) if border or pins(settings) else None
        if isinstance(settings, ODEDM) and pins(settings) and isinstance(settings.candidates, int):
            collected = ClassReservoirs(settings.candidates, fields, device, rng=rngs["candidates"])
        return cls(settings, form, host, collected, rngs)

    @property
    def border(self) -> bool:
        """Whether the policy chooses rows when a task ends."""
        return isinstance(self.host, BorderMemory)

    def add(self, rows: Rows, task: int) -> None:
        """See rows of a task; refused before anything is written where candidates of new classes have no room."""
        if self.border:
            rows = {**rows, "task": torch.full_like(rows["label"], task)}
        if isinstance(self.collected, ClassReservoirs):
            self._make_room(self.collected, class_list(rows["label"].unique()))
        self.host.add(rows, LoopProbe(self.form, None, None), rng=self.rngs["memory"])
        if self.collected:
            self.collected.see(rows)

    def _make_room(self, collected: ClassReservoirs, joining: list[int]) -> None:
        reserved, pinned = collected.reserved(joining), self.host.size(MemoryPart.LONG)
        if reserved + pinned > self.settings.capacity:
            raise UsageError(
                f"The candidates of {len({*collected.classes(), *joining})} classes need {reserved} rows, and of "
                f"{self.settings.capacity} rows {pinned} are long-term. Consolidate the classes that are over, lower "
                "candidates, or raise the capacity by resize; nothing was added."
            )
        if reserved != collected.reserved():
            self.host.resize(self.settings.capacity - reserved)

    def end_task(self, classes: list[int] | None, task: int, probe: LoopProbe) -> None:
        """Pin prototypes of these classes, or of all that were collected; let the policy choose; collect anew."""
        seen = self.collected.classes() if self.collected else []
        rows = self.collected.rows() if self.collected else {}
        self.pin(seen if classes is None else classes, probe)
        if self.border and count(rows):
            self.host.end_task(Task(task, task + 2, tuple(seen), rows), probe, rng=self.rngs["memory borders"])
        if self.collected:
            self.collected.forget(seen)
            fit(self.host, self.settings.capacity, self.collected)

    def pin(self, classes: list[int], probe: LoopProbe) -> None:
        """Choose prototypes of these classes and pin them in the place of old ones; others give way to the quota."""
        if not (isinstance(self.settings, ODEDM) and pins(self.settings) and self.collected and classes):
            return
        pinned = self.host.rows(MemoryPart.LONG)
        pool = joined(self.collected.rows(), pinned, classes)
        others = pinned["label"][~among(pinned["label"], classes)]
        room = self.settings.capacity - self.collected.reserved(leaving=classes)
        each = prototypes_each(self.settings, len(classes) + len(others.unique()), room)
        if self.settings.k is not None:
            most = each * self.settings.rows_per_prototype
            wanted = sum(min(most, int((pool["label"] == label).sum())) for label in classes)
            check_pins(self.settings.capacity, wanted, len(others), room)
        rng = self.rngs["consolidation"]
        with choosing(self.settings, each, rng) as choose:
            chosen = choose(pool, classes, replace(probe, annotation=None), rng=rng, timer=Timer())
            chosen |= probe.annotate(chosen)
        self.collected.forget(classes)
        columns = self.host.store.columns
        self.unpin(among(columns["label"], classes) | (columns["prototype"] >= each))
        fit(self.host, self.settings.capacity, self.collected)
        self.host.pin(chosen)

    def unpin(self, gone: Tensor) -> int:
        """Forget the pinned rows among the marked slots; how many there were."""
        before = self.host.size(MemoryPart.LONG)
        if bool((gone & (self.host.store.key > 1)).any()):
            self.host.unpin(gone)
        return before - self.host.size(MemoryPart.LONG)

    def resize(self, settings: MemorySettings) -> None:
        """Take settings of another capacity; where a share is given the prototypes keep to it."""
        room = settings.capacity - (self.collected.reserved() if self.collected else 0)
        pinned, each = self.host.rows(MemoryPart.LONG), LARGEST
        if isinstance(settings, ODEDM) and settings.k is None and count(pinned):
            each = prototypes_each(settings, len(pinned["label"].unique()), room)
        left = int((pinned["prototype"] < each).sum())
        if left > room:
            raise UsageError(
                f"{settings.capacity} rows cannot hold the {left} long-term rows and what candidates take. Release "
                "classes first, or give a larger capacity."
            )
        self.unpin(self.host.store.columns["prototype"] >= each)
        self.settings = settings
        fit(self.host, self.settings.capacity, self.collected)
