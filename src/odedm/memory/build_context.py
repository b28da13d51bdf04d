"""What memories are built with: the stream's shape, the columns of a row, policies by name with their options."""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from odedm.core.options import options_of, read_options
from odedm.core.registry import POLICIES

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import torch

    from odedm.core.rows import ColumnSpec
    from odedm.core.timer import Timer
    from odedm.memory.buffer import Buffer


@dataclass(frozen=True)
class StreamShape:
    """How many tasks a stream has, and how many classes each of them, or the largest.

    `task_classes` has the labels of each task where tasks are of unequal size or share classes, and is empty else.
    """

    tasks: int
    classes_per_task: int
    task_classes: tuple[tuple[int, ...], ...] = ()

    @property
    def classes(self) -> int:
        """How many classes there are in all.

        >>> StreamShape(5, 2).classes, StreamShape.of(((0,), (0, 1))).classes
        (10, 2)
        """
        return len({*chain(*self.task_classes)}) or self.tasks * self.classes_per_task

    @classmethod
    def of(cls, labels: tuple[tuple[int, ...], ...]) -> StreamShape:
        """Return the shape of a stream whose tasks have these labels.

        >>> StreamShape.of(((0, 1), (2, 3))), StreamShape.of(((0,), (0, 1))).classes_per_task
        (StreamShape(tasks=2, classes_per_task=2, task_classes=()), 2)
        """
        most, all_labels = max(map(len, labels)), [label for task in labels for label in task]
        ordinary = len(set(all_labels)) == len(all_labels) == most * len(labels)
        return cls(len(labels), most, () if ordinary else labels)


@dataclass(frozen=True)
class BuildContext:
    """What a memory is built with: the columns of a row, where it lives, and where its draws come from.

    `data_fields` are the stream's columns, `method_fields` those of the method; `rng` makes a generator on the device
    for a purpose, `cpu_rng` one on the CPU, where one seed gives one choice anywhere; `classes` is how many the whole
    stream has, None where nobody knows.
    """

    shape: StreamShape
    data_fields: tuple[ColumnSpec, ...]
    method_fields: tuple[ColumnSpec, ...]
    device: torch.device
    rng: Callable[[str], torch.Generator]
    cpu_rng: Callable[[str], torch.Generator]
    timer: Timer
    classes: int | None = None

    def policy(self, name: str, capacity: int, options: Mapping[str, Any] | None = None) -> Buffer:
        """Return a memory that fills its short-term part by a policy of this name."""
        fields = (*self.data_fields, *self.method_fields)
        buffer: Buffer = build_policy(name, capacity, fields, self.device, classes=self.classes, options=options or {})
        return buffer


def build_policy(
    name: str,
    capacity: int,
    fields: Sequence[ColumnSpec],
    device: torch.device | str,
    *,
    classes: int | None,
    options: Mapping[str, Any],
) -> Buffer:
    """Return a memory by a policy of this name with its options; it is told the number of classes if it asks for it.

    >>> build_policy("purity", 5, (), "cpu", classes=10, options={"alpha": 0.3}).alpha
    0.3
    """
    kind = POLICIES[name].load()
    known = read_policy_options(name, options)
    asks = inspect.signature(kind).parameters.get("classes")
    knows = classes is not None or (asks is not None and asks.default is asks.empty)  # else its own default holds
    told = {"classes": classes} if asks is not None and knows else {}
    memory: Buffer = kind(capacity, fields, device, **told, **known)
    return memory


def read_policy_options(policy: str, options: Mapping[str, Any]) -> dict[str, Any]:
    """Return a policy's options in their own types, or a sentence on which there are.

    >>> read_policy_options("purity", {"alpha": "0.3"})
    {'alpha': 0.3}
    """
    return read_options(f"The memory policy '{policy}'", policy_options(policy), options) if options else {}


def policy_options(policy: str) -> dict[str, Any]:
    """Return a policy's options with their defaults: keywords of its constructor but those that the run sets.

    >>> policy_options("purity")
    {'alpha': 0.5}
    """
    return options_of(POLICIES[policy].load(), 3, ("classes",))  # the first ones are capacity, fields and device


def check_policy_options(policy: str, options: Mapping[str, Any]) -> None:
    """Refuse what a policy does not know.

    >>> check_policy_options("purity", {"alpha": 0.3})
    >>> check_policy_options("reservoir", {"alpha": 0.3})
    Traceback (most recent call last):
    ...
    odedm.UsageError: The memory policy 'reservoir' has no option 'alpha'; it has none.
    """
    if options:
        build_policy(policy, 0, (), "cpu", classes=None, options=options)  # refuses values before anything runs
