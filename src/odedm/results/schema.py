"""Checks that what a file holds has the types of a result: whoever reads one need not look again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from odedm.core.errors import require, short_repr

MAX_VALUE = 1e100
"""No number of a run is larger: beyond, statistics would overflow."""
INTEGERS = frozenset(
    ("batch", "capacity", "epochs", "k", "limit", "recurring", "replay_batch", "rows_per_prototype", "screen", "seed")
) | {"first_tasks", "tasks", "threads", "updates", "warmup"}
NUMBERS = frozenset(
    ("bandwidth", "blur", "clip_norm", "epsilon", "factor", "gamma", "noise", "pair_epsilon", "rho", "validation")
)
FLAGS = frozenset(("cuda_graph", "mixup", "shuffle"))
"""Settings of an experiment and its memory whose values are no text, by type; each may be null."""
NESTED = frozenset(("memory", "options", "net_options", "policy_options", "retrieval_options", "optimizer_options"))
TYPED = ((INTEGERS, "a whole number", (int,)), (NUMBERS, "a number", (int, float)), (FLAGS, "true or false", (bool,)))


def check_fields(result: Any) -> None:
    """Raise InvalidFileError where a field of a result has another type or form than it must have."""
    check_experiment(result.experiment)
    require(is_numbers(result.acc) and result.acc, "its accuracies by task are not finite numbers")
    tasks = len(result.acc)
    triangles = _is_triangle(result.class_il, tasks) and (result.task_il is None or _is_triangle(result.task_il, tasks))
    require(triangles, f"'class_il' or 'task_il' is not a triangle of finite numbers of {tasks} tasks")
    require(is_numbers(result.forgetting_rate, tasks), f"'forgetting_rate' is not {tasks} finite numbers")
    optional = [result.task_il_last, result.forgetting, result.backward_transfer, result.sample_gradients]
    summary = [result.acc_last, result.acc_mean, *(value for value in optional if value is not None)]
    require(is_numbers(summary), "a summary number is not finite")
    require((result.task_il is None) == (result.task_il_last is None), "it has half of its Task-IL accuracies")
    seconds = isinstance(result.seconds, dict) and is_numbers(list(result.seconds.values()))
    require(seconds, "'seconds' does not map phases to finite numbers")
    parts = {} if result.bytes is None else result.bytes
    held = isinstance(parts, dict) and is_numbers(list(parts.values()))
    require(held, "'bytes' does not map parts to finite numbers")
    require(isinstance(result.provenance, dict), "'provenance' is not an object")
    plugins = _are_plugins(result.provenance.get("plugins", {}))
    require(plugins, "'plugins' of its provenance do not map settings to a title and the code's hash")
    classes = isinstance(result.classes, list) and all(isinstance(name, str) for name in result.classes)
    require(classes, "'classes' is not a list of names")
    counts = isinstance(result.class_counts, list) and all(
        isinstance(parts, dict) and all(is_numbers(part, len(result.classes)) for part in parts.values())
        for parts in result.class_counts
    )
    require(counts, "'class_counts' does not hold counts by part and class for each task")
    labels = result.task_labels is None or _are_labels(result.task_labels, tasks, len(result.classes))
    require(labels, f"'task_labels' does not hold labels of the classes for each of {tasks} tasks")
    pairs = [] if result.anytime is None else result.anytime
    curve = isinstance(pairs, list) and all(is_numbers(pair, 2) and 0 <= pair[0] < 1 << 53 for pair in pairs)
    require(curve, "'anytime' is not a list of pairs, rows seen and accuracy")


def check_experiment(experiment: Any) -> None:
    """Raise InvalidFileError where the plan of a result is none, or a setting has another type than it must have."""
    memory: Any = experiment.get("memory") if isinstance(experiment, dict) else None
    require(isinstance(memory, dict), "'experiment' is not an object with a memory")
    seed = experiment.get("seed")
    require(type(seed) is int, f"its seed is {short_repr(seed, 60)}, not a whole number")
    for name, value in (*((name, experiment.get(name)) for name in ("method", "data")), ("memory", memory.get("name"))):
        require(isinstance(value, str), f"its {name} has no name")
    _check_settings(experiment)
    _check_settings(memory)


def _check_settings(settings: Mapping[str, Any]) -> None:
    for name, value in settings.items():
        if name in NESTED:
            require(isinstance(value, dict), f"its {name} is {short_repr(value, 60)}, not an object")
        for names, expected, types in TYPED:
            typed = value is None or (type(value) in types and abs(value) <= MAX_VALUE)
            require(name not in names or typed, f"its {name} is {short_repr(value, 60)}, not {expected}")


def is_numbers(values: object, length: int | None = None) -> bool:
    """Return whether this is a list of finite numbers, of that length where one is given.

    >>> is_numbers([1, 2.5]), is_numbers([1], 2), is_numbers([True]), is_numbers([float("nan")]), is_numbers("12")
    (True, False, False, False, False)
    """
    return (
        isinstance(values, list)
        and length in (None, len(values))
        and all(type(value) in (int, float) and abs(value) <= MAX_VALUE for value in values)
    )


def _is_triangle(matrix: object, tasks: int) -> bool:
    rows = matrix if isinstance(matrix, list) else []
    return len(rows) == tasks and all(is_numbers(row, length) for length, row in enumerate(rows, start=1))


def _are_plugins(plugins: object) -> bool:
    return isinstance(plugins, dict) and all(
        isinstance(plugin, dict)
        and isinstance(plugin.get("title"), str)
        and isinstance(plugin.get("code"), str | None)
        and isinstance(plugin.get("again"), bool)
        for plugin in plugins.values()
    )


def _are_labels(labels: object, tasks: int, classes: int) -> bool:
    rows = labels if isinstance(labels, list) else []
    return len(rows) == tasks and all(
        is_numbers(row) and row and all(type(label) is int and 0 <= label < classes for label in row) for row in rows
    )
