"""Pieces of work, and folders of finished ones."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from puppets import DUAL, SMALL, result_of

from odedm.execute.job import Work
from odedm.study.prepare import prepare


@pytest.fixture
def works(tmp_path: Path) -> list[Work]:
    """Two configurations, two seeds."""
    plans = [plan.with_seed(seed) for seed in (0, 1) for plan in (SMALL, DUAL)]
    return prepare(plans, tmp_path / "study" / "runs", device="cpu").works


@pytest.fixture
def write() -> Callable[..., Path]:
    """Write the folder of a finished run of some work."""

    def write(work: Work, **how: float) -> Path:
        work.folder.mkdir(parents=True, exist_ok=True)
        result_of(work.experiment, work.checksum or "", **how).save(work.folder)
        return work.folder

    return write
