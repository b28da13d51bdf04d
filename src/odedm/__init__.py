"""Online continual learning with a bounded memory: ODEDM and the rehearsal methods it plugs into.

>>> import odedm
>>> data = odedm.blobs()
>>> outcome = odedm.train(data, method="er", memory=odedm.ODEDM(capacity=40, rho=0.5), batch=8)
>>> outcome.result.acc_last > 50
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from odedm.consolidate.budget import prototypes_per_class
    from odedm.consolidate.select import select
    from odedm.errors import UsageError
    from odedm.frames import Results
    from odedm.looks import Looks
    from odedm.rows import Field, Part, Rows, Store, Task
    from odedm.run.experiment import ODEDM, Experiment, Native, Reservoir
    from odedm.run.loop import Outcome, Run, train
    from odedm.run.results import Result
    from odedm.stream.cache import open_data
    from odedm.stream.datasets import Dataset, from_arrays
    from odedm.stream.synthetic import blobs, shapes
    from odedm.stream.tasks import Stream, split

_HOMES = {
    "prototypes_per_class": "consolidate.budget",
    "select": "consolidate.select",
    "UsageError": "errors",
    "Looks": "looks",
    "Field": "rows",
    "Part": "rows",
    "Rows": "rows",
    "Store": "rows",
    "Task": "rows",
    "ODEDM": "run.experiment",
    "Experiment": "run.experiment",
    "Native": "run.experiment",
    "Reservoir": "run.experiment",
    "Outcome": "run.loop",
    "Run": "run.loop",
    "train": "run.loop",
    "Result": "run.results",
    "Results": "frames",
    "open_data": "stream.cache",
    "Dataset": "stream.datasets",
    "from_arrays": "stream.datasets",
    "blobs": "stream.synthetic",
    "shapes": "stream.synthetic",
    "Stream": "stream.tasks",
    "split": "stream.tasks",
}

__all__ = [
    "ODEDM",
    "Dataset",
    "Experiment",
    "Field",
    "Looks",
    "Native",
    "Outcome",
    "Part",
    "Reservoir",
    "Result",
    "Results",
    "Rows",
    "Run",
    "Store",
    "Stream",
    "Task",
    "UsageError",
    "blobs",
    "from_arrays",
    "open_data",
    "prototypes_per_class",
    "select",
    "shapes",
    "split",
    "train",
]


def __getattr__(name: str) -> Any:
    # public names are imported on first use: `odedm --help` must not wait two seconds for torch
    if name not in _HOMES:
        raise AttributeError(f"module 'odedm' has no attribute '{name}'")
    return getattr(import_module(f"odedm.{_HOMES[name]}"), name)


def __dir__() -> list[str]:
    return __all__
