"""Make the leaderboard's page from packed results: hosts, memories and ingredients at one budget.

    python tools/leaderboard.py RESULTS.jsonl.gz … [--chosen HELD-OUT.csv …] [--out docs/leaderboard.md]

The runs are those of benchmarks/leaderboard.toml and confirm.toml (`odedm study benchmarks/leaderboard.toml`, `odedm
results pack`), and `--chosen` are scores on held-out rows, from which the recipe was chosen (`odedm study
benchmarks/recipe_choice.toml --held-out 0.1`). With `--out` a picture is written beside the page. A row is a host with
a memory, plain or with ingredients; changes are against the same host's plain reservoir, paired by seed, with 95 %
intervals. Below a table stand the commit, the hardware and the seeds of its runs.
"""

from __future__ import annotations

import argparse
import csv
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from pathlib import Path
from statistics import mean
from typing import Any

from odedm.core.errors import UsageError
from odedm.core.files import writable_folder, write_text
from odedm.core.registry import METHODS, title
from odedm.core.validators import Float
from odedm.report.statistics import Paired, estimate, paired
from odedm.report.tables import markdown_rows
from odedm.report.wording import format_interval, format_mean, number
from odedm.results.packed import read_packed
from odedm.results.result import Result
from odedm.studies.spec import parse

ROOT = Path(__file__).resolve().parents[1]
PLAIN = {"updates": 1, "stream_loss": "plain", "predict": "head", "views": "crop"}
"""A run without ingredients."""
STUDIES = ("leaderboard.toml", "confirm.toml")
TASKS = {"cifar10": 5, "cifar100": 10}
"""In which these data sets usually come."""
ORIGIN = ("commit", "gpu", "device", "torch")
HEAD = """# Leaderboard

What a memory of λ rows can buy in one pass over the stream: hosts with a reservoir and with ODEDM, plain and with the
[ingredients](how-to/ingredients.md) that `--recipe best` takes. {done} of {planned} planned runs are in the tables;
what is not there has not been run.

**What was looked at before.** The ingredients, and that they help, were first seen on CIFAR's own test rows, with seeds
0 to 5. Six updates, strong views, the average of weights and the host were chosen on held-out training rows (below),
with seeds that are not reported. So take the tables of five and ten tasks as an estimate of what they give on these
streams; those of twenty tasks and of imbalanced classes are streams that nothing was chosen by, though of the same
pictures.
"""
WORDS = """
ACC is the accuracy on all classes after the last task, mean ± standard error over seeds; the change is against the
plain reservoir of the same host, paired by seed, with its 95 % interval: the bootstrap's, with fewer than five seeds
Student's t. *Seconds* are those of a run in its lane, beside others on the same GPU. *Gradients a row* are rows that
went forward and back for each row of the stream; *beyond λ* are rows that a memory reads besides those it stores:
ODEDM looks at all rows of a task when it ends. *Average* is what is left of an average of the weights after a batch.
ODEDM has ρ = .25 and the paper's reading, `--replay auxiliary`, in every row: the default but for ER,
which has [`union`](consolidation.md#how-a-method-meets-long-term-rows); its accuracy by that stands on
[another page](explanation/no-harm.md). Rows of one or two seeds stand last, whatever they have, and learning rates are
the methods' defaults, not tuned: a place in the table ranks no host above another. Batches and draws have 32 rows;
[OnPro](methods/onpro.md) has its own, 10 and 64, and its own views.
The runs are those of `odedm study benchmarks/leaderboard.toml` and `confirm.toml`, the page is made by
`python tools/leaderboard.py {words}`.
"""
SEEDS_THAT_RANK = 3
"""Rows of fewer are not ranked among the others."""
LEFT_OUT = """
## What each ingredient is worth

The recipe's configurations with one ingredient left out: the change, paired by seed, with its 95 % interval. A plus
says that it was better without; where the interval holds zero, neither is shown. Parts do not add up to the whole: what
one ingredient cures, another has less of to cure.

"""
CHOSEN = """
## What the recipe was chosen from

Accuracy after the last task on a tenth of each class's training rows, which were held out; seeds 1000 and 1001, mean ±
standard error (`odedm study benchmarks/recipe_choice.toml --held-out 0.1`). All predict by nearest mean. Nine updates
scored higher than six in both seeds, by 0.9 and 1.7 points, at one and a half times the cost; six is what we recommend.
The average of the weights was added to six updates and strong views, and for CIFAR-10 its length chosen, on the same
rows and seeds ([table](how-to/ingredients.md#what-averages-gave-on-cifar)).
"""


@dataclass
class Entry:
    """The runs of one host with one memory and one set of ingredients, by seed."""

    host: str
    memory: str
    ingredients: str
    runs: dict[int, Result] = field(default_factory=dict)

    @property
    def parts(self) -> set[str]:
        """The ingredients, each by itself."""
        return {*self.ingredients.split(", ")} - {""}

    @property
    def scores(self) -> dict[int, float]:
        """Final accuracy by seed."""
        return {seed: result.acc_last for seed, result in self.runs.items()}


def entries(results: Iterable[Result]) -> dict[tuple[str, int], list[Entry]]:
    """The rows of each table, one for every data set and λ: the best first, rows of one or two seeds last."""
    found: dict[tuple[str, int], dict[tuple[str, str, str], Entry]] = defaultdict(dict)
    for result in results:
        board, row, seed = place(result.experiment)
        runs = found[board].setdefault(row, Entry(*row)).runs
        if seed in runs:
            raise UsageError(f"Two runs have one place: {', '.join(filter(None, row))} on {board[0]}, seed {seed}.")
        runs[seed] = result
    return {board: sorted(rows.values(), key=_standing) for board, rows in sorted(found.items())}


def _standing(row: Entry) -> tuple[bool, float]:
    return len(row.runs) < SEEDS_THAT_RANK, -mean(row.scores.values())


def place(plan: Mapping[str, Any]) -> tuple[tuple[str, int], tuple[str, str, str], int]:
    """Where a run stands: on which board, in which row, and its seed."""
    memory: Mapping[str, Any] = plan["memory"]
    host = title(METHODS, plan["method"])
    kind = "ODEDM" if memory["name"] == "odedm" else "reservoir"
    return (stream(plan), memory["capacity"]), (host, kind, ingredients(plan)), plan["seed"]


def stream(plan: Mapping[str, Any]) -> str:
    """The data set, and in what it differs from the usual stream.

    >>> stream({"data": "cifar100", "tasks": 20, "imbalance": "standard"})
    'cifar100 as 20 tasks'
    """
    other = [] if plan["tasks"] in {None, TASKS.get(plan["data"], plan["tasks"])} else [f"as {plan['tasks']} tasks"]
    other += [plan["imbalance"]] if plan["imbalance"] != "standard" else []
    return " ".join([plan["data"], *other])


def ingredients(plan: Mapping[str, Any]) -> str:
    """What a run has that a plain one has not, in words.

    >>> ingredients({"updates": 3, "stream_loss": "asymmetric"})
    'updates 3, asymmetric'
    """
    own = [f"updates {plan['updates']}"] if plan.get("updates", 1) != 1 else []
    named = [plan.get(name) or PLAIN[name] for name in ("stream_loss", "predict", "views")]
    own += [str(each) for each in named if each not in PLAIN.values()]
    own += [f"average {plan['weight_average']:g}"] if plan.get("weight_average") is not None else []
    return ", ".join(own)


def table(rows: list[Entry]) -> str:
    """Markdown, in the order of the rows."""
    plain = {row.host: row.scores for row in rows if (row.memory, row.ingredients) == ("reservoir", "")}
    lines = []
    for row in rows:
        own = row.scores is not plain.get(row.host) and (row.memory, row.ingredients) != ("reservoir", "")
        change = paired(row.scores, plain.get(row.host, {})) if own else None
        lines.append(
            [
                row.host,
                row.memory,
                row.ingredients or "–",
                str(len(row.runs)),
                format_mean(estimate(row.scores.values())),
                "" if change is None else format_duration(change),
                number(mean(each.total_seconds for each in row.runs.values())),
                cost(row),
                beyond(row),
            ]
        )
    head = ["host", "memory", "ingredients", "seeds", "ACC", "change", "seconds a run", "gradients a row", "beyond λ"]
    return markdown_rows(head, lines, texts=3)


def left_out(boards: Mapping[tuple[str, int], list[Entry]]) -> str:
    """Markdown: what the richest configurations lose without one of their ingredients."""
    lines = []
    for (data, capacity), rows in boards.items():
        most = max(len(row.parts) for row in rows)
        for full, less in permutations(rows, 2):
            gone = full.parts - less.parts
            alike = (less.host, less.memory) == (full.host, full.memory) and less.parts < full.parts
            change = paired(less.scores, full.scores) if alike and len(full.parts) == most and len(gone) == 1 else None
            if change is not None and most > 1:
                name = f"{data}, λ = {capacity}: {full.host}, {full.memory}"
                lines.append([name, *gone, str(change.estimate.n), format_duration(change)])
    return LEFT_OUT + markdown_rows(["configuration", "left out", "seeds", "change"], lines, texts=2) if lines else ""


def format_duration(change: Paired) -> str:
    """The mean, and its interval where there is one."""
    spread = "" if change.interval is None else f" {format_interval(change.interval)}"
    return number(change.estimate.mean, sign=True) + spread


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
    longest = {"commit": 7}
    made = {
        name: {str(run.provenance[name])[: longest.get(name, 40)] for run in runs if name in run.provenance}
        for name in ORIGIN
    }
    words = "; ".join(f"{name} {', '.join(sorted(values))}" for name, values in made.items() if values)
    return f"{len(runs)} runs, seeds {seeds[0]} to {seeds[-1]}; {words}."


def chosen(files: Iterable[Path]) -> str:
    """Scores on held-out rows: one table for each file, named after the data in its name."""
    parts = []
    for path in files:
        scores: dict[str, list[float]] = defaultdict(list)
        try:
            for line in csv.DictReader(path.read_text(encoding="utf-8").splitlines()):
                scores[line["runs"]].append(Float(0, 100).validate("held_out_acc", float(line["held_out_acc"])))
        except (OSError, ValueError, KeyError, TypeError, csv.Error) as error:
            raise UsageError(f"'{path}' is no held-out.csv of `odedm study --held-out`: {error!r:.200}.") from None
        rows = [[name, str(len(own)), format_mean(estimate(own))] for name, own in scores.items()]
        data = path.stem.rpartition("-")[2]
        parts.append(f"\n{markdown_rows([data, 'seeds', 'held-out ACC'], rows)}")
    return CHOSEN + "".join(parts) if parts else ""


def page(results: Sequence[Result], words: str, choices: Iterable[Path] = (), picture: str = "") -> str:
    """The whole page; `words` are those that this program was called with."""
    studies = [parse((ROOT / "benchmarks" / name).read_text(encoding="utf-8")) for name in STUDIES]
    planned = {place(plan.describe()) for study in studies for plan in study.experiments()}
    done = sum(place(result.experiment) in planned for result in results)
    parts = [HEAD.format(done=done, planned=len(planned))]
    if picture:
        parts.append(f"\n![Final accuracy of every host, memory and set of ingredients, a dot a seed]({picture})\n")
    boards = entries(results)
    for (data, capacity), rows in boards.items():
        parts.append(f"\n## {data}, λ = {capacity}\n\n{table(rows)}\n{origin(rows)}\n")
    return "".join([*parts, WORDS.format(words=words), left_out(boards), chosen(choices)])


def draw(results: Sequence[Result], path: Path) -> None:
    """A line for each row of the tables, the best on top: a dot a seed, and their mean."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot

    boards = entries(results)
    sizes = [len(rows) for rows in boards.values()]
    figure, axes = pyplot.subplots(
        len(boards), figsize=(9, 0.42 * sum(sizes) + 0.9 * len(sizes)), height_ratios=sizes, squeeze=False
    )
    for axis, ((data, capacity), rows) in zip(axes[:, 0], boards.items(), strict=True):
        rising = rows[::-1]
        for height, row in enumerate(rising):
            colour = "#D55E00" if row.memory == "ODEDM" else "#0072B2"
            scores, middle = list(row.scores.values()), estimate(row.scores.values()).mean
            axis.plot(scores, [height] * len(scores), "o", color=colour, alpha=0.35, markersize=5, markeredgewidth=0)
            axis.plot(middle, height, "|", color=colour, markersize=16, markeredgewidth=2.5)
            axis.annotate(number(middle), (max(scores), height), (8, 0), textcoords="offset points", va="center")
        axis.set_yticks(range(len(rows)), [f"{row.host}, {row.memory}\n{row.ingredients or 'plain'}" for row in rising])
        axis.tick_params(axis="y", labelsize=8)
        axis.set_title(f"{data}, λ = {capacity}", loc="left")
        axis.set_xlabel("ACC after the last task, %")
        axis.set_xlim(left=0)
        axis.margins(x=0.1)
        axis.set_ylim(-0.7, len(rows) - 0.3)
        axis.spines[["top", "right"]].set_visible(False)
    figure.tight_layout()
    figure.savefig(path, dpi=130)


def main() -> None:
    """Read, and write the page or print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--chosen", type=Path, nargs="*", default=[])
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    try:
        results = [run.result for path in given.files for run in read_packed(path)]
        picture = given.out and given.out.with_suffix(".png")
        text = page(results, " ".join(sys.argv[1:]), given.chosen, picture.name if picture else "")
        if given.out:
            writable_folder(given.out.parent)
            draw(results, picture)
            write_text(given.out, text)
        else:
            print(text)
    except (UsageError, OSError) as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
