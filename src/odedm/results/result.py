"""The result of a run: accuracy matrices, metrics, seconds, the memory's contents, provenance."""

from __future__ import annotations

import math
from dataclasses import MISSING, asdict, dataclass, fields
from pathlib import Path
from typing import Any

from odedm.core.errors import InvalidFileError, UsageError, require, short_repr
from odedm.core.files import as_path
from odedm.core.plain_data import read_json
from odedm.core.plugin_modules import code_hashes
from odedm.results.metrics import Matrix, compute_metrics
from odedm.results.run_summary import summary_html, summary_line
from odedm.results.schema import check_fields

SCHEMA = "odedm.result/3"
MAX_BYTES = 1 << 26
"""No `result.json` is larger."""


@dataclass(frozen=True)
class Result:
    """One finished run, as its `result.json` holds it.

    Args:
        schema: the format of the file.
        experiment: the resolved plan; `Experiment.from_dict(result.experiment)` gives it back.
        classes: the C class names in the order of their arrival.
        class_il: accuracy (%) after each of T tasks among all classes seen: T rows, row i on tasks 0..i.
        task_il: the same among the classes of each tested task alone; None where tasks share classes.
        acc: mean of each row of `class_il` [T]; `acc_last` is its last entry, `acc_mean` the mean of all.
        task_il_last: mean of the last row of `task_il`.
        forgetting_rate: 100 − `acc` [T], as the paper defines it.
        forgetting: best past accuracy minus the final one, mean over earlier tasks; None where there are none.
        backward_transfer: final accuracy minus the one right after learning a task, likewise.
        seconds: wall seconds by phase.
        class_counts: for each task, the rows stored after it, by part of the memory and class [C].
        provenance: versions, device, commit, checksum of the data.
        anytime: pairs of rows seen and mean accuracy over the tasks so far, where the run measured that.
        task_labels: the labels of each task's own classes, by their place in `classes`, where tasks are of unequal size
            or share classes.
        sample_gradients: rows that went through the network for a gradient, for each row of the stream: what the run
            cost, whatever it ran on. None in results from before this was counted.
        bytes: what was kept of the stream at the end: all columns of the memory's "rows", and what the "method" holds
            beside its network, such as a second one, or statistics. None in results from before this was counted.

    >>> matrix = [[90.0], [50.0, 80.0]]
    >>> shared = {"experiment": {}, "classes": [], "seconds": {}, "class_counts": [], "provenance": {}}
    >>> result = Result.measure(class_il=matrix, task_il=matrix, **shared)
    >>> result.acc, result.acc_last, result.forgetting
    ([90.0, 65.0], 65.0, 40.0)
    """

    schema: str
    experiment: dict[str, Any]
    classes: list[str]
    class_il: Matrix
    task_il: Matrix | None
    acc: list[float]
    acc_last: float
    acc_mean: float
    task_il_last: float | None
    forgetting_rate: list[float]
    forgetting: float | None
    backward_transfer: float | None
    seconds: dict[str, float]
    class_counts: list[dict[str, list[int]]]
    provenance: dict[str, Any]
    anytime: list[list[float]] | None = None
    task_labels: list[list[int]] | None = None
    sample_gradients: float | None = None
    bytes: dict[str, int] | None = None

    @classmethod
    def measure(cls, *, class_il: Matrix, task_il: Matrix | None, **others: Any) -> Result:
        """Compute the metrics of two matrices; `others` are the fields that do not follow from them."""
        return cls(schema=SCHEMA, class_il=class_il, task_il=task_il, **compute_metrics(class_il, task_il), **others)

    def __repr__(self) -> str:
        return f"<Result of {summary_line([self])}>"

    def _repr_html_(self) -> str:
        return summary_html([self])

    @property
    def total_seconds(self) -> float:
        """Return wall seconds, all phases together."""
        return math.fsum(self.seconds.values())

    @property
    def kilobytes(self) -> float | None:
        """Return what was kept of the stream, in 1000 bytes."""
        return None if self.bytes is None else sum(self.bytes.values()) / 1000

    @property
    def labels(self) -> list[list[int]]:
        """Return the labels of each task's own classes, by their place in `classes`."""
        if self.task_labels is not None:
            return self.task_labels
        size = len(self.classes) // len(self.acc)
        return [list(range(task * size, (task + 1) * size)) for task in range(len(self.acc))]

    @property
    def plugins(self) -> dict[str, dict[str, Any]]:
        """Return what is known of each plug-in that made the run, by the setting that named it."""
        plugins: dict[str, dict[str, Any]] = self.provenance.get("plugins", {})
        return plugins

    def titles(self) -> dict[str, str]:
        """Return how people write the plug-ins that made the run, by setting; nothing need be installed."""
        return {setting: plugin["title"] for setting, plugin in self.plugins.items()}

    def not_importable(self) -> dict[str, str]:
        """Return the titles of plug-ins that only the process knew: the run cannot be run again from its file."""
        return {setting: plugin["title"] for setting, plugin in self.plugins.items() if not plugin["again"]}

    def code_hashes(self) -> dict[str, str]:
        """Return the hash of each plug-in's code by setting, where it is known."""
        return code_hashes(self.plugins)

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON; without what was not measured."""
        optional = {field.name for field in fields(self) if field.default is None}
        return {name: value for name, value in asdict(self).items() if value is not None or name not in optional}

    @classmethod
    def from_dict(cls, plain: object, where: str = "a result") -> Result:
        """Make a result of plain data of anyone's, or say what is wrong with it."""
        if not isinstance(plain, dict) or not str(plain.get("schema")).startswith("odedm.result/"):
            raise UsageError(f"'{where}' is not a result: there is no format '{SCHEMA}' in it.")
        if plain["schema"] != SCHEMA:
            schema = short_repr(plain["schema"], 60)
            raise UsageError(f"'{where}' has the format {schema}, and this version reads '{SCHEMA}': run it again.")
        missing = [field.name for field in fields(cls) if field.name not in plain and field.default is MISSING]
        if missing:
            raise UsageError(f"The result '{where}' lacks {', '.join(missing)}: run it again.")
        try:
            unknown = sorted(set(plain) - {field.name for field in fields(cls)})
            require(not unknown, f"it has entries that no result has: {', '.join(unknown)[:80]}")
            result = cls(**plain)
            check_fields(result)
        except InvalidFileError as fault:
            raise UsageError(f"The result '{where}' cannot be used: {fault}. Run it again.") from None
        return result

    @classmethod
    def load(cls, path: str | Path) -> Result:
        """Read a `result.json`, or say what is wrong with it; a link is read as the file that it leads to."""
        try:
            plain = read_json(as_path(path), MAX_BYTES)
        except InvalidFileError as fault:
            raise UsageError(f"Cannot read the result '{path}': {fault}.") from None
        return cls.from_dict(plain, str(path))
