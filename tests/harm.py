"""What ODEDM changed for each method in the runs behind the page on harm."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from odedm.core.registry import METHODS, title
from odedm.memory.settings import ODEDM, memory_to_dict
from odedm.report.statistics import Paired, paired
from odedm.results.result import Result
from odedm.training.replay import resolve_replay_mode

Reading = tuple[str, str]
"""The replay mode, and the rule of γ."""


@dataclass
class Host:
    """Final accuracies of one host by seed: with its own memory, and by reading with prototypes or random rows."""

    method: str
    own: dict[int, float] = field(default_factory=dict)
    kept: dict[Reading, dict[str, dict[int, float]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As people write it."""
        return title(METHODS, self.method)

    def change(self, reading: Reading, distance: str) -> Paired | None:
        """Against its own memory."""
        return paired(self.kept[reading].get(distance, {}), self.own)

    def choice(self, reading: Reading) -> Paired | None:
        """Prototypes against random rows in their place: what it is worth to choose."""
        return paired(*(self.kept[reading].get(distance, {}) for distance in ("sinkhorn", "random")))

    def default(self) -> Reading | None:
        """The reading by default, if it was run."""
        return next(filter(self.is_default, self.kept), None)

    def is_default(self, reading: Reading) -> bool:
        """Whether `--replay auto` stands for this reading."""
        return _reading(memory_to_dict(resolve_replay_mode(ODEDM(10), METHODS[self.method].load()))) == reading


def hosts(results: Iterable[Result]) -> dict[tuple[str, int], dict[str, Host]]:
    """By data set and λ, then by method."""
    found: dict[tuple[str, int], dict[str, Host]] = defaultdict(dict)
    for result in results:
        plan: Mapping[str, Any] = result.experiment
        memory: Mapping[str, Any] = plan["memory"]
        host = found[str(plan["data"]), memory["capacity"]].setdefault(plan["method"], Host(plan["method"]))
        scores = host.own
        if memory["name"] == "odedm":
            scores = host.kept.setdefault(_reading(memory), {}).setdefault(memory["distance"], {})
        assert plan["seed"] not in scores
        scores[plan["seed"]] = result.acc_last
    order = list(METHODS)
    return {
        board: dict(sorted(own.items(), key=lambda each: order.index(each[0]))) for board, own in sorted(found.items())
    }


def shows_something(change: Paired) -> bool:
    """Whether a change is a gain or a harm, or shows that there is no harm of a point or more."""
    low, high = change.interval or (-100.0, 100.0)
    return low >= -1.0 or high < 0


def _reading(memory: Mapping[str, Any]) -> Reading:
    return str(memory["replay"]), str(memory.get("gamma_rule") or "fixed")
