"""A service that learns as rows come, for ever: labels are words, there are no borders, kinds join, rest and return.

    python examples/service.py [--rows 20000]

Prints accuracy before learning, time and memory by tenths of the stream. In the middle the learner is saved; another
process loads it, goes on with the same rows, and comes out the same bit for bit.
"""

import argparse
import hashlib
import resource
import subprocess
import sys
import tempfile
import time
from itertools import pairwise
from pathlib import Path

import numpy as np

import odedm

KINDS = ["idle", "pump", "valve", "heater", "fan", "belt", "motor", "filter", "seal", "clutch", "rotor", "nozzle"]
CENTRES = np.random.default_rng(0).normal(size=(len(KINDS), 16)) * 2
BATCH, SHIFT = 32, 50  # rows that arrive together; batches after which one kind goes and another comes


def readings(first, last):
    """The batches of this stretch of the stream: three kinds at a time, each batch the same whoever asks for it."""
    for number in range(first, last):
        rng = np.random.default_rng(number)
        kind = (rng.integers(0, 3, BATCH) + number // SHIFT) % len(KINDS)
        yield CENTRES[kind] + rng.normal(size=(BATCH, 16)), [KINDS[each] for each in kind]


def fingerprint(learner):
    """What the learner says of a thousand rows, to the last bit."""
    return hashlib.sha256(learner.predict_proba(np.concatenate([x for x, _ in readings(0, 31)])).tobytes()).hexdigest()


def go_on(path, first, last):
    """In another process: load, learn the next rows, say what came of it."""
    learner = odedm.Learner.load(path)
    odedm.prequential(learner, readings(first, last))
    print(fingerprint(learner))


def main(rows):
    """The service itself."""
    memory = odedm.ODEDM(200, rho=0.25, candidates=10)  # 50 prototypes shared by all kinds, 10 candidates of each
    learner = odedm.Learner("er", memory=memory, net="mlp", patience=1000, batch=BATCH, device="cpu")
    borders = [rows // BATCH * tenth // 10 for tenth in range(11)]
    print("     rows  accuracy %  CPU ms per 1000 rows  peak MiB")
    for first, last in pairwise(borders):
        started = time.process_time()
        result = odedm.prequential(learner, readings(first, last))
        speed = 1e6 * (time.process_time() - started) / max(1, (last - first) * BATCH)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(f"{last * BATCH:9}  {100 * result.accuracy:10.1f}  {speed:20.0f}  {peak:8.0f}")
        if last == borders[5]:
            path = learner.save(Path(tempfile.mkdtemp()) / "service.safetensors")
            command = [sys.executable, __file__, "--go-on", str(path), str(last), str(borders[6])]
            other = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
        if last == borders[6]:
            print(f"           saved, loaded in another process, the same after it: {fingerprint(learner) == other}")
    known = learner.score(CENTRES, KINDS)
    print(f"{len(learner.classes_)} kinds, {known:.0%} known; {learner.size('short')} short-term, "
          f"{learner.size('long')} long-term rows")  # fmt: skip
    return learner


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--rows", type=int, default=20_000)
    parser.add_argument("--go-on", nargs=3, metavar=("FILE", "FIRST", "LAST"))
    given = parser.parse_args()
    if given.go_on:
        go_on(given.go_on[0], int(given.go_on[1]), int(given.go_on[2]))
    else:
        service = main(given.rows)
