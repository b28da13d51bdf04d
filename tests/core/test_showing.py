"""How things show themselves: a line or two at a prompt, never a tensor; in a notebook a table of plain text."""

from dataclasses import replace

import pytest

import odedm
from odedm import ODEDM, Experiment, Native, Prototypes, Reservoir, Results


@pytest.fixture(scope="module")
def outcome():
    return odedm.train("blobs", method="er", memory=Reservoir(20), device="cpu")


def displayed_objects(outcome):
    data, run = odedm.blobs(), odedm.Run(Experiment(ODEDM(20, k=1), data="blobs", device="cpu"))
    learner, memory = odedm.Learner(memory=20), odedm.DualMemory(20, k=2)
    learner.partial_fit(data.image[:40], data.label[:40])
    memory.add(data.image, data.label)
    stream = odedm.split(data)
    outcomes = odedm.Outcomes([outcome] * 12)
    plans = Experiment(), run.experiment, ODEDM.paper(200), Native(20)
    return [
        outcome,
        outcome.result,
        outcomes,
        data,
        stream,
        stream.tasks[0],
        *plans,
        run,
        learner,
        memory,
        Results(outcome),
    ]


def test_everything_fits_in_a_line_or_two_without_tensors(outcome):
    shown = [repr(obj) for obj in displayed_objects(outcome)]
    assert [text for text in shown if "tensor" in text or "\n" in text or " at 0x" in text] == []
    assert max(map(len, shown)) < 450
    assert "ER · reservoir · λ=20 on 'blobs', seed 0: ACC_5" in shown[0]
    assert shown[3] == "<Dataset 'blobs': 480 rows and 120 to test, (16,) each, 10 classes in 5 tasks>"
    assert shown[4] == "<Stream of 5 tasks, 10 classes: 480 rows and 120 to test>"


def test_a_plan_says_what_is_not_as_usual_and_python_reads_it_back():
    plan = Experiment(
        ODEDM(200, rho=0.5, selection=Prototypes(dac=None)),
        method="er",
        batch=8,
        options={"lr": 0.1},
        task_classes=(4, 6),
    )
    assert "batch=8" in repr(plan)
    assert "eval_classes" not in repr(plan)
    assert eval(repr(plan), {"Experiment": Experiment, "ODEDM": ODEDM, "Prototypes": Prototypes}) == plan
    assert repr(ODEDM()) == "ODEDM(capacity=100)"


def test_a_run_says_how_far_it_is():
    run = odedm.Run(Experiment(Reservoir(20), method="er", data="blobs", device="cpu"))
    assert repr(run) == ("<Run of er with Reservoir(capacity=20) on 'blobs', seed 0: 0 rows seen, 0 of 5 tasks done>")
    run.finish()
    assert repr(run).endswith("480 rows seen, 5 of 5 tasks done>")


NASTY = "<script>alert(1)</script>\x1b[31m\n&"


def test_names_of_anyone_stay_text(outcome):
    plan = {**outcome.result.experiment, "data": NASTY, "method": NASTY, "seed": NASTY}
    plan["memory"] = {"name": "native", "policy": NASTY, "capacity": NASTY}
    result = replace(outcome.result, experiment=plan)
    for obj in (result, replace(outcome, result=result), odedm.Outcomes([replace(outcome, result=result)] * 2)):
        page, line = obj._repr_html_(), repr(obj)
        assert page.startswith("<table><caption>")
        assert "&lt;script&gt;" in page
        for text in (page, line):
            assert text.isprintable()
        assert "<script" not in page
        assert page.count("&lt;script") >= 4, "in the caption and in the table"
    assert repr(replace(odedm.blobs(), name=NASTY)).isprintable()


def test_a_notebook_shows_a_row_a_seed_and_their_mean(outcome):
    two = odedm.Outcomes([outcome] * 2)
    assert outcome._repr_html_().count("<tr>") == 2
    assert two._repr_html_().count("<tr>") == 4
    assert f"<td>{outcome.result.acc_last:.1f}</td>" in outcome._repr_html_()
    assert f"<td>{outcome.result.acc_last:.1f} ± 0.0</td>" in two._repr_html_()


def test_what_a_stream_has_no_number_for_is_left_out():
    single = odedm.train("blobs", method="er", memory=Reservoir(20), tasks=1, device="cpu")
    assert "Forgetting" not in repr(single)
    assert "<td></td>" in single._repr_html_()
    assert "forgetting" not in odedm.Outcomes([single]).mean
