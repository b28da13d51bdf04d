"""What results say at a glance: a line of words, and one row of figures for each seed."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from odedm.core.registry import MEMORIES, METHODS, title
from odedm.core.showing import html_table
from odedm.core.text import printable
from odedm.results.small_picture import accuracy_picture

if TYPE_CHECKING:
    from odedm.results.result import Result

TITLES = {
    "acc_last": "ACC_T",
    "acc_mean": "mean ACC",
    "task_il_last": "Task-IL",
    "forgetting": "Forgetting",
    "backward_transfer": "BWT",
    "seconds": "Seconds",
    "sample_gradients": "Gradients/row",
}
"""What the figures of a run are called, in the order in which they are shown."""

Figures = dict[str, float]


def figures_of(result: Result) -> Figures:
    """The figures of a result by name, but for those that its stream does not have."""
    found = {name: result.total_seconds if name == "seconds" else getattr(result, name) for name in TITLES}
    return {name: value for name, value in found.items() if value is not None}


def means_of(results: Sequence[Result]) -> tuple[Figures, Figures]:
    """The means of the figures that all results have, and their standard errors, of which one alone has none."""
    rows = [figures_of(each) for each in results]
    columns = {name: [row[name] for row in rows] for name in TITLES if all(name in row for row in rows)}
    means = {name: math.fsum(column) / len(column) for name, column in columns.items()}
    if len(rows) == 1:
        return means, {}
    return means, {name: statistics.stdev(column) / math.sqrt(len(column)) for name, column in columns.items()}


def what_ran(result: Result) -> str:
    """Method, memory and data in words, whoever wrote the result."""
    plan, titles = result.experiment, result.titles()
    memory = plan.get("memory")
    memory = memory if isinstance(memory, dict) else {}
    kept = str(memory.get("name", "no memory"))
    policy = (titles.get("memory.policy") or memory.get("policy")) if kept == "native" else None
    words = [
        titles.get("method") or title(METHODS, str(plan.get("method", "a method"))),
        policy or title(MEMORIES, kept),
        *([f"λ={memory['capacity']}"] if "capacity" in memory else []),
        *([f"offline, {plan['epochs']} epochs"] if plan.get("epochs", 1) != 1 else []),
    ]
    return f"{' · '.join(printable(word, 24) for word in words)} on '{printable(plan.get('data', '?'))}'"


def seeds_of(results: Sequence[Result]) -> str:
    """Which seeds these are, in words."""
    seeds: list[Any] = [each.experiment.get("seed") for each in results]
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    words = [printable(seed, 24) for seed in seeds]
    return f"seed{'s' if len(words) > 1 else ''} {', '.join(words[:8])}{' …' if len(words) > 8 else ''}"


def one_line(results: Sequence[Result]) -> str:
    """What ran, and the main figures, as means over the seeds."""
    means, errors = means_of(results)
    parts = [
        f"{heading(results, name)} {means[name]:.1f}{f' ± {errors[name]:.1f}' if name in errors else ''}{unit}"
        for name, unit in (("acc_last", " %"), ("acc_mean", " %"), ("forgetting", " points"))
        if name in means
    ]
    seconds = sum(each.total_seconds for each in results)
    return f"{what_ran(results[0])}, {seeds_of(results)}: {', '.join(parts)}, {seconds:.1f} s"


def heading(results: Sequence[Result], name: str) -> str:
    """The title of a figure; the accuracy in the end has the number of tasks in it."""
    return f"ACC_{len(results[0].acc)}" if name == "acc_last" else TITLES[name]


def as_html(results: Sequence[Result]) -> str:
    """A table with a row for each seed, one of means where there are several, and accuracy over tasks as a picture."""
    means, errors = means_of(results)
    lines = [[printable(each.experiment.get("seed", ""), 24), *_words(figures_of(each))] for each in results]
    lines += [["mean", *_words(means, errors)]] if len(results) > 1 else []
    table = html_table(["Seed", *(heading(results, name) for name in TITLES)], lines, what_ran(results[0]))
    return table + accuracy_picture({what_ran(results[0]): [each.acc for each in results]})


def _words(figures: Figures, errors: Figures | None = None) -> list[str]:
    more = {name: f" ± {error:.1f}" for name, error in (errors or {}).items()}
    return [f"{figures[name]:.1f}{more.get(name, '')}" if name in figures else "" for name in TITLES]
