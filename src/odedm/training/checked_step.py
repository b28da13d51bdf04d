"""One update by a method; what a method from outside gives back is checked, as a slip would show much later."""

from __future__ import annotations

from odedm.core.errors import UsageError, short_repr
from odedm.core.rows import Rows
from odedm.methods.base import Method, Replay


def checked_step(method: Method, batch: Rows, replay: Replay) -> Rows:
    """The update on a batch, and the declared fields of its rows."""
    if type(method).__module__.startswith("odedm."):
        return method.step(batch, replay)
    try:
        fields = method.step(batch, replay)
    except KeyError as error:
        if error.args and isinstance(error.args[0], str):
            stored = ", ".join(field.name for field in method.fields()) or "none, as `fields` declares none"
            error.add_note(f"A batch has {', '.join(batch)}; a draw has these and, of the method's own, {stored}.")
        raise
    name = type(method).__name__
    if not isinstance(fields, dict):
        raise UsageError(
            f"{name}.step gave {short_repr(fields)} back; it must return the columns to be stored with the batch's "
            "rows as a dictionary, {} where there are none."
        )
    declared = {field.name for field in method.fields()}
    for column in fields.keys() ^ declared:
        raise UsageError(
            f"{name}.step returned the column '{column}', which `fields` does not declare: add ColumnSpec('{column}', "
            "shape of one row's entry) to what `fields` returns."
            if column in fields
            else f"{name}.fields declares the column '{column}', which `step` did not return."
        )
    return fields
