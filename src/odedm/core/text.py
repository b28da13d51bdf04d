"""Makes text from files, folders and other people printable: one line, of bounded length, without control codes."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable

LONGEST = 10_000
"""Letters of a sentence, whatever it quotes."""


def printable(value: object, limit: int = 60) -> str:
    r"""Text as one printable line of bounded length.

    >>> printable("T-shirt/top"), printable("a\x1b[31m\n"), printable("abcdef", 4)
    ('T-shirt/top', 'a�[31m�', 'abc…')
    """
    text = str(value)
    text = text if text.isprintable() else "".join(letter if letter.isprintable() else "�" for letter in text)
    return text if len(text) <= limit else text[: limit - 1] + "…"


def distinct(names: Iterable[str]) -> tuple[str, ...]:
    """Names of which no two are equal: who comes later gets a number.

    >>> distinct(["crane", "owl", "crane", "crane"])
    ('crane', 'owl', 'crane (2)', 'crane (3)')
    """
    unique: dict[str, None] = {}
    times: Counter[str] = Counter()
    for name in names:
        shown = name
        while shown in unique:
            times[name] += 1
            shown = f"{name} ({times[name] + 1})"
        unique[shown] = None
    return tuple(unique)
