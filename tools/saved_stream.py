"""Learn a stream and save after each batch, going on from the file that is there: what `kill.py` kills.

python tools/saved_stream.py learner|memory FOLDER

In the end the folder holds the file and `answer.json`, which says what the learner or the memory is after the stream.
"""

from __future__ import annotations

import signal
import sys

signal.signal(signal.SIGINT, signal.SIG_DFL)  # until everything is imported

import json  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402

from odedm import ODEDM, DualMemory, Learner, Prototypes  # noqa: E402

BATCHES = 120
FILE, ANSWER = "state.safetensors", "answer.json"


def batch(number: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and labels of a batch; later ones bring further classes."""
    rng = np.random.default_rng(number)
    labels = rng.integers(0, 2 + number // 20, 8)
    return (rng.normal(size=(8, 16)) + labels[:, None]).astype(np.float32), labels


def learn(folder: Path) -> None:
    """Let a learner learn all batches that it has not, and write what it answers."""
    file = folder / FILE
    memory = ODEDM(60, rho=0.5, candidates=5)
    learner = Learner.load(file) if file.exists() else Learner("derpp", memory=memory, net="mlp", batch=8, every=80)
    for number in range(learner.rows_seen_ // 8, BATCHES):
        learner.partial_fit(*batch(number))
        learner.save(file)
    again = Learner.load(file)
    rows = {name: column.tolist() for name, column in again.rows().items()}
    answer = {"chances": again.predict_proba(batch(0)[0]).tolist(), "rows": rows, "seen": again.rows_seen_}
    (folder / ANSWER).write_text(json.dumps(answer))


def remember(folder: Path) -> None:
    """Let a live memory see all batches that it has not, each a task, and write what it holds."""
    file = folder / FILE
    memory = DualMemory.load(file) if file.exists() else DualMemory(60, rho=0.5, selection=Prototypes(space="pixels"))
    for number in range(memory.tasks, BATCHES):
        memory.add(*batch(number))
        memory.end_task()
        memory.save(file)
    again = DualMemory.load(file)
    columns = {**again.rows(), "drawn": again.sample(5)["images"]}
    (folder / ANSWER).write_text(json.dumps({name: column.tolist() for name, column in columns.items()}))


if __name__ == "__main__":
    signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        place = Path(sys.argv[2])
        place.mkdir(parents=True, exist_ok=True)
        {"learner": learn, "memory": remember}[sys.argv[1]](place)
    except KeyboardInterrupt:
        sys.exit(130)
