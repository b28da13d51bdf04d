"""The report as one HTML file that needs nothing else: no network, no other file."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Sequence
from importlib.resources import files
from pathlib import Path

from jinja2 import Environment, StrictUndefined
from markupsafe import Markup

from odedm.core.errors import UsageError
from odedm.core.files import write_text
from odedm.core.text import counted, printable, printable_value
from odedm.report.columns import METRICS
from odedm.report.figures import style
from odedm.report.figures.all_figures import report_figures
from odedm.report.groups import Group
from odedm.report.labels import method_name
from odedm.report.shared_settings import in_common
from odedm.report.summary import Table
from odedm.report.tables import to_csv, to_latex, to_markdown
from odedm.report.unfinished import Unfinished
from odedm.report.verdicts import SIGNS, headline, significance, warnings
from odedm.report.wording import format_interval, format_mean, format_p, number
from odedm.results.folder import FinishedRun

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
    """Return the last bytes of a file, however large that is."""
    with path.open("rb") as file:
        file.seek(max(0, path.stat().st_size - MOST_FOOT))
        return file.read(MOST_FOOT)


def render(table: Table, pending: Sequence[Unfinished] = ()) -> str:
    """Return the page as text; the same ones give the same bytes."""
    source = files(__package__)
    environment = Environment(autoescape=True, undefined=StrictUndefined, trim_blocks=True, lstrip_blocks=True)
    environment.filters |= {"number": number, "interval": format_interval, "p": format_p, "mean": format_mean}
    environment.filters |= {"marked": _marked, "link": data_link, "settings": _settings, "origin": _origin}
    page = environment.from_string(source.joinpath("template.html.j2").read_text(encoding="utf-8"))
    script = source.joinpath("tables.js").read_text(encoding="utf-8")
    runs = [run for group in table.groups for run in group.runs]
    drawable = style.can_draw()
    return page.render(
        script=Markup(script),
        # The script's name in the content security policy, which forbids every other one.
        script_hash="sha256-" + base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        title=_title(table),
        headline=headline(table),
        warnings=warnings(table),
        pending=[str(run) for run in pending],
        facts=_facts(table),
        significance=significance,
        signs=SIGNS,
        table=table,
        groups=table.groups,
        metrics=METRICS,
        further=[metric for metric in METRICS if metric not in table.narrow],
        files={"csv": to_csv(table), "md": to_markdown(table), "tex": to_latex(table)},
        figures=report_figures(table, DRAWN) if drawable else {},
        drawable=drawable,
        drawn=DRAWN,
        shuffled=any(not group.one_order for group in table.groups),
        machines=sorted({printable(run.result.provenance.get("device", "unknown")) for run in runs}),
    )


def _title(table: Table) -> str:
    """Return what was tried, on what.

    Only the data sets and methods; the facts under the title say the rest.
    """
    if not table.rows:
        return "Runs that are still going"
    data = _listed(sorted({printable(group.settings["data"]) for group in table.groups}))
    names = list(dict.fromkeys(method_name(group.settings) for group in table.groups))
    methods = _listed(names) if len(names) <= 4 else "Methods"
    with_without = " with and without ODEDM" if any(row.group.memory == "odedm" for row in table.compared) else ""
    return f"{methods}{with_without} on {data}"


def _facts(table: Table) -> list[str]:
    """Return how large the experiment was, the setup, and every unusual setting that all runs share."""
    sizes = [len(group.runs) for group in table.groups]
    if not sizes:
        return []
    low, high = min(sizes), max(sizes)
    seeds = counted(high, "seed") if low == high else f"{low} to {high} seeds"
    facts = in_common([group.settings for group in table.groups])
    return [*facts, f"{seeds} per group" if len(sizes) > 1 else seeds, f"{counted(sum(sizes), 'run')} in all"]


def _listed(names: Sequence[str]) -> str:
    """Return names as in a sentence.

    >>> _listed(["a"]), _listed(["a", "b", "c"])
    ('a', 'a, b and c')
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _settings(group: Group) -> list[tuple[str, str]]:
    """Return a group's configuration as names and values."""
    pairs = [(printable(key), printable_value(value)) for key, value in group.settings.items() if key != "class names"]
    return [*pairs, ("classes", printable(", ".join(group.classes), 2000))]


def _origin(run: FinishedRun, key: str) -> str:
    """Return where a run comes from; precision is a choice in newer results."""
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


def data_link(text: str, kind: str = "text/csv") -> str:
    """Return a file inside the page, for a link that downloads it.

    >>> data_link("a,b")
    'data:text/csv;charset=utf-8;base64,YSxi'
    """
    return f"data:{kind};charset=utf-8;base64,{base64.b64encode(text.encode()).decode()}"
