"""`train` with many seeds and a line of progress: the same runs as one by one, and what they say together."""

import io
import itertools
import math

import pytest
from rich.console import Console

import odedm
from odedm import ODEDM, Outcome, Outcomes, Reservoir, Results, UsageError, train
from odedm.training.progress_line import ProgressLine, wanted

SMALL = {"data": "blobs", "method": "er", "memory": Reservoir(20), "device": "cpu"}


@pytest.fixture(scope="module")
def three() -> Outcomes:
    return train(**SMALL, seeds=3)


def test_each_seed_is_the_run_that_it_is_alone(three):
    alone = [train(**SMALL, seed=seed) for seed in range(3)]
    assert all(isinstance(each, Outcome) for each in alone)
    assert [each.class_il for each in three.results] == [each.result.class_il for each in alone]
    assert len({str(each.class_il) for each in three.results}) == 3


def test_a_number_counts_from_the_seed_on_and_a_list_is_taken_as_it_is(three):
    later, listed = train(**SMALL, seed=1, seeds=2), train(**SMALL, seeds=[2, 0])
    assert [row["seed"] for row in later.table()] == [1, 2]
    assert later.results[0].class_il == three.results[1].class_il
    assert [each.class_il for each in listed.results] == [three.results[n].class_il for n in (2, 0)]
    assert isinstance(train(**SMALL, seeds=1), Outcomes)


def test_the_table_has_a_row_a_seed_and_means_with_their_errors(three):
    rows = three.table()
    values = [row["acc_last"] for row in rows]
    assert values == [each.acc_last for each in three.results]
    mean = sum(values) / 3
    assert three.mean["acc_last"] == pytest.approx(mean)
    assert three.error["acc_last"] == pytest.approx(math.sqrt(sum((each - mean) ** 2 for each in values) / 2 / 3))
    assert set(three.mean) == set(rows[0]) - {"seed"}
    assert three[:1].error == {}
    assert f"{mean:.1f} ± {three.error['acc_last']:.1f} %" in repr(three)
    assert "seeds 0 to 2" in repr(three)


def test_outcomes_are_a_sequence_of_at_least_one(three):
    assert [each.result for each in three] == three.results
    assert isinstance(three[-1], Outcome)
    assert isinstance(three[1:], Outcomes)
    for given in ([], [three.results[0]]):
        with pytest.raises(UsageError, match=r"what odedm.train gives, at least one"):
            Outcomes(given)


def test_saved_and_unsaved_they_are_compared_by_seed(three, tmp_path):
    dual = train(**SMALL | {"memory": ODEDM(20, k=1)}, seeds=3)
    place = three.save(tmp_path / "plain")
    assert sorted(path.name for path in place.iterdir()) == ["seed-0", "seed-1", "seed-2"]
    both = Results(place, dual)
    assert repr(both) == "Results: 6 runs in 2 groups"
    change = both.table.compared[0].differences["acc_last"].estimate
    assert (change.n, change.mean) == (3, pytest.approx(dual.mean["acc_last"] - three.mean["acc_last"]))
    assert Results(three, [dual[0], dual.results[1]], dual[2]).to_markdown() == both.to_markdown()
    (tmp_path / "other" / "seed-2").mkdir(parents=True)
    (tmp_path / "other" / "seed-2" / "mine.txt").write_text("x")
    with pytest.raises(UsageError, match="seed-2"):
        three.save(tmp_path / "other")
    assert not (tmp_path / "other" / "seed-0").exists(), "all or none"
    with pytest.raises(UsageError, match=r"what odedm.train gives; 3 was given"):
        Results(3)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"seeds": 0}, "seeds must be a whole number, 1 or more, up to 10000; 0 was given"),
        ({"seeds": True}, "seeds must be a whole number"),
        ({"seeds": "five"}, "seeds must be a whole number"),
        ({"seeds": 10_001}, "up to 10000"),
        ({"seeds": []}, r"list of at most 10000 different seeds; \[\] was given"),
        ({"seeds": [1, 1]}, "different seeds"),
        ({"seeds": itertools.count()}, "at most 10000 different seeds"),
        ({"seeds": [1, -1]}, "Each of seeds must be a whole number, 0 or more; -1 was given"),
        ({"seeds": [1], "seed": 3}, "both given"),
        ({"progress": "often"}, "progress must be"),
        ({"lr": 0.1, "options": {"lr": 0.1}}, "lr was given twice"),
        ({"lr": "fast"}, "lr must be"),
        ({"lr": 0.1, "options": 3}, "options must be"),
        ({"sedes": 3}, "did you mean 'seeds'"),
    ],
)
def test_what_makes_no_sense_is_a_sentence(given, said):
    with pytest.raises(UsageError, match=said):
        train(**SMALL, **given)


def test_a_rate_is_short_for_an_option():
    assert train(**SMALL, lr=0.02).result.experiment["options"]["lr"] == 0.02


def test_who_fails_among_many_is_named_and_finished_ones_can_be_kept():
    class Keep:
        kept: list[Outcome]

        def __init__(self):
            self.kept = []

        def after_task(self, run):
            if run.experiment.seed == 1:
                raise RuntimeError("no more")

        def after_run(self, outcome):
            self.kept.append(outcome)

    keep = Keep()
    with pytest.raises(RuntimeError) as caught:
        train(**SMALL, seeds=3, callbacks=[keep])
    (note,) = caught.value.__notes__
    assert "seed 1, after 1 of 3" in note
    assert [each.result.experiment["seed"] for each in keep.kept] == [0]


def test_nothing_is_said_where_there_is_no_terminal_and_a_line_where_it_is_asked_for(capfd, three):
    train(**SMALL)
    assert capfd.readouterr() == ("", "")
    said = train(**SMALL, seeds=2, progress=True)
    out, err = capfd.readouterr()
    assert out == ""
    assert "seed 1 (2 of 2) · task 5 of 5" in err
    assert err.rstrip().endswith("100%")
    assert [each.class_il for each in said.results] == [each.class_il for each in three.results[:2]]


def test_progress_shows_by_itself_in_a_terminal(monkeypatch):
    class Screen(io.StringIO):
        def isatty(self):
            return True

    monkeypatch.setattr("sys.stderr", io.StringIO())
    assert not wanted(None)
    monkeypatch.setattr("sys.stderr", Screen())
    assert wanted(None)
    assert not wanted(False)


def line_of(console, runs, **more):
    """A finished run's words, told to a line batch by batch by a clock that stands still."""
    with ProgressLine(runs, console=console, now=lambda: 0.0, **more) as line:
        run = odedm.Run(odedm.Experiment(Reservoir(20), method="er", data="blobs", device="cpu"))
        line.finished = runs - 1
        run.finish(line)
        return console.file.getvalue(), line._bar.tasks[0]


def test_a_terminal_has_one_bar_for_all_runs_and_no_name_is_markup():
    _, bar = line_of(Console(file=io.StringIO(), force_terminal=True, width=120), 2)
    assert (bar.completed, bar.total) == (960, 960)
    assert bar.description.startswith("er · seed 0 (2 of 2) · task 5 of 5, ACC ")
    hidden, _ = line_of(Console(file=io.StringIO(), force_terminal=True), 1, hidden=True)
    assert hidden == ""


def test_a_log_gets_a_line_now_and_then_and_not_one_a_batch():
    said, _ = line_of(Console(file=io.StringIO(), force_terminal=False, width=40), 1)
    assert len(said.splitlines()) == 1, "nothing but the end, when no time passes"
