"""Make the page on harm: what ODEDM changes for each host, and what random rows in its prototypes' place change.

python tools/no_harm.py docs/results/no-harm.jsonl.gz … [--out PAGE.md]

The runs are those of benchmarks/no_harm.toml, no_harm_small.toml, no_harm_later.toml and no_harm_averaged.toml (`odedm
study benchmarks/no_harm.toml`, `odedm runs pack`). A row is a host with one reading of the long-term rows; changes
are against the host with the memory of its own, paired by seed.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from changes_figure import Change, save_figure

from odedm.core.errors import UsageError
from odedm.core.files import writable_folder, write_text
from odedm.core.registry import METHODS, title
from odedm.memory.settings import ODEDM, memory_to_dict
from odedm.report.statistics import FEWEST, Paired, estimate, paired
from odedm.report.tables import markdown_rows
from odedm.report.wording import format_interval, format_mean, number
from odedm.results.packed import read_packed
from odedm.results.result import Result
from odedm.studies.spec import parse
from odedm.training.experiment import Experiment
from odedm.training.replay import resolve_replay_mode

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanation" / "no-harm.md"
MOST_HARM = -1.0
"""Points: an interval whose lower end is not below shows that ODEDM does no harm."""
SO = {
    "helps": "ODEDM helps",
    "no harm": "no harm for",
    "not shown": "neither gain nor harm is shown for",
    "harms": "it harms",
    "too few seeds": "too few seeds to say for",
}
"""What a verdict is called in a sentence, in this order."""
ORIGIN = ("commit", "device", "torch")
STUDIES = ("no_harm.toml", "no_harm_small.toml", "no_harm_later.toml", "no_harm_averaged.toml")
Reading = tuple[str, str]
Place = tuple[str, int, str, int, Reading | None, str | None]
"""Data set, λ, method, seed; and of a run with ODEDM reading and distance."""
HEAD = """# Does ODEDM do harm?

Hosts with the memory of their own, with ODEDM (ρ = 0.25), and with ODEDM that keeps random rows in the place of
prototypes: the control that says what the choice is worth. **No harm** means that the lower end of the paired 95 %
interval is −1 point or above; **helps**, that it is above 0; **harms**, that the whole interval is below 0 and begins
below −1; everything else is *not shown*. {done}

## In short

{short}
"""
WORDS = """
ACC after the last task on the test set, mean ± standard error over seeds; changes are paired by seed, against the host
with its own memory, over the seeds that both sides have. Fewer than five seeds show neither harm nor its absence;
their intervals are Student's t, and wide.
Of a hundred intervals about five miss the true change, and nothing is set off for there being many of them here; hosts
share their seeds, so that what several of them show is less than as many results. And the rule is in points: an
interval that begins at −0.9 is *no harm* by it, and a tenth of the accuracy of a host that has 9, about what DER++ has
on cifar100.
*Reading* is how the host meets [long-term rows](../consolidation.md#how-a-method-meets-long-term-rows), in the figure
the default alone; which of the defaults were chosen on held-out training rows, and which were not, is said
[on another page](../appendix/memories-measured.md#what-held-out-rows-do-not-speak-for). Of a data set whose
planned runs have begun the tables have those alone; a first look at it, with other seeds, is in the files and left out
here. This page is made by `python tools/no_harm.py {words}`.
"""


@dataclass
class Host:
    """Final accuracies of one host by seed: with its own memory, and by reading with prototypes or random rows."""

    method: str
    own: dict[int, float] = field(default_factory=dict)
    kept: dict[Reading, dict[str, dict[int, float]]] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """As people write it."""
        return title(METHODS, self.method)

    def words(self, reading: Reading) -> str:
        """A reading, and whether it is another than the default."""
        rule = " by share" if reading[1] == "share" else ""
        return reading[0] + rule + ("" if self.is_default(reading) else " (not the default)")

    def change(self, reading: Reading, distance: str) -> Paired | None:
        """Against its own memory."""
        return paired(self.kept[reading].get(distance, {}), self.own)

    def choice(self, reading: Reading) -> Paired | None:
        """Prototypes against random rows in their place: what it is worth to choose."""
        return paired(*(self.kept[reading].get(distance, {}) for distance in ("sinkhorn", "random")))

    def default(self) -> Reading | None:
        """The reading by default, if it was run."""
        return next(filter(self.is_default, self.kept), None)

    def is_default(self, reading: Reading) -> bool:
        """Whether `--replay auto` stands for this reading."""
        return _reading(memory_to_dict(resolve_replay_mode(ODEDM(10), METHODS[self.method].load()))) == reading


def hosts(results: Iterable[Result]) -> dict[tuple[str, int], dict[str, Host]]:
    """By data set and λ, then by method."""
    found: dict[tuple[str, int], dict[str, Host]] = defaultdict(dict)
    for result in results:
        plan: Mapping[str, Any] = result.experiment
        memory: Mapping[str, Any] = plan["memory"]
        host = found[_stream(plan), memory["capacity"]].setdefault(plan["method"], Host(plan["method"]))
        scores = host.own
        if memory["name"] == "odedm":
            scores = host.kept.setdefault(_reading(memory), {}).setdefault(memory["distance"], {})
        if plan["seed"] in scores:
            raise UsageError(f"Two runs have one place: {host.name} on {plan['data']}, seed {plan['seed']}.")
        scores[plan["seed"]] = result.acc_last
    order = list(METHODS)
    return {
        board: dict(sorted(own.items(), key=lambda each: order.index(each[0]))) for board, own in sorted(found.items())
    }


def table(own: Iterable[Host]) -> str:
    """Markdown, a row for each host and reading."""
    lines = []
    for host in own:
        for reading in sorted(host.kept, key=lambda each: not host.is_default(each)):
            change, control = (host.change(reading, distance) for distance in ("sinkhorn", "random"))
            lines.append(
                [
                    host.name,
                    host.words(reading),
                    level(host.own, change),
                    level(host.kept[reading].get("sinkhorn", {}), change),
                    words(change),
                    words(control),
                    str(change.estimate.n) if change else "0",
                    verdict(change),
                ]
            )
    head = ["host", "reading", "its own memory", "ODEDM", "change", "with random rows", "seeds", "so"]
    return markdown_rows(head, lines, texts=2)


def level(scores: Mapping[int, float], change: Paired | None) -> str:
    """The mean over the seeds that were compared, so that two of them differ by the change; over all if none were."""
    own = scores if change is None else {seed: scores[seed] for seed in change.by_seed}
    return format_mean(estimate(own.values())) if own else "–"


def words(change: Paired | None) -> str:
    """A change with its interval."""
    if change is None:
        return "–"
    spread = "" if change.interval is None else f" {format_interval(change.interval)}"
    return number(change.estimate.mean, sign=True) + spread


def verdict(change: Paired | None) -> str:
    """What a change shows.

    >>> from odedm.report.statistics import estimate
    >>> verdict(Paired({0: 1.0, 1: 2.0}, estimate([1.0, 2.0])))
    'too few seeds'
    """
    if change is None or change.interval is None or change.estimate.n < FEWEST:
        return "too few seeds"
    low, high = change.interval
    if low > 0:
        return "**helps**"
    if low >= MOST_HARM:
        return "no harm"
    return "**harms**" if high < 0 else "not shown"


def page(results: Sequence[Result], files: str, picture: str = "") -> str:
    """The whole page."""
    boards = hosts(results)
    short = "\n".join(in_short(data, capacity, own.values()) for (data, capacity), own in boards.items())
    parts = [HEAD.format(done=done(results), short=short)]
    if picture:
        parts.append(f"\n![Change by ODEDM and by random rows in its place, for each host]({picture})\n")
    for board, own in boards.items():
        parts.append(f"\n## {board[0]}, λ = {board[1]}\n\n{table(own.values())}")
        parts.append(origin([each for each in results if _place(each)[:2] == board]))
    return "".join([*parts, WORDS.format(words=files)])


def planned_runs() -> dict[str, set[Place]]:
    """What the studies plan, by file."""
    texts = {name: (ROOT / "benchmarks" / name).read_text(encoding="utf-8") for name in STUDIES}
    return {name: set(map(_planned, parse(text).experiments())) for name, text in texts.items()}


def reported(results: Sequence[Result]) -> list[Result]:
    """The runs that a page is made of: of a data set whose planned runs have begun, those alone and no first look."""
    planned = set().union(*planned_runs().values())
    begun = {place[:2] for each in results if (place := _place(each)) in planned}
    return [each for each in results if (place := _place(each)) in planned or place[:2] not in begun]


def done(results: Sequence[Result]) -> str:
    """How much of what was planned is there, study by study, and what else."""
    left, said = {_place(each) for each in results}, []
    for name, planned in planned_runs().items():
        methods, data = len({each[2] for each in planned}), " and ".join(sorted({each[0] for each in planned}))
        there = len(planned & left)
        said.append(f"of `odedm study benchmarks/{name}` ({methods} hosts on {data}) {there} of {len(planned)}")
        left -= planned
    others = f"; {len(left)} more are of other seeds or readings, a first look" if left else ""
    return f"Runs in the tables: {', '.join(said)}{others}."


def _stream(plan: Mapping[str, Any]) -> str:
    """The data set, and whether averaged weights predict."""
    return str(plan["data"]) + (", averaged weights" if plan.get("weight_average") is not None else "")


def _reading(memory: Mapping[str, Any]) -> Reading:
    return str(memory["replay"]), str(memory.get("gamma_rule") or "fixed")


def _place(result: Result) -> Place:
    """What a run is in the tables."""
    plan: Mapping[str, Any] = result.experiment
    memory: Mapping[str, Any] = plan["memory"]
    own = (_reading(memory), str(memory["distance"])) if memory["name"] == "odedm" else (None, None)
    return _stream(plan), memory["capacity"], plan["method"], plan["seed"], *own


def _planned(plan: Experiment) -> Place:
    """What a planned run will be there."""
    memory = resolve_replay_mode(plan.memory, METHODS[plan.method].load())
    own = (_reading(vars(memory)), memory.distance) if isinstance(memory, ODEDM) else (None, None)
    return _stream(vars(plan)), memory.capacity, plan.method, plan.seed, *own


def in_short(data: str, capacity: int, own: Collection[Host]) -> str:
    """A line that says which hosts gain by the default readings, and what the choice of rows is worth."""
    known = {host.name: reading for host in own if (reading := host.default()) is not None}
    by_name = {host.name: host for host in own}
    groups: dict[str, list[str]] = defaultdict(list)
    better, worse = [], []
    for name, reading in known.items():
        groups[verdict(by_name[name].change(reading, "sinkhorn")).strip("*")].append(name)
        choice = by_name[name].choice(reading)
        if choice is not None and choice.interval is not None and choice.estimate.n >= FEWEST:
            low, high = choice.interval
            (better if low > 0 else worse if high < 0 else []).append(name)
    said = "; ".join(f"{SO[so]} {', '.join(names)}" for so in SO if (names := groups[so]))
    chosen = ""
    if len(groups["too few seeds"]) < len(known):
        chosen = (
            f" Prototypes were clearly better than random rows in their place for {', '.join(better) or 'no host'}, "
            f"clearly worse for {', '.join(worse) or 'none'}."
        )
    without = [name for name in by_name if name not in known]
    said += f"; not run by it, {', '.join(without)}" if without else ""
    return f"- **{data}, λ = {capacity}**, by the default reading of each host: {said}.{chosen}"


def origin(results: Sequence[Result]) -> str:
    """Seeds, commit and hardware."""
    seeds = sorted({result.experiment["seed"] for result in results})
    made = {
        name: sorted({str(run.provenance[name])[: 7 if name == "commit" else 60] for run in results})
        for name in ORIGIN
        if all(name in run.provenance for run in results)
    }
    said = "; ".join(f"{name} {', '.join(values)}" for name, values in made.items())
    return f"\n{len(results)} runs, seeds {', '.join(map(str, seeds))}; {said}.\n"


def changes(results: Sequence[Result]) -> dict[str, list[tuple[str, list[Change]]]]:
    """What the figure shows: by data set and host the two changes under the reading by default."""
    found: dict[str, list[tuple[str, list[Change]]]] = {}
    for (data, capacity), own in hosts(results).items():
        for host in own.values():
            reading = host.default()
            if reading is not None:
                marks = []
                for name, distance in (("random rows", "random"), ("ODEDM", "sinkhorn")):
                    change = host.change(reading, distance)
                    middle = None if change is None else change.estimate.mean
                    marks.append(Change(name, middle, None if change is None else change.interval))
                found.setdefault(f"{data}, λ = {capacity}", []).append((host.name, marks))
    return found


def main() -> None:
    """Read, and write page and figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args()
    try:
        results = reported([run.result for path in given.files for run in read_packed(path)])
        picture = given.out.with_suffix(".png")
        text = page(results, " ".join(map(str, given.files)), picture.name)
        writable_folder(given.out.parent)
        save_figure(changes(results), picture)
        write_text(given.out, text)
    except (UsageError, OSError) as error:
        sys.exit(str(error))
    print(f"The page: {given.out}, its figure: {picture}")


if __name__ == "__main__":
    main()
