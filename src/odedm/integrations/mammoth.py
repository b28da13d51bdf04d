"""The memory inside Mammoth: a drop-in for its buffer, and one line that gives it to a model.

Mammoth is no installed package: its folder must be on Python's path, as it is in scripts that run there.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from odedm.core.errors import UsageError, short_repr
from odedm.memory.live import DualMemory

try:
    from utils.augmentations import apply_transform
    from utils.buffer import Buffer
except ImportError as error:
    raise UsageError(
        f"odedm.integrations.mammoth needs Mammoth's folder on Python's path, and its utils.buffer cannot be imported "
        f"here ({error}): start Python in that folder, or put the folder first into PYTHONPATH."
    ) from error

COLUMNS = {"examples": "images"} | {name: name for name in ("labels", "logits", "task_labels", "true_labels")}
"""What Mammoth calls a column, and what the memory does."""


class _Column:
    """A column of the memory as Mammoth reads it: an attribute that is there when the column is. A copy."""

    def __init__(self, name: str) -> None:
        self.name = name

    def __get__(self, buffer: ODEDMBuffer | None, _: type) -> Any:
        if buffer is None:
            return self
        rows = buffer.memory.rows() if buffer.num_seen_examples else {}
        if COLUMNS[self.name] not in rows:
            raise AttributeError(f"the buffer has no {self.name} yet")
        return rows[COLUMNS[self.name]]

    def __set__(self, buffer: ODEDMBuffer, value: object) -> None:
        raise UsageError(
            f"The memory chooses its rows itself, so {self.name} cannot be put in from outside. To go on from a stored "
            "state use buffer.memory.state_dict() and buffer.memory.load_state_dict(state)."
        )


class ODEDMBuffer(Buffer):  # type: ignore[misc]
    """The dual memory in the place of Mammoth's `Buffer`; `attach` gives it to a model.

    Args:
        buffer_size: rows in all (λ).
        device: where the rows are kept.
        settings: those of `odedm.DualMemory`: k or rho, seed, distance, dac, … k=0 is a plain reservoir.
            Prototypes are chosen among all rows of a task, as in the paper, unless `candidates` is given.
    """

    examples, labels, logits = _Column("examples"), _Column("labels"), _Column("logits")
    task_labels, true_labels = _Column("task_labels"), _Column("true_labels")

    def __init__(self, buffer_size: int, device: Any = "cpu", **settings: Any) -> None:
        self.memory = DualMemory(buffer_size, device=device, **{"candidates": "task", **settings})
        super().__init__(buffer_size, device)

    def __len__(self) -> int:
        return len(self.memory)

    @property
    def buffer_size(self) -> int:
        """Return rows in all (λ)."""
        return self.memory.capacity

    @buffer_size.setter
    def buffer_size(self, value: int) -> None:
        self.memory.resize(value)

    def add_data(
        self,
        examples: Tensor,
        labels: Tensor | None = None,
        logits: Tensor | None = None,
        task_labels: Tensor | None = None,
        attention_maps: Any = None,
        true_labels: Tensor | None = None,
        sample_selection_scores: Any = None,
    ) -> None:
        """See rows of the stream, once each."""
        if labels is None or attention_maps is not None or sample_selection_scores is not None:
            raise UsageError(
                "This buffer needs labels, and keeps logits, task_labels and true_labels beside them; attention maps "
                "and selection scores it does not. Use Mammoth's own buffer with this model."
            )
        columns = {"logits": logits, "task_labels": task_labels, "true_labels": true_labels}
        self.memory.add(examples, labels, **{name: column for name, column in columns.items() if column is not None})
        self.num_seen_examples += len(examples)

    def get_data(self, size: int, transform: Any = None, *args: Any, device: Any = None, **asked: Any) -> Any:
        """Draw rows at random, as Mammoth's buffer does; indexes, masks and the like are left to it."""
        if args or any(value is not None and value is not False for value in asked.values()):
            return super().get_data(size, transform, *args, device=device, **asked)
        rows, device = self.memory.sample(size), self.device if device is None else device
        further = [rows[COLUMNS[name]] for name in self.attributes[1:] if COLUMNS[name] in rows]
        return tuple(column.to(device) for column in (apply_transform(rows["images"], transform=transform), *further))

    def empty(self) -> None:
        """Forget everything, prototypes too."""
        self.memory = DualMemory.from_config(self.memory.settings, seed=self.memory.seed, device=self.memory.device)
        self.num_seen_examples = 0

    def to(self, device: Any) -> ODEDMBuffer:
        """Stay: rows are kept where the buffer was made, and draws go where they are asked for."""
        if torch.device(device) != self.memory.device:
            raise UsageError(
                f"The buffer keeps its rows on {self.memory.device}; make it with device={short_repr(device)}."
            )
        return self

    def end_task(self, model: Any) -> None:
        """A task is over and another follows: keep prototypes of its classes. Nothing where nothing was added.

        Args:
            model: a `ContinualModel`, whose network's features are asked for.
        """
        if self.num_seen_examples:
            normalise = getattr(model, "normalization_transform", None)  # as test images are seen

            def embed(images: Tensor) -> Tensor:
                seen = apply_transform(images, transform=normalise).to(model.device)
                features: Tensor = model.net(seen, returnt="features")
                return features.flatten(1).to(images.device)

            modes = {module: module.training for module in model.net.modules()}
            model.net.eval()
            try:
                self.memory.end_task(embed=embed)
            finally:
                for module, mode in modes.items():
                    module.training = mode


def attach(model: Any, **settings: Any) -> Any:
    """Give a rehearsal model of Mammoth the dual memory, and have it told when a task ends.

    Args:
        model: one with a `buffer`, before it has seen anything.
        settings: of `ODEDMBuffer`, but for the size, which stays the model's.

    Returns:
        The model.
    """
    old = getattr(model, "buffer", None)
    if not isinstance(old, Buffer):
        raise UsageError(f"{type(model).__name__} has no buffer of Mammoth's to replace; give a rehearsal model.")
    if not old.is_empty():
        raise UsageError(f"The buffer of {type(model).__name__} holds rows already; attach the memory before training.")
    model.buffer = ODEDMBuffer(old.buffer_size, old.device, **settings)
    plain = model.end_task

    def end_task(dataset: Any) -> None:
        if model.current_task < model.n_tasks - 1:  # after the last one nothing is left to remember for
            model.buffer.end_task(model)
        plain(dataset)

    model.end_task = end_task
    return model
