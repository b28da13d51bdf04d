"""When two runs are the same: their configuration, their data, and as much of the code's version as one asks for."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from odedm.results.result import Result
from odedm.training.experiment import Experiment

REUSE = {
    "any": "A finished run counts whatever version of the code made it.",
    "version": "A finished run counts if the package had this version.",
    "commit": "A finished run counts if the code was at this commit, without changes.",
}
PACE = ("device", "threads", "capture")
"""What sets the pace of a run, and not what is run."""


def content_key(plan: Experiment, checksum: str | None) -> str:
    """The content hash of a resolved experiment on data with this checksum."""
    plain = plan.describe()
    memory = plain["memory"]
    plain["method"] = {"name": plan.method, **plain.pop("options")}
    plain |= {"replay": memory.pop("replay", None), "gamma": memory.pop("gamma", None)}
    return _hash(plain, checksum)


def key_of_result(result: Result, seed: int | None = None) -> str:
    """The same of a finished run, from what its result says, or of its configuration with another seed."""
    plain = result.experiment if seed is None else {**result.experiment, "seed": seed}
    return _hash(plain, result.provenance.get("data_checksum"))


def _hash(plain: Mapping[str, Any], checksum: object) -> str:
    same = {name: value for name, value in plain.items() if name not in (*PACE, "classes")}
    text = json.dumps([same, checksum], sort_keys=True, default=str)
    return hashlib.blake2b(text.encode(), digest_size=12).hexdigest()


def counts(result: Result, reuse: str, *, version: str, commit: str | None) -> bool:
    """Whether a finished run of the same content may stand for a new one.

    A commit with changes on top of it (its mark ends in +) says nothing about the code, so it never counts.
    """
    return made_by(result.provenance, reuse, version=version, commit=commit)


def made_by(made: Mapping[str, Any], reuse: str, *, version: str, commit: str | None) -> bool:
    """The same of anything with a provenance."""
    if reuse == "any":
        return True
    if reuse == "version":
        return bool(made.get("odedm") == version)
    return commit is not None and not commit.endswith("+") and made.get("commit") == commit


def fault(result: Result, reuse: str, *, version: str, commit: str | None) -> str | None:
    """Why a run that has just been made would not count: another machine has other code."""
    if counts(result, reuse, version=version, commit=commit):
        return None
    made = result.provenance
    return (
        f"The run was made by odedm {made.get('odedm')} at commit {made.get('commit')}, and here it is {version} at "
        f"{commit}: bring the machines to the same code, or take --reuse any."
    )
