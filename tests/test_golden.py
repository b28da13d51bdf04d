"""Short computations end as they did at b1acfb6; `tools/golden.py compare` compares more of them, bit for bit."""

from fnmatch import fnmatchcase
from pathlib import Path

import pytest
from golden.adapter import Today, Words
from golden.cases_b1acfb6 import all_cases
from golden.comparison import IntendedList, different, lasting, read_numbers, same
from golden.gate import verdict
from golden.measuring import measured

GOLDEN = Path(__file__).parent / "golden"
ALL = all_cases()
SHORT = {name: case for name, case in ALL.items() if case.short}
TODAY = Today()  # one for all: it keeps the features of the pictures
THEN = read_numbers(GOLDEN / "b1acfb6.json")


def test_every_short_case_is_recorded():
    assert set(THEN) == set(SHORT)
    assert not [name for name, parts in THEN.items() if "failed" in parts]


@pytest.mark.parametrize("name", SHORT)
def test_it_ends_as_it_did(name):
    now = lasting(measured(SHORT[name], TODAY))
    differing = different(THEN[name], now, same)
    unexpected = IntendedList(GOLDEN / "intended.toml").unexpected(name, differing)
    assert not unexpected, {part: (THEN[name].get(part), now.get(part)) for part in [*unexpected, "failed", "removed"]}


def test_what_was_meant_is_about_cases_that_there_are():
    for entry in IntendedList(GOLDEN / "intended.toml").entries:
        assert any(fnmatchcase(name, entry.cases) for name in ALL), f"no case is called {entry.cases}"
        assert len(entry.cause) > 20, "a cause is a sentence"


def test_a_lost_bit_and_another_row_are_seen():
    """So the comparison can fail."""
    then = THEN["derpp, odedm both, standard, short"]
    index, (norm, turned) = then["memory index"], then["weights"]
    assert different(then, then | {"memory index": [*index[:-1], index[-1] + 1]}, same) == ["memory index"]
    assert different(then, then | {"weights": [norm, turned + 0.01 * norm]}, same) == ["weights"]
    assert different(then, then | {"weights": [norm * (1 + 1e-6), turned]}, same) == []
    assert different(then, {name: part for name, part in then.items() if name != "scores"}, same) == ["scores"]


def test_the_adapter_on_old_words_is_the_identity():
    words = ("run", "--workers", "2", "--set", "lr=0.1")
    assert Words().command(*words) == list(words)
    assert Words().columns("census", {"short": [1]}) == {"short": [1]}


@pytest.mark.parametrize(
    ("measure", "change", "word"),
    [
        ("rows", lambda rows: [-1, *rows[1:]], "choices"),
        ("inertia", lambda inertia: 1.02 * inertia, "k-means"),
        ("cost", lambda cost: 1.02 * cost, "Sinkhorn"),
    ],
)
def test_the_gate_for_the_choice_of_prototypes_can_break(measure, change, word):
    then = read_numbers(GOLDEN / "b1acfb6_selection.json")
    assert len(then["rows"]) == 200
    assert verdict(then, then)[1]
    named = list(then[measure])
    few, many = (
        {**then, measure: then[measure] | {name: change(then[measure][name]) for name in names}}
        for names in (named[: len(named) // 20], named[: len(named) if measure != "rows" else 11])
    )
    assert verdict(then, few)[1]
    lines, holds = verdict(then, many)
    assert not holds
    assert [line for line in lines if line.startswith("BROKEN")] == [line for line in lines if f" {word}: " in line]
