"""The memory inside Avalanche: a storage policy for its `ReplayPlugin`, the auxiliary term, and its streams as ours.

Avalanche's data sets stay where they are: the memory keeps where a row lies (number of its experience, place in it).
"""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import default_collate

from odedm.core.errors import UsageError, short_repr
from odedm.core.validators import Float, Int
from odedm.memory.live import DualMemory
from odedm.stream.dataset import Dataset
from odedm.stream.ordered import from_batches

try:
    from avalanche.benchmarks.utils import concat_datasets
    from avalanche.models import avalanche_forward
    from avalanche.training.plugins import SupervisedPlugin
    from avalanche.training.storage_policy import ExemplarsBuffer
except ImportError as error:
    raise UsageError(
        f"odedm.integrations.avalanche needs Avalanche, which cannot be imported here ({error}): pip install "
        "avalanche-lib, with a torchvision that fits your torch."
    ) from error

Features = Callable[[nn.Module, Any], Any]
"""From a model and its inputs to features [n, d]."""


class ODEDMStorage(ExemplarsBuffer):  # type: ignore[misc]
    """The dual memory as a storage policy: `ReplayPlugin(mem_size=200, storage_policy=ODEDMStorage(200, k=6))`.

    Prototypes are chosen when an experience is over. In an online stream (`split_online_stream`) experiences are pieces
    of a task; there they are chosen after the first piece of the next task, as Avalanche has no dependable sign of the
    last piece.

    Args:
        max_size: rows in all (λ).
        features: from (model, inputs) to features [n, d]; what enters the model's last linear layer unless given.
        settings: those of `odedm.DualMemory`: k or rho, seed, distance, dac, … k=0 is a plain reservoir.
            Prototypes are chosen among all rows of an experience, as in the paper, unless `candidates` is given.
    """

    def __init__(self, max_size: int, *, features: Features | None = None, **settings: Any) -> None:
        if settings.get("space") == "pixels":
            raise UsageError("In Avalanche prototypes are chosen among features; leave space at its default.")
        self.memory = DualMemory(max_size, **{"candidates": "task", **settings})
        super().__init__(max_size)
        self.features: Features = features or last_layer_inputs
        self._experiences: dict[int, Any] = {}
        self._seen = self._open = 0  # experiences so far, and those of tasks that are over

    def update(self, strategy: Any, **_: Any) -> None:
        """See the strategy's experience: what `ReplayPlugin` calls, without Avalanche's warning that it is old."""
        self.post_adapt(strategy, strategy.experience)

    def post_adapt(self, agent_state: Any, exp: Any) -> None:
        """See an experience that was trained on, and keep prototypes of what is over."""
        online = hasattr(exp, "is_first_subexp")
        if online and exp.is_first_subexp and self._seen:
            self._end_task(agent_state)
        place = torch.arange(len(exp.dataset))
        labels = torch.tensor([int(label) for label in exp.dataset.targets])
        if len(place):
            self._experiences[self._seen] = exp.dataset
            self.memory.add(torch.stack([torch.full_like(place, self._seen), place], 1), labels)
            self._seen += 1
        if self._seen and not online:
            self._end_task(agent_state)
        self._renew()

    def resize(self, strategy: Any, new_size: int) -> None:  # noqa: ARG002 - Avalanche's signature
        """Give the memory another number of rows."""
        self.memory.resize(new_size)
        self.max_size = new_size
        self._renew()

    def draw_long_term(self, n: int) -> list[Any]:
        """Up to n prototypes as Avalanche's loaders give them: inputs, labels, task labels; empty where none is."""
        if not self.memory.size("long"):
            return []
        data = self._rows_at(self.memory.sample(n, "long")["images"])
        return list(default_collate([data[place] for place in range(len(data))]))

    def _end_task(self, strategy: Any) -> None:
        model = strategy.model
        modes = {module: module.training for module in model.modules()}
        model.eval()
        try:
            self.memory.end_task(embed=lambda rows: torch.cat(list(self._embedded(rows, strategy))))
        finally:
            for module, mode in modes.items():
                module.training = mode
        self._open = self._seen

    def _embedded(self, rows: Tensor, strategy: Any) -> Iterator[Tensor]:
        """Yield features of rows in their order, some at a time; a class is chosen from rows of many experiences."""
        plain = {number: data.eval() for number, data in self._experiences.items()}
        for part in rows.split(strategy.eval_mb_size):
            inputs = default_collate([plain[number][place][0] for number, place in part.tolist()])
            features = self.features(strategy.model, inputs.to(strategy.device))
            yield features.detach().flatten(1).to(rows.device)

    def _rows_at(self, places: Tensor) -> Any:
        """Return the rows at these places as one of Avalanche's data sets, by experience."""
        parts = [
            self._experiences[number].subset(places[places[:, 0] == number, 1].tolist())
            for number in places[:, 0].unique().tolist()
        ]
        return concat_datasets(parts) if len(parts) != 1 else parts[0]

    def _renew(self) -> None:
        """Show the rows of now as `buffer`; experiences that are over and of which nothing is kept are let go."""
        if not self._seen:
            return
        places = self.memory.rows()["images"]
        self.buffer = self._rows_at(places)
        needed = {*places[:, 0].tolist(), *range(self._open, self._seen)}
        self._experiences = {number: self._experiences[number] for number in sorted(needed)}


class AuxiliaryPlugin(SupervisedPlugin):  # type: ignore[misc]
    """γ times the cross-entropy on a draw of prototypes, added to any strategy's loss.

    Args:
        storage: whose prototypes.
        draw: how many of them a step.
        gamma: the weight γ.
    """

    def __init__(self, storage: ODEDMStorage, *, draw: int = 32, gamma: float = 1.0) -> None:
        super().__init__()
        if not isinstance(storage, ODEDMStorage):
            raise UsageError(
                f"AuxiliaryPlugin needs the ODEDMStorage whose prototypes it uses; not {short_repr(storage)}."
            )
        self.storage, self.draw, self.gamma = storage, Int(1).validate("draw", draw), Float(0).validate("gamma", gamma)

    def before_backward(self, strategy: Any, *_: Any, **__: Any) -> None:
        """Add the term, once there are prototypes."""
        batch = [column.to(strategy.device) for column in self.storage.draw_long_term(self.draw)]
        if batch:
            output = avalanche_forward(strategy.model, batch[0], batch[-1])
            strategy.loss = strategy.loss + self.gamma * nn.functional.cross_entropy(output, batch[1])


def last_layer_inputs(model: nn.Module, inputs: Any) -> Tensor:
    """Return what enters a model's last linear layer [n, d].

    Args:
        model: any module with a linear layer.
        inputs: of the model.

    >>> last_layer_inputs(nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Linear(3, 2)), torch.zeros(5, 4)).shape
    torch.Size([5, 3])
    """
    layers = [module for module in model.modules() if isinstance(module, nn.Linear)]
    if not layers:
        raise UsageError(
            f"{type(model).__name__} has no linear layer whose inputs could be its features: give features=, a "
            "function from (model, inputs) to features [n, d]."
        )
    entered: list[Tensor] = []
    handle = layers[-1].register_forward_pre_hook(lambda _, arguments: entered.append(arguments[0]))
    try:
        model(inputs)
    finally:
        handle.remove()
    if not entered:
        raise UsageError(
            f"The last linear layer of {type(model).__name__} has no part in its output: give features=, a function "
            "from (model, inputs) to features [n, d]."
        )
    return entered[-1]


def dataset_of(benchmark: Any, *, name: str = "avalanche") -> Dataset:
    """Return a benchmark of Avalanche as a stream of ours, for `odedm.train`: a task for each experience.

    Args:
        benchmark: has a train_stream and a test_stream of as many experiences; all rows are read once.
        name: what results call it.

    Returns:
        The data set; a class may come in more than one task.
    """
    train, test = list(benchmark.train_stream), list(benchmark.test_stream)
    if len(train) != len(test):
        raise UsageError(
            f"The benchmark has {len(train)} experiences to train on and {len(test)} to test on; as many are needed. "
            "Read its arrays and give them to odedm.from_batches, whose test= takes a pair for all tasks."
        )
    tests = [_arrays(exp) for exp in test]
    return from_batches([(*_arrays(exp), place) for place, exp in enumerate(train)], test=tests, name=name)


def _arrays(exp: Any) -> tuple[Any, Any]:
    """Return all rows of an experience without augmentation, and their labels."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        rows = [(torch.as_tensor(row[0]), int(row[1])) for row in exp.dataset.eval()]
    return torch.stack([x for x, _ in rows]).numpy(), torch.tensor([y for _, y in rows]).numpy()
