"""How things show themselves, at a prompt in a line or two and in a notebook as a small table of plain text."""

from __future__ import annotations

import html
from collections.abc import Iterable, Sequence
from dataclasses import fields
from typing import Any

from odedm.core.configuration import default_of
from odedm.core.errors import short_repr


def repr_without_defaults(plan: Any, always: Sequence[str] = ()) -> str:
    """A data class as Python writes it, without what is as it is by default; the names in `always` stand there anyway.

    >>> from dataclasses import dataclass
    >>> @dataclass
    ... class Plan:
    ...     batch: int = 32
    ...     seed: int = 0
    >>> repr_without_defaults(Plan(seed=3)), repr_without_defaults(Plan(), always=["batch"])
    ('Plan(seed=3)', 'Plan(batch=32)')
    """
    values = {field.name: getattr(plan, field.name) for field in fields(plan) if field.repr}
    told = {name: value for name, value in values.items() if name in always or value != default_of(type(plan), name)}
    return f"{type(plan).__name__}({', '.join(f'{name}={short_repr(value, 200)}' for name, value in told.items())})"


def counted(number: int, noun: str) -> str:
    """A number with its noun, in the plural where it is not one.

    >>> counted(1, "task"), counted(2, "class"), counted(0, "row")
    ('1 task', '2 classes', '0 rows')
    >>> counted(1, "try"), counted(3, "try")
    ('1 try', '3 tries')
    """
    if number == 1:
        return f"{number} {noun}"
    if noun.endswith("ry"):
        return f"{number} {noun[:-1]}ies"
    return f"{number} {noun}" + ("es" if noun.endswith("s") else "s")


def html_table(head: Sequence[str], lines: Iterable[Sequence[str]], caption: str = "") -> str:
    """A table for a notebook. Every word is shown as it is: none of it is taken for HTML.

    >>> html_table(["data"], [["<b>"]], "1 & 2")
    '<table><caption>1 &amp; 2</caption><tr><th>data</th></tr><tr><td>&lt;b&gt;</td></tr></table>'
    """
    rows = [("th", head), *(("td", line) for line in lines)]
    cells = ("".join(f"<{tag}>{html.escape(word)}</{tag}>" for word in words) for tag, words in rows)
    above = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{above}{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"
