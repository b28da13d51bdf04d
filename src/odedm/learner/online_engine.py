"""The engine of a learner: network, method, memory and scaling for rows that come without end, with their update."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import torch
from torch import Tensor

from odedm.core.errors import UsageError
from odedm.core.rng import generator
from odedm.core.row_schema import RowSchema
from odedm.core.rows import ColumnSpec, Rows, Task
from odedm.learner.config import LearnerConfig
from odedm.learner.endless_memory import every_row, learner_buffer, lengthen
from odedm.learner.learner_net import grow, make_net
from odedm.learner.running_scaler import RunningScaler
from odedm.memory.changing import OnChange
from odedm.memory.dual import DualBuffer
from odedm.memory.open_stream import generators
from odedm.memory.quotas import ConsolidationOutcome
from odedm.stream.augment import Transform
from odedm.training.engine import Engine
from odedm.training.tricks import check_pictures

ENDLESS = 2**31
"""How many tasks a stream without borders is said to have: the one under way is never the last."""


class OnlineEngine(Engine):
    """An engine whose classes join on the way, and whose memory consolidates classes as they rest.

    Args:
        config: the learner's settings.
        schema: what its rows are.
        classes: how many outputs the network has, where it is not a module with more.
    """

    memory: DualBuffer

    def __init__(self, config: LearnerConfig, schema: RowSchema, classes: int) -> None:
        self.config, plan = config, config.plan
        device = torch.device(plan.device)
        check_pictures(plan, schema.shape, schema.dtype)
        net = make_net(config.net, schema.shape, classes, seed=plan.seed, options=config.net_options)
        self.scaler = RunningScaler(schema.shape, device) if isinstance(config.scaling, str) else None
        transform = self.scaler.transform if self.scaler else fixed(config.scaling, schema).to(device)
        image = ColumnSpec("image", schema.shape, schema.dtype)
        self.memory_rngs = generators(plan.seed, device)

        def make_memory(method_columns: tuple[ColumnSpec, ...]) -> DualBuffer:
            return learner_buffer(config.memory, config.policy, method_columns, image, device, self.memory_rngs)

        super().__init__(plan, net, transform, make_memory, stored_rows=every_row)
        self.memory_rng = self.memory_rngs["memory"]
        self._predictor: Callable[[Tensor], Tensor] | None = None
        self.new_outputs_rng = generator(plan.seed, "new outputs")
        self.method.begin_task(Task(0, ENDLESS, tuple(range(classes)), {"label": torch.zeros(0, dtype=torch.int64)}))

    @property
    def classes(self) -> int:
        """How many outputs there are."""
        return self.method.net.classes

    def grow(self, classes: int) -> None:
        """Give outputs to so many classes: the head, what the optimizer knows of it, and stored logits."""
        self._predictor = None
        grow(self.method, classes, self.new_outputs_rng)
        lengthen(self.memory, self.method.fields(), self.view.annotate)

    def learn(
        self, image: Tensor, label: Tensor, numbers: list[int], *, first: int, done: int, updates: int
    ) -> list[int]:
        """Make updates on rows that are number `first` and following of the stream, and show them to the memory.

        `done` batches came before.

        Returns:
            Those of the classes `numbers`, the same as `label`, that are new and for whose candidates there is no room.
        """
        self._predictor, device, amount = None, self.device, len(numbers)
        if self.scaler:
            self.scaler.update(image)
        index = torch.from_numpy(np.arange(first, first + amount))  # in half of the time of torch's own
        if device.type != "cpu":
            image, label, index = (column.to(device) for column in (image, label, index))
        self.set_rate(done)
        rows: Rows = {"image": image, "label": label, "index": index}
        rows |= self.update({**rows, "task": torch.zeros_like(label)}, updates)
        crowded = self.memory.join(numbers)
        self.memory.add(rows, self.view, rng=self.memory_rng)
        return crowded

    def pin(self, classes: list[int], on_change: OnChange = None) -> ConsolidationOutcome:
        """Choose prototypes of classes now; `on_change` is called before the first row moves."""
        self._predictor = None
        return self.memory.consolidate(classes, self.view, on_change=on_change)

    def release(self, classes: list[int]) -> int:
        """Forget the prototypes of classes; return how many rows that were."""
        self._predictor = None
        return self.memory.release(classes)

    def predictor(self) -> Callable[[Tensor], Tensor]:
        """Return what scores raw rows: until something changes, class means are taken once for all questions."""
        if self._predictor is None:
            self._predictor = super().predictor()
        return self._predictor

    def stored_parts(self) -> dict[str, Any]:
        """Return what a saved learner must hold beside the method's state and the memory's rows."""
        return {
            "optimizer": self.method.optimizer,
            "schedule": self.schedule,
            "scaler": self.scaler,
            "views": self.view_rng,
            "new outputs": self.new_outputs_rng,
            "draws": self.replay.generators,
            "memory": self.memory_rngs,
        }


def fixed(given: Transform | None, schema: RowSchema) -> Transform:
    """Return constants that were given; else rows as they are, bytes of images from 0 to 1."""
    if given is None:
        return Transform(torch.zeros(()), torch.tensor(1 / 255 if schema.dtype == torch.uint8 else 1.0))
    try:
        whole = given.shift.broadcast_to(schema.shape).shape == given.scale.broadcast_to(schema.shape).shape
    except RuntimeError:
        whole = False
    if not whole or ((given.pad or given.flip) and len(schema.shape) != 3):
        raise UsageError(
            f"The transform is for rows of another shape: its constants are {list(given.shift.shape)}, the rows "
            f"{list(schema.shape)}. Give scaling='auto', or one made for such rows."
        )
    # copies: what is given may be another learner's or a data set's
    return Transform(given.shift.clone(), given.scale.clone(), given.pad, given.flip)
