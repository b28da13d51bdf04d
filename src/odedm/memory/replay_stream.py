"""New rows and stored rows in one stream, for any trainer that reads a DataLoader."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import islice
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.utils.data import IterableDataset, get_worker_info

from odedm.core.errors import UsageError, short_repr
from odedm.core.rng import generator
from odedm.core.rows import MemoryPart
from odedm.core.validators import Bool, Float, Int
from odedm.memory.live import DualMemory
from odedm.memory.snapshot import Snapshot


class ReplayStream(IterableDataset[Any]):
    """Mix the rows of a source with rows drawn from a memory: give it to a DataLoader in the place of the source.

    After each new row come `ratio` stored ones on average. Stored rows are drawn without replacement until all had
    their turn, then again. An epoch draws from the memory as it is when the epoch begins; rows that are added meanwhile
    are drawn in the next one. Of several workers each shows its share of the source and of the stored rows; forked
    workers share the memory's rows without a copy. (With `persistent_workers=True` they keep those of the first epoch.)
    Of a memory with storage, rows that are replaced on the disk during an epoch are skipped from then on.

    Args:
        source: rows (x, y), or mappings from names to values: a sequence or map-style Dataset, of which each worker
            takes every nth row, or an IterableDataset, which divides its rows among workers itself.
        memory: a `DualMemory`. While it is empty only new rows come.
        ratio: stored rows for each new one, 0.5 or 2 say.
        part: which stored rows: "all", "short" or "long".
        names: what mappings call the memory's images and labels: ("input_ids", "labels"), say.
        shuffle: whether a source with a length is read in an order of its own in each epoch.
        mark: whether each row says if it is a stored one: a third value of pairs, "replayed" of mappings.
        seed: the same seed, epoch and number of workers give the same rows.

    >>> memory = DualMemory(20)
    >>> memory.add(torch.zeros(20, 2), torch.zeros(20, dtype=torch.long))
    >>> new = [(torch.ones(2), 1) for _ in range(6)]
    >>> loader = torch.utils.data.DataLoader(ReplayStream(new, memory, ratio=0.5), batch_size=9)
    >>> [y.tolist() for _, y in loader]
    [[1, 1, 0, 1, 1, 0, 1, 1, 0]]
    """

    def __init__(
        self,
        source: Any,
        memory: DualMemory,
        *,
        ratio: float = 1.0,
        part: str | MemoryPart = "all",
        names: tuple[str, str] = ("images", "labels"),
        shuffle: bool = False,
        mark: bool = False,
        seed: int = 0,
    ) -> None:
        if not isinstance(memory, DualMemory):
            raise UsageError(f"memory must be an odedm.DualMemory; {short_repr(memory)} was given.")
        if not isinstance(source, Iterable) and not (hasattr(source, "__len__") and hasattr(source, "__getitem__")):
            raise UsageError(f"source must be iterable or have a length and items; {short_repr(source)} was given.")
        memory.size(part)  # refuses an unknown part
        self.source, self.memory, self.part, self.names = source, memory, part, names
        self.ratio = Float(0).validate("ratio", ratio)
        self.shuffle, self.mark = Bool().validate("shuffle", shuffle), Bool().validate("mark", mark)
        self.seed = Int().validate("seed", seed)
        self._epoch: int | None = None
        self._epochs_begun = 0

    def set_epoch(self, epoch: int) -> None:
        """Say which epoch comes next; trainers such as Hugging Face's do. Otherwise epochs are counted.

        Args:
            epoch: its number, from 0.
        """
        self._epoch = Int(0).validate("epoch", epoch)

    def __iter__(self) -> Iterator[Any]:
        worker = get_worker_info()
        number, workers = (worker.id, worker.num_workers) if worker else (0, 1)
        epoch: object = self._epoch
        if epoch is None:  # a worker is made anew for each epoch, and cannot count; its seed differs in each
            epoch = self._epochs_begun if worker is None else f"seed {worker.seed - worker.id}"
        self._epochs_begun += 1
        rng = generator(self.seed, f"replay {epoch}", "cpu")  # the same in all workers
        stored = _StoredRows(self.memory.snapshot(self.part), rng, number, workers)
        due = 0.0
        for row in self._new_rows(f"order {epoch}", number, workers):
            yield self._shown(row, replayed=False)
            due += self.ratio if len(stored) else 0
            while due >= 1:
                due -= 1
                if past := stored.draw():
                    yield self._shown(self._in_form_of(row, past), replayed=True)

    def _new_rows(self, purpose: str, worker: int, workers: int) -> Iterator[Any]:
        """Iterate over the rows of the source that this worker shows."""
        if isinstance(self.source, IterableDataset):
            yield from self.source
        elif hasattr(self.source, "__len__") and hasattr(self.source, "__getitem__"):
            size = len(self.source)
            order = (
                torch.randperm(size, generator=generator(self.seed, purpose, "cpu")) if self.shuffle else range(size)
            )
            for index in order[worker::workers]:
                yield self.source[int(index)]
        elif self.shuffle:
            raise UsageError("shuffle=True needs a source with a length and items; shuffle the source itself.")
        else:
            yield from islice(self.source, worker, None, workers)

    def _in_form_of(self, row: Any, stored: dict[str, Any]) -> Any:
        """Give a stored row the form of a new one."""
        if not isinstance(row, Mapping):
            if not isinstance(row, (tuple, list)) or len(row) != 2:
                raise UsageError(
                    f"Rows must be pairs (x, y) or mappings from names to values; the source has {short_repr(row)}."
                )
            return _like(stored["images"], row[0]), _like(stored["labels"], row[1])
        named = {self.names[0]: stored.pop("images"), self.names[1]: stored.pop("labels"), **stored}
        if missing := sorted(set(row) - set(named)):
            known = ", ".join(sorted(named))
            raise UsageError(
                f"Rows of the source have '{missing[0]}', which the memory does not store; it has {known}."
            )
        return {name: _like(named[name], value) for name, value in row.items()}

    def _shown(self, row: Any, *, replayed: bool) -> Any:
        if not self.mark:
            return row
        return {**row, "replayed": replayed} if isinstance(row, Mapping) else (*row, replayed)


class _StoredRows:
    """A worker's share of the stored rows, in an order drawn anew whenever all had their turn."""

    def __init__(self, rows: Snapshot, rng: torch.Generator, worker: int, workers: int) -> None:
        self._rows, self._rng, self._worker, self._workers = rows, rng, worker, workers
        self._order: list[int] = []
        self._replaced: set[int] = set()

    def __len__(self) -> int:
        return len(self._rows) - len(self._replaced)

    def draw(self) -> dict[str, Any]:
        """Draw one row; nothing where all rows of the epoch's beginning have been replaced on disk."""
        while len(self):
            while not self._order:  # of fewer rows than workers some orders leave nothing for this one
                order = torch.randperm(len(self._rows), generator=self._rng)[self._worker :: self._workers]
                self._order = [index for index in order.tolist() if index not in self._replaced]
                if not self._order and self._replaced:
                    return {}
            index = self._order.pop()
            if row := self._rows.row(index):
                return row
            self._replaced.add(index)
        return {}


def _like(value: Any, example: Any) -> Any:
    """Return a stored value as the kind of thing that a new row has, so that both can be collated."""
    if isinstance(example, Tensor):
        return torch.as_tensor(value)
    if isinstance(example, np.ndarray):
        return np.asarray(value)
    if isinstance(example, (bool, int, float)):
        return type(example)(value)
    if isinstance(example, list):
        return list(value.tolist())
    return value
