"""What finished runs come to: one, or several that differ by seed alone."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, overload

import numpy as np

from odedm.core.errors import UsageError, short_repr
from odedm.core.files import as_path
from odedm.core.rows import Rows
from odedm.methods.base import Method
from odedm.results.folder import check_free, save_run
from odedm.results.result import Result
from odedm.results.run_summary import mean_metrics, metrics_of, summary_html, summary_line
from odedm.stream.dataset import Dataset
from odedm.training.engine import Engine
from odedm.training.export import export
from odedm.training.model_file import SUFFIX, save_model, write_model
from odedm.training.model_view import MethodView
from odedm.training.numerics import deterministic_numerics


@dataclass(frozen=True)
class Outcome:
    """A finished run: its figures, the engine that learned, and evidence where it was asked for."""

    result: Result
    engine: Engine
    data: Dataset
    evidence: Rows | None = None

    @property
    def method(self) -> Method:
        """Return the trained method."""
        return self.engine.method

    @property
    def memory(self) -> Any:
        """Return the memory as it ended."""
        return self.engine.memory

    @property
    def probe(self) -> MethodView:
        """Return what features, scores and losses of raw images are asked of."""
        return self.engine.view

    def __repr__(self) -> str:
        return f"<Outcome of {summary_line([self.result])}>"

    def _repr_html_(self) -> str:
        return summary_html([self.result])

    def save(self, path: str | Path, *, overwrite: bool = False, keep_model: bool = True) -> Path:
        """Write the trained model, or the run with it, whole or not at all; `odedm.load(path)` gives the model again.

        Args:
            path: where to. One that ends with ".safetensors" becomes one file, weights and memory; any other the run's
                folder: result, final memory, evidence, and the model in it.
            overwrite: whether such a file, or a finished run, is replaced.
            keep_model: whether the folder holds the model.

        Returns:
            The path.
        """
        place = as_path(path)
        if place.suffix == SUFFIX:
            return save_model(self, place, overwrite=overwrite)
        model = partial(write_model, self) if keep_model else None
        return save_run(place, self.result, self.memory.rows(), self.evidence, model, overwrite=overwrite)

    def export(self, path: str | Path) -> Path:
        """Write what predicts as one file for other runtimes, ".onnx" or ".pt2", as `Learner.export` does."""
        plan = self.result.experiment
        with deterministic_numerics(plan["threads"], plan["precision"], gradients=False):
            return export(self.engine.view, self.data.schema.columns[0], self.labels(), path)

    def labels(self) -> list[Any]:
        """Return the labels as the data set was given them, by the number of their class: in order of arrival."""
        return self.data.labels_of(self.result.classes)

    def predict(self, x: Any) -> np.ndarray[Any, Any]:
        """The label of each raw row of x, given as for `from_arrays`; of the type that the data set was given."""
        return np.asarray(np.array(self.labels())[self._numbers(x)])

    def predict_names(self, x: Any) -> list[str]:
        """Return the class name of each raw row of x."""
        return [self.result.classes[number] for number in self._numbers(x)]

    def _numbers(self, x: Any) -> np.ndarray[Any, Any]:
        """Return the class number, in order of arrival, of each row, computed as the run's own test does."""
        plan = self.result.experiment
        rows = self.data.schema.read_inputs(x).to(self.engine.device)
        with deterministic_numerics(plan["threads"], plan["precision"]):
            return self.probe.predict(rows).argmax(1).cpu().numpy()


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
        folders = {place / f"seed-{outcome.result.experiment['seed']}": outcome for outcome in self._outcomes}
        for target in folders:  # all or none
            check_free(target, overwrite=overwrite)
        for target, outcome in folders.items():
            outcome.save(target, overwrite=overwrite, keep_model=keep_model)
        return place

    def __repr__(self) -> str:
        return f"<Outcomes of {summary_line(self.results)}>"

    def _repr_html_(self) -> str:
        return summary_html(self.results)
