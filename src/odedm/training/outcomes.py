"""Several finished runs that differ by seed alone, as one thing that can be looked at."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import overload

from odedm.core.errors import UsageError, short_repr
from odedm.core.files import as_path
from odedm.results.folder import check_free
from odedm.results.result import Result
from odedm.results.run_summary import mean_metrics, metrics_of, summary_html, summary_line
from odedm.training.run import Outcome


class Outcomes(Sequence[Outcome]):
    """What `odedm.train(…, seeds=5)` gives: an `Outcome` for each seed, and their figures together.

    Args:
        outcomes: those of one experiment, at least one.

    >>> import odedm
    >>> outcomes = odedm.train("blobs", method="er", memory=odedm.Reservoir(20), seeds=2)
    >>> len(outcomes), [row["seed"] for row in outcomes.table()], outcomes.mean["acc_last"] > 30
    (2, [0, 1], True)
    """

    def __init__(self, outcomes: Iterable[Outcome]) -> None:
        self._outcomes = tuple(outcomes)
        others = [entry for entry in self._outcomes if not isinstance(entry, Outcome)]
        if others or not self._outcomes:
            given = short_repr(others[0]) if others else "nothing"
            raise UsageError(f"Outcomes holds what odedm.train gives, at least one; {given} was given.")

    def __len__(self) -> int:
        return len(self._outcomes)

    @overload
    def __getitem__(self, place: int) -> Outcome: ...
    @overload
    def __getitem__(self, place: slice) -> Outcomes: ...
    def __getitem__(self, place: int | slice) -> Outcome | Outcomes:
        return Outcomes(self._outcomes[place]) if isinstance(place, slice) else self._outcomes[place]

    @property
    def results(self) -> list[Result]:
        """Return the result of each."""
        return [outcome.result for outcome in self._outcomes]

    @property
    def mean(self) -> dict[str, float]:
        """Return the mean of each figure over the seeds: acc_last, acc_mean, task_il_last, forgetting, … seconds."""
        return mean_metrics(self.results)[0]

    @property
    def error(self) -> dict[str, float]:
        """Return the standard error of each mean; empty for a single seed, which has none."""
        return mean_metrics(self.results)[1]

    def table(self) -> list[dict[str, float]]:
        """One row a seed, ready for pandas.DataFrame; `odedm.Results` compares several of these, paired by seed."""
        return [{"seed": result.experiment["seed"], **metrics_of(result)} for result in self.results]

    def save(self, folder: str | Path, *, overwrite: bool = False, keep_model: bool = True) -> Path:
        """Write each run's folder as `seed-N` below one; `odedm report` and `odedm.Results` read that.

        Args:
            folder: where; one folder for each experiment.
            overwrite: whether runs that are there are replaced.
            keep_model: whether each folder holds the trained model, for `odedm.load`.

        Returns:
            The folder.
        """
        place = as_path(folder)
        folders = {place / f"seed-{each.result.experiment['seed']}": each for each in self._outcomes}
        for target in folders:  # all or none
            check_free(target, overwrite=overwrite)
        for target, outcome in folders.items():
            outcome.save(target, overwrite=overwrite, keep_model=keep_model)
        return place

    def __repr__(self) -> str:
        return f"<Outcomes of {summary_line(self.results)}>"

    def _repr_html_(self) -> str:
        return summary_html(self.results)
