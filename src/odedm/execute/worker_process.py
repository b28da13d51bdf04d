"""The program of a worker process: jobs come in as lines on standard input, events go out as lines on standard output.

It ends when its input does, and so with its parent, however that ends.
"""

from __future__ import annotations

import contextlib
import faulthandler
import json
import os
import signal
import sys
import threading
from importlib import import_module
from typing import Any

from odedm.core.errors import UsageError
from odedm.core.plugin_modules import import_plugins
from odedm.execute.job import Emit, Event, Failed, event_to_text
from odedm.execute.job_thread import JobThread
from odedm.execute.shard_job import job_from_text

STOP = "stop"
ENDED = 128 + signal.SIGTERM
_importing = threading.Thread(target=import_module, args=("odedm.training.run",), daemon=True)


def main() -> None:
    """Do jobs until there are no more."""
    events = os.dup(1)
    os.dup2(2, 1)  # whatever prints, prints on the error stream: this one is for events
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    faulthandler.enable()
    writing = threading.Lock()

    def emit(event: Event) -> None:
        line = event_to_text(event).encode() + b"\n"
        with writing:
            try:
                while line:
                    line = line[os.write(events, line) :]
            except OSError:  # nobody listens any more
                os._exit(1)

    thread = _ready_thread(emit)

    signal.signal(signal.SIGTERM, lambda *_: _end(thread))
    trouble = ""
    for line in sys.stdin:
        if not line.endswith("\n"):  # cut short: the parent was killed as it wrote
            os._exit(1)
        plain = json.loads(line)
        if plain == STOP:
            thread.stop()
            thread.join()
            break
        try:
            if "plugins" in plain:  # the first line: what code from outside the parent knows, and where it is
                _take_over(plain)
                continue
            if trouble:
                raise UsageError(trouble)
            thread.start(job_from_text(line))
        except UsageError as error:
            if "key" in plain:
                emit(Failed(plain["key"], f"In a worker process: {error}"))
            else:
                trouble = str(error)
    else:  # a parent that was killed: the job would hold its run's lock for ever, so it ends as if killed itself
        os._exit(1)
    with contextlib.suppress(OSError):
        os.close(events)


def _end(thread: JobThread) -> None:
    """Store the job's state and end, as the system asks; the parent starts it again elsewhere."""

    def end() -> None:
        try:
            thread.join()
        finally:
            os._exit(ENDED)

    signal.signal(signal.SIGTERM, lambda *_: os._exit(ENDED))  # asked again: at once
    thread.stop()
    threading.Thread(target=end, daemon=True).start()


def _ready_thread(emit: Emit) -> JobThread:
    """Return a thread for jobs; what takes longest is imported while the parent says what is to be done."""
    _importing.start()
    return JobThread(emit)


def _take_over(plain: dict[str, Any]) -> None:
    """Know what the parent knows: its environment for GPUs, before anything touches one, and code from outside."""
    os.environ.update(plain.get("environment", {}))
    _importing.join()  # two threads that import torch at once may both fail
    import_plugins(plain)


if __name__ == "__main__":
    main()
