"""`make coverage`: how a report becomes rooms, and when its numbers are written."""

import json

import pytest
from beside import imported

coverage_by_room = imported("tools", "coverage_by_room")
PACKAGE = coverage_by_room.PACKAGE


def summary(lines, lines_taken, branches, branches_taken):
    names = ("num_statements", "covered_lines", "num_branches", "covered_branches")
    return {"summary": dict(zip(names, (lines, lines_taken, branches, branches_taken), strict=True))}


FILES = {
    "src/odedm/core/rows.py": summary(10, 9, 4, 3),
    str(PACKAGE / "core" / "inner" / "store.py"): summary(10, 10, 6, 5),
    "src/odedm/cli/app.py": summary(5, 0, 0, 0),
    "src/odedm/__main__.py": summary(2, 2, 0, 0),
    "src/odedm/nets/empty.py": summary(0, 0, 0, 0),
}


def test_rooms_are_the_folders_of_the_package():
    rooms = coverage_by_room.by_room(FILES)
    assert [*rooms] == ["cli", "core", "nets", "odedm"]
    assert rooms["core"] == coverage_by_room.Taken(20, 19, 10, 8)
    assert [rooms[name].percent for name in ("cli", "core", "nets")] == [0.0, 90.0, 100.0]


def test_the_table_ends_with_all_rooms_together():
    *_, core, _, _, whole = coverage_by_room.table(coverage_by_room.by_room(FILES)).splitlines()
    assert core.split() == ["core", "20", "19", "10", "8", "90.0"]
    assert whole.split() == ["all", "27", "21", "10", "8", "78.4"]


@pytest.mark.parametrize(
    ("words", "code", "told"),
    [([], 0, "Written into"), ([], 1, "tests failed"), (["tests/core"], 0, "not all tests were run")],
)
def test_numbers_are_written_of_all_tests_that_passed(words, code, told, monkeypatch, capsys, tmp_path):
    out, asked = tmp_path / "coverage.json", []
    monkeypatch.setattr(coverage_by_room, "measure", lambda *given: asked.append(given) or code)
    monkeypatch.setattr(coverage_by_room, "read", lambda _: coverage_by_room.by_room(FILES))
    assert coverage_by_room.main(["--processes", "2", "--out", str(out), *words]) == code
    assert asked == [(words, "2")]
    assert told in capsys.readouterr().out
    assert out.exists() == (told == "Written into")
    if out.exists():
        record = json.loads(out.read_text())
        assert record["commit"] == coverage_by_room.commit_of()
        assert record["rooms"]["core"] == {"lines": 20, "lines_taken": 19, "branches": 10, "branches_taken": 8}


def test_what_was_measured_before_is_shown_without_running_anything(monkeypatch, tmp_path):
    monkeypatch.setattr(coverage_by_room, "measure", lambda *_: pytest.fail("tests were run"))
    monkeypatch.setattr(coverage_by_room, "read", lambda _: coverage_by_room.by_room(FILES))
    out = tmp_path / "coverage.json"
    assert coverage_by_room.main(["--from", "data", "--out", str(out), "--commit", "abc", "--note", "one failed"]) == 0
    record = json.loads(out.read_text())
    assert (record["commit"], record["note"]) == ("abc", "one failed")
    assert coverage_by_room.commit_of(tmp_path) == "unknown"


@pytest.mark.skipif(not coverage_by_room.RECORD.is_file(), reason="only in a checkout")
def test_the_record_counts_no_more_than_there_is():
    rooms = json.loads(coverage_by_room.RECORD.read_text())["rooms"]
    assert rooms
    for room in rooms.values():
        assert 0 <= room["lines_taken"] <= room["lines"]
        assert 0 <= room["branches_taken"] <= room["branches"]
