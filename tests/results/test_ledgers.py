"""The repository's packed results: what they counted when their runs were made, they count."""

from pathlib import Path

import pytest
from beside import ROOT
from commands import odedm

from odedm import Experiment
from odedm.paper.items import SHIPPED
from odedm.results.folder import FinishedRun
from odedm.results.packed import read_packed

LEDGERS = ROOT / "docs" / "results"
RUNS = {
    "confirm": 12,
    "demo": 78,
    "equal-tuning": 120,
    "features": 182,
    "leaderboard": 156,
    "no-harm": 336,
    "no-harm-averaged": 180,
    "no-harm-fashion-mini": 270,
    "no-harm-first-look": 128,
    "no-harm-later": 240,
    "published": 13,
    "query-precision": 38,
    "table1": 387,
}
VERDICTS = {
    "table1": [387, 42, 31, 7, 32, 532],
    "table5": [208, 21, 10, 2, 33, 276],
    "table6": [179, 10, 13, 2, 25, 212],
    "table10": [208, 19, 14, 11, 0, 184],
    "table11": [179, 17, 24, 1, 0, 152],
    "table3": [20, 6, 0, 0, 0, 54],
    "figure4": [10, 0, 0, 0, 0, 4],
    "table4": [40, 0, 0, 0, 4, 24],
}
"""Runs that are done, cells that are reproduced, better, worse, not comparable, and all that the paper prints."""
SAVED = Path(__file__).parent / "runs"
pytestmark = pytest.mark.skipif(not LEDGERS.is_dir(), reason="only in a checkout")


def ledgers():
    """Packed results of the repository, those that come with the package among them."""
    return [*LEDGERS.glob("*.gz"), *SHIPPED.glob("*.gz")]


def test_every_ledger_has_its_runs():
    assert {path.name.removesuffix(".jsonl.gz"): len(read_packed(path)) for path in ledgers()} == RUNS


def test_the_paper_counts_what_it_counted(tmp_path):
    output = odedm("paper", "--markdown", "--out", tmp_path)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in output.split("\n\n")[0].splitlines()[2:]]
    numbers = {}
    for name, _, done, reproduced, better, worse, not_comparable, _, printed in rows:
        if printed and not done.startswith("0/"):
            counts = [done.split("/")[0], reproduced, better, worse, not_comparable, printed]
            numbers[name.lower().replace(" ", "")] = [int(count or 0) for count in counts]
    assert numbers == VERDICTS


def test_every_stored_experiment_is_complete():
    """A file without a setting would take today's default, which is not what it ran with."""
    runs = [run for path in ledgers() for run in read_packed(path)]
    runs += [FinishedRun.load(folder) for folder in SAVED.iterdir()]
    for run in runs:
        plain = run.result.experiment
        assert Experiment.from_dict(plain).describe() == plain
