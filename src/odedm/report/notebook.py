"""Finished runs in a notebook: one row a run as a pandas frame, and a table that shows itself."""

from __future__ import annotations

import html
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

from odedm.core.errors import UsageError, short_repr
from odedm.core.plain_data import flatten
from odedm.core.text import counted
from odedm.core.validators import Text
from odedm.report.columns import METRICS
from odedm.report.load import load
from odedm.report.summary import Table, summarise
from odedm.report.tables import LABEL, to_csv, to_html, to_latex, to_markdown
from odedm.report.terminal import as_text
from odedm.report.verdicts import warnings
from odedm.results.folder import FinishedRun
from odedm.results.result import Result
from odedm.results.run_summary import accuracy_picture

ORIGIN = ("odedm", "commit", "device", "data_checksum", "finished")
"""What a row says of where its run was made."""
UNSAVED = Path("not saved")
"""In the place of a folder, of a run that has none."""


class Results:
    """Every finished run at or below some folders, and of those that `odedm.train` gave, side by side.

    `print(results)` has the table that `odedm report` prints; a notebook shows it by itself.

    Args:
        runs: folders, or what `odedm.train` gave: an `Outcome`, `Outcomes`, a `Result`, or a list of them.

    >>> import tempfile, odedm
    >>> with tempfile.TemporaryDirectory() as place:
    ...     outcome = odedm.train("blobs", memory=odedm.Reservoir(20), method="er")
    ...     _ = outcome.save(Path(place) / "one")
    ...     results = Results(place)
    >>> len(results), results.rows()[0]["method"]
    (1, 'er')
    >>> Results(outcome)
    Results: 1 run in 1 group
    """

    def __init__(self, *runs: Any) -> None:
        folders = [Path(source) for source in runs if isinstance(source, str | Path)]
        results = [result for source in runs if not isinstance(source, str | Path) for result in _results(source)]
        if not folders and not results:
            raise UsageError("Give at least one folder of runs, e.g. Results('runs'), or what odedm.train gave.")
        self.runs: list[FinishedRun] = load(folders) if folders else []
        self.runs += [FinishedRun(UNSAVED, result) for result in results]

    @classmethod
    def of(cls, runs: Iterable[FinishedRun]) -> Results:
        """Return finished runs that are read already."""
        results = cls.__new__(cls)
        results.runs = list(runs)
        return results

    def __len__(self) -> int:
        return len(self.runs)

    def __iter__(self) -> Iterator[FinishedRun]:
        return iter(self.runs)

    def rows(self) -> list[dict[str, Any]]:
        """Return one flat mapping a run: what was measured, then the configuration with names like `memory.rho`."""
        return [
            {"folder": str(run.folder), "seed": run.seed}
            | {metric.key: metric.of(run) for metric in METRICS}
            | flatten(run.result.experiment)
            | {f"made.{name}": run.result.provenance.get(name) for name in ORIGIN}
            for run in self.runs
        ]

    def by_task(self) -> list[dict[str, Any]]:
        """Return one flat mapping a run, task learned and task tested."""
        return [
            {"folder": str(run.folder), "seed": run.seed, "after": i, "task": j, "class_il": value, "task_il": masked}
            for run in self.runs
            for i, row in enumerate(run.result.class_il)
            for j, (value, masked) in enumerate(
                zip(row, run.result.task_il[i] if run.result.task_il else [None] * len(row), strict=True)
            )
        ]

    def to_frame(self, *, by_task: bool = False) -> Any:
        """Return a pandas frame of `rows`, or of `by_task`; pandas is the extra `notebook`."""
        try:
            import pandas
        except ImportError:
            raise UsageError("A frame needs pandas: pip install 'odedm[notebook]'. `rows()` needs nothing.") from None
        return pandas.DataFrame(self.by_task() if by_task else self.rows())

    @property
    def table(self) -> Table:
        """The runs by everything but the seed, with changes paired by seed."""
        return summarise(self.runs)

    def to_markdown(self) -> str:
        """Return the table as GitHub Markdown."""
        return to_markdown(self.table)

    def to_csv(self) -> str:
        """Return the table in full precision."""
        return to_csv(self.table)

    def to_latex(self, *, caption: str = "", label: str = LABEL) -> str:
        r"""Return the table for a paper: a `table` environment with `booktabs`, clear changes in bold.

        Args:
            caption: text before the sentences that say what all runs share and what the numbers are.
            label: for `\ref`.
        """
        words = {name: Text().validate(name, value) for name, value in (("caption", caption), ("label", label))}
        return to_latex(self.table, **words)

    def __str__(self) -> str:
        return as_text(self.table)

    def __repr__(self) -> str:
        return f"Results: {counted(len(self), 'run')} in {counted(len(self.table.rows), 'group')}"

    def _repr_html_(self) -> str:
        table = self.table
        curves = {group.label: [run.result.acc for run in group.runs] for group in table.groups}
        below = "".join(f"<p>{html.escape(note)}</p>" for note in warnings(table) if len(table.rows) > 1)
        return to_html(table) + below + accuracy_picture(curves)


def _results(given: Any) -> list[Result]:
    """Return the results of what `train` gave; without its classes, since a table needs no torch."""
    result = getattr(given, "result", given)
    if isinstance(result, Result):
        return [result]
    if isinstance(given, str | Path) or not isinstance(given, Iterable):
        raise UsageError(f"Results takes folders, and what odedm.train gives; {short_repr(given)} was given.")
    return [result for item in given for result in _results(item)]
