"""Makes text from files, folders and other people printable: one line, of bounded length, without control codes."""

from __future__ import annotations


def printable(value: object, limit: int = 60) -> str:
    r"""Text as one printable line of bounded length.

    >>> printable("T-shirt/top"), printable("a\x1b[31m\n"), printable("abcdef", 4)
    ('T-shirt/top', 'a�[31m�', 'abc…')
    """
    text = "".join(character if character.isprintable() else "�" for character in str(value))
    return text if len(text) <= limit else text[: limit - 1] + "…"
