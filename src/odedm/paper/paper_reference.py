"""The paper as what a report puts beside runs: its number for a configuration, and whether the runs are what it ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odedm.paper.printed import BEST, by_spot, dataset_of, spots
from odedm.paper.protocol import DATA, protocol_deviations
from odedm.report.published_number import PaperMetric, Published

OTHER_STREAM = {"limit", "blur", "noise", "task_classes", "domain", "recurring", "shuffle"}
"""Settings with another value of which a run has no printed number at all."""


class PaperReference:
    """The paper's numbers and protocol for flat settings of runs."""

    @staticmethod
    def deviations(settings: Mapping[str, Any]) -> list[str]:
        """Return the settings that are not what the paper ran."""
        return protocol_deviations(settings)

    @staticmethod
    def value(metric: PaperMetric, settings: Mapping[str, Any], *, tasks: int, best: bool = False) -> Published | None:
        """Return the paper's number for a configuration, None where it has none or varies something else."""
        data = dataset_of(settings)
        if not data or tasks != DATA[data]["tasks"] or OTHER_STREAM.intersection(protocol_deviations(settings)):
            return None
        places = [spot._replace(variant=BEST) for spot in spots(settings)] if best else spots(settings)
        return next((by_spot()[spot, metric] for spot in places if (spot, metric) in by_spot()), None)
