"""Make the page on harm: what ODEDM changes for each host, and what random rows in its prototypes' place change.

python tools/no_harm.py docs/results/no-harm.jsonl.gz [--out docs/explanation/no-harm.md]

The runs are those of benchmarks/no_harm.toml (`odedm study benchmarks/no_harm.toml`, `odedm results pack`). A row is a
host with one reading of the long-term rows; changes are against the host with the memory of its own, paired by seed.
"""

from __future__ import annotations

import argparse
import sys
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from changes_figure import Change, save_figure

from odedm.core.errors import UsageError
from odedm.core.files import writable_folder, write_text
from odedm.core.registry import METHODS, title
from odedm.memory.settings import ODEDM
from odedm.report.statistics import FEWEST, Paired, estimate, paired
from odedm.report.tables import markdown_rows
from odedm.report.wording import between, measured, number
from odedm.results.packed import read_packed
from odedm.results.result import Result
from odedm.study.study import parse
from odedm.training.composition import read_by_host

ROOT = Path(__file__).resolve().parents[1]
PAGE = ROOT / "docs" / "explanation" / "no-harm.md"
MOST_HARM = -1.0
"""Points: an interval whose lower end is not below shows that ODEDM does no harm."""
ORIGIN = ("commit", "device", "torch")
Reading = tuple[str, str]
HEAD = """# Does ODEDM do harm?

Seven hosts, each with the memory of its own, with ODEDM (ρ = 0.25), and with ODEDM that keeps random rows in the place
of prototypes: the control that says what the choice is worth. **No harm** means that the lower end of the paired 95 %
interval is −1 point or above. {done} of {planned} planned runs are in the tables{others}.
"""
WORDS = """
ACC after the last task on the test set, mean ± standard error over seeds; changes are paired by seed, against the host
with its own memory. Fewer than five seeds show neither harm nor its absence; their intervals are Student's t, and wide.
*Reading* is how the host meets [long-term rows](../consolidation.md#how-a-method-meets-long-term-rows); the
defaults were chosen on [held-out training rows](where-it-pays.md#how-a-host-meets-the-long-term-rows). The runs are
those of `odedm study benchmarks/no_harm.toml`, the page is made by `python tools/no_harm.py {words}`.
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

    def is_default(self, reading: Reading) -> bool:
        """Whether `--replay auto` stands for this reading."""
        memory = read_by_host(ODEDM(10), METHODS[self.method].load())
        return isinstance(memory, ODEDM) and (memory.replay, memory.gamma_rule) == reading


def hosts(results: Iterable[Result]) -> dict[tuple[str, int], dict[str, Host]]:
    """By data set and λ, then by method."""
    found: dict[tuple[str, int], dict[str, Host]] = defaultdict(dict)
    for result in results:
        plan: Mapping[str, Any] = result.experiment
        memory: Mapping[str, Any] = plan["memory"]
        host = found[plan["data"], memory["capacity"]].setdefault(plan["method"], Host(plan["method"]))
        scores = host.own
        if memory["name"] == "odedm":
            reading = (str(memory["replay"]), str(memory.get("gamma_rule") or "fixed"))
            scores = host.kept.setdefault(reading, {}).setdefault(memory["distance"], {})
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
            with_it = host.kept[reading].get("sinkhorn", {})
            lines.append(
                [
                    host.name,
                    host.words(reading),
                    measured(estimate(host.own.values())) if host.own else "–",
                    measured(estimate(with_it.values())) if with_it else "–",
                    words(change),
                    words(control),
                    str(change.estimate.n) if change else "0",
                    verdict(change),
                ]
            )
    head = ["host", "reading", "its own memory", "ODEDM", "change", "with random rows", "seeds", "so"]
    return markdown_rows(head, lines, texts=2)


def words(change: Paired | None) -> str:
    """A change with its interval."""
    if change is None:
        return "–"
    spread = "" if change.interval is None else f" {between(change.interval)}"
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
    study = parse((ROOT / "benchmarks" / "no_harm.toml").read_text(encoding="utf-8"))
    plans = study.experiments()
    seeds = {plan.seed for plan in plans}
    done = sum(result.experiment["seed"] in seeds for result in results)
    others = f", and {len(results) - done} of other seeds, for a first look" if done < len(results) else ""
    parts = [HEAD.format(done=done, planned=len(plans), others=others)]
    if picture:
        parts.append(f"\n![Change by ODEDM and by random rows in its place, for each host]({picture})\n")
    for (data, capacity), own in hosts(results).items():
        parts.append(f"\n## {data}, λ = {capacity}\n\n{table(own.values())}")
    return "".join([*parts, origin(results), WORDS.format(words=files)])


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
    """What the figure shows: by data set and host the two changes under the reading by default, or else the first."""
    found: dict[str, list[tuple[str, list[Change]]]] = {}
    for (data, capacity), own in hosts(results).items():
        for host in own.values():
            readings = sorted(host.kept, key=lambda each: not host.is_default(each))[:1]
            for reading in readings:
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
        results = [run.result for path in given.files for run in read_packed(path)]
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
