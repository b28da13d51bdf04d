"""The report as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import base64
import hashlib
import html
import json
import re
from collections.abc import Sequence
from importlib.resources import files
from itertools import zip_longest
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from odedm.core.errors import UsageError
from odedm.core.files import write_text
from odedm.core.text import printable
from odedm.report.figures import style
from odedm.report.figures.all_figures import report_figures
from odedm.report.groups import Group
from odedm.report.labels import method_name
from odedm.report.model import caveats, model
from odedm.report.shared_settings import FIRST, unusual
from odedm.report.summary import METRICS, NARROW, TOLD, Table, left_out
from odedm.report.tables import to_csv, to_latex, to_markdown
from odedm.report.unfinished import Unfinished, to_go_on
from odedm.report.verdicts import SIGNS, Verdict, doubts, gaps, in_short, verdict
from odedm.report.wording import between, number, probability
from odedm.results.folder import FinishedRun

SHOWN = 6
"""How many comparisons stand at the top; the others are folded."""
OURS, MOST_FOOT = b"<footer>Made by odedm", 1 << 16
"""What the end of a page of ours has, and how many bytes that end has at most."""
DRAWN = 32
"""How many groups have pictures of their own; with more a page becomes too heavy to send around."""


def save_page(table: Table, out: Path, pending: Sequence[Unfinished] = ()) -> Path:
    """Write the report on runs, and on what is not over yet, to the file `out`, whole or not at all."""
    check_page(out)
    text = render(table, pending)
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        write_text(out, text)
    except OSError as error:
        raise UsageError(f"Cannot write the report '{out}': {error.strerror or error}.") from error
    return out


def check_page(out: Path) -> None:
    """Refuse to write a page over anything but a page of ours."""
    if out.is_dir():
        raise UsageError(f"'{out}' is a folder; --out takes the page's file name, e.g. {out / 'report.html'}.")
    if out.exists() and not (out.is_file() and OURS in _foot(out)):
        raise UsageError(
            f"'{out}' is there and is no report that odedm made: it is not written over. Give another --out."
        )


def _foot(path: Path) -> bytes:
    """The last bytes of a file, however large that is."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MOST_FOOT))
        return file.read(MOST_FOOT)


def render(table: Table, pending: Sequence[Unfinished] = ()) -> str:
    """The page as text; the same ones give the same bytes."""
    here = files(__package__)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"number": number, "between": between, "probability": probability, "marked": _marked}
    environment.filters |= {"link": _link, "settings": _settings, "origin": _origin}
    page = environment.from_string(here.joinpath("template.html.j2").read_text(encoding="utf-8"))
    script = here.joinpath("tables.js").read_text(encoding="utf-8")
    groups, runs = table.groups, [run for group in table.groups for run in group.runs]
    lead, folded, shared = _findings(table)
    drawable = style.can_draw()
    several_seeds = len(runs) > len(groups)
    machines = sorted({printable(run.result.provenance.get("device", "unknown")) for run in runs})
    return page.render(
        script=Markup(script),
        # The script's name in the content security policy, which forbids every other one.
        script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        title=_title(table),
        short=in_short(table),
        pending=[str(each) for each in pending],
        to_go_on=to_go_on(pending),
        facts=_facts(groups),
        signs=SIGNS,
        lead=lead,
        folded=folded,
        gaps=gaps(table) if groups else [],
        doubt=[*shared, *doubts(table)],
        caveats=[*caveats(table), *left_out(run.result for run in runs)],
        table=table,
        groups=groups,
        model=model(table),
        metrics=METRICS,
        main=NARROW,
        further=[metric for metric in METRICS if metric not in NARROW],
        files={"csv": to_csv(table), "md": to_markdown(table), "tex": to_latex(table)},
        figures=report_figures(table, DRAWN) if drawable else {"differences": []},
        drawable=drawable,
        drawn=DRAWN,
        drawn_rows=style.MOST_ROWS,
        shuffled=any(not group.one_order for group in groups),
        several_seeds=several_seeds,
        machines=machines,
    )


Findings = list[tuple[str, str]]
"""Sentences with their marks, names in `SIGNS`."""


def _findings(table: Table) -> tuple[Findings, Findings, list[str]]:
    """What was found: what stands at the top, what is folded, and the one doubt about all that are marked as open."""
    final, task_il = (
        [verdict(table, row, metric) for row in table.compared if metric.key in row.differences] for metric in TOLD
    )
    doubts = {each.doubt for each in (*final, *task_il) if each.tone == "open"}
    shared = len(doubts) == 1 and len(final) > 1

    def told(found: Verdict) -> tuple[str, str]:
        return f"{found.change}." if shared and found.tone == "open" else str(found), found.tone

    said = [f"○ marks the others: {doubts.pop()}."] if shared else []
    if len(final) + len(task_il) <= SHOWN:
        final, task_il = [found for pair in zip_longest(final, task_il) for found in pair if found], []
    lead = [each for each in final if not _idle(each)][:SHOWN]
    return [told(each) for each in lead], [told(each) for each in (*final, *task_il) if each not in lead], said


def _idle(found: Verdict) -> bool:
    """Whether a comparison says nothing at all: chance alone would do as much every time."""
    return found.tone == "open" and found.p is not None and probability(found.p, "") == "1.00"


def _title(table: Table) -> str:
    """What was tried, on what.

    Only the data sets and methods; the facts under the title say the rest.
    """
    if not table.rows:
        return "Runs that are still going"
    data = _listed(sorted({printable(group.settings["data"]) for group in table.groups}))
    names = list(dict.fromkeys(method_name(group.settings) for group in table.groups))
    methods = _listed(names) if len(names) <= 4 else "Methods"
    with_without = " with and without ODEDM" if any(row.group.memory == "odedm" for row in table.compared) else ""
    return f"{methods}{with_without} on {data}"


def _facts(groups: Sequence[Group]) -> list[str]:
    """How large the experiment was, and every setting that all runs share and that is not as usual."""
    if not groups:
        return []
    told = unusual([group.settings for group in groups])
    begin = [told.pop(FIRST)] if FIRST in told else []
    facts: list[str] = []
    for values, one, many in (
        ([group.tasks for group in groups], "task", "tasks"),
        ([len(group.classes) for group in groups], "class", "classes"),
        ([len(group.runs) for group in groups], "seed", "seeds"),
    ):
        low, high = min(values), max(values)
        facts.append(f"{low} {one}" if high == 1 else f"{low if low == high else f'{low} to {high}'} {many}")
    facts[-1] += " per group" if len(groups) > 1 else ""
    for key, form in (("memory.capacity", "λ = {}"), ("net", "{} network")):
        own = {printable(group.settings[key]) for group in groups if key in group.settings}
        if len(own) == 1:
            facts.append(form.format(own.pop()))
    runs = sum(len(group.runs) for group in groups)
    return [*begin, *facts, *told.values(), f"{runs} run{'s' if runs != 1 else ''} in all"]


def _listed(names: Sequence[str]) -> str:
    """Names as in a sentence.

    >>> _listed(["a"]), _listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _settings(group: Group) -> list[tuple[str, str]]:
    """A group's configuration as names and values."""
    pairs = [
        (printable(key), printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), 200))
        for key, value in group.settings.items()
        if key != "class names"
    ]
    return [*pairs, ("classes", printable(", ".join(group.classes), 2000))]


def _origin(run: FinishedRun, key: str) -> str:
    """Where a run comes from; precision is a choice in newer results."""
    if key == "folder":
        return printable(run.folder.resolve().name, 80)
    chosen = run.result.experiment.get(key) if key == "precision" else None
    return printable(run.result.provenance.get(key) or chosen or "", 80)


def _marked(text: str) -> Markup:
    """Escaped text with ACC_5 set as a subscript.

    >>> str(_marked("<b> ACC_10"))
    '&lt;b&gt; ACC<sub>10</sub>'
    """
    return Markup(re.sub(r"\bACC_(\d+|T)\b", r"ACC<sub>\1</sub>", html.escape(text)))


def _link(text: str, kind: str = "text/csv") -> str:
    """A file inside the page, for a link that downloads it.

    >>> _link("a,b")
    'data:text/csv;charset=utf-8;base64,YSxi'
    """
    return f"data:{kind};charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"
