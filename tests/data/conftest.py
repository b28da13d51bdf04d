"""Imported data go into a folder of each test's own."""

import pytest


@pytest.fixture(autouse=True)
def data_folder(tmp_path, monkeypatch):
    monkeypatch.setenv("ODEDM_DATA", str(tmp_path / "cache"))
    return tmp_path / "cache"
