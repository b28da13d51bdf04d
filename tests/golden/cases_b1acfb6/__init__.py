"""What is computed, in the words of commit b1acfb6: each case gives numbers of a run, a learner, a memory, a command.

Nothing here imports `odedm`: all goes through the `api` of `adapter.py`. The cases are never edited for a rename.
"""

from __future__ import annotations

from . import commands, learner, memory, resume, runs, selection
from .case import Case


def all_cases() -> dict[str, Case]:
    """Every case by its name."""
    found = [
        *runs.cases(),
        *learner.cases(),
        *memory.cases(),
        *selection.cases(),
        *resume.cases(),
        *commands.cases(),
    ]
    cases = {case.name: case for case in found}
    assert len(cases) == len(found), "two cases have one name"
    return cases
