"""The repository's packed results: what they counted when their runs were made, they count."""

import json
from pathlib import Path

import pytest
from beside import ROOT, imported
from commands import odedm

from odedm import Experiment, UsageError
from odedm.paper.items import SHIPPED
from odedm.results.folder import FinishedRun
from odedm.results.packed import read_packed
from odedm.results.result import SCHEMA, Result

LEDGERS = ROOT / "docs" / "results"
RUNS = {
    "confirm": 12,
    "demo": 78,
    "equal-tuning": 120,
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
    numbers = {row[0].lower().replace(" ", ""): [int(cell) for cell in row[3:9]] for row in rows if row[4]}
    assert numbers == VERDICTS


def test_every_stored_experiment_is_complete():
    """A file without a setting would take today's default, which is not what it ran with."""
    runs = [run for path in ledgers() for run in read_packed(path)]
    runs += [FinishedRun.load(folder) for folder in SAVED.iterdir()]
    for run in runs:
        plain = run.result.experiment
        assert Experiment.from_dict(plain).describe() == plain


def test_conversion_has_nothing_left_to_do(capsys):
    tool = imported("tools", "convert_ledger")
    tool.convert([path for pattern in tool.EVERYTHING for path in sorted(ROOT.glob(pattern))])
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) > 25
    assert {line.split()[0] for line in lines} == {"unchanged"}


def test_a_result_of_an_earlier_format_is_converted(tmp_path):
    tool = imported("tools", "convert_ledger")
    today = json.loads((SAVED / "er-odedm" / "result.json").read_text())
    before = json.loads(json.dumps(today))
    before["schema"], before["census"] = "odedm.result/2", before.pop("class_counts")
    del before["experiment"]["epochs"], before["experiment"]["memory"]["dac_distance"]
    assert tool.converted_result(before) == today
    path = tmp_path / "result.json"
    path.write_text(json.dumps(before))
    with pytest.raises(UsageError, match=rf"has the format 'odedm.result/2', and this version reads '{SCHEMA}'"):
        Result.load(path)
    assert tool.convert_json(path)
    assert Result.load(path) == Result.load(SAVED / "er-odedm" / "result.json")
    assert not tool.convert_json(path)


def test_a_conversion_that_changes_a_number_is_refused(monkeypatch):
    tool = imported("tools", "convert_ledger")
    monkeypatch.setattr(tool, "RENAMES", (tool.replace("acc_last", {33.0: 34.0}), *tool.RENAMES))
    plain = json.loads((SAVED / "er-odedm" / "result.json").read_text()) | {"acc_last": 33.0}
    with pytest.raises(SystemExit, match="changes acc_last"):
        tool.converted_result(plain)


@pytest.mark.parametrize(
    ("name", "content"), [("a.jsonl.gz", b"# no gzip"), ("a.json", b"# no JSON"), ("b.json", None)]
)
def test_a_file_that_is_no_ledger_is_refused_by_name_and_left_as_it_is(tmp_path, name, content):
    path = tmp_path / name
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(SystemExit, match=f"{name}' cannot be read as a ledger"):
        imported("tools", "convert_ledger").convert([path])
    assert (path.read_bytes() if path.exists() else None) == content
