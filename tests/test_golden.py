"""Short runs end as they always did: `tools/golden.py` compares more, bit for bit, and makes these files."""

import json
from pathlib import Path

import pytest
from golden.cases import lasting, short_cases, short_data, trained

GOLDEN = Path(__file__).parent / "golden"
CASES = short_cases()


def test_every_case_has_its_file():
    assert {path.stem for path in GOLDEN.glob("*.json")} == set(CASES)


@pytest.mark.parametrize("name", CASES)
def test_a_run_ends_as_it_always_did(name):
    outcome = trained({"data": short_data(), **CASES[name]})
    assert sum(outcome.result.provenance["steps"].values()) <= 20
    now, then = lasting(outcome), json.loads((GOLDEN / f"{name}.json").read_text())
    assert now["discrete"] == then["discrete"]
    assert now["floats"].keys() == then["floats"].keys()
    for weight, (mean, norm) in now["floats"].items():
        assert [mean, norm] == pytest.approx(then["floats"][weight], rel=1e-4, abs=1e-4), weight
