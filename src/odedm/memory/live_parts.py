"""What a live memory is told: its settings, how many prototypes they allow, and how it asks a loop for features."""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from odedm.core.errors import UsageError, short_repr
from odedm.core.registry import POLICIES
from odedm.core.rng import generator
from odedm.core.row_schema import OWN, RowSchema, as_tensor
from odedm.core.rows import ColumnSpec, Rows, count
from odedm.memory.buffer import Buffer, TaskEndBuffer
from odedm.memory.build_context import build_policy, check_policy_options
from odedm.memory.candidate_pool import ClassReservoirPool
from odedm.memory.dual import DualBuffer
from odedm.memory.prototype_quotas import EqualShare, FixedQuota
from odedm.memory.settings import DEFAULT_RHO, ODEDM, MemorySettings, Native, Reservoir, consolidator

Embed = Callable[[Any], Any]
Annotate = Callable[[Any], Mapping[str, Any]]
Generators = dict[str, torch.Generator]

OF_METHODS = ("replay", "gamma", "gamma_rule", "annotate")
"""Settings of ODEDM for runs alone, above all how a method meets the memory, which is a loop's own matter."""
PURPOSES = {"memory": True, "draw": True, "candidates": True, "memory borders": False, "consolidation": False}
"""What is drawn, and whether on the memory's device."""
CHUNK = 512
"""Images that are embedded at once."""


def settle(configuration: Any) -> MemorySettings:
    """Return the settings of a live memory with their defaults filled in, or a sentence on what it cannot do."""
    settings = ODEDM(configuration) if isinstance(configuration, int) else configuration
    if not isinstance(settings, Reservoir | Native | ODEDM):
        raise UsageError(
            f"A memory is made of ODEDM(…), Reservoir(…) or Native(…); {short_repr(configuration)} was given."
        )
    if not settings.capacity:
        raise UsageError("A live memory needs room: capacity must be 1 row or more; 0 was given.")
    policy = policy_name(settings)
    if POLICIES[policy].load().needs_method:
        known = ", ".join(name for name, entry in POLICIES.items() if not entry.load().needs_method)
        raise UsageError(
            f"The policy '{policy}' needs a method's scores or gradients, which a memory alone has not. Use {known}; "
            "or odedm.train."
        )
    return filled(settings, policy)


def filled(settings: MemorySettings, policy: str) -> MemorySettings:
    """Return settings with their defaults, short-term rows being chosen by this policy; refuse what cannot be kept."""
    check_policy_options(policy, {} if isinstance(settings, Reservoir) else settings.policy_options)
    if not isinstance(settings, ODEDM):
        return settings
    if settings.k is None and settings.rho is None:
        settings = replace(settings, rho=DEFAULT_RHO)
    consolidator(replace(settings, k=settings.k or 1))  # refuses what cannot be chosen by, before anything is added
    bounded, least = settings.candidates, (settings.k or 1) * settings.rows_per_prototype
    if isinstance(bounded, int) and pins(settings):
        if issubclass(POLICIES[policy].load(), TaskEndBuffer):
            raise UsageError(f"The policy '{policy}' reads all rows of a task; leave candidates at 'task'.")
        if bounded < least:
            raise UsageError(
                f"{bounded} candidates per class cannot give {least} prototypes; give candidates={least} or more."
            )
        quota = quota_of(settings)
        share = quota.rows if isinstance(quota, EqualShare) else 0
        if share + bounded > settings.capacity:
            raise UsageError(
                f"{bounded} candidates of a class and {share} long-term rows need more than the {settings.capacity} "
                "rows of the memory. Lower candidates or rho, or raise the capacity."
            )
    return settings


def policy_name(settings: MemorySettings) -> str:
    """Return how short-term rows are chosen; a loop of one's own has no method, hence no other native policy."""
    if isinstance(settings, ODEDM):
        return "reservoir" if settings.short_policy == "native" else settings.short_policy
    return "reservoir" if isinstance(settings, Reservoir) else settings.policy or "reservoir"


def pins(settings: MemorySettings) -> bool:
    """Return whether anything is ever kept for good."""
    if not isinstance(settings, ODEDM) or not settings.capacity:
        return False
    return bool(settings.rho if settings.k is None else settings.k)


def quota_of(settings: MemorySettings) -> FixedQuota | EqualShare:
    """Return how many prototypes a class may have in a stream of which nobody knows the classes."""
    if not isinstance(settings, ODEDM):
        return FixedQuota(0)
    if settings.k is not None:
        return FixedQuota(settings.k, settings.rows_per_prototype)
    return EqualShare(settings.rho or 0.0, settings.capacity, settings.rows_per_prototype)


def build_dual(
    settings: MemorySettings,
    policy: str,
    fields: Sequence[ColumnSpec],
    device: torch.device,
    rngs: Generators,
    *,
    capacity: int | None = None,
    **how: Any,
) -> DualBuffer:
    """Return an empty memory of a stream of unknown classes; `how` are further arguments of `DualBuffer`.

    Candidates, where they are bounded, have the columns that `how` names, or all.
    """
    options = {} if isinstance(settings, Reservoir) else settings.policy_options
    room = settings.capacity if capacity is None else capacity
    buffer: Buffer = build_policy(policy, room, fields, device, classes=None, options=options)
    selector, pool = None, None
    if isinstance(settings, ODEDM) and pins(settings):
        selector = consolidator(replace(settings, k=settings.k or 1))
        if isinstance(settings.candidates, int):
            names = how.get("columns") or [column.name for column in fields]
            columns = [column for column in fields if column.name in names]
            pool = ClassReservoirPool(settings.candidates, columns, device, rng=rngs["candidates"])
    return DualBuffer(buffer, selector, pool, quota_of(settings), rng=rngs["consolidation"], **how)


def generators(seed: int, device: torch.device) -> Generators:
    """Return a generator for each purpose."""
    return {name: generator(seed, name, device if on_device else "cpu") for name, on_device in PURPOSES.items()}


@dataclass(frozen=True)
class CallbackModelView:
    """What a memory may ask of a loop: features, and new values of columns, by the functions that were given."""

    schema: RowSchema
    embedding: Embed | None
    annotation: Annotate | None

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
        home = rows["image"].device
        return {OWN + name: self.schema.read_column(name, new, count(rows)).to(home) for name, new in given.items()}

    def features_and_losses(self, rows: Rows) -> tuple[Tensor, Tensor]:  # noqa: ARG002
        """Refuse: a loop has no method."""
        raise _needs_a_method("features_and_losses")

    def predict(self, image: Tensor) -> Tensor:  # noqa: ARG002
        """Refuse: a loop has no method."""
        raise _needs_a_method("predict")

    def gradients(self, rows: Rows, *, of: str = "head", then: Callable[[Tensor], Tensor] | None = None) -> Tensor:  # noqa: ARG002
        """Refuse: a loop has no method."""
        raise _needs_a_method("gradients")

    def class_weights(self) -> Tensor:
        """Refuse: a loop has no method."""
        raise _needs_a_method("class_weights")

    def training_loss(self) -> Tensor:
        """Refuse: a loop has no method."""
        raise _needs_a_method("training_loss")


def _needs_a_method(asked: str) -> UsageError:
    return UsageError(
        f"The policy asks `probe.{asked}`, which only a method can answer; a memory in a loop of one's own has none. "
        "Give what it needs as a column of add, or take another policy here, or odedm.train."
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
