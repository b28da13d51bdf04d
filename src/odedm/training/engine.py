"""What `train` and `Learner` share: a method on a network, a memory, and the update that joins them."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor

from odedm.checkpoint.load_state_tree import load_state_tree
from odedm.checkpoint.state_tree import State, state_tree
from odedm.core.errors import UsageError, short_repr
from odedm.core.generators import generators_of
from odedm.core.registry import METHODS
from odedm.core.rng import generator
from odedm.core.rows import ColumnSpec, Rows, Task
from odedm.memory.settings import AnyMemory
from odedm.methods.base import Method
from odedm.methods.hyperparameters import configure
from odedm.methods.weight_average import follow
from odedm.nets.base import Net
from odedm.stream.augment import Transform
from odedm.training.experiment import Experiment
from odedm.training.model_view import MethodView
from odedm.training.numerics import set_precision
from odedm.training.optimizers import check_optimizer, optimizer_keywords
from odedm.training.replay import MemoryReplay, reading_of, resolve_replay_mode
from odedm.training.retrieval import build_retrieval, read_retrieval_options
from odedm.training.tricks import Tricks, apply_tricks, by_nearest_mean, check_tricks


@dataclass(frozen=True, kw_only=True)
class EngineConfig:
    """What an engine is built from: every choice checked, every default filled in."""

    method: type[Method]
    options: Mapping[str, Any]
    memory: AnyMemory
    tricks: Tricks
    optimizer: str
    retrieval: str
    retrieval_options: Mapping[str, Any]
    draw: int
    seed: int
    device: torch.device
    precision: str

    @classmethod
    def resolve(
        cls,
        method: type[Method],
        *,
        name: str,
        title: str,
        options: Mapping[str, Any],
        memory: AnyMemory,
        tricks: Tricks,
        optimizer: str,
        retrieval: str,
        retrieval_options: Mapping[str, Any],
        draw: int,
        seed: int,
        device: torch.device,
        precision: str,
        remote: bool = False,
    ) -> EngineConfig:
        """Fill in every default, and refuse in a sentence what cannot be together.

        Args:
            method: its class.
            name: what the user calls it; `title` is what tables call it.
            remote: whether it is for another machine: a device is then taken at its word.

        The others are the fields, as the user has given them.
        """
        configured = configure(name, method, dict(options))
        _check_memory(method, title, memory)
        chosen = _retrieval(retrieval, retrieval_options, method, title, memory)
        check_optimizer(optimizer, method)
        check_tricks(tricks, method, title, memory, configured)
        return cls(
            method=method,
            options=configured,
            memory=resolve_replay_mode(memory, method),
            tricks=tricks.without_defaults(method),
            optimizer=optimizer,
            retrieval=chosen,
            retrieval_options=read_retrieval_options(chosen, retrieval_options),
            draw=draw,
            seed=seed,
            device=device,
            precision=resolve_precision(
                precision, device, second_order="second order" in method.requires, remote=remote
            ),
        )

    @classmethod
    def of(cls, plan: Experiment) -> EngineConfig:
        """Return that of an experiment which is resolved."""
        return cls(
            method=METHODS[plan.method].load(),
            options=plan.options,
            memory=plan.memory,
            tricks=Tricks.of(plan),
            optimizer=plan.optimizer,
            retrieval=plan.retrieval,
            retrieval_options=plan.retrieval_options,
            draw=plan.replay_batch or plan.batch,
            seed=plan.seed,
            device=torch.device(plan.device),
            precision=plan.precision,
        )


class Engine:
    """A method on a network with a memory: observe batches, consolidate, predict, save and restore.

    Args:
        config: what it is built from.
        net: the network on the CPU, in training mode.
        transform: how raw rows become inputs, and training views of them; on the device.
        make_memory: gives the memory for rows with these columns of the method's own.
        stored_rows: gives the rows of a memory by which the nearest class mean predicts; all that are replayed unless
            given.
    """

    def __init__(
        self,
        config: EngineConfig,
        net: Net,
        transform: Transform,
        make_memory: Callable[[tuple[ColumnSpec, ...]], Any],
        *,
        stored_rows: Callable[[Any], Rows] | None = None,
    ) -> None:
        self.config, self.transform = config, transform
        self.rng = partial(generator, config.seed, device=config.device)
        second_order = "second order" in config.method.requires
        net = set_precision(net.to(config.device), config.precision, second_order=second_order)
        self.method: Method = config.method(
            net=net, draw=config.draw, rng=self.rng, **optimizer_keywords(config.optimizer), **config.options
        )
        apply_tricks(config.tricks, self.method)
        self.memory = make_memory(self.method.fields())
        rows = partial(stored_rows, self.memory) if stored_rows is not None else self.memory.rows
        self.view = MethodView(
            self.method, transform, rows if by_nearest_mean(config.tricks.predict, config.method) else None
        )
        self.replay = MemoryReplay(
            self.memory,
            transform,
            **reading_of(config.memory),
            draw=config.draw,
            rng=self.rng,
            retrieval=build_retrieval(config.retrieval, config.retrieval_options),
            method=self.method,
            views=config.tricks.views,
        )
        self.memory_rng, self.view_rng = self.rng("memory"), self.rng("stream views")
        self.border_rng = generator(config.seed, "memory borders")  # on the CPU: one seed, one choice anywhere

    def begin_task(self, task: Task) -> None:
        """A task starts."""
        self.method.begin_task(task)
        self.memory.begin_task(task)

    def update(self, batch: Rows) -> Rows:
        """Make the updates on raw rows: `image`, `label`, `task` and `index`; nothing is stored.

        Returns:
            The method's columns of the rows by the first update, before which the network had not seen them.
        """
        method = self.method
        if method.class_shift is not None:
            method.class_shift.see(batch["label"])
        columns = []
        for _ in range(self.config.tricks.updates):
            seen = {**batch, "input": self.transform.augment(batch["image"], rng=self.view_rng)}
            self.replay.begin_step(seen)
            columns.append(_observe(method, seen, self.replay))
            self.replay.end_step()
        if method.averaged is not None and method.averaging is not None:
            follow(method.averaged, method.net, method.averaging)
        return columns[0]

    def observe(self, batch: Rows, new: int | None = None) -> Rows:
        """Make the updates on raw rows, and show the memory the first `new` of them, all unless given.

        Returns:
            What the memory was shown: the rows with the method's columns.
        """
        columns = self.update(batch)
        rows = {name: column[:new] for name, column in {**batch, **columns}.items()}
        if new is None or new:
            self.memory.add(rows, self.view, rng=self.memory_rng)
        return rows

    def consolidate(self, task: Task) -> None:
        """A task is over: the memory chooses prototypes among its rows by the network as it is."""
        self.memory.end_task(task, self.view, rng=self.border_rng)

    def end_task(self, task: Task) -> None:
        """A task is over and consolidated: the method takes what it keeps of it."""
        self.method.end_task(task, self.replay)

    def predict(self, image: Tensor) -> Tensor:
        """Return scores [n, C] of raw rows."""
        return self.view.predict(image)

    def predictor(self) -> Callable[[Tensor], Tensor]:
        """Return a function of raw rows to scores [n, C]: class means are taken once for all that is asked of it."""
        return self.view.predictor()

    def graph_key(self) -> tuple[int, ...]:
        """Return the host's numbers by which steps of one batch size differ: a recorded step is kept under them."""
        return self.replay.graph_key()

    def on_graph_replay(self, new: int) -> None:
        """Count rows that a recorded step has stored: the device did its half."""
        self.memory.on_graph_replay(new)

    def generators(self) -> Iterator[torch.Generator]:
        """Yield every generator that a step may draw from on the device."""
        return generators_of([self.memory_rng, self.view_rng, self.replay, self.method, self.memory])

    def roots(self) -> dict[str, Any]:
        """Return all that changes, by name: what a checkpoint must hold."""
        names = ("method", "memory", "replay", "memory_rng", "view_rng", "border_rng")
        return {name: getattr(self, name) for name in names}

    def state_dict(self) -> State:
        """Return a copy of everything that changes: tensors, and a tree of plain data that refers to them."""
        return state_tree(self.roots())

    def load_state_dict(self, state: State) -> None:
        """Put back what `state_dict` gave, in place; `StateError` where it is not that of such an engine."""
        load_state_tree(self.roots(), state)


def _observe(method: Method, batch: Rows, replay: MemoryReplay) -> Rows:
    """One update by a method; what code from outside gives back is checked, as a slip would show much later."""
    if type(method).__module__.startswith("odedm."):
        return method.observe(batch, replay)
    try:
        columns = method.observe(batch, replay)
    except KeyError as error:
        if error.args and isinstance(error.args[0], str):
            stored = ", ".join(field.name for field in method.fields()) or "none, as `fields` declares none"
            error.add_note(f"A batch has {', '.join(batch)}; a draw has these and, of the method's own, {stored}.")
        raise
    name = type(method).__name__
    if not isinstance(columns, dict):
        raise UsageError(
            f"{name} gave {short_repr(columns)} as the columns to be stored with the batch's rows; they must be a "
            "dictionary, {} where there are none."
        )
    declared = {field.name for field in method.fields()}
    for column in columns.keys() ^ declared:
        raise UsageError(
            f"{name} returned the column '{column}', which `fields` does not declare: add ColumnSpec('{column}', shape "
            "of one row's entry) to what `fields` returns."
            if column in columns
            else f"{name}.fields declares the column '{column}', which its loss did not return."
        )
    if method.class_shift is not None and not method.class_shift.asked:
        raise UsageError(
            f"{name} takes no stream loss, because its loss does not call self.stream_loss(logits, label). Leave the "
            "stream loss out, or call it there."
        )
    return columns


def _check_memory(method: type[Method], title: str, memory: AnyMemory) -> None:
    if "memory" in method.requires and (memory.name == "none" or memory.capacity == 0):
        rows = "a memory, e.g. 'reservoir' (--memory reservoir)" if memory.name == "none" else "a capacity of 1 or more"
        raise UsageError(
            f"{title} means nothing without stored rows. Give it {rows}, or take a method that learns from the stream "
            "as well, e.g. 'er' (--method er)."
        )
    if memory.name != "none" and "no memory" in method.requires:
        raise UsageError(
            f"{title} keeps no rows: it is a bound for methods that do, and a memory would change nothing. The memory "
            f"'{memory.name}' was given; say 'none' (--memory none)."
        )


def _retrieval(name: str, options: Mapping[str, Any], method: type[Method], title: str, memory: AnyMemory) -> str:
    """The name of the retrieval: the method's own where it has one and there is a memory to draw from."""
    if memory.name != "none" and method.retrieval != "uniform":
        if name not in ("uniform", method.retrieval):
            raise UsageError(
                f"{title} chooses the rows that it replays by itself, by '{method.retrieval}'; '{name}' was given. "
                "Leave the retrieval out, or take a method without a choice of its own, e.g. er."
            )
        name = method.retrieval
    build_retrieval(name, options)  # refuses values before anything runs
    why = "" if name == "uniform" else method.unsupported.get("retrieval", "")
    if name != "uniform" and "mixing" in method.requires:
        why = f"{title} mixes all stored rows into the stream"
    if name != "uniform" and memory.name == "none":
        why = "there is no memory"
    if why:
        raise UsageError(f"The retrieval '{name}' has nothing to choose: {why}. Leave the retrieval out.")
    return name


def resolve_device(name: str) -> torch.device:
    """Return the device that a name stands for; `auto` takes a GPU where there is one."""
    available = name != "cpu" and torch.cuda.is_available()
    if name == "cuda" and not available:
        raise UsageError(
            "The device 'cuda' was asked for, but torch sees no GPU here. Use 'cpu' or 'auto' (--device cpu)."
        )
    return torch.device("cuda" if available else "cpu")


def resolve_precision(name: str, device: torch.device, *, second_order: bool, remote: bool = False) -> str:
    """Return the precision that a name stands for: `auto` is the fastest that a method's accuracy does not suffer from.

    >>> resolve_precision("auto", torch.device("cpu"), second_order=False)
    'fp32'
    """
    if device.type != "cuda":
        if name == "tf32":
            raise UsageError("The precision 'tf32' is for GPUs; on the CPU use fp32 or bf16.")
        return "fp32" if name == "auto" else name
    if name == "auto":
        return "bf16" if not second_order and (remote or torch.cuda.is_bf16_supported()) else "tf32"
    return name
