"""What is said under a table: each change in a sentence, what could not be compared and why, what to doubt."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from odedm.core.plain_data import dict_diff
from odedm.core.text import printable
from odedm.report.groups import Group, group_by_settings
from odedm.report.labels import belongs_to_memory, setting_phrase
from odedm.report.statistics import FEWEST, smallest_p
from odedm.report.summary import ACC_LAST, TOLD, Metric, Row, Table, other_problem
from odedm.report.wording import between, number, probability

ALARM = 0.05
"""The corrected p above which a change may well be chance, whatever its interval."""
MOST_NAMED = 4
"""Settings that a sentence lists."""
MOST_PAIRED = 200
"""Groups of which each is held against each other: many thousand would take hours."""
CONSTANT = "options."
"""How the names of a method's constants begin."""


SIGNS = {"up": "▲", "down": "▼", "weak-up": "△", "weak-down": "▽", "open": "○"}
"""The marks: full where the interval and p agree that there is a change, hollow where the interval alone says so."""


@dataclass(frozen=True)
class Verdict:
    """What changed, and why that may be nothing; an empty `doubt` means that the seeds can tell it from chance.

    `tone` is what to mark it with, a key of `SIGNS`; `p` is Holm's, None with one seed.
    """

    change: str
    doubt: str
    tone: str
    p: float | None = None

    def __str__(self) -> str:
        return f"{self.change}: {self.doubt}." if self.doubt else f"{self.change}."


def verdicts(table: Table) -> list[str]:
    """All there is to say under the table; a doubt that several changes share is said once, above them."""
    found = [verdict(table, row, metric) for row in table.compared for metric in TOLD if metric.key in row.differences]
    said = [str(each) for each in found if not _shared(each, found)]
    for doubt in dict.fromkeys(each.doubt for each in found if _shared(each, found)):
        own = [each.change for each in found if each.doubt == doubt]
        said += [f"{doubt[:1].upper()}{doubt[1:]} ({len(own)} changes):", *(f"  {change}." for change in own)]
    return [*said, *gaps(table), *doubts(table)]


def _shared(one: Verdict, found: Sequence[Verdict]) -> bool:
    return bool(one.doubt) and sum(each.doubt == one.doubt for each in found) > 1


def in_short(table: Table) -> list[str]:
    """The whole table in a sentence or two: which group is best, and how many comparisons the seeds can tell apart."""
    if not table.rows:
        return []
    said, first = [], table.groups[0]
    if len(table.rows) > 1 and not any(other_problem(first, group) for group in table.groups):
        best = max(table.rows, key=lambda row: row.values[ACC_LAST.key].mean)
        value = best.values[ACC_LAST.key]
        spread = "" if value.sd is None else f", sd {number(value.sd)} over {value.n} seeds"
        said.append(f"The best final accuracy is {number(value.mean)} %, by {best.group.label}{spread}.")
    rows = [row for row in table.compared if ACC_LAST.key in row.differences]
    pairs = [row.differences[ACC_LAST.key] for row in rows]
    if pairs:
        means = sorted(pair.estimate.mean for pair in pairs)
        found = _counted([tone_of(row, ACC_LAST) for row in rows], _by_p(table))
        changes = " to ".join(dict.fromkeys(number(mean, sign=True) for mean in (means[0], means[-1])))
        many = f"{len(pairs)} comparisons" if len(pairs) > 1 else "One comparison"
        few = f" (fewer than {FEWEST} seeds)" if all(pair.estimate.n < FEWEST for pair in pairs) else ""
        said.append(f"{many} with {table.against}: {found}{few}; {changes} points of {table.title(ACC_LAST)}.")
    return said


def _counted(tones: Sequence[str], by_p: str) -> str:
    """How many comparisons are better, worse and open, those that only the interval is for by themselves.

    >>> _counted(["up", "weak-up", "weak-down", "open", "open"], "by p")
    '1 better, 1 better and 1 worse by the interval but not by p, 2 open'
    """

    def those(words: dict[str, str]) -> list[str]:
        return [f"{tones.count(tone)} {word}" for tone, word in words.items() if tone in tones]

    weak = " and ".join(those({"weak-up": "better", "weak-down": "worse"}))
    alone = [f"{weak} by the interval but not {by_p}"] if weak else []
    return ", ".join([*those({"up": "better", "down": "worse"}), *alone, *those({"open": "open"})])


def verdict(table: Table, row: Row, metric: Metric) -> Verdict:
    """One sentence on what changed; the row must have that difference."""
    pair, group = row.differences[metric.key], row.group
    what = f"points of ACC_{group.tasks}" if metric is ACC_LAST else "points of Task-IL accuracy"
    mean, n = number(pair.estimate.mean, sign=True), pair.estimate.n
    if table.baseline is None:
        change = f"{_subject(group.member)} changed {_subject(group.family)} by {mean} {what}"
    else:
        change = f"{_subject(group.label)} against {_subject(table.baseline.label)}: {mean} {what}"
    if pair.interval is None:
        return Verdict(f"{change} on one seed", "one seed cannot tell a change from chance", "open")
    p = row.corrected[metric.key]
    chance = probability(p, "Holm's p" if table.tested > 1 else "p")
    change = f"{change} {between(pair.interval)} over {n} seeds (better in {pair.better} of {n}, {chance})"
    tone = tone_of(row, metric)
    if n < FEWEST:
        doubt = "too few seeds to tell a change from chance"
    elif tone == "open":
        doubt = "not distinguishable from zero at this number of seeds"
    else:
        doubt = _why_weak(table, n, p) if tone.startswith("weak") else ""
    return Verdict(change, doubt, tone, p)


def _why_weak(table: Table, n: int, p: float) -> str:
    """Why a change that its interval makes clear is not so by p: so few seeds cannot say more, or they do not agree."""
    if p <= table.tested * smallest_p(n) * (1 + 1e-9):
        name = "Holm's p" if table.tested > 1 else "p"
        return f"clear by the interval; {name} cannot be lower with {n} seeds"
    return f"clear by the interval, but not {_by_p(table)}"


def tone_of(row: Row, metric: Metric) -> str:
    """How a change is marked: open, or by its sign; weakly where the interval leaves zero out and p is above 0.05."""
    pair = row.differences[metric.key]
    if not pair.clear:
        return "open"
    sign = "up" if pair.estimate.mean > 0 else "down"
    return f"weak-{sign}" if row.corrected[metric.key] > ALARM else sign


def _by_p(table: Table) -> str:
    return "after Holm's correction" if table.tested > 1 else "by p"


def gaps(table: Table) -> list[str]:
    """Why there are no differences where one would look for them, and what differs instead."""
    apart = [
        f"{row.group.label} and {row.partner.label} have no seed in common, so they cannot be compared by seed."
        for row in table.rows
        if row.partner is not None and not row.differences
    ]
    apart += _uneven(table)
    if table.baseline is not None:
        others = [(row.group, other_problem(row.group, table.baseline)) for row in table.rows]
        return apart + [
            f"{group.label} is another problem than {table.baseline.label} (by {_listed(keys)}): not compared."
            for group, keys in others
            if keys
        ]
    if apart or table.compared:
        return apart + _tuned_apart(table)
    if len(table.rows) == 1:
        return ["Nothing to compare: there is one group alone. Run the same without or with ODEDM, on the same seeds."]
    first, second = _nearest(table.groups)
    return [
        f"Nothing to compare: no two groups differ by the memory alone. {first.label} and {second.label}, the nearest, "
        f"differ in {_differences(first, second)}. `odedm report --baseline '{first.label}'` does so "
        "all the same."
    ]


def _uneven(table: Table) -> list[str]:
    """That a change is not the difference of two means, where one of two groups has seeds that the other lacks."""
    found = []
    for row in table.compared:
        partner, shared = row.partner, row.differences[ACC_LAST.key].estimate.n
        if partner is not None and {len(row.group.runs), len(partner.runs)} != {shared}:
            found.append(f"{row.group.label} ({len(row.group.runs)}) and {partner.label} ({len(partner.runs)})")
    if not found:
        return []
    return [
        f"Not all groups have the same seeds: {_listed(found)}. A change is over the seeds that both have, so it is "
        "not the difference of the two means."
    ]


def _tuned_apart(table: Table) -> list[str]:
    """Which runs with ODEDM have a partner but for the method's constants, as after a tuning of both sides."""
    found = []
    near: dict[int, Group] = {}
    for own in group_by_settings(table.groups, lambda key: belongs_to_memory(key) or key.startswith(CONSTANT)):
        plain = [each for each in own if each.plain]
        near |= {id(each): plain[0] for each in own if len(plain) == 1}
    for one in (row.group for row in table.rows if row.partner is None and not row.group.plain):
        if (other := near.get(id(one))) is not None:
            words = [_both_values(key, one, other) for key, _, _ in _apart(one, other) if key != "memory.name"]
            found.append(
                f"{one.label} and {other.label} differ in {_listed(words).replace(CONSTANT, '')}, too, so no change "
                f"is shown; `odedm report --baseline '{other.label}'` compares them."
            )
    more = [f"So do {len(found) - MOST_NAMED} more."] if len(found) > MOST_NAMED else []
    return [*found[:MOST_NAMED], *more]


def _nearest(groups: Sequence[Group]) -> tuple[Group, Group]:
    """The two of the first groups that differ in the fewest settings, a memory without ODEDM first."""
    pairs = itertools.combinations(groups[:MOST_PAIRED], 2)
    one, other = min(pairs, key=lambda pair: len(_apart(*pair)))
    return (other, one) if other.plain and not one.plain else (one, other)


def _apart(one: Group, other: Group) -> list[tuple[str, object, object]]:
    """Settings that differ; where the memories are others, theirs come with them."""
    same = one.memory == other.memory
    found = [each for each in dict_diff(one.settings, other.settings) if same or not belongs_to_memory(each[0])]
    return found if same else [*found, ("memory.name", one.memory, other.memory)]


def _differences(one: Group, other: Group) -> str:
    """The settings that differ between two groups, with both values.

    They have no partner in each other although the memories may differ: so it is the rest that matters.
    """
    return _listed([_both_values(key, one, other) for key, _, _ in _apart(one, other)])


def _both_values(key: str, one: Group, other: Group) -> str:
    return f"{printable(key)} ({_value(key, one)} and {_value(key, other)})"


def _value(key: str, group: Group) -> str:
    if group.settings.get(key) is None:
        return "none"
    return setting_phrase(key, group.settings[key]).rpartition("=")[2]


def _listed(words: Sequence[str]) -> str:
    more = f" and {len(words) - MOST_NAMED} more" if len(words) > MOST_NAMED else ""
    return ", ".join(words[:MOST_NAMED]) + more


def doubts(table: Table) -> list[str]:
    """What the fewest seeds of a comparison, above one, can show at best; nothing where they can show enough.

    p counts choices of signs, so n seeds that all agree still give 2 / 2^n, and Holm multiplies that.
    """
    fewest = table.fewest
    if fewest is None:
        return []
    said, least = [], smallest_p(fewest)
    most = max(row.differences[ACC_LAST.key].estimate.n for row in table.compared)
    if fewest < FEWEST:
        said.append(f"Intervals over fewer than {FEWEST} seeds are Student's t, which takes changes for normal.")
    if least > ALARM:
        said.append(
            f"Where {fewest} seeds all agree, p is {probability(least, '')}, its smallest value at that number: "
            f"chance alone does that {number(100 * least, 0)} times in 100. From 6 seeds on p can fall below {ALARM}."
        )
    floor = min(1.0, table.tested * smallest_p(most))
    if floor > ALARM and table.tested > 1:
        words = f"With {most} seeds and {table.tested} comparisons Holm's p cannot fall below {probability(floor, '')}"
        said.append(f"{words}, however large the changes: the intervals say more.")
    return said


def _subject(label: str) -> str:
    """A label inside a sentence.

    >>> _subject("DER++ · λ=200 · k=3"), _subject("ODEDM")
    ('DER++ (λ=200, k=3)', 'ODEDM')
    """
    name, *details = label.split(" · ")
    return f"{name} ({', '.join(details)})" if details else name
