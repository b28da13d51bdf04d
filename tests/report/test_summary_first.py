"""What a reader sees first, and what no reader should have to see twice."""

import re

import pytest
from report_runs import Fabricate, groups_of, table_of

import odedm
from odedm.report.figures.comparisons import difference_plot
from odedm.report.figures.memory import memory_by_class
from odedm.report.page import render
from odedm.report.verdicts import headline
from odedm.results.run_summary import accuracy_picture


def pairs(fabricate, seeds, better, method="der"):
    for seed in range(seeds):
        yield fabricate(method, "reservoir", seed=seed, acc=40.0 + seed)
        yield fabricate(method, "odedm", seed=seed, acc=40.0 + seed + better + 0.1 * seed)


def test_the_page_begins_with_the_whole_in_two_sentences(fabricate: Fabricate):
    table = table_of(*pairs(fabricate, 5, 6.0), *pairs(fabricate, 5, -3.0, "derpp"))
    best, compared = headline(table)
    assert best.startswith("The best final accuracy is 48.2 %, by DER · ODEDM")
    assert re.search(r", sd 1\.7 over 5 seeds\.$", best)
    assert compared == (
        "2 comparisons with the same runs without ODEDM: 1 better by the interval but not after Holm's "
        "correction, 1 worse by the interval but not after Holm's correction; −2.8 to +6.2 points of ACC_5."
    )
    page = render(table)
    assert page.index('class="short"') < page.index('class="notes"') < page.index("<table")


@pytest.mark.parametrize(
    ("seeds", "sign", "count"), [(5, "△", ": 1 better by the interval but not by p;"), (7, "▲", ": 1 better;")]
)
def test_a_mark_is_full_only_where_the_interval_and_p_agree(fabricate: Fabricate, seeds: int, sign: str, count: str):
    table = table_of(*pairs(fabricate, seeds, 6.0))
    (row,) = [line for line in render(table).split("<tr") if '>DER · ODEDM</th><td data-value="' in line][:1]
    assert row.count(f">{sign}</span>") == 1
    assert count in headline(table)[1]


def test_few_seeds_are_open_and_it_says_why(fabricate: Fabricate):
    (_, compared) = headline(table_of(*pairs(fabricate, 2, 30.0)))
    assert ": 1 open;" in compared


def test_other_problems_have_no_best(fabricate: Fabricate):
    table = table_of(fabricate("der", "reservoir"), fabricate("der", "reservoir", over={"data": "another"}))
    assert headline(table) == []


def test_numbers_have_their_standard_deviation_and_tables_their_hint(fabricate: Fabricate):
    page = render(table_of(*pairs(fabricate, 3, 5.0)))
    assert 'class="error">± 0.6</span><span class="error">sd 1.0</span>' in page
    assert page.count('class="hint"') == page.count('class="card scroll"') >= 2
    assert "border-collapse: separate" in page, "a sticky cell takes no line with it where borders are collapsed"


def test_the_zero_line_keeps_clear_of_labels(fabricate: Fabricate):
    """It is in pieces, one in each row below the row's label; a whole line would cross them."""
    (panel,) = difference_plot(table_of(*pairs(fabricate, 2, 5.0), *pairs(fabricate, 2, 4.0, "derpp")))
    (axes,) = panel.figure.axes
    pieces = [tuple(line.get_ydata()) for line in axes.lines if list(line.get_xdata()) == [0.0, 0.0]]
    labels = [text.get_position()[1] for text in axes.texts]
    assert len(pieces) == len(labels) == 2
    assert not any(low - 0.1 < label < high for low, high in pieces for label in labels)


def test_memories_with_the_same_rows_are_drawn_once(fabricate: Fabricate):
    groups = groups_of(*(fabricate(method, memory) for method in ("der", "derpp") for memory in ("reservoir", "odedm")))
    titles = [panel.title for panel in memory_by_class(groups)]
    assert titles == ["DER · reservoir and DER++ · reservoir", "DER · ODEDM and DER++ · ODEDM"]


@pytest.fixture(scope="module")
def outcome():
    return odedm.train("blobs", method="er", memory=odedm.Reservoir(20))


def test_in_a_notebook_runs_are_a_table_and_a_picture(outcome):
    for source in (outcome, outcome.result, odedm.Results(outcome)):
        shown = source._repr_html_()
        assert "<table>" in shown
        assert shown.count("<polyline") == 1


def test_the_picture_shows_names_as_text_and_refuses_what_cannot_be_told_apart():
    curve = [[90.0, 60.0, 50.0]]
    assert "<b>" not in accuracy_picture({"<b>": curve})
    assert accuracy_picture({str(place): curve for place in range(7)}) == ""


def test_results_are_a_table_for_a_paper(outcome):
    text = odedm.Results(outcome).to_latex(caption="Mine.", label="tab:mine")
    assert "\\caption{Mine. All runs: " in text
    assert "\\label{tab:mine}" in text
    assert odedm.Results(outcome).to_latex(caption="Mine", label="tab:mine") == text


def test_printed_results_are_the_table_of_the_terminal(outcome):
    results = odedm.Results(outcome)
    assert repr(results) == "Results: 1 run in 1 group"
    assert "ACC_" in str(results).splitlines()[0]
    assert f"{outcome.result.acc_last:.1f}" in str(results)
    assert "\x1b" not in str(results)
