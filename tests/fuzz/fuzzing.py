"""What a fuzzer is, and what it watches: any error but UsageError, a hang or a growth of memory is a finding.

A module `fuzz_*.py` beside this one adds fuzzers by a table `FUZZERS`; `test_fuzz.py` runs a short share of each and
everything in `corpus/<name>/`, and `python tests/fuzz/fuzzing.py MINUTES [NAME …]` each for so long. What it finds it
writes into the corpus, where it stays.
"""

import hashlib
import importlib
import json
import os
import resource
import signal
import sys
import tempfile
import time
import traceback
import warnings
from collections.abc import Callable
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from hypothesis import HealthCheck, Phase, given, seed, settings
from hypothesis import strategies as st

from odedm import UsageError

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
SECONDS, GROWTH = 10, 1 << 30
"""Of the processor, which a busy machine does not lengthen; and bytes."""
TIMERS = {signal.SIGPROF: (signal.ITIMER_PROF, SECONDS), signal.SIGALRM: (signal.ITIMER_REAL, 12 * SECONDS)}
"""The second one is for what waits and computes nothing."""
WAYS = ("set", "insert", "delete", "repeat", "cut")
# found is found: to make an input smaller could take longer than to find it
QUIET = settings(deadline=None, database=None, phases=[Phase.generate], suppress_health_check=list(HealthCheck))


@dataclass(frozen=True)
class Fuzzer:
    """Bytes as a strategy makes them, what reads them from a file of the given name, how many of them a test tries."""

    inputs: st.SearchStrategy[bytes]
    read: Callable[[Path], object]
    file: str = "input"
    share: int = 60


class Finding(BaseException):
    """Something that no input may cause; no handler in the code under test catches it."""


@contextmanager
def watched():
    """Turn whatever must not happen into a finding."""

    def late(*_):
        raise Finding(f"it took more than {SECONDS} seconds")

    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    old = {number: signal.signal(number, late) for number in TIMERS}
    for timer, seconds in TIMERS.values():
        signal.setitimer(timer, seconds)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # a warning is a sentence from elsewhere, in the middle of ours
            yield
    except UsageError as error:
        if not str(error).isprintable():
            raise Finding("its sentence cannot be printed") from error
    except Exception as error:
        raise Finding(f"{type(error).__name__}: {error}") from error
    finally:
        for number, (timer, _) in TIMERS.items():
            signal.setitimer(timer, 0)
            signal.signal(number, old[number])
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10
    if grown > GROWTH:
        raise Finding(f"it took {grown >> 20} MiB of memory")


def try_one(fuzzer: Fuzzer, content: bytes) -> None:
    """Read one input under watch."""
    with tempfile.TemporaryDirectory() as place:
        os.environ["ODEDM_DATA"] = f"{place}/data"
        path = Path(place) / fuzzer.file
        path.write_bytes(content)
        with watched():
            fuzzer.read(path)


def try_many(fuzzer: Fuzzer, number: int, start: int) -> int:
    """Read so many generated inputs; how many it were. The finding carries the smallest input that shows it."""
    tried = 0

    @seed(start)
    @settings(QUIET, max_examples=number, derandomize=False)
    @given(fuzzer.inputs)
    def one(content):
        nonlocal tried
        tried += 1
        one.last = content
        try:
            try_one(fuzzer, content)
        except Finding as finding:
            raise AssertionError(f"{finding}; input {content[:200]!r}") from finding

    try:
        one()
    except BaseException as error:
        error.content = getattr(one, "last", b"")
        raise
    return tried


def altered(plain, changes):
    """Plain data with some of its values, at any depth, replaced: `changes` are ways to them and values as JSON."""
    new = json.loads(json.dumps(plain))
    for way, value in changes:
        place = new
        for step in way[:-1]:
            inner = list(place.values()) if isinstance(place, dict) else place
            if not inner or not isinstance(inner[step % len(inner)], dict | list):
                break
            place = inner[step % len(inner)]
        if place:
            keys = list(place) if isinstance(place, dict) else range(len(place))
            place[keys[way[-1] % len(keys)]] = json.loads(value)
    return new


def mutated(*bases: bytes) -> st.SearchStrategy[bytes]:
    """Honest content with a few changes, most of them near its start, where headers are."""
    place = st.one_of(st.integers(0, 600), st.integers(0, max(map(len, bases))))
    change = st.tuples(st.sampled_from(WAYS), place, st.binary(max_size=8))
    return st.tuples(st.sampled_from(bases), st.lists(change, max_size=6)).map(lambda drawn: _changed(*drawn))


def _changed(base: bytes, changes) -> bytes:
    content = bytearray(base)
    for way, place, new in changes:
        at = place % (len(content) + 1)
        if way == "set":
            content[at : at + len(new)] = new
        elif way == "insert":
            content[at:at] = new
        elif way == "delete":
            del content[at : at + len(new)]
        elif way == "repeat":
            content[at:at] = content[at : at + 64 * (1 + len(new))]
        elif len(new) > 6:  # rarely: what is cut short is soon refused
            del content[at:]
    return bytes(content)


def all_fuzzers() -> dict[str, Fuzzer]:
    """Every fuzzer of the modules beside this one."""
    fuzzers: dict[str, Fuzzer] = {}
    for path in sorted(HERE.glob("fuzz_*.py")):
        fuzzers |= importlib.import_module(path.stem).FUZZERS
    return fuzzers


def main(minutes: float, names: list[str]) -> int:
    """Run each fuzzer for so many minutes with ever new seeds; the number of findings."""
    findings = 0
    for name, fuzzer in all_fuzzers().items():
        if names and name not in names:
            continue
        until, tried, start = time.monotonic() + 60 * minutes, 0, int(time.time())
        while time.monotonic() < until:
            start += 1
            try:
                tried += try_many(fuzzer, 200, start)
            except Exception as error:
                findings += 1
                traceback.print_exc(limit=-4)
                place = CORPUS / name / hashlib.sha256(error.content).hexdigest()[:12]
                place.parent.mkdir(parents=True, exist_ok=True)
                place.write_bytes(error.content)
                print(f"{name}: seed {start}: {place}", flush=True)
                break
        print(f"{name}: {tried} inputs", flush=True)
    print(f"{findings} findings")
    return findings


if __name__ == "__main__":
    sys.path[:0] = [str(HERE), str(HERE.parent / "data")]
    from fuzzing import main as run  # under its own name, as the fuzzers know it

    sys.exit(run(float(sys.argv[1]), sys.argv[2:]) > 0)
