"""The paper as what a report puts beside runs: its number for a configuration, and whether the runs are what it ran."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odedm.paper.printed import published
from odedm.paper.protocol import protocol_deviations
from odedm.report.published_number import PaperMetric, Published
from odedm.results.schema import is_numbers


class PaperReference:
    """The paper's numbers and protocol for flat settings of runs."""

    @staticmethod
    def deviations(settings: Mapping[str, Any]) -> list[str]:
        """Return the settings that are not what the paper ran."""
        return protocol_deviations(settings)

    @staticmethod
    def value(metric: PaperMetric, settings: Mapping[str, Any], *, tasks: int, best: bool = False) -> Published | None:
        """Return the paper's number for a configuration, None where it has none or varies something else.

        It gives none for mixup, without DAC, for a few rows a class, for blurred tasks, for wrong labels, and for
        streams whose tasks are unequal or share classes.
        """
        odedm, capacity = settings["memory.name"] == "odedm", settings.get("memory.capacity")
        dac, k, rho = settings.get("memory.dac", ()), settings.get("memory.k"), settings.get("memory.rho")
        varied = odedm and (settings.get("memory.mixup") or dac is None or not settings.get("memory.k", 1))
        varied = varied or any(settings.get(name) for name in ("limit", "blur", "noise", "task_classes", "domain"))
        varied = varied or settings.get("recurring", 1) != 1 or not settings.get("shuffle", True)
        if varied or not isinstance(capacity, int):
            return None
        return published(
            metric,
            data=settings["data"],
            method=settings["method"],
            capacity=capacity,
            memory="odedm" if odedm else str(settings.get("memory.policy", "reservoir")),
            imbalance=str(settings.get("imbalance", "standard")),
            tasks=tasks,
            k=k if isinstance(k, int) else None,
            rho=rho if isinstance(rho, int | float) else None,
            dac=(int(dac[0]), int(dac[1])) if is_numbers(dac, 2) else None,
            distance=str(settings.get("memory.distance", "sinkhorn")),
            best=best,
            fit=settings.get("options.fit") is True,
            epochs=settings["epochs"] if isinstance(settings.get("epochs"), int) else 1,
        )
