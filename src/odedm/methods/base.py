"""The base class of every method: a loss, and the update that is made with it."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Hashable, Mapping
from dataclasses import dataclass, field, fields
from functools import partial
from types import MappingProxyType
from typing import Any, ClassVar, Protocol, Self, dataclass_transform

import torch
from torch import Tensor, nn
from torch.nn import functional as F

from odedm.core.accel.device import launch_bound
from odedm.core.accel.host_state import host_state
from odedm.core.errors import UsageError, short_repr
from odedm.core.rng import generator
from odedm.core.rows import ColumnSpec, Rows, Task
from odedm.core.stored_names import stored_name
from odedm.methods.ema import EMA
from odedm.methods.logit_adjustment import LogitAdjustment
from odedm.methods.plain_sgd import PlainSGD
from odedm.methods.rotation_task import RotationTask
from odedm.nets.base import Net, evaluating

REQUIREMENTS = {
    "memory": "It means nothing without stored rows: no memory, or one of no rows, is refused.",
    "no memory": "It stores no rows by definition: every memory but `--memory none` is refused.",
    "borders": "It must be told where tasks begin and end, so it cannot learn a stream without borders.",
    "class ranges": "A task's classes must be consecutive numbers.",
    "mixing": "Stored rows are shuffled into the task's own rows when it begins; no replay draws then.",
    "nearest mean": "It predicts by the nearest class mean of stored rows.",
    "second order": "It takes the weights as one vector and derives twice: it computes in float32, no less.",
}
"""What a method may require, as names in its `requires`."""


class Replay(Protocol):
    """Where a method's replay comes from; false while there is nothing to replay."""

    @property
    def gamma(self) -> float:
        """Return what the long-term term weighs now."""
        ...

    def __bool__(self) -> bool: ...

    def __call__(self, n: int | None = None) -> Rows:
        """Draw up to n stored rows, as many as a draw of the run unless given; {} while nothing is stored.

        They have a fresh training view as `input`. Each call is an independent draw.
        """
        ...

    def long_term(self) -> Rows | None:
        """Draw long-term rows for the term on them, or None where there is no such term."""
        ...

    def turned(self) -> Rows | None:
        """Return the step's rows in four turns, for the term on turned images, or None where the run has none."""
        ...

    def rows(self) -> Rows:
        """Return every stored row, raw."""
        ...

    def normalize(self, image: Tensor) -> Tensor:
        """Return inputs [n, ...] of raw images as they are."""
        ...

    def augment(self, image: Tensor) -> Tensor:
        """Return inputs [n, ...] of a fresh training view: crop and mirror image."""
        ...

    def strong_augment(self, image: Tensor) -> Tensor:
        """Return inputs [n, ...] of a fresh view under the strong augmentation."""
        ...


@dataclass_transform(kw_only_default=True, eq_default=False, field_specifiers=(field,))
@dataclass(kw_only=True, eq=False)
class Method:
    """A way to learn: its keywords are its hyper-parameters, its `loss` is what one update on a batch makes less.

    Subclasses are data classes of keywords without a decorator.

    A batch holds `input` (a training view), `label`, `image` (raw), `task` and `index`. What is no single loss
    overrides `observe`, and makes its updates by `optimizer_step`.
    """

    policy: ClassVar[str] = "reservoir"
    """The memory policy the method was published with: a name in `odedm.core.registry.POLICIES`."""
    retrieval: ClassVar[str] = "uniform"
    """Which stored rows its draws take: a name in `odedm.core.registry.RETRIEVALS`; others are then refused."""
    requires: ClassVar[frozenset[str]] = frozenset()
    """Names in `REQUIREMENTS`."""
    unsupported: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """What a run may not ask of it, with the reason behind "because": stream_loss, predict, weight_average, views,
    retrieval, gamma, momentum or schedule."""
    capturable: ClassVar[bool] = False
    """Whether a step can be recorded once and replayed by the device: its shapes depend on sizes alone, it reads no
    value back, and what it keeps changes in place. Host values may change at a task's borders, not in between."""

    default_net: ClassVar[str] = "auto"
    """The net that "auto" stands for."""
    scales_rows: ClassVar[bool] = True
    """Whether a learner's rows are scaled by what came so far; else they are taken as they are."""

    TRANSIENT: ClassVar[frozenset[str]] = frozenset({"captures", "_ahead", "_ahead_logits"})

    net: Net
    draw: int
    rng: Callable[[str], torch.Generator] = field(default_factory=lambda: partial(generator, 0), repr=False)
    lr: float = 0.03
    momentum: float = 0.0
    weight_decay: float = 0.0
    optimizer_factory: Callable[..., torch.optim.Optimizer] | None = field(default=None, repr=False)
    """Another optimizer than plain SGD: called with the parameters, and lr, momentum and weight_decay by name."""
    optimizer: torch.optim.Optimizer = field(init=False, repr=False)
    last_loss: Tensor = field(init=False, repr=False)
    logit_adjustment: LogitAdjustment | None = field(init=False, repr=False, default=None)
    """What makes the stream's loss another one than the plain cross-entropy; the run sets it."""
    rotation_task: RotationTask | None = field(init=False, repr=False, default=None)
    """The term on rotated images that `optimizer_step` adds, where the run has one."""
    ema: EMA | None = field(init=False, repr=False, default=None)
    """A running average of the network, which predicts in its place where the run asks for one."""
    clip_norm: float | None = field(init=False, repr=False, default=None)
    """The largest norm that an update's gradient may have; the run sets it."""
    captures: bool = field(init=False, repr=False, default=False)
    """Whether the run's device records: a method may record parts of steps that cannot be recorded as a whole."""
    _ahead: Rows | None = field(init=False, repr=False, default=None)
    """The update's long-term draw, until `optimizer_step` has added its loss."""
    _ahead_logits: Tensor | None = field(init=False, repr=False, default=None)

    def __new__(cls, *_: Any, **__: Any) -> Self:
        """Make an object of a class whose keywords are known."""
        declare(cls)
        return super().__new__(cls)

    def __post_init__(self) -> None:
        self.optimizer = self.new_optimizer()
        weight = next(self.net.parameters())
        self.last_loss = torch.zeros((), dtype=weight.dtype, device=weight.device)

    @classmethod
    def defaults_for(cls, classes: int) -> Mapping[str, Any]:  # noqa: ARG003 - of most for any stream
        """Return the hyper-parameters that have another default on a stream of so many classes."""
        return {}

    def loss(self, batch: Rows, replay: Replay) -> tuple[Tensor, Rows]:
        """Return the loss (0-d) of a stream batch and what is replayed, and the declared columns of the batch's rows.

        The columns are stored beside the raw rows.
        """
        raise UsageError(f"{type(self).__name__} has neither a `loss` nor an `observe` of its own; it needs one.")

    def fields(self) -> tuple[ColumnSpec, ...]:
        """Declare the columns that `loss` and `annotate` return."""
        return ()

    def annotate(self, rows: Rows) -> Rows:
        """Return the declared columns of rows that did not come by a batch, from `input` in evaluation mode."""
        return {}

    def begin_task(self, task: Task) -> None:
        """A task starts: training mode. The optimizer goes on; call `renew_optimizer` where a method is defined so."""
        self.net.train()

    def end_task(self, task: Task, replay: Replay) -> None:
        """A task is over."""

    def observe(self, batch: Rows, replay: Replay) -> Rows:
        """Update the network once on a stream batch, and return the declared columns of its rows."""
        self._ahead = replay.long_term()
        loss, columns = _checked(self.loss(batch, replay), type(self))
        self.optimizer_step(loss, replay)
        return columns

    def logits(self, *batches: Rows) -> list[Tensor]:
        """Return the logits [n, C] of each batch's `input`, normalised by itself; [0, C] of a draw without rows.

        It is as a call of the network for each. On a GPU one pass does them all, the update's long-term draw included.
        """
        if self._ahead_logits is not None and batches[0] is self._ahead:
            return [self._ahead_logits]
        inputs = [rows["input"] for rows in batches if rows]
        if self._ahead is None or batches[0] is self._ahead or self._ahead_logits is not None:
            logits = self.net.forward_batches(*inputs)
        else:
            *logits, self._ahead_logits = self.net.forward_batches(*inputs, self._ahead["input"])
        passed = iter(logits)
        return [next(passed) if rows else logits[0][:0] for rows in batches]

    def stream_loss(self, logits: Tensor, label: Tensor, *, replayed: int = 0) -> Tensor:
        """Return the mean cross-entropy (0-d) of logits [n, C] of stream rows, by the stream loss that the run has.

        The last `replayed` of them are rows of the memory, which every stream loss leaves as they are.
        """
        if self.logit_adjustment is not None:
            self.logit_adjustment.was_used = True
            new = len(label) - replayed
            logits = torch.cat([self.logit_adjustment(logits[:new]), logits[new:]])
        return F.cross_entropy(logits, label)

    def long_term_loss(self, rows: Rows, replay: Replay) -> Tensor:
        """Return the loss (0-d) on a long-term draw, before its weight gamma; override it for another one."""
        (logits,) = self.logits(rows)
        return F.cross_entropy(logits, rows["label"])

    def on_after_backward(self, replay: Replay | None) -> None:
        """Change the gradient between backward and step, in place in the parameters' `.grad`; nothing is changed here.

        A further pass over stored rows may be made: draw them by `replay`, which is None where the update has no
        replay, and derive by `torch.autograd.grad`. `odedm.methods.gradients` has all gradients as one vector.
        """

    def optimizer_step(self, loss: Tensor, replay: Replay | None = None) -> None:
        """Make one step of the optimizer on a loss.

        With `replay` it is the method's main update: the term on long-term rows and that on turned images are added.
        """
        if replay is not None:
            past, self._ahead = self._ahead or replay.long_term(), None
            if past is not None:
                self._ahead = past
                loss = loss + replay.gamma * self.long_term_loss(past, replay)
            self._ahead = self._ahead_logits = None
            if self.rotation_task is not None and (turned := replay.turned()) is not None:
                loss = loss + self.rotation_task.loss(self.net, turned)
        self.last_loss.copy_(loss.detach())  # in place: a captured step holds on to the tensor
        self.optimizer.zero_grad()
        loss.backward()
        self.on_after_backward(replay)
        self.follow_gradient()

    def follow_gradient(self) -> None:
        """Make the optimizer's step by the gradients, cut to the norm `clip_norm` where the run has one."""
        if self.clip_norm is not None:
            weights = [weight for group in self.optimizer.param_groups for weight in group["params"]]
            nn.utils.clip_grad_norm_(weights, self.clip_norm)
        self.optimizer.step()

    def new_optimizer(self) -> torch.optim.Optimizer:
        """Make plain SGD by this method's rates, unless the run has another optimizer."""
        make = self.optimizer_factory or partial(PlainSGD, fused=True)
        return make(self.trained(), lr=self.lr, momentum=self.momentum, weight_decay=self.weight_decay)

    def renew_optimizer(self) -> None:
        """Take a new optimizer; on a GPU with the old one's momentum, at zero, for a recorded step holds on to it."""
        before, self.optimizer = self.optimizer, self.new_optimizer()
        if type(before) is type(self.optimizer) is PlainSGD:
            for weight, state in before.state.items():
                momentum = state.get("momentum_buffer")
                if momentum is not None and launch_bound(weight.device):
                    self.optimizer.state[weight]["momentum_buffer"] = momentum.zero_()

    def check_least(self, least: float, *names: str) -> None:
        """Refuse hyper-parameters, by their names, that are smaller than is legal."""
        for name in names:
            if (value := getattr(self, name)) < least:
                title = stored_name(type(self)).removeprefix("method/")
                raise UsageError(f"{title}'s {name} must be {least} or more; {value} was given.")

    def trained(self) -> list[nn.Parameter]:
        """Return what the optimizer updates: the network, and heads that only training needs."""
        return [*self.net.parameters(), *(self.rotation_task.parameters() if self.rotation_task else ())]

    def embed(self, x: Tensor) -> Tensor:
        """Return features [n, d] of inputs [n, ...] in evaluation mode."""
        with evaluating(self.net):
            return self.net.features(x)

    def predict(self, x: Tensor) -> Tensor:
        """Return scores [n, C] of inputs [n, ...] in evaluation mode."""
        with evaluating(self.net):
            scores: Tensor = self.net(x)
            return scores

    @property
    def class_mean_options(self) -> Mapping[str, bool]:
        """Return keywords of `means_of_rows`: how class means are taken where the nearest of them predicts."""
        return {}

    def on_classes_added(self, classes: int) -> None:
        """The network has outputs for so many classes from now on: what else has a size by class must grow as well."""

    def graph_key(self) -> Hashable | None:
        """Return what a recorded step of the coming task would freeze: another key, another recording.

        None where steps of the task cannot be recorded. By default it is every value on the host, and where each tensor
        lies.
        """
        return host_state(self)


def declare(kind: type[Method]) -> None:
    """Make data classes of a method and its bases, as far as they are none.

    What a class gives a value is a keyword, with a type or without where a base has one; a name with a type alone is
    state. It is done late, for whoever writes the decorator is free to.

    >>> class Mine(Method):
    ...     lr = 0.5
    ...     share: float = 0.1
    ...     means: Tensor
    >>> declare(Mine)
    >>> [field.name for field in fields(Mine) if field.init][-3:], Mine.lr
    (['weight_decay', 'optimizer_factory', 'share'], 0.5)
    """
    for cls in reversed(kind.__mro__):
        if not issubclass(cls, Method) or "__dataclass_fields__" in vars(cls):
            continue
        for inherited in fields(cls):
            value = vars(cls).get(inherited.name, inherited.default)
            if value is not inherited.default and not hasattr(type(value), "__get__"):  # a property, say, is no default
                cls.__annotations__.setdefault(inherited.name, inherited.type)
        for name, form in inspect.get_annotations(cls).items():
            if name not in vars(cls) and "ClassVar" not in str(form):
                setattr(cls, name, field(init=False, repr=False))
        dataclass(kw_only=True, eq=False)(cls)


def join(*draws: Rows, columns: tuple[str, ...] = ("input", "label")) -> Rows:
    """Return columns of several batches below each other; draws without rows are left out.

    >>> join({"label": torch.tensor([1])}, {}, {"label": torch.tensor([2])}, columns=("label",))
    {'label': tensor([1, 2])}
    """
    parts = [rows for rows in draws if rows]
    return dict(parts[0]) if len(parts) == 1 else {name: torch.cat([rows[name] for rows in parts]) for name in columns}


def _checked(made: Any, kind: type[Method]) -> tuple[Tensor, Rows]:
    if isinstance(made, tuple) and len(made) == 2 and isinstance(made[0], Tensor):
        return made
    raise UsageError(
        f"{kind.__name__}.loss gave {short_repr(made)} back; it must return the loss, a tensor, and the columns to be "
        "stored with the batch's rows as a dictionary, {} where there are none."
    )
