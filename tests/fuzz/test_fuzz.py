"""A short share of every fuzzer, and everything that one ever found."""

import pytest
from fuzzing import CORPUS, all_fuzzers, try_many, try_one

FUZZERS = all_fuzzers()
FOUND = sorted(path for path in CORPUS.glob("*/*") if path.is_file())


@pytest.fixture(autouse=True)
def _own_data_folder(monkeypatch):
    monkeypatch.setenv("ODEDM_DATA", "")  # each input gets its own, and afterwards it is as it was


@pytest.mark.parametrize("name", FUZZERS)
def test_a_share_of_every_fuzzer(name):
    assert try_many(FUZZERS[name], FUZZERS[name].share, start=1) > FUZZERS[name].share // 2


@pytest.mark.parametrize("path", FOUND, ids=lambda path: f"{path.parent.name}/{path.name}")
def test_what_was_found_once_is_not_found_again(path):
    try_one(FUZZERS[path.parent.name], path.read_bytes())
