"""Interrupts at the lines of the package that something runs, one after the other."""

import os
import sys
from pathlib import Path

import odedm

PACKAGE = str(Path(odedm.__file__).parent)
EVERY = int(os.environ.get("ODEDM_LINES_EVERY", "67"))
"""Of the lines that run, each at its first and its last time, one in so many is tried; `make fuzz` tries all."""


class Interrupt(BaseException):
    """Stands for KeyboardInterrupt, which pytest takes for its own."""


def places_of(action, learner):
    """The lines of the package that an action runs, each by how many lines ran before its first and its last time."""
    places, count = {}, 0

    def trace(frame, event, _argument):
        nonlocal count
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        if event == "line":
            count += 1
            first, _ = places.setdefault((frame.f_code.co_filename, frame.f_lineno), (count, count))
            places[frame.f_code.co_filename, frame.f_lineno] = first, count
        return trace

    sys.settrace(trace)
    try:
        action(learner)
    finally:
        sys.settrace(None)
    return sorted({at for both in places.values() for at in both})


def interrupt(action, learner, at):
    """Run an action until so many lines of the package have run, and interrupt it there; say where that was."""
    count, place = 0, ""

    def trace(frame, event, _argument):
        nonlocal count, place
        if not frame.f_code.co_filename.startswith(PACKAGE):
            return None
        count += event == "line"
        if count == at and event == "line":
            place = f"{frame.f_code.co_filename.removeprefix(PACKAGE)}:{frame.f_lineno}"
            sys.settrace(None)
            raise Interrupt
        return trace

    sys.settrace(trace)
    try:
        action(learner)
    except Interrupt:
        pass
    finally:
        sys.settrace(None)
    return place
