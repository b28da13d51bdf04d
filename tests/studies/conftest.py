"""Jobs of two configurations with two seeds, as a study has them."""

from __future__ import annotations

from pathlib import Path

import pytest
from jobs import DUAL, SMALL

from odedm.execute.job import Job
from odedm.execute.planning import plan_jobs, run_dir_under


@pytest.fixture
def jobs(tmp_path: Path) -> list[Job]:
    """Two configurations, two seeds."""
    plans = [plan.with_seed(seed) for seed in (0, 1) for plan in (SMALL, DUAL)]
    return plan_jobs(plans, run_dir_under(tmp_path / "study" / "runs")).jobs
