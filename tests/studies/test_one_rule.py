"""A run and a study have one rule for which finished run is theirs."""

from __future__ import annotations

import json

import pytest
from jobs import write_run

from odedm.core.errors import UsageError
from odedm.execute.finished import finished
from odedm.studies.run_store import RunStore

CASES = {
    "the same": ({}, {}, True),
    "another setting": ({"batch": 7}, {}, False),
    "another seed": ({"seed": 99}, {}, False),
    "another device and number of threads": ({"device": "cuda", "threads": 8, "cuda_graph": False}, {}, True),
    "another version of odedm": ({}, {"odedm": "9.9.9"}, True),
    "other data": ({}, {"data_checksum": "of others"}, False),
    "other code from outside": (
        {},
        {"plugins": {"method": {"title": "ER", "from": "mine:ER", "again": True, "code": "12ab"}}},
        None,
    ),
    "code from outside where odedm's own is asked for": (
        {},
        {"plugins": {"method": {"title": "ER", "from": "mine:ER", "again": True, "code": "12ab"}}},
        None,
    ),
    "unknown code from outside": (
        {},
        {"plugins": {"method": {"title": "ER", "from": "mine:ER", "again": False}}},
        True,
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_what_counts_for_a_study_counts_for_a_run(case, jobs, monkeypatch) -> None:
    """None stands for code that has changed: `--reuse any` counts it in a study."""
    experiment, provenance, is_same = CASES[case]
    if case == "other code from outside":
        monkeypatch.setattr(type(jobs[0].experiment), "code_hashes", lambda _: {"method": "34cd"})
        monkeypatch.setattr(type(jobs[0].experiment), "plugins", lambda _: {"method": ("er", PluginStub)})
    folder = write_run(jobs[0])
    plain = json.loads((folder / "result.json").read_text())
    plain["experiment"] |= experiment
    plain["provenance"] |= provenance
    (folder / "result.json").write_text(json.dumps(plain))
    status = RunStore(folder.parents[2]).status(jobs[:1])
    assert bool(status.done) == (is_same is True)
    assert status.outdated == (is_same is None)
    assert bool(RunStore(folder.parents[2]).status(jobs[:1], reuse="any").done) == (is_same is not False)
    if is_same:
        assert finished(jobs[0]).acc_last == 50.0
    else:
        with pytest.raises(UsageError, match="which keeps both, or --overwrite to replace it"):
            finished(jobs[0])


class PluginStub:
    target, plugin, portable = "mine:ER", None, True
