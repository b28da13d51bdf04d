"""The base class of every method, and the update they all share."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import Any, ClassVar, Protocol

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odedm.core.accel.device import launch_bound
from odedm.core.rng import generator
from odedm.core.rows import ColumnSpec, Rows, Task
from odedm.methods.class_shift import ClassShift
from odedm.methods.plain_sgd import PlainSGD
from odedm.methods.rotation_task import RotationTask
from odedm.nets.base import Net, evaluating


class Replay(Protocol):
    """Where a method's replay comes from; false while there is nothing to replay."""

    @property
    def gamma(self) -> float:
        """What the auxiliary term weighs now."""
        ...

    def __bool__(self) -> bool: ...

    def __call__(self, n: int) -> Rows:
        """Up to n stored rows with a fresh training view as `input`; each call is an independent draw."""
        ...

    def auxiliary(self) -> Rows | None:
        """The long-term draw of the auxiliary term, or None where there is none."""
        ...

    def turned(self) -> Rows | None:
        """The step's rows in four turns, for the term on turned images, or None where the run has none."""
        ...

    def rows(self) -> Rows:
        """Every stored row, raw."""
        ...

    def plain(self, image: Tensor) -> Tensor:
        """Inputs [n, ...] of raw images as they are."""
        ...

    def weak(self, image: Tensor) -> Tensor:
        """Inputs [n, ...] of a fresh training view: crop and mirror image."""
        ...

    def strong(self, image: Tensor) -> Tensor:
        """Inputs [n, ...] of a fresh view under the strong augmentation."""
        ...


@dataclass(frozen=True)
class Load:
    """How large a run is, so that a method can tell how much memory it takes; `weights` are bytes."""

    batch: int
    draw: int
    capacity: int
    tasks: int
    weights: int
    device: str
    options: Mapping[str, Any]


@dataclass(kw_only=True, eq=False)
class Method(ABC):
    """A way to learn: its keywords are its configuration, its `step` one update on one stream batch.

    A batch holds `input` (a training view), `label`, `image` (raw), `task` and `index`. What `step` returns is
    stored beside the raw rows: the columns that `fields` declares.
    """

    native: ClassVar[str] = "reservoir"
    """The memory policy the method was published with: a name in `odedm.core.registry.POLICIES`."""
    mixes_memory: ClassVar[bool] = False
    """Whether stored rows are shuffled into the task's own rows when it begins (no replay draws then)."""
    capturable: ClassVar[bool] = False
    """Whether a step can be recorded once and replayed by the device: its shapes depend on sizes alone, it reads no
    value back, and what it keeps changes in place. Host values may change at a task's borders, not in between."""
    needs_borders: ClassVar[bool] = False
    """Whether the method must be told where tasks begin and end; then it cannot learn a stream without borders."""
    exacting: ClassVar[bool] = False
    """Whether the method takes the weights as one vector and derives twice: it then computes in float32, no less."""
    needs_memory: ClassVar[bool] = False
    """Whether the method means nothing without stored rows: it then refuses `--memory none`."""
    keeps_nothing: ClassVar[bool] = False
    """Whether the method stores no rows by definition: it then refuses every memory but `--memory none`."""
    own_retrieval: ClassVar[str] = "uniform"
    """Which stored rows its draws take: a name in `odedm.core.registry.RETRIEVALS`; others are then refused."""

    predicts: ClassVar[str] = "head"
    """By what the method predicts: "head", which a run may replace (`--predict`), or a way of its own."""
    no_stream_loss: ClassVar[str] = "it does not say that its stream term is `self.stream_loss`"
    """Why a run may not choose the stream's loss (`--stream-loss`), behind "because"; empty where it may."""
    no_views: ClassVar[str] = ""
    """Why a run may not choose the views of replayed rows (`--views`); empty where it may."""

    reading: ClassVar[str] = "auxiliary"
    """How the method meets ODEDM's long-term rows unless a run says otherwise: "auxiliary", by a term of its own on
    them, as in the paper; "union", in its own draws, where these replay labels with full weight already."""
    reading_rule: ClassVar[str] = "fixed"
    """What that term weighs: "fixed" 1, or "share" the long-term share of the rows stored, where the loss is small."""
    no_term: ClassVar[str] = ""
    """Why there is no such term, behind "because", so that a run may not weigh it (`--gamma`); empty where there is."""

    draws_at_once: ClassVar[int] = 3
    """Replay draws that one backward pass holds beside the stream batch; the default is for methods that do not say."""
    spare_networks: ClassVar[float] = 5.0
    """Networks that the method keeps beside weights, gradients and momentum, by memory."""

    net: Net
    draw: int
    rng: Callable[[str], torch.Generator] = field(default_factory=lambda: partial(generator, 0), repr=False)
    lr: float = 0.03
    momentum: float = 0.0
    weight_decay: float = 0.0
    make_optimiser: Callable[..., torch.optim.Optimizer] | None = field(default=None, repr=False)
    """Another optimiser than plain SGD: called with the parameters, and lr, momentum and weight_decay by name."""
    optimiser: torch.optim.Optimizer = field(init=False, repr=False)
    last_loss: Tensor = field(init=False, repr=False)
    auxiliary_loss: Tensor | None = field(init=False, repr=False, default=None)
    """The auxiliary term of the next `descend`, where `forwards` has made it already."""
    class_shift: ClassShift | None = field(init=False, repr=False, default=None)
    """What makes the stream's loss another one than the plain cross-entropy; the run sets it."""
    rotation_task: RotationTask | None = field(init=False, repr=False, default=None)
    """The term on rotated images that `descend` adds, where the run has one."""
    averaged: Net | None = field(init=False, repr=False, default=None)
    """A running average of the network, which predicts in its place where the run asks for one."""
    averaging: Tensor | None = field(init=False, repr=False, default=None)

    def __post_init__(self) -> None:
        self.optimiser = self.fresh_optimiser()
        weight = next(self.net.parameters())
        self.last_loss = torch.zeros((), dtype=weight.dtype, device=weight.device)

    @classmethod
    def rows_at_once(cls, load: Load) -> int:
        """Rows whose activations one backward pass holds, for an estimate of memory before a run."""
        return load.batch + cls.draws_at_once * load.draw

    @classmethod
    def arithmetic(cls, load: Load, auxiliary: int = 0) -> float:
        """What a step must compute by its formulas, in forwards of one row; a benchmark divides its times by it.

        The way back is two more for each row, and that of a gradient through a gradient six more. Augmentation,
        optimiser and memory do not count, but for rows that the method's own memory passes through the network. The
        default is one way there and back for all rows of `rows_at_once`.

        Args:
            load: how large the run is; of methods whose steps grow, it is the mean over the tasks after the first.
            auxiliary: rows of the auxiliary long-term draw.
        """
        return 3.0 * (cls.rows_at_once(load) + auxiliary)

    @classmethod
    def networks_at_once(cls, load: Load) -> float:  # noqa: ARG003 - most methods keep the same whatever the load
        """Networks' worth of memory that the method keeps, for the same estimate."""
        return cls.spare_networks

    @classmethod
    def why_no_average(cls, options: Mapping[str, Any]) -> str:  # noqa: ARG003 - of most methods by any options
        """Why a run may not predict by an average of the weights, behind "because"; empty where it may."""
        return "" if cls.predict is Method.predict else "it predicts in a way of its own"

    def fields(self) -> tuple[ColumnSpec, ...]:
        """The columns that `step` and `annotate` return."""
        return ()

    def begin_task(self, task: Task) -> None:  # noqa: ARG002
        """A task starts: training mode and a new optimiser, so momentum never crosses a border."""
        self.net.train()
        self.restart_optimiser()

    def repeats(self) -> bool:
        """Whether the next step of a `capturable` method can be recorded and replayed; the same for a whole task."""
        return True

    def allow_recording(self) -> None:
        """The run's device records: a method may record parts of steps that cannot be recorded as a whole."""

    @abstractmethod
    def step(self, batch: Rows, replay: Replay) -> Rows:
        """Update the network once on a stream batch and return the declared fields of its rows."""

    def annotate(self, rows: Rows) -> Rows:  # noqa: ARG002
        """The declared fields for rows that did not come through `step`, from `input` in evaluation mode."""
        return {}

    def end_task(self, task: Task, replay: Replay) -> None:
        """A task is over."""

    @property
    def unread(self) -> tuple[str, ...]:
        """Attributes that no recorded step reads: they may change between tasks, and a recording stays good."""
        return ()

    def classes_joined(self, classes: int) -> None:
        """The network has outputs for so many classes from now on: what else has a size by class must grow as well."""

    def embed(self, x: Tensor) -> Tensor:
        """Features [n, d] of inputs [n, ...] in evaluation mode."""
        with evaluating(self.net):
            return self.net.features(x)

    def predict(self, x: Tensor) -> Tensor:
        """Scores [n, C] of inputs [n, ...] in evaluation mode."""
        with evaluating(self.net):
            scores: Tensor = self.net(x)
            return scores

    def class_weights(self) -> Tensor:
        """The head's weights [C, d]."""
        return self.net.head_weight()

    def forwards(self, *inputs: Tensor, replay: Replay | None = None) -> list[Tensor]:
        """Logits of each batch of inputs, as by a forward for each; on a GPU one pass does them all.

        With `replay` the forward of the auxiliary long-term term, which `descend` adds, goes along with them.
        """
        past = replay.auxiliary() if replay is not None else None
        if replay is None or past is None:
            return self.net.forward_batches(*inputs)
        if self.auxiliary_loss is not None:
            raise RuntimeError("Two calls of forwards with a replay, and no descend with it in between.")
        *logits, aside = self.net.forward_batches(*inputs, past["input"])
        self.auxiliary_loss = replay.gamma * self.recall_loss(aside, past)
        return logits

    def stream_loss(self, logits: Tensor, label: Tensor, *, replayed: int = 0) -> Tensor:
        """The mean cross-entropy (0-d) of logits [n, C] of stream rows, by the stream loss that the run has.

        The last `replayed` of them are rows of the memory, which every stream loss leaves as they are.
        """
        if self.class_shift is not None:
            own = len(label) - replayed
            logits = torch.cat([self.class_shift(logits[:own]), logits[own:]])
        return F.cross_entropy(logits, label)

    def recall_loss(self, logits: Tensor, rows: Rows) -> Tensor:
        """The auxiliary term's loss (0-d) on a long-term draw, before its weight gamma; override it for another one.

        Args:
            logits: the network's outputs [n, C] for the draw, with gradients.
            rows: the draw: `label`, `input`, `image`, and the method's own fields.
        """
        return F.cross_entropy(logits, rows["label"])

    def bend(self, replay: Replay | None) -> None:
        """Change the gradient between backward and step, in place in the parameters' `.grad`; here nothing is changed.

        `descend` calls it. A further pass over stored rows may be made here: draw them by `replay`, which is None where
        the update has no replay, and derive by `torch.autograd.grad`. `odedm.methods.gradients` reads and writes all
        gradients as one vector.
        """

    def descend(self, loss: Tensor, replay: Replay | None = None) -> None:
        """One optimiser step on the loss, plus the auxiliary long-term term of the method's main update."""
        if replay is not None:
            if self.auxiliary_loss is None:
                self.forwards(replay=replay)
            if self.auxiliary_loss is not None:
                loss = loss + self.auxiliary_loss
            self.auxiliary_loss = None
            if self.rotation_task is not None and (turned := replay.turned()) is not None:
                loss = loss + self.rotation_task.loss(self.net, turned)
        self.last_loss.copy_(loss.detach())  # in place: a captured step holds on to the tensor
        self.optimiser.zero_grad()
        loss.backward()
        self.bend(replay)
        self.optimiser.step()

    def restart_optimiser(self) -> None:
        """A new optimiser; on a GPU with the old one's momentum, at zero, for a recorded step holds on to it."""
        before, self.optimiser = self.optimiser, self.fresh_optimiser()
        if type(before) is type(self.optimiser) is PlainSGD:
            for weight, state in before.state.items():
                momentum = state.get("momentum_buffer")
                if momentum is not None and launch_bound(weight.device):
                    self.optimiser.state[weight]["momentum_buffer"] = momentum.zero_()

    def trained(self) -> list[nn.Parameter]:
        """What the optimiser updates: the network, and heads that only training needs."""
        return [*self.net.parameters(), *(self.rotation_task.parameters() if self.rotation_task else ())]

    def fresh_optimiser(self) -> torch.optim.Optimizer:
        """Plain SGD by this method's rates, unless the run has another optimiser."""
        trained = self.trained()
        if self.make_optimiser is not None:
            rates = {"lr": self.lr, "momentum": self.momentum, "weight_decay": self.weight_decay}
            return self.make_optimiser(trained, **rates)
        return PlainSGD(trained, lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay, fused=True)
