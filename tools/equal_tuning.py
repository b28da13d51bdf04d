"""Make the page on equal tuning: what the paper prints, what its constants give, what tuning both sides leaves of it.

python tools/equal_tuning.py --tuned docs/results/equal-tuning.json --runs docs/results/equal-tuning.jsonl.gz

The tries are those of `odedm tune equal-tuning`, whose tuned.json is given as --tuned; --runs are the packed runs of
`odedm study runs/equal-tuning-trials/tuned.toml`. Runs at the paper's constants are taken from the ledger
(--constants). What is missing of either is said on the page.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import mean
from typing import Any

from changes_figure import Change, save_figure
from equal_tuning_cases import WITH, WITHOUT, Case, cases, read_tuned

from odedm.core.errors import UsageError
from odedm.core.files import writable_folder, write_text
from odedm.core.registry import METHODS
from odedm.memory.settings import ODEDM, memory_from_dict
from odedm.paper.equal_tuning import equal_tuning
from odedm.report.statistics import Paired
from odedm.report.tables import markdown_rows
from odedm.report.wording import format_mean, number
from odedm.results.packed import read_packed
from odedm.results.result import Result
from odedm.studies.spec import Study
from odedm.studies.tuning import ARMS
from odedm.training.replay import reading_of, resolve_replay_mode

ROOT = Path(__file__).resolve().parents[1]
RESULTS = ROOT / "docs" / "results"
PAGE = ROOT / "docs" / "explanation" / "equal-tuning.md"
ORIGIN = ("commit", "device", "torch")
HEAD = """# Does the gain survive equal tuning?

A method with ODEDM and the same method without it are compared fairly if both had the same chance to find constants
that suit them. The paper reports no learning rate, so nobody can say whether both had. Here both get one: {tries}
learning rates each (the one that the paper's studies have here, about a third of it and about three times it), tried
with {trial_seeds} seeds on training rows that were held out. The best of each side is then run with seeds that nobody
has looked at, and scored on the test set. λ = {capacity}; with ODEDM k, in the tables, is the one that the paper
prints as the method's best{ks}.{reading}
"""
CHOSEN = "../appendix/memories-measured.md#how-a-host-meets-the-long-term-rows"
READING = """
ACC after the last task in per cent, *without ODEDM → with it*. Ours are means ± standard error over seeds; the change
behind them is with minus without, paired by seed, with its 95 % interval, **bold** where the interval leaves zero out.
Five intervals in a hundred leave zero out by chance alone. The paper's ± is the spread of its runs. *Rates* are those
that did best on held-out rows, without and with ODEDM.
"""


def page(study: Study, tuned: Mapping[str, Any], runs: Sequence[Result], files: str, figure: str = "") -> str:
    """The whole page."""
    every = cases(study, tuned, runs)
    select = tuned.get("tune", {})
    tries = max((len(own) for each in every for own in each.tried.values()), default=0) or "no"
    ks: dict[str, set[int]] = {}
    for each in every:
        ks.setdefault(each.data, set()).update([] if each.k is None else [each.k])
    kept = "; ".join(f"{', '.join(map(str, sorted(own)))} on {data}" for data, own in ks.items() if own)
    head = HEAD.format(
        tries=tries,
        trial_seeds=len(select.get("seeds", ())) or "no",
        capacity=every[0].capacity,
        ks=kept and f" ({kept})",
        reading=readings(every),
    )
    parts = [head, missing(every, study, tuned)]
    by_data: dict[str, list[Case]] = {}
    for each in every:
        by_data.setdefault(each.data, []).append(each)
    parts.append("\n## In short\n\n")
    parts += [f"- **{data}**: {in_short(own)}\n" for data, own in by_data.items()]
    if figure:
        words = "Change by ODEDM for each method: printed, with the paper's constants, with both sides tuned"
        parts.append(f"\n![{words}]({figure})\n\nLines are 95 % intervals over seeds; the paper gives none.\n")
    for data, own in by_data.items():
        parts.append(f"\n## {data}\n\n{table(own)}\n")
        parts += [f"- {sentence(each)}\n" for each in own if each.tuned.change() is not None]
    parts += [READING, held_out(every, tuned), origin(every, tuned, files)]
    return "".join(part for part in parts if part)


def readings(every: Sequence[Case]) -> str:
    """How the tuned runs with ODEDM met its long-term rows, and where the default of today is another way."""
    found: dict[str, dict[str, None]] = {}
    others: dict[str, None] = {}
    for case in every:
        for result in case.tuned.results:
            memory = memory_from_dict(result.experiment["memory"])
            if isinstance(memory, ODEDM):
                share = " times the long-term share" if memory.gamma_rule == "share" else ""
                term = "" if memory.replay == "union" else f" with γ = {memory.gamma:g}{share}"
                found.setdefault(f"`{memory.replay}`{term}", {})[case.title] = None
                usual = resolve_replay_mode(ODEDM(case.capacity), METHODS[case.method].load())
                if reading_of(usual) != reading_of(memory):
                    others[case.title] = None
    if not found:
        return ""
    said = "; ".join(f"{reading} for {', '.join(titles)}" for reading, titles in found.items())
    today = f" By default {', '.join(others)} would now have [another]({CHOSEN})." if others else ""
    return (
        f"\nLong-term rows are met by the reading {said} ([what that is](../consolidation.md"
        f"#how-a-method-meets-long-term-rows); the paper's is `auxiliary` with γ = 1).{today}"
    )


def table(own: Sequence[Case]) -> str:
    """A row for each host."""
    lines = []
    for each in own:
        paper = [format_mean(value) for value in each.printed.values()]
        gain = "" if each.gain is None else f", {number(each.gain, sign=True)}"
        rates = [_rate(each.rate(side)) for side in ARMS]
        cells = [f"{' → '.join(paper)}{gain}", each.constants.words(), ", ".join(rates), each.tuned.words()]
        lines.append([each.title, "–" if each.k is None else str(each.k), *cells])
    return markdown_rows(["method", "k", "the paper", "ours, its constants", "rates", "ours, both tuned"], lines)


def _rate(value: float | None) -> str:
    return "–" if value is None else f"{value:g}"


def in_short(own: Sequence[Case]) -> str:
    """How many hosts gain and lose, by each of the three."""
    parts = []
    gains = [each.gain for each in own if each.gain is not None]
    if gains:
        above = sum(gain > 0 for gain in gains)
        words = f"printed are gains for {above} of {len(gains)} methods, {number(mean(gains), sign=True)} in the mean"
        parts.append(words)
    for name in ("constants", "tuned"):
        changes = [found for each in own if (found := getattr(each, name).change()) is not None]
        if not changes:
            continue
        better = sum(each.clear and each.estimate.mean > 0 for each in changes)
        worse = sum(each.clear and each.estimate.mean < 0 for each in changes)
        with_what = "with the paper's constants" if name == "constants" else "when both sides are tuned"
        middle = number(mean(each.estimate.mean for each in changes), sign=True)
        parts.append(
            f"{with_what} {better} of {len(changes)} gain clearly, {worse} lose{'s' * (worse == 1)} clearly, "
            f"{middle} in the mean"
        )
    return f"{'; '.join(parts)}." if parts else "nothing was run yet."


def sentence(case: Case) -> str:
    """What became of one host's gain, in plain words."""
    before, after = case.constants.change(), case.tuned.change()
    assert after is not None
    parts = [f"**{case.title}**:"]
    if case.gain is not None:
        parts.append(f"the paper prints {number(case.gain, sign=True)}.")
    if before is not None:
        parts.append(f"With its constants we get {number(before.estimate.mean, sign=True)}.")
    alike = case.rate(WITHOUT) == case.rate(WITH)
    rates = (
        f"both sides do best at {_rate(case.rate(WITHOUT))}"
        if alike
        else (f"without ODEDM {_rate(case.rate(WITHOUT))} is best, with it {_rate(case.rate(WITH))}")
    )
    parts.append(f"Tuned, {rates}, and {_verdict(after)}.")
    edges = _edges(case)
    return " ".join([*parts, *([edges] if edges else [])])


def _verdict(change: Paired) -> str:
    size, better = number(change.estimate.mean, sign=True), f"{change.better} of {change.estimate.n} seeds"
    what = "no clear change" if not change.clear else "a clear gain" if change.estimate.mean > 0 else "a clear loss"
    return f"the change is {size}, {what} (better in {better})"


def _edges(case: Case) -> str:
    """Where the best rate is the smallest or largest that was tried: a wider search may find a better one."""
    found = []
    for side, own in case.tried.items():
        rates = sorted(float(each["experiment"]["options"]["lr"]) for each in own)
        chosen = case.rate(side)
        if len(rates) > 1 and chosen in (rates[0], rates[-1]):
            found.append(f"{side} ODEDM the {'smallest' if chosen == rates[0] else 'largest'}")
    return (
        f"Of the rates tried, that is {' and '.join(found)}: a wider search might find a better one." if found else ""
    )


def held_out(every: Sequence[Case], tuned: Mapping[str, Any]) -> str:
    """What the choices were made by."""
    lines = []
    for case in every:
        for side, own in case.tried.items():
            chosen = case.rate(side)
            tried = {float(each["experiment"]["options"]["lr"]): each["mean"] for each in own}
            words = [
                f"**{_rate(rate)}: {number(score)}**" if rate == chosen else f"{_rate(rate)}: {number(score)}"
                for rate, score in sorted(tried.items())
            ]
            lines.append([case.title, case.data, side, ", ".join(words)])
    if not lines:
        return ""
    select = tuned["tune"]
    tasks, share = select["first_tasks"], select["validation"]
    rows = markdown_rows(["method", "data", "ODEDM", "rate: held-out ACC"], lines, texts=4)
    return f"""
## How the rates were chosen

A try is trained on the first {tasks} tasks without {100 * share:g} % of every class's training
rows, and scored on these rows after the last of them: the mean over seeds {", ".join(map(str, select["seeds"]))}. Test
rows are not read. The chosen rate is bold; a rate that is not listed did not get through.

{rows}"""


def missing(every: Sequence[Case], study: Study, tuned: Mapping[str, Any]) -> str:
    """Which parts are not there, in words; empty where all is."""
    said: dict[str, list[str]] = {}
    for case in every:
        name = f"{case.title} on {case.data}"
        if not case.tried:
            left = tuned.get("undecided", {}).get(case.host)
            said.setdefault("No rate is chosen yet", []).append(f"{name} ({left} trials left)" if left else name)
        for side in ARMS:
            there, seeds = len(case.tuned.scores[side]), len(study.seeds)
            if case.tried and there < seeds:
                said.setdefault("Tuned runs", []).append(f"{name}, {side} ODEDM ({there} of {seeds} seeds)")
            if not case.constants.scores[side]:
                said.setdefault("Runs at the paper's constants", []).append(f"{name}, {side} ODEDM")
    lines = "".join(f"- {kind}: {'; '.join(names)}.\n" for kind, names in said.items())
    return f"\n**Missing**\n\n{lines}" if lines else ""


def origin(every: Sequence[Case], tuned: Mapping[str, Any], files: str) -> str:
    """Commands, seeds, hardware and commits."""
    trials = sum(len(each["scores"]) for case in every for own in case.tried.values() for each in own)
    commit = str((tuned.get("code") or {}).get("commit"))[:12]
    lines = ["\n## Where the numbers come from\n\n"]
    lines.append(f"- Rates: `odedm tune equal-tuning`, {trials} trials, commit {commit}.\n")
    for words, name in (
        ("Tuned: `odedm study runs/equal-tuning-trials/tuned.toml`", "tuned"),
        ("The paper's constants", "constants"),
    ):
        results = [result for case in every for result in getattr(case, name).results]
        if not results:
            continue
        seeds = sorted({result.experiment["seed"] for result in results})
        made = {
            each: sorted({str(run.provenance[each])[:60] for run in results if run.provenance.get(each)})
            for each in ORIGIN
        }
        origins = "; ".join(
            f"{each} {', '.join(value[:12] if each == 'commit' else value for value in own)}"
            for each, own in made.items()
        )
        lines.append(f"- {words}, {len(results)} runs, seeds {seeds[0]} to {seeds[-1]}; {origins}.\n")
    lines.append(f"- This page: `python tools/equal_tuning.py {files}`.\n")
    return "".join(lines)


def changes(every: Sequence[Case]) -> dict[str, list[tuple[str, list[Change]]]]:
    """By data set and host, what the figure shows: printed, with the paper's constants, tuned."""
    found: dict[str, list[tuple[str, list[Change]]]] = {}
    for case in every:
        marks = [Change("the paper", case.gain, None)]
        for words, own in (("its constants", case.constants), ("both tuned", case.tuned)):
            change = own.change()
            if change is None:
                marks.append(Change(words, None, None))
            else:
                marks.append(Change(words, change.estimate.mean, change.interval))
        found.setdefault(case.data, []).append((case.title, marks))
    return found


def main() -> None:
    """Read, and write page and figure."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tuned", type=Path, default=RESULTS / "equal-tuning.json")
    parser.add_argument("--runs", type=Path, nargs="*", default=[RESULTS / "equal-tuning.jsonl.gz"])
    parser.add_argument("--constants", type=Path, nargs="*", default=[ROOT / "src/odedm/paper/results/table1.jsonl.gz"])
    parser.add_argument("--out", type=Path, default=PAGE)
    given = parser.parse_args()
    study = equal_tuning()
    try:
        tuned = read_tuned(given.tuned)
        runs = [run.result for path in (*given.runs, *given.constants) for run in read_packed(path)]
        picture = given.out.with_suffix(".png")
        files = f"--tuned {_short(given.tuned)} --runs {' '.join(map(_short, given.runs))}"
        text = page(study, tuned, runs, files, picture.name)
        writable_folder(given.out.parent)
        save_figure(changes(cases(study, tuned, runs)), picture)
        write_text(given.out, text)
    except (UsageError, OSError) as error:
        sys.exit(str(error))
    print(f"The page: {given.out}, its figure: {picture}")


def _short(path: Path) -> str:
    return str(path.resolve().relative_to(ROOT)) if path.resolve().is_relative_to(ROOT) else path.name


if __name__ == "__main__":
    main()
