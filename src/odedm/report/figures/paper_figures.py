"""Draws the paper's figures, each from the runs that it needs."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from odedm.report.figures.class_density import class_density
from odedm.report.figures.comparisons import accuracy_over_share
from odedm.report.figures.curves import forgetting_curves
from odedm.report.figures.projection import memory_projection
from odedm.report.figures.stored_images import pictures_by_distance
from odedm.report.figures.style import Panel
from odedm.report.figures.timings import dac_runtime
from odedm.report.figures.training_time import training_time
from odedm.report.groups import Group
from odedm.report.summary import Table
from odedm.study.dac_timing_plan import Measured

OF_RUNS: dict[str, Callable[[Sequence[Group]], list[Panel]]] = {
    "forgetting": forgetting_curves,
    "share": accuracy_over_share,
    "training_time": training_time,
    "class_density": class_density,
    "projection": memory_projection,
    "selections": pictures_by_distance,
}


def paper_figures(names: Sequence[str], table: Table, timed: Sequence[Measured] = ()) -> dict[str, list[Panel]]:
    """The panels of some figures by name; one without a panel has nothing to show yet."""
    drawn = {name: OF_RUNS[name](table.groups) if table.groups else [] for name in names if name in OF_RUNS}
    return drawn | ({"runtime": dac_runtime(timed)} if "runtime" in names else {})
