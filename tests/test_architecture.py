"""The pictures in ARCHITECTURE.md are those of the code: rooms and their imports, and modules that exist."""

import re
from graphlib import TopologicalSorter
from pathlib import Path

import pytest
from test_layers import FILES, imports, modules, room

ROOT = Path(__file__).parent.parent
PAGE = ROOT / "ARCHITECTURE.md"

pytestmark = pytest.mark.skipif(not PAGE.is_file(), reason="only in a checkout")

NODE = r'([\w.]+)(?:\["[^"]*"\])?'
ARROW = re.compile(rf'^\s*{NODE}\s*-->\s*(?:\|"[^"]*"\|\s*)?{NODE}\s*$')


def pictures():
    """The arrows of each Mermaid picture; a line that is no arrow is an error."""
    found = []
    for block in re.findall(r"```mermaid\ngraph TD\n(.*?)```", PAGE.read_text(), re.S):
        matches = [ARROW.match(line) for line in block.splitlines()]
        assert all(matches), block
        found.append([match.groups() for match in matches])
    return found


def uses():
    """Which rooms each room imports, TYPE_CHECKING and late imports included; the package's own two files have none."""
    found = {}
    for path in FILES:
        own = room(path)
        if own.startswith("__"):
            continue
        found.setdefault(own, set())
        for name in imports(path):
            top, *rest = name.split(".")
            if top == "odedm" and rest[0] != own:
                found[own].add(rest[0])
    return found


def reduced(graph):
    """The transitive reduction: arrows that follow from others are left out."""
    below = {}
    for name in TopologicalSorter(graph).static_order():  # those that are used come first
        below[name] = set().union(graph.get(name, set()), *(below[each] for each in graph.get(name, ())))
    return {
        name: {each for each in used if not any(each in below[other] for other in used - {each})}
        for name, used in graph.items()
    }


def test_a_reduction_leaves_out_what_follows():
    assert reduced({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == {"a": {"b"}, "b": {"c"}, "c": set()}


def test_the_rooms_in_the_picture_are_those_of_the_imports():
    drawn = pictures()[0]
    assert len(drawn) == len(set(drawn)), "an arrow is there twice"
    found = {(name, each) for name, used in reduced(uses()).items() for each in used}
    assert set(drawn) == found


def test_every_room_is_in_the_picture_and_in_the_table():
    rooms = set(uses())
    assert {name for arrow in pictures()[0] for name in arrow} == rooms
    table = PAGE.read_text().split("## Where things are")[1].split("\n## ")[0]
    assert set(re.findall(r"`(\w+)/`", table)) == rooms


def test_the_modules_in_the_pictures_and_in_their_text_exist():
    assert len(pictures()) == 3
    known = set(modules())
    rooms = set(uses())
    for drawn in pictures()[1:]:
        named = {name for arrow in drawn for name in arrow} - {"words"}
        assert len(named) > 10
        assert named <= known, named - known
    text = re.findall(r"`(\w+\.\w+)`", PAGE.read_text())
    assert {name for name in text if name.split(".")[0] in rooms} <= known


def test_a_run_goes_through_modules_that_know_each_other_or_meet_in_a_third():
    """An arrow of the way of a run is an import from either side, or a third module hands one's work to the other."""
    known = modules()
    edges = {name: {each.removeprefix("odedm.") for each in imports(path)} for name, path in known.items()}
    for tail, head in pictures()[1]:
        if tail == "words":
            continue
        direct = head in edges[tail] or tail in edges[head]
        assert direct or any({tail, head} <= used for used in edges.values()), f"{tail} --> {head}"
