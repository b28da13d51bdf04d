"""Pictures of runs: inline SVG for the page, PNG and SVG files, and the data behind each as CSV."""

from odedm.report.figures.ablation import ablation_bars
from odedm.report.figures.anytime import anytime_curves
from odedm.report.figures.census import memory_by_class, memory_growth
from odedm.report.figures.curves import forgetting_curves
from odedm.report.figures.density import memory_density
from odedm.report.figures.differences import difference_plot
from odedm.report.figures.every import report_figures, save_figures, save_panels
from odedm.report.figures.evidence import memory_projection, sample_stories, story_of_row, story_source
from odedm.report.figures.heatmaps import accuracy_matrices, colour_bar
from odedm.report.figures.pictures import long_term_pictures
from odedm.report.figures.projection import memory_pca
from odedm.report.figures.readme import readme_figure
from odedm.report.figures.runtime import dac_runtime, runtime_sentences
from odedm.report.figures.seconds import seconds_by_phase
from odedm.report.figures.selections import pictures_by_distance, selection_grids
from odedm.report.figures.story import Story, sample_story, story
from odedm.report.figures.sweeps import accuracy_over_capacity, accuracy_over_share

__all__ = [
    "Story",
    "ablation_bars",
    "accuracy_matrices",
    "accuracy_over_capacity",
    "accuracy_over_share",
    "anytime_curves",
    "colour_bar",
    "dac_runtime",
    "difference_plot",
    "forgetting_curves",
    "long_term_pictures",
    "memory_by_class",
    "memory_density",
    "memory_growth",
    "memory_pca",
    "memory_projection",
    "pictures_by_distance",
    "readme_figure",
    "report_figures",
    "runtime_sentences",
    "sample_stories",
    "sample_story",
    "save_figures",
    "save_panels",
    "seconds_by_phase",
    "selection_grids",
    "story",
    "story_of_row",
    "story_source",
]
