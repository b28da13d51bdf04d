"""Replay draws: from which part of the memory a method reads stored rows, and the term on long-term rows."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any, ClassVar, TypeVar

import torch
from torch import Tensor

from odedm.core.choices import REPLAYS, STRONG_VIEWS
from odedm.core.rows import MemoryPart, Rows
from odedm.core.stored_names import is_of_package, stored, stored_name
from odedm.memory.dual import AnyBuffer
from odedm.memory.settings import ODEDM, OF_TERM, AnyMemory
from odedm.methods.base import Method
from odedm.methods.rotation_task import TURNED, turned
from odedm.stream.augment import Transform
from odedm.training.retrieval import Retrieval, Uniform

EVERY = 2**62
"""More rows than any memory holds."""
MODES = {
    "method/er": ("union", "fixed"),
    "method/gem": ("union", "fixed"),
    "method/gdumb": ("union", "fixed"),
    "method/der": ("auxiliary", "share"),
    "method/icarl": ("auxiliary", "share"),
    "method/scr": ("auxiliary", "share"),
}
"""What `--replay auto` and the rule of gamma stand for, by a method's stored name; `OF_OTHERS` for our other methods.

A method from outside has that of the method of ours that it is a subclass of, or ER's; ("auxiliary", "fixed") where
it says what its term is.

"union": long-term rows are in the method's own draws, where these replay labels with full weight already. "auxiliary":
there is a term on them, as in the paper, which weighs gamma, or gamma times the long-term share of the rows stored,
where the method's own loss is small ("share").
"""

OF_OTHERS = ("auxiliary", "fixed")

SomeMemory = TypeVar("SomeMemory", bound=AnyMemory)


@stored("replay")
class MemoryReplay:
    """Draws from a memory as training views; which rows they are, a retrieval decides.

    The i-th draw of a step has generators of its own, for rows and for views: leaving one draw out, or adding the
    auxiliary term, shifts no other draw.
    """

    TRANSIENT: ClassVar[frozenset[str]] = frozenset({"_draws"})

    def __init__(
        self,
        memory: AnyBuffer,
        transform: Transform,
        *,
        mode: str,
        draw: int,
        gamma: float,
        rng: Callable[[str], torch.Generator],
        retrieval: Retrieval | None = None,
        method: Method | None = None,
        views: str = "crop",
        gamma_rule: str = "fixed",
    ) -> None:
        if mode not in REPLAYS:  # "auto" is none: by then it is known what it stands for
            raise RuntimeError(f"There is no replay mode '{mode}'.")
        self.memory, self.transform, self.draw, self._gamma = memory, transform, draw, gamma
        self._source = MemoryPart.SHORT if mode == "auxiliary" else MemoryPart.ALL
        self._has_auxiliary = mode != "union" and gamma > 0  # without weight not even BatchNorm sees such rows
        self._rng = rng
        self._retrieval, self._method = retrieval or Uniform(), method
        self._views, self._by_share = views, gamma_rule == "share"
        self._batch: Rows | None = None
        self.generators: dict[str, torch.Generator] = {}
        """Those made so far, by their purpose."""
        self._draws: dict[tuple[int, MemoryPart], PartOfMemory] = {}
        moves = type(transform) is not Transform or transform.flip or transform.pad or views in STRONG_VIEWS
        self._as_stored = not moves
        self._calls = 0
        self._most = draw

    def begin_step(self, batch: Rows | None = None) -> None:
        """The next draw is the first of a step on this batch, which has its training view as `input`."""
        self._calls, self._batch = 0, batch

    def end_step(self) -> None:
        """Let go of the batch: it is no state of the run."""
        self._batch = None

    def graph_key(self) -> tuple[int, ...]:
        """Return the host's numbers that this replay's draws, and the memory's own work, depend on."""
        # another retrieval may look at all rows, so that every number of them counts
        sizes = self.memory.graph_key(self._most if type(self._retrieval) is Uniform else EVERY)
        weighed = self._by_share and self._has_auxiliary and self.memory.size(MemoryPart.LONG) > 0
        return (*sizes, self.memory.size(MemoryPart.LONG), self.memory.size()) if weighed else sizes

    @property
    def gamma(self) -> float:
        """Return what the auxiliary term weighs now."""
        if not self._by_share:
            return self._gamma
        return self._gamma * self.memory.size(MemoryPart.LONG) / max(1, self.memory.size())

    def __bool__(self) -> bool:
        return self.memory.size() > 0

    def __call__(self, n: int | None = None) -> Rows:
        """Up to n rows for the method's own terms, as many as a draw of the run unless given; {} of an empty memory."""
        if not self:
            return {}
        n = self.draw if n is None else n
        self._calls += 1
        self._most = max(self._most, n)
        part = self._part()
        stored = self._draws.get((self._calls, part))
        if stored is None:
            stored = self._draws[self._calls, part] = PartOfMemory(self, part, f"draw {self._calls}")
        if type(self._retrieval) is Uniform:
            return stored.view(stored.draw(n))
        if self._batch is None or self._method is None:
            raise RuntimeError("This retrieval looks at the batch and the learner, and was not told of them.")
        return self._retrieval(n, stored, self._batch, self._method)

    def mixture(self) -> Rows:
        """Every raw row that the method's own terms may read: what is shuffled into a task where a method asks so."""
        return self.memory.rows(self._part())

    def _part(self) -> MemoryPart:
        # with rho=1 the short-term part ends up empty: the method's own terms then read the long-term rows
        return self._source if self.memory.size(self._source) else MemoryPart.ALL

    def long_term(self) -> Rows | None:
        """As many long-term rows as a replay draw, or None where there are none or the mode has no such term."""
        if not self._has_auxiliary or self.memory.size(MemoryPart.LONG) == 0:
            return None
        stored = PartOfMemory(self, MemoryPart.LONG, "auxiliary draw")
        return stored.view(stored.draw(self.draw))  # always uniform: the prototypes are a choice already

    def turned(self) -> Rows | None:
        """The batch's own views and a draw for themselves in four turns, or None where the views have no turns."""
        if self._views not in TURNED or self._batch is None:
            return None
        parts = [self._batch]
        if self:
            stored = PartOfMemory(self, self._part(), "turned draw")
            parts.append(stored.view(stored.draw(self.draw)))
        return turned(*(torch.cat([part[name] for part in parts]) for name in ("input", "label")))

    def training_view(self, image: Tensor, rng: torch.Generator) -> Tensor:
        """Return inputs of a fresh view of replayed rows, as the run has them; they are copies of the memory's."""
        if self._as_stored and image.is_cpu and image.dtype is torch.float32 and self.transform.unscaled:
            return image
        view = self.transform.strong_augment if self._views in STRONG_VIEWS else self.transform.augment
        return view(image, rng)

    def rows(self) -> Rows:
        """Return every stored row, raw."""
        return self.memory.rows()

    def normalize(self, image: Tensor) -> Tensor:
        """Return inputs of raw images as they are."""
        return self.transform.normalize(image)

    def augment(self, image: Tensor) -> Tensor:
        """Return inputs of a fresh training view."""
        return self.transform.augment(image, self.generator("weak views"))

    def strong_augment(self, image: Tensor) -> Tensor:
        """Return inputs of a fresh view under the strong augmentation."""
        return self.transform.strong_augment(image, self.generator("strong views"))

    def generator(self, purpose: str) -> torch.Generator:
        """This replay's own generator for a purpose, made on first use."""
        rng = self.generators.get(purpose)
        if rng is None:
            rng = self.generators[purpose] = self._rng(purpose)
        return rng


class PartOfMemory:
    """The rows of one draw as a retrieval sees them: a part of the memory, and generators of the draw's own."""

    def __init__(self, replay: MemoryReplay, part: MemoryPart, purpose: str) -> None:
        self._replay, self._part = replay, part
        self._for_rows, self._for_views = f"{purpose}: rows", f"{purpose}: view"

    @property
    def rng(self) -> torch.Generator:
        """The draw's own generator, on the rows' device."""
        return self._replay.generator(self._for_rows)

    def __len__(self) -> int:
        return self._replay.memory.size(self._part)

    def draw(self, n: int) -> Rows:
        """min(n, len) distinct rows, uniformly at random, with raw images."""
        return self._replay.memory.sample(n, part=self._part, rng=self.rng)

    def view(self, rows: Rows) -> Rows:
        """Return the rows with a fresh training view as `input`."""
        views = self._replay.generator(self._for_views)
        return {**rows, "input": self._replay.training_view(rows["image"], views)}


def resolve_replay_mode(memory: SomeMemory, method: type[Method]) -> SomeMemory:
    """The memory with the replay mode that it has with this method: what `auto` stands for, and the term's weight.

    A weight that was given is a wish for the auxiliary term. With `union` there is none: one run has one description.

    >>> from odedm.methods.gem import GEM
    >>> resolve_replay_mode(ODEDM(200), GEM).replay, resolve_replay_mode(ODEDM(200, gamma=0.5), GEM).replay
    ('union', 'auxiliary')
    """
    if not isinstance(memory, ODEDM):
        return memory
    mode, rule = memory.replay, memory.gamma_rule
    if mode == "auto" and (memory.gamma is not None or rule is not None):
        mode = "auxiliary"
    elif mode == "auto":
        mode, rule = mode_of(method)
    if mode == "union":
        return replace(memory, replay=mode, gamma=None, gamma_rule=None)
    gamma = 1.0 if memory.gamma is None else memory.gamma
    return replace(memory, replay=mode, gamma=gamma, gamma_rule=rule or "fixed")


def mode_of(method: type[Method]) -> tuple[str, str]:
    """Return what `auto` stands for with a method, and the rule of gamma.

    >>> from odedm.methods.agem import AGEM
    >>> mode_of(AGEM), mode_of(type("Mine", (Method,), {"__module__": "mine"}))
    (('auxiliary', 'fixed'), ('union', 'fixed'))
    """
    ours = next(kind for kind in method.__mro__ if is_of_package(kind))
    if ours is Method and method.long_term_loss is Method.long_term_loss:
        return MODES["method/er"]
    return MODES.get(stored_name(ours), OF_OTHERS)


def replay_options(memory: AnyMemory) -> dict[str, Any]:
    """Return how draws come from a memory whose replay mode is known, as keywords of `MemoryReplay`.

    >>> from odedm.methods.agem import AGEM
    >>> replay_options(resolve_replay_mode(ODEDM(200, gamma=0.5), AGEM))
    {'mode': 'auxiliary', 'gamma': 0.5, 'gamma_rule': 'fixed'}
    """
    if memory.replay == "union" and isinstance(memory, ODEDM):
        return {"mode": memory.replay, **OF_TERM}
    rule = memory.gamma_rule if isinstance(memory, ODEDM) else "fixed"
    return {"mode": memory.replay, "gamma": memory.gamma, "gamma_rule": rule}
