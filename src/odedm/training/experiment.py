"""The experiment, frozen data that says what is to be run: every choice is a setting here or of the memory."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar

from odedm.core.checksums import known_hash
from odedm.core.choices import (
    CLASS_ORDERS,
    DEVICES,
    DOMAINS,
    EVAL_CLASSES,
    IMBALANCES,
    PRECISIONS,
    PREDICTIONS,
    SCHEDULE_SPANS,
    STREAM_LOSSES,
    VIEWS,
)
from odedm.core.configuration import (
    check_settings,
    from_dict,
    identity,
    repr_without_defaults,
    setting_field,
    settings_of,
    to_dict,
    values_of,
)
from odedm.core.errors import UsageError
from odedm.core.options import class_and_options
from odedm.core.plain_data import json_hash
from odedm.core.plugin_modules import code_hashes, origins
from odedm.core.plugins import PluginEntry
from odedm.core.registry import METHODS, NETS, OPTIMIZERS, RETRIEVALS, SCHEDULES, TRANSFORMS
from odedm.core.validators import Bool, Choice, Device, Float, Int, NamedValues, Share, Text, WordOr
from odedm.memory.settings import KINDS, ODEDM, AnyMemory, as_memory_config, memory_from_dict, memory_to_dict
from odedm.stream.class_schedule import Sizes

STREAM: Any = {"panel": "Stream"}
"""Of settings that make the stream."""
BY_NAME: Any = {"metavar": "NAME=VALUE", "axis": False}
"""Of settings that are values by name."""
MOST_SEEDS = 10_000
"""Of one call or command."""
PACE: Any = {"panel": "Run", "speed_only": True, "axis": False}
"""Of settings that say how fast a run is, and not what it is."""


class OptimizerOptions(NamedValues):
    """Values by name, of which several numbers may be one; they are kept as text with commas between.

    >>> OptimizerOptions().validate("optimizer_options", {"betas": (0.9, 0.99), "eps": 1e-8})
    {'betas': '0.9,0.99', 'eps': 1e-08}
    """

    def convert(self, value: Any) -> dict[str, Any]:
        """Return a dictionary of scalars."""
        lists = {key: entry for key, entry in value.items() if isinstance(entry, tuple | list)}
        return super().convert({**value, **{key: ",".join(map(str, entry)) for key, entry in lists.items()}})


class AverageLength(Float):
    """How long a running average is: what is left of it after a batch, or over how many batches it goes.

    >>> AverageLength(0).validate("weight_average", 0.98), AverageLength(0).validate("weight_average", 50)
    (0.98, 50.0)
    """

    expected = "a number from 0 to 1 (how much of it is left after a batch) or from 2 on (over how many batches)"

    def convert(self, value: Any) -> float:
        """Return a plain float."""
        number = super().convert(value)
        if 1 < number < 2:
            raise ValueError
        return number


@dataclass(frozen=True)
class Experiment:
    """One run, whole: data, method, memory, and the seed from which every draw follows.

    Args:
        memory: a `Reservoir`, `Native`, `ODEDM` or `NoMemory`, its name, a number n for ODEDM(n), or a policy of one's
            own, which is a subclass of `Memory`.
        method: a name in `odedm list methods`, or a subclass of `Method`; `options` are its hyper-parameters by name.
        data: a name in `odedm data list`, or a path; `tasks` is how many tasks its classes arrive in.
        task_classes, recurring, domain: tasks of unequal size, classes that return, all classes in every task.
        imbalance, factor, limit, blur, noise, class_order, shuffle: which rows arrive, with which labels, which order.
        validation: this share of each class's training rows is held out and takes the place of the test rows, which are
            never read: for choices. `first_tasks`: the stream ends after so many tasks.
        transform: training views: "data", those of the data set, "none", or a function of images [n, ...], and of a
            generator if it takes two arguments, that gives images of the same shape.
        net: a name in `odedm list nets`, "auto", an `nn.Module`, of which a copy is trained, or a class or function
            that makes one; `net_options` are its options by name.
        optimizer: a name of torch.optim's in lower case, with `optimizer_options` by name; or a class of one, or a
            function of parameters and keywords. It goes on over tasks, unless the method is defined otherwise.
        schedule, warmup: "constant", "linear" or "cosine" after batches of rising rate, anew in each task or once in
            the stream (`schedule_over`); or a function of a batch's number that gives a factor, or one of an optimizer
            that gives a scheduler of torch.optim.lr_scheduler, which then steps with every batch.
        clip_norm: the largest norm of an update's gradient; longer ones are cut to it.
        batch: stream rows per step. `replay_batch`: replayed rows per draw, as many as `batch` unless given.
        epochs: passes over each task's rows, reshuffled; they are stored in the first pass alone. More than one is
            offline learning, and tables say so.
        retrieval: which stored rows a draw takes: a name in `odedm list retrievals`, with `retrieval_options` by name,
            or a class or object such as MIR(candidates=100).
        updates: updates on each stream batch, each with a fresh view of it and fresh draws; its rows are stored once.
        stream_loss: "plain", "asymmetric" or "adjusted", the loss of the stream's own rows; None is the method's own.
        predict: "head" or "nearest-mean", of stored rows; None is the method's own.
        weight_average: predict by a running average of the weights, of which so much is left after each batch; from 2
            on, an average over so many batches, though over no more than half a task; "auto" is half a task. None
            predicts by the last weights.
        views: of replayed rows: "crop", "strong", "rotations", "turned-classes" or "strong-turned"; the last three add
            a term on turned images.
        eval_classes: Class-IL accuracy among the classes "seen" so far, or among "all".
        seed: from which everything random follows.
        device, threads, cuda_graph: where and how fast; no part of what a run is. Another device or number of threads
            adds up in another order, so last digits may differ.
        precision: "fp32", "tf32" or "bf16"; "auto" takes float32 on a CPU and bfloat16 on a GPU, TF32 there for methods
            that derive twice.

    >>> Experiment(ODEDM(200, k=6), method="er")
    Experiment(memory=ODEDM(capacity=200, k=6), method='er', data='fashion-mini')
    >>> Experiment(ODEDM(200, k=6), method="er").describe()["memory"]["k"]
    6
    """

    memory: AnyMemory = field(default_factory=ODEDM)
    method: str = setting_field(Choice("method", METHODS), "derpp", "How to learn.")
    options: Mapping[str, Any] = setting_field(NamedValues(), dict, "A hyper-parameter of the method.", **BY_NAME)
    data: str = setting_field(Text(), "fashion-mini", "Data set: a name, or a path to pictures or arrays.", **STREAM)
    tasks: int | None = setting_field(Int(1), None, "Number of tasks.", default_words="the data set's own", **STREAM)
    task_classes: tuple[int, ...] | None = setting_field(
        Sizes(),
        None,
        "How many classes each task has, e.g. 2,3,5.",
        default_words="equally many",
        metavar="N,N,…",
        **STREAM,
    )
    recurring: int = setting_field(Int(1), 1, "Passes in which the classes return, with other rows.", **STREAM)
    domain: str | None = setting_field(
        Choice("domain change", DOMAINS),
        None,
        "Every task has all classes; what changes from task to task.",
        default_words="each task has classes of its own",
        **STREAM,
    )
    imbalance: str = setting_field(Choice("imbalance", IMBALANCES), "standard", "Which training rows arrive.", **STREAM)
    factor: float | None = setting_field(Float(1), None, "Imbalance of 'long-tail'.", default_words="10", **STREAM)
    limit: int | None = setting_field(
        Int(1),
        None,
        "Only the first N training and test rows of each class, for a first try.",
        default_words="all",
        **STREAM,
    )
    blur: float = setting_field(Float(0), 0.0, "Share of every class that arrives in other tasks.", **STREAM)
    noise: float = setting_field(Float(0), 0.0, "Share of every class with a wrong label of its task.", **STREAM)
    class_order: str = setting_field(
        Choice("class order", CLASS_ORDERS), "natural", "In which order classes arrive.", **STREAM
    )
    shuffle: bool = setting_field(Bool(), True, "A task's rows in random order, or in that of the data set.", **STREAM)
    validation: float | None = setting_field(
        Share(),
        None,
        "Test on this share of the training rows, held out; test rows are never read.",
        default_words="the test rows",
        if_given=True,
        **STREAM,
    )
    first_tasks: int | None = setting_field(
        Int(1), None, "Stop after the first N tasks.", default_words="all", if_given=True, **STREAM
    )
    transform: str = setting_field(Choice("transform", TRANSFORMS), "data", "Training views of rows.", **STREAM)
    net: str = setting_field(Choice("net", NETS, also=("auto",)), "auto", "The network.")
    net_options: Mapping[str, Any] = setting_field(
        NamedValues(), dict, "An option of the net, e.g. width=32.", **BY_NAME
    )
    batch: int = setting_field(Int(1), 32, "Stream rows per step.")
    replay_batch: int | None = setting_field(Int(1), None, "Replayed rows per draw.", default_words="as many as batch")
    epochs: int = setting_field(Int(1), 1, "Passes over each task's rows: more than one is no longer online.")
    optimizer: str = setting_field(Choice("optimizer", OPTIMIZERS), "sgd", "What makes the steps.")
    optimizer_options: Mapping[str, Any] | None = setting_field(
        OptimizerOptions(), None, "An option of the optimizer, e.g. betas=0.9,0.99 of adamw.", if_given=True, **BY_NAME
    )
    schedule: str | None = setting_field(
        Choice("schedule", SCHEDULES),
        None,
        "How the learning rate changes: constant, linear, cosine.",
        default_words="constant",
        if_given=True,
    )
    schedule_over: str | None = setting_field(
        Choice("span of a schedule", SCHEDULE_SPANS),
        None,
        "Whether the schedule, its warm-up too, is of each task or of the whole stream.",
        default_words="stream",
        if_given=True,
    )
    warmup: int | None = setting_field(
        Int(1), None, "Batches in which the learning rate rises to its value.", default_words="none", if_given=True
    )
    clip_norm: float | None = setting_field(
        Float(0), None, "Cut each update's gradient to this norm.", default_words="no limit", if_given=True
    )
    retrieval: str = setting_field(Choice("retrieval", RETRIEVALS), "uniform", "Which stored rows a draw takes.")
    retrieval_options: Mapping[str, Any] = setting_field(
        NamedValues(), dict, "An option of the retrieval, e.g. candidates=100 of mir.", **BY_NAME
    )
    updates: int = setting_field(Int(1), 1, "Updates on each stream batch, with fresh views and draws.")
    stream_loss: str | None = setting_field(
        Choice("stream loss", STREAM_LOSSES),
        None,
        "The loss of the stream's own rows.",
        default_words="the method's own",
    )
    predict: str | None = setting_field(
        Choice("prediction", PREDICTIONS),
        None,
        "By what classes are predicted.",
        default_words="the method's own",
    )
    weight_average: float | str | None = setting_field(
        WordOr("auto", AverageLength(0)),
        None,
        "Predict by a running average of the weights: 0 to 1 is how much of it is left after a batch, 2 or more over "
        "how many batches (half a task at most); auto: half a task.",
        default_words="the last weights",
        metavar="X|N|auto",
    )
    views: str = setting_field(Choice("views", VIEWS), "crop", "Views of replayed rows.")
    eval_classes: str = setting_field(
        Choice("classes of evaluation", EVAL_CLASSES), "seen", "Class-IL accuracy among which classes."
    )
    seed: int = setting_field(Int(0), 0, "First seed.", panel="Run", axis=False)
    device: str = setting_field(Device("device", DEVICES), "auto", "Where to compute.", **PACE)
    threads: int = setting_field(Int(1), 1, "CPU threads of each run.", **PACE)
    precision: str = setting_field(
        Choice("precision", PRECISIONS, also=("auto",)), "auto", "Precision of the network.", panel="Run"
    )
    cuda_graph: bool = setting_field(Bool(), True, "Replay steps as recorded graphs (GPU).", **PACE)

    PANEL: ClassVar[str] = "Method"

    def __post_init__(self) -> None:
        given: Any = self.retrieval_options
        if isinstance(given, Mapping):
            retrieval, options = class_and_options(self.retrieval, given)
            object.__setattr__(self, "retrieval", retrieval)
            object.__setattr__(self, "retrieval_options", options)
        check_settings(self)
        object.__setattr__(self, "memory", as_memory_config(self.memory))
        if self.schedule_over is not None and self.schedule in (None, "constant") and not self.warmup:
            raise UsageError(f"schedule_over='{self.schedule_over}' is for a schedule or a warm-up; none was given.")
        if self.factor is not None and self.imbalance != "long-tail":
            raise UsageError(f"factor belongs to imbalance='long-tail'; the imbalance is '{self.imbalance}'.")

    def __repr__(self) -> str:
        return repr_without_defaults(self, ("memory", "method", "data"))

    def with_seed(self, seed: int) -> Experiment:
        """Return the same run from another seed."""
        return replace(self, seed=seed)

    def plugins(self) -> dict[str, tuple[str, PluginEntry]]:
        """Return which settings name code from outside the package: the name, and what it stands for.

        >>> Experiment().plugins()
        {}
        """
        named = {}
        for plan, prefix in ((self, ""), (self.memory, "memory.")):
            values = values_of(plan)
            for setting, description in settings_of(type(plan)).items():
                table, name = getattr(description.validator, "table", {}), values[setting]
                entry = table.get(name) if isinstance(name, str) else None
                if isinstance(entry, PluginEntry):
                    named[f"{prefix}{setting}"] = (name, entry)
        return named

    def code_hashes(self) -> dict[str, str]:
        """Return which code and weights from outside it names, by setting: another mark is other code.

        >>> Experiment().code_hashes()
        {}
        """
        return code_hashes(self.origins())

    def origins(self) -> dict[str, dict[str, Any]]:
        """Return what a result says of what is from outside, by setting: code, and a file of pretrained weights."""
        parts, weights = origins(self.plugins()), self.net_options.get("weights")
        path = Path(weights) if isinstance(weights, str) else Path()
        if (code := known_hash(path)) is not None:
            parts["weights"] = {"title": path.name, "from": str(path), "again": True, "code": code}
        return parts

    def describe(self) -> dict[str, Any]:
        """Plain data, ready for JSON; `from_dict` gives the experiment back."""
        return {"memory": memory_to_dict(self.memory), **to_dict(self)}

    @classmethod
    def from_dict(cls, plain: object) -> Experiment:
        """Return what `describe` gave, as an experiment again; it may come from a file of anyone's.

        >>> plan = Experiment(ODEDM(100, rho=0.25), options={"lr": 0.1})
        >>> Experiment.from_dict(plan.describe()) == plan
        True
        """
        if not isinstance(plain, Mapping):
            raise UsageError(f"A stored experiment must be an object; a {type(plain).__name__} was found.")
        settings = {name: value for name, value in plain.items() if name != "memory"}
        memory = memory_from_dict(plain.get("memory"))
        return from_dict(cls, "experiment", settings, memory=memory)

    def slug(self) -> str:
        """Return a folder name that says what is run, the same for every seed and different for every configuration.

        >>> Experiment(ODEDM(100)).slug().rsplit("-", 1)[0]
        'fashion-mini-derpp-odedm-100'
        """
        mark = content_key({**self.describe(), "seed": None})
        return f"{self.data}-{self.method}-{self.memory.name}-{self.memory.capacity}-{mark[:8]}"


def content_key(plain: Mapping[str, Any], checksum: object = None, marks: Mapping[str, str] | None = None) -> str:
    """Return the content hash of a described experiment on data with this checksum: equal for runs that are the same.

    `marks` say which code from outside it was made by, or is to be (`Experiment.code_hashes`).

    What sets the pace of a run has no part in it. Nor have today's defaults: a resolved plan holds every value.

    >>> plan = Experiment(ODEDM(100, k=2))
    >>> content_key(plan.describe()) == content_key(replace(plan, device="cpu").describe())
    True
    """
    memory = plain.get("memory")
    decisive = identity(Experiment, plain)
    kind = KINDS.get(str(memory.get("name"))) if isinstance(memory, Mapping) else None
    if isinstance(memory, Mapping) and kind is not None:
        decisive["memory"] = identity(kind, memory)
    return json_hash([decisive, checksum, *([dict(marks)] if marks else [])], 12)
