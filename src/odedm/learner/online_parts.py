"""What a learner is made of once the first rows have said what they are: network, method, memory, and their step."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, cast

import torch
from torch import Tensor

from odedm.core.errors import UsageError, short_repr
from odedm.core.options import with_keyword
from odedm.core.registry import DEVICES, METHODS, OPTIMIZERS, PRECISIONS, PREDICTIONS, RETRIEVALS, STREAM_LOSSES, VIEWS
from odedm.core.rng import generator
from odedm.core.row_schema import RowSchema
from odedm.core.rows import ColumnSpec, Rows, Task
from odedm.core.validators import Choice, Device, Float, Int
from odedm.learner.endless_memory import every_row, learner_buffer, lengthen, open_candidates, settle_memory
from odedm.learner.growth import grow
from odedm.learner.net_choice import make_net
from odedm.learner.running_scale import RunningScale
from odedm.memory.admission import ConsolidationOutcome
from odedm.memory.dual import DualBuffer
from odedm.memory.live_parts import generators
from odedm.memory.settings import MemorySettings
from odedm.methods.base import Method
from odedm.methods.rotation_task import TURNED
from odedm.stream.augment import Transform
from odedm.training.average_length import Length, left_after_a_batch
from odedm.training.engine import Engine, EngineConfig, resolve_device
from odedm.training.tricks import Tricks, check_pictures

ENDLESS = 2**31
"""How many tasks a stream without borders is said to have: the one under way is never the last."""


@dataclass(frozen=True)
class Plan:
    """A learner's settings, checked, with every default that does not depend on its rows."""

    engine: EngineConfig
    policy: str
    net: Any
    net_options: Mapping[str, Any]
    scaling: Any

    @property
    def memory(self) -> MemorySettings:
        """The memory's settings."""
        return cast(MemorySettings, self.engine.memory)  # `settle_memory` takes no other

    @property
    def precision(self) -> str:
        """What it computes in."""
        return self.engine.precision

    @property
    def device(self) -> torch.device:
        """Where it computes."""
        return self.engine.device

    @classmethod
    def of(cls, given: Mapping[str, Any]) -> Plan:
        """The plan of a learner's parameters, or a sentence on what cannot be."""
        name = given["method"]
        if isinstance(name, type) and issubclass(name, Method):
            kind: type[Method] = name
            title = kind.__name__
        else:
            entry = METHODS[Choice("method", METHODS).validate("method", name)]
            kind, title = entry.load(), entry.title or name
        if "no memory" in kind.requires:
            raise UsageError(
                f"{title} keeps no rows, and a learner does. Use another method, e.g. 'er'; "
                "with memory=0 that is finetuning on the stream."
            )
        if "borders" in kind.requires:
            requires = {name: entry.load().requires for name, entry in METHODS.items()}
            free = ", ".join(name for name, needs in requires.items() if not needs & {"borders", "no memory"})
            raise UsageError(
                f"{title} must be told where tasks begin and end, and a learner's stream has no borders. Use "
                f"one of {free}; or odedm.train, which has borders."
            )
        word = name if isinstance(name, str) else kind.__name__
        rate = None if given["lr"] is None else Float().validate("lr", given["lr"])
        settled, policy = settle_memory(given["memory"], kind.policy)
        scaling = given["scaling"]
        if not isinstance(scaling, Transform | None) and not (isinstance(scaling, str) and scaling == "auto"):
            raise UsageError(
                "scaling must be 'auto', None or a Transform such as a data set's `transform`; "
                f"{short_repr(scaling)} was given."
            )
        device = resolve_device(Device("device", DEVICES).validate("device", given["device"]))
        config = EngineConfig.resolve(
            kind,
            name=word,
            title=title,
            options=with_keyword("options", _table("options", given["options"]), "lr", rate),
            memory=settled,
            tricks=_tricks(given),
            optimizer=_name("optimizer", OPTIMIZERS, given),
            retrieval=_name("retrieval", RETRIEVALS, given),
            retrieval_options=_table("retrieval_options", given["retrieval_options"]),
            draw=Int(1).validate("draw", given["batch"] if given["draw"] is None else given["draw"]),
            seed=Int().validate("seed", given["seed"]),
            device=device,
            precision=Choice("precision", PRECISIONS, also=("auto",)).validate("precision", given["precision"]),
        )
        return cls(config, policy, given["net"], _table("net_options", given["net_options"]), scaling)


def _table(name: str, given: Any) -> Mapping[str, Any]:
    if given is not None and not isinstance(given, Mapping):
        raise UsageError(f"{name} must be a table of names and values; {short_repr(given)} was given.")
    return given or {}


def _name(what: str, table: Mapping[str, Any], given: Mapping[str, Any]) -> str:
    """A part by its name, which a file can hold; code gets one by `odedm.register`."""
    if not isinstance(given[what], str):
        raise UsageError(
            f"A learner's {what} must be a name, one of {', '.join(table)}; {short_repr(given[what])} was given. "
            "odedm.register gives code of yours a name."
        )
    return Choice(what, table).validate(what, given[what])


def _tricks(given: Mapping[str, Any]) -> Tricks:
    """What was asked for beside method and memory; None is the method's own."""
    left, loss, way = given["weight_average"], given["stream_loss"], given["predict_by"]
    views = Choice("views", VIEWS).validate("views", given["views"])
    if TURNED.get(views):
        raise UsageError(
            f"The views '{views}' have outputs for each class from the start, and a learner's classes join on the way. "
            f"Give one of {', '.join(name for name in VIEWS if not TURNED.get(name))}."
        )
    return Tricks(
        Int(1).validate("updates", given["updates"]),
        None if loss is None else Choice("stream loss", STREAM_LOSSES).validate("stream_loss", loss),
        None if way is None else Choice("prediction", PREDICTIONS).validate("predict_by", way),
        None if left is None else left_after_a_batch(Length().validate("weight_average", left)),
        views,
    )


class OnlineParts:
    """Network, method, memory, replay, and the generators that they draw from."""

    def __init__(self, plan: Plan, schema: RowSchema, classes: int) -> None:
        self.plan, config = plan, plan.engine
        device = config.device
        check_pictures(config.tricks, schema.shape, schema.dtype)
        net = make_net(plan.net, schema.shape, classes, seed=config.seed, options=plan.net_options)
        self.scale = RunningScale(schema.shape, device) if isinstance(plan.scaling, str) else None
        transform = self.scale.transform if self.scale else fixed(plan.scaling, schema).to(device)
        image = ColumnSpec("image", schema.shape, schema.dtype)
        self.memory_rngs = generators(config.seed, device)

        def make_memory(method_columns: tuple[ColumnSpec, ...]) -> DualBuffer:
            return learner_buffer(plan.memory, plan.policy, method_columns, image, device, self.memory_rngs)

        self.engine = Engine(config, net, transform, make_memory, stored_rows=every_row)
        self.method, self.replay = self.engine.method, self.engine.replay
        self.memory: DualBuffer = self.engine.memory
        self.transform, self.probe, self.views = transform, self.engine.view, self.engine.view_rng
        self._predictor: Callable[[Tensor], Tensor] | None = None
        self.starts = generator(config.seed, "new outputs")
        self.method.begin_task(Task(0, ENDLESS, tuple(range(classes)), {"label": torch.zeros(0, dtype=torch.int64)}))

    @property
    def classes(self) -> int:
        """How many outputs there are."""
        return self.method.net.classes

    def grow(self, classes: int) -> None:
        """Outputs for so many classes: the head, what the optimiser knows of it, and stored logits."""
        grow(self.method, classes, self.starts)
        lengthen(self.memory, self.method.fields(), self.probe.annotate)

    def step(self, image: Tensor, label: Tensor, first: int) -> list[int]:
        """The updates on rows that are number `first` and following of the stream; classes without candidates."""
        self._predictor, device = None, self.plan.device
        image, label = image.to(device), label.to(device)
        index = torch.arange(first, first + len(label), device=device)
        if self.scale:
            self.scale.see(image)
        rows: Rows = {"image": image, "label": label, "index": index}
        rows |= self.engine.update({**rows, "task": torch.zeros_like(label)})
        crowded = open_candidates(self.memory, label)
        self.memory.add(rows, self.probe, rng=self.memory_rngs["memory"])
        return crowded

    def consolidate(self, classes: list[int]) -> ConsolidationOutcome:
        """Choose prototypes of classes now."""
        self._predictor = None
        return self.memory.consolidate(classes, self.probe)

    def release(self, classes: list[int]) -> int:
        """Forget the prototypes of classes; how many rows that were."""
        self._predictor = None
        return self.memory.release(classes)

    def predictor(self) -> Callable[[Tensor], Tensor]:
        """What gives scores of raw rows: until something changes, class means are taken once for all questions."""
        self._predictor = self._predictor or self.engine.predictor()
        return self._predictor

    def drawn_from(self) -> dict[str, Any]:
        """All that a saved learner must hold beside the memory's rows."""
        names = ("method", "views", "starts", "scale", "transform")
        return {name: getattr(self, name) for name in names} | {"draws": self.replay.generators}


def fixed(given: Transform | None, schema: RowSchema) -> Transform:
    """Constants that were given; else rows as they are, bytes of images from 0 to 1."""
    if given is None:
        return Transform(torch.zeros(()), torch.tensor(1 / 255 if schema.dtype == torch.uint8 else 1.0))
    try:
        whole = given.shift.broadcast_to(schema.shape).shape == given.scale.broadcast_to(schema.shape).shape
    except RuntimeError:
        whole = False
    if not whole or ((given.pad or given.flip) and len(schema.shape) != 3):
        raise UsageError(
            f"The transform is for rows of another shape: its constants are {list(given.shift.shape)}, the rows "
            f"{list(schema.shape)}. Give scaling='auto', or one made for such rows."
        )
    # copies: what is given may be another learner's or a data set's
    return Transform(given.shift.clone(), given.scale.clone(), given.pad, given.flip)
