"""What a live memory shows of its rows: how many there are, draws, and each of them by its number."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch

from odedm.core.errors import UsageError, short_repr
from odedm.core.rng import derive_seed, generator
from odedm.core.row_folder import RowFolder
from odedm.core.row_schema import RowSchema
from odedm.core.rows import MemoryPart
from odedm.core.validators import Choice, Int
from odedm.memory import live_state
from odedm.memory.buffer import weighted_draw
from odedm.memory.callback_view import class_list
from odedm.memory.candidate_pool import ClassReservoirPool, TaskPool, is_among
from odedm.memory.changing import check_sound
from odedm.memory.dual import DualBuffer
from odedm.memory.settings import ODEDM, MemorySettings
from odedm.memory.snapshot import Snapshot

ROWS_AT_ONCE = 1_024
"""So many rows are read at once while one iterates over a memory."""


class LiveRows:
    """The rows of a live memory, for those who read them."""

    settings: MemorySettings
    seed: int
    device: torch.device
    _rngs: dict[str, torch.Generator]
    _schema: RowSchema | None
    _dual: DualBuffer | None
    _broken: str
    _worker_seed: int | None
    _folder: RowFolder | None
    _slots: tuple[torch.Tensor, int, torch.Tensor] | None
    """The priorities, how often they were written, and the slots of all rows in order."""

    @property
    def capacity(self) -> int:
        """Return rows in all (λ)."""
        return self.settings.capacity

    def __repr__(self) -> str:
        settings, share = self.settings, ""
        if isinstance(settings, ODEDM):
            share = f", k={settings.k}" if settings.k is not None else f", rho={settings.rho:g}"
        held = "broken" if self._broken else f"{self.size('short')} short-term, {self.size('long')} long-term"
        return f"<DualMemory of {settings.capacity} rows{share}: {held}>"

    @property
    def nbytes(self) -> int:
        """Return the bytes of RAM that rows, priorities and candidates take."""
        dual = self._dual
        if dual is None:
            return 0
        stores = [dual.buffer.store, *([dual.pool.store] if isinstance(dual.pool, ClassReservoirPool) else [])]
        held = [column for store in stores for column in live_state.in_memory(store).values()]
        held += [*dual.pool.rows().values()] if isinstance(dual.pool, TaskPool) else []
        return sum(column.nbytes for column in held)

    @property
    def disk_nbytes(self) -> int:
        """Return the bytes that the memory takes on the disk; 0 without storage."""
        return self._folder.nbytes if self._folder else 0

    def size(self, part: str | MemoryPart = "all") -> int:
        """Return how many rows a part ("all", "short" or "long") holds; candidates belong to neither."""
        part = _part(part)
        self._check_sound()
        return self._dual.size(part) if self._dual else 0

    def __len__(self) -> int:
        return self.size()

    def sample(
        self,
        n: int,
        part: str | MemoryPart = "all",
        *,
        classes: Iterable[int] | int | None = None,
        weights: str | None = None,
    ) -> dict[str, Any]:
        """Draw rows at random, none of them twice.

        Args:
            n: how many; fewer where there are fewer, so look at the size before a mean is taken of nothing.
            part: "all", "short" or "long".
            classes: draw rows of these labels alone.
            weights: a column of single numbers, 0 or more, in proportion to which rows are drawn; uniformly unless
                given.

        Returns:
            images, labels, the columns, and prototype: which prototype of its class a row stands for, −1 in the
            short-term part. Tensors where tensors were added, arrays where arrays were.

        >>> from odedm import DualMemory
        >>> memory = DualMemory(5)
        >>> memory.add(torch.zeros(8, 2), torch.arange(8))
        >>> memory.sample(3)["images"].shape
        torch.Size([3, 2])
        """
        schema, dual = self._known()
        n, part = Int(0).validate("n", n), _part(part)
        if classes is None and weights is None:
            return schema.to_user(dual.sample(n, part=part, rng=self._draws()))
        slots = dual.buffer.ordered_slots(part)
        if classes is not None:
            slots = slots[is_among(dual.buffer.store.columns["label"][slots], class_list(classes))]
        weight = None if weights is None else self._weights(weights, slots)
        return schema.to_user(dual.buffer.store.read(slots[weighted_draw(n, len(slots), weight, self._draws())]))

    def _weights(self, name: str, slots: torch.Tensor) -> torch.Tensor:
        """Return a column's numbers at these slots, in proportion to which rows are drawn."""
        schema, dual = self._known()
        weight = dual.buffer.store.columns[schema.column_of(name).name]
        if weight.dim() > 1 or bool((weight[slots] < 0).any()):
            raise UsageError(f"weights must be a column of single numbers, 0 or more; '{name}' is none.")
        return weight[slots]

    def rows(self, part: str | MemoryPart = "all") -> dict[str, Any]:
        """Return all rows of a part, named as in `sample`: short-term by arrival, then long-term as pinned."""
        schema, dual = self._known()
        return schema.to_user(dual.rows(_part(part)))

    def __getitem__(self, index: int | slice) -> dict[str, Any]:
        """Return one row, or those of a slice, in the order of `rows`."""
        schema, dual = self._known()
        slots = self._slots_in_order(dual)
        if isinstance(index, slice):
            return schema.to_user(dual.buffer.store.read(slots[torch.arange(len(slots))[index]]))
        number = Int(-len(slots), len(slots) - 1).validate("index", index) if len(slots) else 0
        if not len(slots):
            raise UsageError("This memory holds no rows.")
        row = schema.to_user(dual.buffer.store.read(slots[number].view(1)))
        return {name: column[0] for name, column in row.items()}

    def __iter__(self) -> Iterator[dict[str, Any]]:
        for start in range(0, len(self), ROWS_AT_ONCE):
            rows = self[start : start + ROWS_AT_ONCE]
            for index in range(len(next(iter(rows.values())))):
                yield {name: column[index] for name, column in rows.items()}

    def _slots_in_order(self, dual: DualBuffer) -> torch.Tensor:
        """Return the slots of all rows in order, sorted anew only after a change."""
        priority = dual.buffer.store.priority
        if self._slots is None or self._slots[0] is not priority or self._slots[1] != priority._version:
            self._slots = (priority, priority._version, dual.buffer.ordered_slots())
        return self._slots[2]

    def snapshot(self, part: str | MemoryPart = "all") -> Snapshot:
        """Return the rows of a part as they are now, for readers that go on while the memory changes.

        Args:
            part: "all", "short" or "long".
        """
        return Snapshot(self._schema, self._dual.buffer if self._dual else None, _part(part))

    def _draws(self) -> torch.Generator:
        """Return the generator of draws: in a DataLoader's worker one of its own, by worker and epoch."""
        worker = torch.utils.data.get_worker_info()
        if worker is not None and worker.seed != self._worker_seed:
            self._worker_seed = worker.seed
            self._rngs["draw"] = generator(derive_seed(self.seed, "draw"), f"worker {worker.seed}", self.device)
        return self._rngs["draw"]

    def _known(self) -> tuple[RowSchema, DualBuffer]:
        self._check_sound()
        if self._schema is None or self._dual is None:
            raise UsageError("Nothing was added to this memory yet: call add(images, labels) first.")
        return self._schema, self._dual

    def _check_sound(self) -> None:
        if self._folder is not None and self._folder.closed:
            raise UsageError(
                f"This memory was closed; load it again by DualMemory.load('{self._folder.path}') if it was saved."
            )
        check_sound(self, "memory")


def _part(part: str | MemoryPart) -> MemoryPart:
    parts = Choice("part of a memory", {known.value: known for known in MemoryPart})
    return part if isinstance(part, MemoryPart) else MemoryPart(parts.validate("part", part))


def as_device(device: torch.device | str) -> torch.device:
    """Return the device of this name, or refuse it."""
    try:
        known = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise UsageError(f"device must be one that torch has, such as cpu; {short_repr(device)} was given.") from error
    if known.type == "cuda" and not torch.cuda.is_available():
        raise UsageError(f"There is no CUDA device here; device={short_repr(str(device))} was given. Use cpu.")
    return known
