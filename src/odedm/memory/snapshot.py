"""The rows of a memory as they are now, for readers that go on while the memory changes."""

from __future__ import annotations

from typing import Any

from odedm.core.row_schema import RowSchema
from odedm.core.rows import MemoryPart, Rows, take
from odedm.memory.buffer import Buffer


class Snapshot:
    """Rows of a part, one at a time: copies in RAM; of a memory with storage the files' own, as long as they stay.

    Args:
        schema: of the rows, in whose form they are returned.
        buffer: where they are, if anything was stored at all.
        part: which of them.
    """

    def __init__(self, schema: RowSchema | None, buffer: Buffer | None, part: MemoryPart) -> None:
        self._length = 0 if buffer is None else buffer.size(part)
        self._rows: dict[str, Any] = {}
        self._mapped: Rows = {}
        self._folder = None if buffer is None else buffer.store.folder
        if schema is None or buffer is None or not self._length:
            return
        slot = buffer.ordered_slots(part)
        if self._folder is not None:
            self._schema, self._slot, self._versions = schema, slot, self._folder.versions(slot)
            self._mapped = dict(self._folder.columns)
        in_memory = {name: column for name, column in buffer.store.columns.items() if name not in self._mapped}
        self._rows = schema.to_user(take(in_memory, slot))

    def __len__(self) -> int:
        return self._length

    def row(self, index: int) -> dict[str, Any]:
        """Return the row of this number; nothing where it has been replaced."""
        row = {name: column[index] for name, column in self._rows.items()}
        if self._folder is None:
            return row
        slot, version = self._slot[index : index + 1], int(self._versions[index])
        mapped = self._schema.to_user(take(self._mapped, slot))
        self._folder.touched(1)
        if version % 2 or int(self._folder.versions(slot)) != version:  # it was written since, or is being written
            return {}
        return row | {name: column[0] for name, column in mapped.items()}
