"""Make the leaderboard's page from packed results: hosts, memories and ingredients at one budget.

python tools/leaderboard.py RESULTS.jsonl.gz … [--out docs/leaderboard.md]

The runs are those of benchmarks/leaderboard.toml (`odedm study benchmarks/leaderboard.toml`, `odedm results pack`). A
row is a host with a memory, plain or with ingredients; changes are against the same host's plain reservoir, paired by
seed, with bootstrap intervals. Below a table stand the commit, the hardware and the seeds of its runs.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from statistics import mean
from typing import Any

from odedm.core.errors import UsageError
from odedm.core.registry import METHODS
from odedm.report.statistics import estimate, paired
from odedm.report.tables import markdown_rows
from odedm.report.wording import between, measured, number
from odedm.results.packed import read_packed
from odedm.results.result import Result

ROOT = Path(__file__).resolve().parents[1]
PLAIN = {"updates": 1, "stream_loss": "plain", "predict": "head", "views": "crop"}
"""A run without ingredients."""
ORIGIN = ("commit", "gpu", "device", "torch")
HEAD = """# Leaderboard

What a memory of λ rows can buy in one pass over the stream: hosts with a reservoir and with ODEDM, plain and with the
[ingredients](how-to/ingredients.md) that `--recipe best` takes. Made by `python tools/leaderboard.py {files}` from the
runs of `odedm study benchmarks/leaderboard.toml`.

**What was looked at before.** The ingredients, and that they help, were first seen on CIFAR's own test rows, with seeds
0 to 5; seeds here are others, the test rows are the same. So take this as an estimate of what they give on these
streams, not as one for streams that nobody has looked at.
"""
WORDS = """
ACC is the accuracy on all classes after the last task, mean ± standard error over seeds; the change is against the
plain reservoir of the same host, paired by seed, with a 95 % bootstrap interval. *Gradients a row* are rows that went
forward and back for each row of the stream; *beyond λ* are rows that a memory reads besides those it stores: ODEDM
looks at all rows of a task when it ends.
"""


@dataclass
class Entry:
    """The runs of one host with one memory and one set of ingredients, by seed."""

    host: str
    memory: str
    ingredients: str
    runs: dict[int, Result] = field(default_factory=dict)

    @property
    def scores(self) -> dict[int, float]:
        """Final accuracy by seed."""
        return {seed: result.acc_last for seed, result in self.runs.items()}


def entries(results: Iterable[Result]) -> dict[tuple[str, int], list[Entry]]:
    """The rows of each table: one for every data set and λ."""
    found: dict[tuple[str, int], dict[tuple[str, str, str], Entry]] = defaultdict(dict)
    for result in results:
        plan = result.experiment
        memory: Mapping[str, Any] = plan["memory"]
        name = METHODS[plan["method"]].title or plan["method"]
        kind = "ODEDM" if memory["name"] == "odedm" else "reservoir"
        key = (name, kind, ingredients(plan))
        table = found[plan["data"], memory["capacity"]]
        table.setdefault(key, Entry(*key)).runs[plan["seed"]] = result
    return {place: list(table.values()) for place, table in sorted(found.items())}


def ingredients(plan: Mapping[str, Any]) -> str:
    """What a run has that a plain one has not, in words.

    >>> ingredients({"updates": 3, "stream_loss": "asymmetric"})
    'updates 3, asymmetric'
    """
    own = [f"updates {plan['updates']}"] if plan.get("updates", 1) != 1 else []
    named = [plan.get(name) or PLAIN[name] for name in ("stream_loss", "predict", "views")]
    own += [str(each) for each in named if each not in PLAIN.values()]
    return ", ".join(own)


def table(rows: list[Entry]) -> str:
    """Markdown, the best first."""
    plain = {row.host: row.scores for row in rows if (row.memory, row.ingredients) == ("reservoir", "")}
    lines = []
    for row in sorted(rows, key=lambda each: -mean(each.scores.values())):
        own = row.scores is not plain.get(row.host) and (row.memory, row.ingredients) != ("reservoir", "")
        change = paired(row.scores, plain.get(row.host, {})) if own else None
        spread = None if change is None else change.interval
        words = "" if change is None else number(change.estimate.mean, sign=True)
        words += "" if spread is None else f" {between(spread)}"
        lines.append(
            [
                row.host,
                row.memory,
                row.ingredients or "–",
                str(len(row.runs)),
                measured(estimate(row.scores.values())),
                words,
                number(mean(each.total_seconds for each in row.runs.values())),
                cost(row),
                beyond(row),
            ]
        )
    head = ["host", "memory", "ingredients", "seeds", "ACC", "change", "seconds a run", "gradients a row", "beyond λ"]
    return markdown_rows(head, lines)


def cost(row: Entry) -> str:
    """Sample-gradients for each row of the stream, where runs know them."""
    known = [each.sample_gradients for each in row.runs.values() if each.sample_gradients is not None]
    return number(mean(known)) if known else ""


def beyond(row: Entry) -> str:
    """Rows that the memory reads besides those it stores."""
    memories = [each.experiment["memory"] for each in row.runs.values()]
    if memories[0]["name"] != "odedm":
        return "0"
    return "a task's" if memories[0].get("candidates") == "task" else "0"


def origin(rows: list[Entry]) -> str:
    """Where the runs of a table come from."""
    runs = [run for row in rows for run in row.runs.values()]
    seeds = sorted({seed for row in rows for seed in row.runs})
    made = {name: {str(run.provenance[name])[:40] for run in runs if name in run.provenance} for name in ORIGIN}
    words = "; ".join(f"{name} {', '.join(sorted(values))}" for name, values in made.items() if values)
    return f"{len(runs)} runs, seeds {seeds[0]} to {seeds[-1]}; {words}."


def page(results: Iterable[Result], files: str) -> str:
    """The whole page."""
    parts = [HEAD.format(files=files)]
    for (data, capacity), rows in entries(results).items():
        parts.append(f"\n## {data}, λ = {capacity}\n\n{table(rows)}\n{origin(rows)}\n")
    return "".join([*parts, WORDS])


def main() -> None:
    """Read, and write the page or print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    try:
        results = [run.result for path in given.files for run in read_packed(path)]
    except UsageError as error:
        sys.exit(str(error))
    text = page(results, " ".join(map(str, given.files)))
    if given.out:
        given.out.write_text(text, encoding="utf-8")
    else:
        print(text)


if __name__ == "__main__":
    main()
