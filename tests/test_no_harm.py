"""The page on harm: changes by host and reading, against the host's own memory and beside random rows."""

from dataclasses import replace

import pytest
from beside import ROOT, imported
from jobs import result_of

from odedm import ODEDM, Experiment, Native, UsageError
from odedm.study.study import parse
from odedm.training.preparation import prepare

no_harm = imported("tools", "no_harm")
OWN = Experiment(Native(20), method="er", data="blobs", device="cpu")
SEEDS = range(10, 15)


def results(*changes):
    """Runs of ER: with its own memory at 40 and more, and with ODEDM by each reading that much away from it."""
    plans = [(OWN, 0.0)]
    plans += [(replace(OWN, memory=memory), change) for memory, change in changes]
    return [
        result_of(prepare(replace(plan, seed=seed)).experiment, "sum", acc=40.0 + seed + change)
        for plan, change in plans
        for seed in SEEDS
    ]


def test_a_row_says_what_the_default_reading_changes_and_what_random_rows_do(tmp_path):
    found = results(
        (ODEDM(20, rho=0.5), -0.5), (ODEDM(20, rho=0.5, distance="random"), -2.0), (ODEDM(20, rho=0.5, gamma=1.0), 3.0)
    )
    text = no_harm.page(found, "some.gz", "no-harm.png")
    rows = [line for line in text.splitlines() if line.startswith("| ER")]
    assert [row.split(" | ")[1] for row in rows] == ["union", "auxiliary (not the default)"]
    assert "| −0.5 [−0.5, −0.5] | −2.0 [−2.0, −2.0] | 5 | no harm |" in rows[0]
    assert "| +3.0 [3.0, 3.0] | – | 5 | **helps** |" in rows[1]
    assert "20 of 420 planned runs" in text
    no_harm.save_figure(no_harm.changes(found), tmp_path / "no-harm.png")
    assert (tmp_path / "no-harm.png").stat().st_size > 3000
    with pytest.raises(UsageError, match="Two runs have one place: ER on blobs, seed 10"):
        no_harm.hosts([*found, found[0]])


@pytest.mark.parametrize(("change", "so"), [(-2.0, "**harms**"), (-1.0, "no harm"), (0.5, "**helps**")])
def test_what_is_harm(change, so):
    (board,) = no_harm.hosts(results((ODEDM(20, rho=0.5), change))).values()
    assert no_harm.verdict(board["er"].change(("union", "fixed"), "sinkhorn")) == so


def test_its_study_compares_each_host_with_the_policy_that_odedm_has_too():
    plans = parse((ROOT / "benchmarks" / "no_harm.toml").read_text()).experiments()
    assert len(plans) == 420
    assert {plan.seed for plan in plans} == {*range(10, 20)}
    ready = [prepare(replace(plan, data="blobs")).experiment.memory for plan in plans if plan.seed == 10]
    assert sum(isinstance(memory, ODEDM) for memory in ready) == 28
