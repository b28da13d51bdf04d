"""The page on harm: changes by host and reading, against the host's own memory and beside random rows."""

from dataclasses import replace

import pytest
from beside import ROOT, imported
from jobs import result_of
from matplotlib.figure import Figure

from odedm import ODEDM, Experiment, Native, Random, UsageError
from odedm.studies.spec import parse
from odedm.training.preparation import prepare

no_harm, changes_figure = (imported("tools", name) for name in ("no_harm", "changes_figure"))
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
        (ODEDM(20, rho=0.5), -0.5), (ODEDM(20, rho=0.5, selection=Random()), -2.0), (ODEDM(20, rho=0.5, gamma=1.0), 3.0)
    )
    text = no_harm.page(found, "some.gz", "no-harm.png")
    rows = [line for line in text.splitlines() if line.startswith("| ER")]
    assert [row.split(" | ")[1] for row in rows] == ["union", "auxiliary (not the default)"]
    assert "| −0.5 [−0.5, −0.5] | −2.0 [−2.0, −2.0] | 5 | no harm |" in rows[0]
    assert "| +3.0 [3.0, 3.0] | – | 5 | **helps** |" in rows[1]
    assert (
        "by the default reading of each host: no harm for ER. Prototypes were clearly better than random rows" in text
    )
    assert "in their place for ER, clearly worse for none." in text
    no_harm.save_figure(no_harm.changes(found), tmp_path / "no-harm.png")
    assert (tmp_path / "no-harm.png").stat().st_size > 3000
    with pytest.raises(UsageError, match="Two runs have one place: ER on blobs, seed 10"):
        no_harm.hosts([*found, found[0]])


def test_a_run_counts_as_planned_in_its_own_place_alone():
    """Of ER's runs on fashion-mini two of three are planned: of the last neither seed nor reading is."""
    small = replace(OWN, data="fashion-mini", memory=Native(100), seed=10)
    dual = replace(small, memory=ODEDM(100, rho=0.25))
    other = replace(small, memory=ODEDM(100, rho=0.25, gamma_rule="share"))
    found = [result_of(prepare(plan).experiment, "sum", acc=40.0) for plan in (small, dual, other)]
    found.append(result_of(prepare(replace(dual, seed=3)).experiment, "sum", acc=40.0))
    said = no_harm.done(found)
    assert "benchmarks/no_harm.toml` (7 hosts on cifar10 and cifar100) 0 of 420" in said
    assert "benchmarks/no_harm_small.toml` (9 hosts on fashion-mini) 2 of 270" in said
    assert said.endswith("; 2 more are of other seeds or readings, a first look.")


def test_levels_are_those_of_the_seeds_that_are_compared():
    found = results((ODEDM(20, rho=0.5), 1.0))
    row = no_harm.page(found[:-2], "some.gz").split("| ER | ")[1].splitlines()[0]
    assert row.startswith("union | 51.0 ± 0.6 | 52.0 ± 0.6 | +1.0 [1.0, 1.0] | – | 3 |")


def test_a_host_has_one_row_in_every_panel_and_readings_that_are_no_default_none(monkeypatch):
    drawn = []
    monkeypatch.setattr(changes_figure, "write_bytes", lambda *_: None)

    def painted(width, height, paint, **_):
        drawn.append(Figure())
        paint(drawn[0])

    monkeypatch.setattr(changes_figure, "png", painted)
    mark = changes_figure.Change("ODEDM", 1.0, (0.5, 1.5))
    panels = {"a": [("DER", [mark]), ("FDR", [mark])], "b": [("ER", [mark]), ("FDR", [mark])]}
    changes_figure.save_figure(panels, None)
    left, right = drawn[0].axes
    assert [tick.get_text() for tick in left.get_yticklabels()] == ["DER", "FDR", "ER"]
    assert left.get_ylim() == right.get_ylim() == (2.5, -0.5)
    dots = [[line.get_ydata()[0] for line in axes.lines if len(line.get_ydata()) == 1] for axes in (left, right)]
    assert dots == [[0.0, 1.0], [2.0, 1.0]]
    assert no_harm.changes(results((ODEDM(20, rho=0.5, gamma=1.0), 3.0))) == {}


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
