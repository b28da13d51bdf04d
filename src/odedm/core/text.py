"""Text to show: names from files made printable, values and errors in a line, counts with their noun, tables."""

from __future__ import annotations

import html
import json
from collections import Counter
from collections.abc import Iterable, Sequence

LONGEST = 10_000
"""Letters of a sentence, whatever it quotes."""


def printable(value: object, limit: int = 60) -> str:
    r"""Return text as one printable line of bounded length.

    >>> printable("T-shirt/top"), printable("a\x1b[31m\n"), printable("abcdef", 4)
    ('T-shirt/top', 'a�[31m�', 'abc…')
    """
    text = str(value)
    text = text if text.isprintable() else "".join(letter if letter.isprintable() else "�" for letter in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def printable_value(value: object, limit: int = 200) -> str:
    """Return plain data as one printable line: text as it is, all else as JSON.

    >>> printable_value("er"), printable_value([1, None])
    ('er', '[1, null]')
    """
    return printable(value if isinstance(value, str) else json.dumps(value, ensure_ascii=False), limit)


def number_repeated(names: Iterable[str]) -> tuple[str, ...]:
    """Return names of which no two are equal: who comes later gets a number.

    >>> number_repeated(["crane", "owl", "crane", "crane"])
    ('crane', 'owl', 'crane (2)', 'crane (3)')
    """
    unique: dict[str, None] = {}
    times: Counter[str] = Counter()
    for name in names:
        numbered = name
        while numbered in unique:
            times[name] += 1
            numbered = f"{name} ({times[name] + 1})"
        unique[numbered] = None
    return tuple(unique)


def counted(number: int, noun: str) -> str:
    """Return a number with its noun, in the plural where it is not one.

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
    """Return a table for a notebook. Every word is shown as it is: none of it is taken for HTML.

    >>> html_table(["data"], [["<b>"]], "1 & 2")
    '<table><caption>1 &amp; 2</caption><tr><th>data</th></tr><tr><td>&lt;b&gt;</td></tr></table>'
    """
    rows = [("th", head), *(("td", line) for line in lines)]
    cells = ("".join(f"<{tag}>{html.escape(word)}</{tag}>" for word in words) for tag, words in rows)
    above = f"<caption>{html.escape(caption)}</caption>" if caption else ""
    return f"<table>{above}{''.join(f'<tr>{row}</tr>' for row in cells)}</table>"
