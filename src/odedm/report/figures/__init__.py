"""Pictures of runs: inline SVG for the page and a PNG for a README."""

from odedm.report.figures.census import memory_by_class, memory_growth
from odedm.report.figures.curves import forgetting_curves
from odedm.report.figures.differences import difference_plot
from odedm.report.figures.heatmaps import accuracy_matrices, colour_bar
from odedm.report.figures.pictures import long_term_pictures
from odedm.report.figures.readme import readme_figure
from odedm.report.figures.seconds import seconds_by_phase

__all__ = [
    "accuracy_matrices",
    "colour_bar",
    "difference_plot",
    "forgetting_curves",
    "long_term_pictures",
    "memory_by_class",
    "memory_growth",
    "readme_figure",
    "seconds_by_phase",
]
