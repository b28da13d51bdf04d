"""Online continual learning with a bounded memory: ODEDM and the rehearsal methods it plugs into.

>>> import odedm
>>> data = odedm.blobs()
>>> outcome = odedm.train(data, method="er", memory=odedm.ODEDM(capacity=40, rho=0.5), batch=8)
>>> outcome.result.acc_last > 50
True
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from odedm.core.version import __version__

if TYPE_CHECKING:
    from odedm import testing
    from odedm.core.errors import UsageError
    from odedm.core.plugins import register
    from odedm.core.rows import ColumnSpec, MemoryPart, ModelView, Rows, Task
    from odedm.core.store import Store
    from odedm.data.opening import load_dataset
    from odedm.data.parquet import parquet_batches
    from odedm.execute.embedding import embed
    from odedm.learner.endless_memory import LearnerEvent
    from odedm.learner.online_learner import Learner
    from odedm.learner.prequential import Prequential, prequential
    from odedm.learner.trained_model import TrainedModel, load
    from odedm.memory.buffer import Buffer as Memory
    from odedm.memory.live import DualMemory
    from odedm.memory.quotas import prototypes_per_class
    from odedm.memory.replay_stream import ReplayStream
    from odedm.memory.settings import ODEDM, Native, NoMemory, Reservoir
    from odedm.methods.base import Method, Replay
    from odedm.nets.base import Net
    from odedm.recipes.recommendations import recipe
    from odedm.report.notebook import Results
    from odedm.report.run_study import study
    from odedm.results.result import Result
    from odedm.selection.distance import Distance
    from odedm.selection.prototype_settings import DAC, L1, L2, MMD, Herding, Prototypes, Random, Sinkhorn
    from odedm.selection.select import select
    from odedm.stream.dataset import Dataset, from_arrays
    from odedm.stream.ordered import from_batches
    from odedm.stream.synthetic import blobs, shapes
    from odedm.stream.tasks import Stream, split
    from odedm.stream.torch_datasets import from_torch
    from odedm.training.experiment import Experiment
    from odedm.training.loggers import JsonLines, Logger, TensorBoard, WandB
    from odedm.training.observation import Observation
    from odedm.training.outcomes import Outcome, Outcomes
    from odedm.training.retrieval import MIR, Retrieval
    from odedm.training.run import Run
    from odedm.training.train import train
    from odedm.training.training_log import LearnerLog

_HOMES = {
    "prototypes_per_class": "memory.quotas",
    "Distance": "selection.distance",
    "select": "selection.select",
    "UsageError": "core.errors",
    "Observation": "training.observation",
    "register": "core.plugins",
    "ColumnSpec": "core.rows",
    "MemoryPart": "core.rows",
    "ModelView": "core.rows",
    "Rows": "core.rows",
    "Store": "core.store",
    "Task": "core.rows",
    "Memory": "memory.buffer:Buffer",
    "DualMemory": "memory.live",
    "ReplayStream": "memory.replay_stream",
    "Learner": "learner.online_learner",
    "LearnerEvent": "learner.endless_memory",
    "Prequential": "learner.prequential",
    "prequential": "learner.prequential",
    "TrainedModel": "learner.trained_model",
    "load": "learner.trained_model",
    "ODEDM": "memory.settings",
    "Method": "methods.base",
    "Replay": "methods.base",
    "Net": "nets.base",
    "Experiment": "training.experiment",
    "Native": "memory.settings",
    "NoMemory": "memory.settings",
    "Reservoir": "memory.settings",
    "DAC": "selection.prototype_settings",
    "L1": "selection.prototype_settings",
    "L2": "selection.prototype_settings",
    "MMD": "selection.prototype_settings",
    "Herding": "selection.prototype_settings",
    "Prototypes": "selection.prototype_settings",
    "Random": "selection.prototype_settings",
    "Sinkhorn": "selection.prototype_settings",
    "Outcome": "training.outcomes",
    "Outcomes": "training.outcomes",
    "Run": "training.run",
    "train": "training.train",
    "embed": "execute.embedding",
    "recipe": "recipes.recommendations",
    "MIR": "training.retrieval",
    "Retrieval": "training.retrieval",
    "Result": "results.result",
    "Results": "report.notebook",
    "study": "report.run_study",
    "JsonLines": "training.loggers",
    "Logger": "training.loggers",
    "TensorBoard": "training.loggers",
    "WandB": "training.loggers",
    "LearnerLog": "training.training_log",
    "load_dataset": "data.opening",
    "parquet_batches": "data.parquet",
    "Dataset": "stream.dataset",
    "from_arrays": "stream.dataset",
    "blobs": "stream.synthetic",
    "shapes": "stream.synthetic",
    "Stream": "stream.tasks",
    "split": "stream.tasks",
    "from_batches": "stream.ordered",
    "from_torch": "stream.torch_datasets",
}

__all__ = [
    "DAC",
    "L1",
    "L2",
    "MIR",
    "MMD",
    "ODEDM",
    "ColumnSpec",
    "Dataset",
    "Distance",
    "DualMemory",
    "Experiment",
    "Herding",
    "JsonLines",
    "Learner",
    "LearnerEvent",
    "LearnerLog",
    "Logger",
    "Memory",
    "MemoryPart",
    "Method",
    "ModelView",
    "Native",
    "Net",
    "NoMemory",
    "Observation",
    "Outcome",
    "Outcomes",
    "Prequential",
    "Prototypes",
    "Random",
    "Replay",
    "ReplayStream",
    "Reservoir",
    "Result",
    "Results",
    "Retrieval",
    "Rows",
    "Run",
    "Sinkhorn",
    "Store",
    "Stream",
    "Task",
    "TensorBoard",
    "TrainedModel",
    "UsageError",
    "WandB",
    "__version__",
    "blobs",
    "embed",
    "from_arrays",
    "from_batches",
    "from_torch",
    "load",
    "load_dataset",
    "parquet_batches",
    "prequential",
    "prototypes_per_class",
    "recipe",
    "register",
    "select",
    "shapes",
    "split",
    "study",
    "testing",
    "train",
]


def __getattr__(name: str) -> Any:
    # public names are imported on first use: `odedm --help` must not wait two seconds for torch
    if name == "testing":
        return import_module("odedm.testing")
    if name not in _HOMES:
        raise AttributeError(f"module 'odedm' has no attribute '{name}'")
    module, _, other = _HOMES[name].partition(":")
    return getattr(import_module(f"odedm.{module}"), other or name)


def __dir__() -> list[str]:
    return __all__
