"""What methods share that store logits beside each row."""

from __future__ import annotations

from odedm.core.rows import ColumnSpec, Rows
from odedm.methods.base import Method


class StoresLogits(Method):
    """Keeps with each row the logits of its training view by the network before the step's own update."""

    def fields(self) -> tuple[ColumnSpec, ...]:
        """Return logits of all C classes."""
        return (ColumnSpec("logits", (self.net.classes,)),)

    def annotate(self, rows: Rows) -> Rows:
        """Return logits by the current network in evaluation mode, for rows that are pinned at a task's end."""
        return {"logits": self.predict(rows["input"])}
