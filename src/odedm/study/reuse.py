"""Decides whether a finished run counts as the one asked for: same content, and as much of the code as one asks for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

from odedm.core.version import __version__
from odedm.results.result import Result
from odedm.training.experiment import content_key

REUSE = {
    "any": "A finished run counts whatever version of the code made it.",
    "version": "A finished run counts if the package had this version.",
    "commit": "A finished run counts if the code was at this commit, without changes.",
}


class Code(NamedTuple):
    """The code that makes a run: the package's version and the commit, which ends in + where files were changed."""

    version: str
    commit: str | None

    @classmethod
    def here(cls) -> Code:
        """The code that runs."""
        from odedm.results.provenance import commit

        return cls(__version__, commit())

    @property
    def at_a_commit(self) -> bool:
        """Whether the commit alone says what the code is."""
        return self.commit is not None and not self.commit.endswith("+")


def key_of_result(result: Result, seed: int | None = None, *, by_code: bool = True) -> str:
    """The content hash of a finished run, from what its result says, or of its configuration with another seed.

    Without `by_code` it is the same whatever code from outside made the run.
    """
    plain = result.experiment if seed is None else {**result.experiment, "seed": seed}
    return content_key(plain, result.provenance.get("data_checksum"), result.code_hashes() if by_code else None)


def is_reusable(made: Mapping[str, Any], reuse: str, code: Code) -> bool:
    """Whether something with this provenance counts; a commit with changes on top of it never does."""
    if reuse == "any":
        return True
    if reuse == "version":
        return bool(made.get("odedm") == code.version)
    return code.at_a_commit and made.get("commit") == code.commit


def why_not_reusable(result: Result, reuse: str, code: Code, marks: Mapping[str, str] | None = None) -> str | None:
    """Why a run that has just been made would not count: another machine has other code, or that from outside has."""
    made, there = result.provenance, result.code_hashes()
    if is_reusable(made, reuse, code):
        other = [key for key in there if reuse != "any" and marks and there[key] != marks.get(key, there[key])]
        if not other:
            return None
        return (
            f"The run was made by other code of its {other[0]} than is here: bring the machines to the same code, and "
            "leave files as they are while runs are under way; or take --reuse any."
        )
    return (
        f"The run was made by odedm {made.get('odedm')} at commit {made.get('commit')}, and here it is "
        f"{code.version} at {code.commit}: bring the machines to the same code, or take --reuse any."
    )
