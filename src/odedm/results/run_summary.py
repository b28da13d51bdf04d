"""Summarizes finished runs that differ by seed alone: a line, a table of metrics, accuracy over tasks as a picture."""

from __future__ import annotations

import html
import math
import statistics
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from odedm.core.registry import MEMORIES, METHODS, title
from odedm.core.text import html_table, printable
from odedm.results.metrics import TITLES

if TYPE_CHECKING:
    from odedm.results.result import Result

COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#e69f00", "#56b4e9")
"""Okabe and Ito's, as in reports: told apart by colour-blind readers, too."""

Metrics = dict[str, float]


def metrics_of(result: Result) -> Metrics:
    """Return the metrics of a result by name, without those that its stream does not have."""
    values = {name: result.total_seconds if name == "seconds" else getattr(result, name) for name in TITLES}
    return {name: value for name, value in values.items() if value is not None}


def mean_metrics(results: Sequence[Result]) -> tuple[Metrics, Metrics]:
    """Return the means of the metrics that all results have, and their standard errors, if there are several."""
    rows = [metrics_of(result) for result in results]
    columns = {name: [row[name] for row in rows] for name in TITLES if all(name in row for row in rows)}
    means = {name: math.fsum(column) / len(column) for name, column in columns.items()}
    if len(rows) == 1:
        return means, {}
    return means, {name: statistics.stdev(column) / math.sqrt(len(column)) for name, column in columns.items()}


def describe(plan: Mapping[str, Any], titles: Mapping[str, str]) -> str:
    """Return method, memory and data in words, whoever wrote the plan; `titles` are those of plug-ins by setting.

    >>> describe({"method": "er", "memory": {"name": "reservoir", "capacity": 20}, "data": "blobs"}, {})
    "ER · reservoir · λ=20 on 'blobs'"
    """
    memory = plan["memory"]
    name = str(memory.get("name"))
    policy = (titles.get("memory.policy") or memory.get("policy")) if name == "native" else None
    words = [titles.get("method") or title(METHODS, str(plan.get("method"))), policy or title(MEMORIES, name)]
    words += [f"λ={memory['capacity']}"] if "capacity" in memory else []
    words += [f"offline, {plan['epochs']} epochs"] if plan.get("epochs", 1) != 1 else []
    return f"{' · '.join(printable(word, 24) for word in words)} on '{printable(plan.get('data'))}'"


def summary_line(results: Sequence[Result]) -> str:
    """Return what ran and its main metrics, as means over the seeds."""
    means, errors = mean_metrics(results)
    parts = []
    for name, unit in (("acc_last", " %"), ("acc_mean", " %"), ("forgetting", " points")):
        if name in means:
            error = f" ± {errors[name]:.1f}" if name in errors else ""
            parts.append(f"{_heading(results, name)} {means[name]:.1f}{error}{unit}")
    seconds = math.fsum(result.total_seconds for result in results)
    return f"{_describe(results)}, {_seeds(results)}: {', '.join(parts)}, {seconds:.1f} s"


def summary_html(results: Sequence[Result]) -> str:
    """Return a table with a row for each seed, one of means where there are several, and accuracy as a picture."""
    rows = [[printable(result.experiment["seed"], 24), *_cells(metrics_of(result))] for result in results]
    rows += [["mean", *_cells(*mean_metrics(results))]] if len(results) > 1 else []
    table = html_table(["Seed", *(_heading(results, name) for name in TITLES)], rows, _describe(results))
    return table + accuracy_picture({_describe(results): [result.acc for result in results]})


def _describe(results: Sequence[Result]) -> str:
    return describe(results[0].experiment, results[0].titles())


def _seeds(results: Sequence[Result]) -> str:
    seeds = [result.experiment["seed"] for result in results]
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[0] + len(seeds))):
        return f"seeds {seeds[0]} to {seeds[-1]}"
    words = ", ".join(printable(seed, 24) for seed in seeds[:8])
    return f"seed{'s' if len(seeds) > 1 else ''} {words}{' …' if len(seeds) > 8 else ''}"


def _heading(results: Sequence[Result], name: str) -> str:
    return f"ACC_{len(results[0].acc)}" if name == "acc_last" else TITLES[name]


def _cells(values: Metrics, errors: Metrics | None = None) -> list[str]:
    suffix = {name: f" ± {error:.1f}" for name, error in (errors or {}).items()}
    return [f"{values[name]:.1f}{suffix.get(name, '')}" if name in values else "" for name in TITLES]


def accuracy_picture(curves: Mapping[str, Sequence[Sequence[float]]]) -> str:
    """Return an SVG of accuracy after each task, the mean over seeds; empty where it would show nothing.

    Args:
        curves: for each label one list of accuracies a seed; a label may be anyone's text, and is shown as text.

    >>> accuracy_picture({"ER": [[90.0, 60.0], [80.0, 50.0]]}).count("<polyline")
    1
    >>> accuracy_picture({"ER": [[90.0]]})
    ''
    """
    means = {label: list(map(statistics.fmean, zip(*seeds, strict=False))) for label, seeds in curves.items()}
    tasks = max(map(len, means.values()), default=0)
    if tasks < 2 or len(means) > len(COLOURS):
        return ""
    parts = [f'<path d="M30 {10 + y}h380" stroke="currentColor" stroke-opacity=".2"/>' for y in (0, 75, 150)]
    parts += [f'<text x="2" y="{14 + y}">{100 - y * 2 // 3}</text>' for y in (0, 75, 150)]
    legend = []
    for colour, (label, accuracies) in zip(COLOURS, means.items(), strict=False):
        points = [f"{30 + 380 * i / (tasks - 1):.1f},{160 - 1.5 * value:.1f}" for i, value in enumerate(accuracies)]
        parts.append(f'<polyline points="{" ".join(points)}" fill="none" stroke="{colour}" stroke-width="2"/>')
        legend.append(f'<span style="color:{colour}">&#9632;</span> {html.escape(printable(label, 52))}')
    style = "max-width:100%;font:11px sans-serif;fill:currentColor"
    picture = f'<svg viewBox="0 0 420 170" width="420" role="img" style="{style}">{"".join(parts)}</svg>'
    return f"<div>Accuracy in % after each of {tasks} tasks: {' '.join(legend)}</div>{picture}"
