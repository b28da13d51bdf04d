"""What a training loop of one's own gives a memory: functions for features and new values of columns, labels."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from odedm.core.errors import UsageError, short_repr
from odedm.core.row_schema import USER_PREFIX, RowSchema, as_tensor
from odedm.core.rows import Rows, count

Embed = Callable[[Any], Any]
Annotate = Callable[[Any], Mapping[str, Any]]

CHUNK = 512
"""Images that are embedded at once."""


@dataclass(frozen=True)
class CallbackModelView:
    """The `ModelView` of a loop that gives `embedding` and `annotation`, as far as these go."""

    schema: RowSchema
    embedding: Embed | None = None
    annotation: Annotate | None = None

    def embed(self, image: Tensor) -> Tensor:
        """Return features [n, d], without gradients; a module is in evaluation mode meanwhile."""
        if self.embedding is None:
            raise UsageError(
                "Prototypes are chosen by the network's features: give embed=, a function from images to features "
                "[n, d]; or build the memory with space='pixels'."
            )
        parts = []
        with torch.no_grad(), _evaluating(self.embedding):
            for part in image.split(CHUNK):
                given = self.embedding(self._input(part))
                points = given.detach() if isinstance(given, Tensor) else as_tensor(given, "features")
                if points.dim() < 2 or len(points) != len(part):
                    raise UsageError(
                        f"embed must give features [n, d]; of {len(part)} images it gave {list(points.shape)}."
                    )
                parts.append(points)
        return torch.cat(parts)

    def _input(self, image: Tensor) -> Any:
        """Return images as the function takes them: a module gets tensors, on the device of its weights."""
        if not isinstance(self.embedding, nn.Module):
            return self.schema.like_given(image)
        weight = next(self.embedding.parameters(), None)
        return image if weight is None else image.to(weight.device)

    def annotate(self, rows: Rows) -> Rows:
        """Return new values of users' columns for rows that are to be kept."""
        if self.annotation is None or not count(rows):
            return {}
        with torch.no_grad(), _evaluating(self.annotation):
            given = self.annotation(self.schema.like_given(rows["image"]))
        device = rows["image"].device
        read = self.schema.read_column
        return {USER_PREFIX + name: read(name, new, count(rows)).to(device) for name, new in given.items()}

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        raise UsageError(
            f"The policy asks `view.{name}`, which only a method can answer; a memory in a loop of one's own has "
            "none. Give what it needs as a column of add, or take another policy here, or odedm.train."
        )


@contextmanager
def _evaluating(function: Any) -> Iterator[None]:
    """Return a block in which a module is in evaluation mode; of any other function nothing is known."""
    modes = {module: module.training for module in function.modules()} if isinstance(function, nn.Module) else {}
    try:
        for module in modes:
            module.training = False
        yield
    finally:
        for module, mode in modes.items():
            module.training = mode


def class_list(classes: Any) -> list[int]:
    """Return labels as a user names them, one or many, each once.

    >>> class_list(3), class_list((1, 2, 1)), class_list(torch.tensor([4]))
    ([3], [1, 2], [4])
    """
    values = classes.tolist() if isinstance(classes, Tensor | np.ndarray) else classes
    values = list(values) if isinstance(values, Iterable) and not isinstance(values, str) else [values]
    try:
        if any(isinstance(value, bool) for value in values):
            raise TypeError
        return list(dict.fromkeys(operator.index(value) for value in values))
    except TypeError:
        raise UsageError(
            f"Classes are named by their labels, whole numbers; {short_repr(classes)} was given."
        ) from None
