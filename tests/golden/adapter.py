"""Maps the words of commit b1acfb6, in which the golden cases are written, to those of the working tree.

Cases never call `odedm` themselves: they name what b1acfb6 called it. `Words` passes the names on as they are, for a
checkout of b1acfb6; `Today` looks them up in the tables below. A rename in `src/` is one line in one table, and what
was removed is a line in `GONE`, which `intended.toml` explains.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from typing import Any


class Removed(Exception):
    """A case uses what the working tree no longer has."""


class Words:
    """The words of b1acfb6 as they are."""

    def make(self, name: str, *args: Any, **keywords: Any) -> Any:
        """Call a public name: "train", "ODEDM", "Learner.load"."""
        return _follow(import_module("odedm"), name)(*args, **keywords)

    def call(self, kind: str, thing: Any, method: str, *args: Any, **keywords: Any) -> Any:
        """Call a method of an object, whose `kind` is the public name of its class, by a path like "memory.rows"."""
        return _follow(thing, method)(*args, **keywords)

    def read(self, kind: str, thing: Any, path: str) -> Any:
        """Read an attribute of an object by a path like "result.census"."""
        return _follow(thing, path)

    def inner(self, place: str) -> Any:
        """What is no public name, as "module:name"."""
        module, _, name = place.partition(":")
        return _follow(import_module(f"odedm.{module}"), name)

    def columns(self, kind: str, table: Mapping[str, Any]) -> dict[str, Any]:
        """Columns or keys of a table by the names that b1acfb6 had for them."""
        return dict(table)

    def command(self, *words: str) -> list[str]:
        """A command line, without the program."""
        return list(words)

    def study(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """The settings of a study's file."""
        return dict(settings)

    def stop_when(self, experiment: Any, data: Any, folder: Any, stop: Callable[[], bool]) -> Any:
        """Run an experiment into a folder from its last checkpoint on, until it ends or `stop`, asked each step, holds.

        Returns:
            The outcome, or None where it was stopped.
        """
        (job,) = self.inner("execute.planning:plan_jobs")([experiment], lambda _: folder).jobs
        try:
            return self.inner("execute.attempt:attempt_run")(job, data=data, stop=stop)
        except self.inner("checkpoint.stop:Stopped"):
            return None

    def kmeans(self, points: Any, k: int, seed: int) -> Any:
        """The centres [k, d] of the clusters that `select` makes of points by a seed."""
        rng = self.inner("core.rng:generator")(seed, "select")
        return self.inner("consolidate.kmeans:kmeans")(points, k, rng=rng).centroid


def nested(settings: Mapping[str, Any]) -> dict[str, Any]:
    """Settings of b1acfb6 with those of the selection in one, and its defaults.

    They were the method's own short-term policy, prototypes by Sinkhorn, and all rows as candidates and in DAC.
    """
    from odedm.selection.flat_settings import FLAT, of_clusters_there_are, selection_from

    chosen = {name: value for name, value in settings.items() if name in FLAT}
    exact = {} if chosen.get("dac", ()) is None else {"dac_sample": None}
    rest = {name: value for name, value in settings.items() if name not in FLAT}
    selection = selection_from({"distance": "sinkhorn", **of_clusters_there_are({**chosen, **exact})})
    return {"candidates": "task", "short_policy": "native", **rest, "selection": selection}


def dual(name: str) -> Callable[..., Any]:
    """Make what has this public name of the settings of b1acfb6."""
    return lambda *args, **settings: _follow(import_module("odedm"), name)(*args, **nested(settings))


def learner(method: Any = "derpp", **settings: Any) -> Any:
    """Make a learner of the defaults of b1acfb6."""
    odedm = import_module("odedm")
    memory = settings.get("memory", 200)
    if isinstance(memory, int) and not isinstance(memory, bool):
        settings["memory"] = dual("ODEDM")(memory, candidates=memory // 20 if memory >= 20 else "task")
    if "lr" not in {**settings, **settings.get("options", {})}:
        kind = import_module("odedm.core.registry").METHODS[method].load()
        settings["lr"] = kind.lr
    if "views" not in settings:  # those of vectors
        settings.setdefault("net", "mlp")
    return odedm.Learner(method, **{"updates": 1, **settings})


NAMES: dict[str, str | Callable[..., Any]] = {
    "Learner": learner,
    "open_data": "load_dataset",
    "memory": "DualMemory.from_config",
    "ODEDM": dual("ODEDM"),
    "DualMemory": dual("DualMemory"),
    "stream_of": "from_batches",
}
"""Public names that are called otherwise now, or a function of the old arguments that makes the same."""
RUN_WORDS = {"setting": "imbalance", "draw": "replay_batch", "columns": "eval_classes", "capture": "cuda_graph"}
KEYWORDS: dict[str, dict[str, str]] = {
    "train": RUN_WORDS,
    "Experiment": RUN_WORDS,
    "split": {"setting": "imbalance"},
}
"""By public name, or "Class.method": keywords that are called otherwise."""
VALUES: dict[str, dict[Any, Any]] = {}
"""By keyword in the old words: values that are called otherwise."""
PATHS: dict[str, str] = {
    "Outcome.result.census": "result.class_counts",
    "Outcome.method.averaged": "method.ema.net",
    "Result.census": "class_counts",
}
"""By "kind.path": attributes and methods that are elsewhere."""
INNER: dict[str, str] = {
    "consolidate.kmeans:kmeans": "selection.kmeans:kmeans",
    "execute.attempt:attempt_run": "execute.run_job:run_job",
}
"""What is no public name, by "module:name"."""
COLUMNS: dict[str, dict[str, str]] = {"settings": {new: old for old, new in RUN_WORDS.items()}}
"""By kind of table: today's names of columns or keys, each with the old one."""
OPTIONS: dict[str, str | Sequence[str]] = {
    "--setting": "--imbalance",
    "--lanes": "--workers",
    "--events": ["--log", "jsonl:{}"],
}
"""Options of the command line: another name, or words in its place, where {} stands for the value."""
STUDY: dict[str, str] = {**RUN_WORDS}
"""Settings of a study's file, by a dotted path."""
GONE: dict[str, str] = {
    "distance=mmd-centroid": "it ranked rows as l2 does",
    "dac_distance=mmd-centroid": "mmd is the same between clusters",
    "ground=point": "it ranked rows as l2 does",
    "ODEDM.choose_again": "choosing prototypes again brought no gain that could be measured",
}
"""What was removed, by "name.keyword" or "keyword=value" in the old words, with a reason."""


class Today(Words):
    """The words of the working tree."""

    def make(self, name: str, *args: Any, **keywords: Any) -> Any:
        """Call what the old name stands for."""
        words = self._keywords(name, keywords)
        target = NAMES.get(name, name)
        return target(*args, **words) if callable(target) else super().make(target, *args, **words)

    def call(self, kind: str, thing: Any, method: str, *args: Any, **keywords: Any) -> Any:
        """Call a method by its name of today."""
        words = self._keywords(f"{kind}.{method}", keywords)
        if (kind, method) == ("TrainedModel", "learner"):
            return _follow(import_module("odedm"), "Learner.from_model")(thing, *args, **words)
        return super().call(kind, thing, PATHS.get(f"{kind}.{method}", method), *args, **words)

    def read(self, kind: str, thing: Any, path: str) -> Any:
        """Read an attribute by its path of today."""
        value = super().read(kind, thing, PATHS.get(f"{kind}.{path}", path))
        return 100 * value if (kind, path) == ("Prequential", "accuracy") else value

    def inner(self, place: str) -> Any:
        """What is no public name, by its place of today."""
        return super().inner(INNER.get(place, place))

    def kmeans(self, points: Any, k: int, seed: int) -> Any:
        """The centres [k, d] of the clusters that `select` makes of points by a seed."""
        rng = self.inner("core.rng:generator")(seed, "select")
        return self.inner("selection.kmeans:kmeans")(points, k, rng=rng).centers

    def columns(self, kind: str, table: Mapping[str, Any]) -> dict[str, Any]:
        """Today's columns under their old names."""
        names = COLUMNS.get(kind, {})
        return {names.get(name, name): column for name, column in table.items()}

    def command(self, *words: str) -> list[str]:
        """A command line with today's options."""
        found: list[str] = []
        rest = list(words)
        while rest:
            word = rest.pop(0)
            _check_removed(word)
            new = OPTIONS.get(word, word)
            if isinstance(new, str):
                found.append(new)
            else:
                value = rest.pop(0) if any("{}" in part for part in new) else ""
                found.extend(part.replace("{}", value) for part in new)
        return found

    def study(self, settings: Mapping[str, Any]) -> dict[str, Any]:
        """A study's settings under today's names; a dotted name makes a table."""
        found: dict[str, Any] = {}
        for name, value in settings.items():
            _check_removed(f"study.{name}")
            *tables, key = STUDY.get(name, name).split(".")
            place = found
            for table in tables:
                place = place.setdefault(table, {})
            place[key] = ["native" if kind == "plain" else kind for kind in value] if name == "memory" else value
        return {"short_policy": "native", "distance": "sinkhorn", **found}  # the defaults of then

    def _keywords(self, name: str, keywords: Mapping[str, Any]) -> dict[str, Any]:
        _check_removed(name)
        found = {}
        for word, value in keywords.items():
            _check_removed(f"{name}.{word}")
            if isinstance(value, str):
                _check_removed(f"{word}={value}")
            values = VALUES.get(word, {})
            known = values.get(value, value) if isinstance(value, str) else value
            found[KEYWORDS.get(name, {}).get(word, word)] = known
        return found


def _check_removed(word: str) -> None:
    if word in GONE:
        raise Removed(GONE[word])


def _follow(thing: Any, path: str) -> Any:
    for name in path.split("."):
        thing = None if thing is None else getattr(thing, name)
    return thing
