"""Lanes of this machine: processes on a CPU, threads on a GPU. A lane that dies takes its own work down, no more."""

from __future__ import annotations

import multiprocessing
import os
import queue
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection, wait
from typing import TYPE_CHECKING, Any, Protocol

from odedm.checkpoint.stop import Stopped, Wish
from odedm.execute.job import Done, Event, Failed, Progressed, Said, Work, sentence
from odedm.execute.perform import perform

if TYPE_CHECKING:
    from multiprocessing.context import SpawnProcess

    from odedm.stream.dataset import Dataset

PATIENCE = 120
"""Seconds that a lane has to store its state when it is asked to stop."""


class Engine(Protocol):
    """Where work is done: started by number, told of by events, closed whatever happens."""

    lanes: int

    def fits(self, work: Work) -> bool:
        """Whether this piece can start now."""
        ...

    def start(self, number: int, work: Work) -> None:
        """Begin a piece of work."""
        ...

    def events(self, timeout: float) -> Iterator[Event]:
        """What has happened since, or nothing when the time is over."""
        ...

    def close(self) -> None:
        """Stop what is under way, its state being stored where that is possible."""
        ...


@dataclass
class _Lane:
    process: SpawnProcess
    pipe: Connection
    number: int | None = None


class Processes:
    """Lanes that are processes, each of which goes from run to run."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self._context = multiprocessing.get_context("spawn")  # a forked copy of torch's threads can hang
        self._lanes: list[_Lane] = []

    def fits(self, work: Work) -> bool:
        """Whether a lane is free."""
        del work
        return sum(lane.number is not None for lane in self._lanes) < self.lanes

    def start(self, number: int, work: Work) -> None:
        """Give the work to a free lane, or to a new one."""
        lane = next((lane for lane in self._lanes if lane.number is None), None)
        if lane is None:
            ours, theirs = self._context.Pipe()
            process = self._context.Process(target=_serve, args=(theirs,), daemon=True)
            process.start()
            theirs.close()
            lane = _Lane(process, ours)
            self._lanes.append(lane)
        lane.number = number
        with suppress(OSError):  # a lane that died in the meantime is found dead by `events`
            lane.pipe.send((number, work))

    def events(self, timeout: float) -> Iterator[Event]:
        """Pass on what lanes report; a lane that died has failed."""
        pipes: list[Any] = [lane.pipe for lane in self._lanes]
        ready = wait([*pipes, *(lane.process.sentinel for lane in self._lanes)], timeout) if pipes else []
        if not pipes:
            time.sleep(min(timeout, 0.05))
        for lane in list(self._lanes):
            if lane.pipe in ready or lane.process.sentinel in ready:
                yield from self._heard(lane)

    def _heard(self, lane: _Lane) -> Iterator[Event]:
        try:
            while lane.pipe.poll():
                event: Event = lane.pipe.recv()
                if isinstance(event, Done | Failed):
                    lane.number = None
                yield event
        except (EOFError, OSError):
            pass
        else:
            if lane.process.is_alive():
                return
        self._lanes.remove(lane)
        lane.process.join(5)
        if lane.number is not None:
            yield Failed(lane.number, _death(lane.process.exitcode))

    def close(self) -> None:
        """Ask every lane to store its state and to end; those that do not are ended."""
        for lane in self._lanes:
            if lane.number is not None:
                lane.process.terminate()
            lane.pipe.close()
        until = time.monotonic() + PATIENCE
        with suppress(KeyboardInterrupt):  # a second one: no patience is left
            for lane in self._lanes:
                lane.process.join(max(0.0, until - time.monotonic()))
        for lane in self._lanes:
            if lane.process.is_alive():
                lane.process.kill()
                lane.process.join(5)
        self._lanes.clear()


def _death(code: int | None) -> str:
    how = f"by signal {-code}" if code is not None and code < 0 else f"with exit code {code}"
    return (
        f"The process of this run died {how}, perhaps for lack of memory. Try fewer runs at once (--lanes 1); with "
        "--retry it goes on from its last checkpoint."
    )


def _serve(pipe: Connection) -> None:
    """A lane's process: work after work, until its parent closes the pipe, asks it to stop, or dies."""
    wish = Wish()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is the parent's to handle
    signal.signal(signal.SIGTERM, lambda number, _frame: wish.set(number))
    threading.Thread(target=_end_with_parent, daemon=True).start()
    with suppress(EOFError, OSError, Stopped):
        while not wish():
            number, work = pipe.recv()
            pipe.send(_tried(number, work, pipe, wish))


def _tried(number: int, work: Work, pipe: Connection, wish: Wish) -> Event:
    try:
        score = perform(
            work,
            lambda done, total: pipe.send(Progressed(number, done, total, os.getpid())),
            stop=wish,
            say=lambda line: pipe.send(Said(number, line)),
        )
    except Exception as error:  # whatever it is, it is this run's alone
        return Failed(number, sentence(error))
    return Done(number, score)


def _end_with_parent() -> None:
    """A lane whose parent was killed would hold its run's lock for ever: it ends, too, as if killed itself."""
    parent = multiprocessing.parent_process()
    if parent is not None:
        wait([parent.sentinel])
        os._exit(1)


class Threads:
    """Lanes that are threads of this process, for a GPU: kernels of several streams overlap."""

    def __init__(self, lanes: int) -> None:
        self.lanes = lanes
        self._heard: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._threads: dict[int, threading.Thread] = {}
        self._stop = threading.Event()
        self._data: dict[str, Dataset] = {}
        self._numerics: tuple[int, bool] | None = None
        self._held = ExitStack()

    def fits(self, work: Work) -> bool:
        """Whether a lane is free, and nothing runs that computes otherwise: how is set for the whole process."""
        same = self._numerics in (None, _numerics(work))
        return len(self._threads) < self.lanes and same

    def start(self, number: int, work: Work) -> None:
        """Begin in a new thread."""
        from odedm.training.numerics import own_numerics
        from odedm.training.resolve import load_data

        if self._numerics is None:
            self._numerics = _numerics(work)
            threads, exact = self._numerics
            self._held.enter_context(own_numerics(threads, "fp32" if exact else "tf32"))
        name = work.experiment.data
        if name not in self._data:
            self._data[name] = load_data(name)
        thread = threading.Thread(target=self._lane, args=(number, work, self._data[name]), name=f"lane {number}")
        self._threads[number] = thread
        thread.start()

    def _lane(self, number: int, work: Work, data: Dataset) -> None:
        put = self._heard.put
        try:
            score = perform(
                work,
                lambda done, total: put(Progressed(number, done, total, os.getpid())),
                data=data,
                stop=self._stop.is_set,
                say=lambda line: put(Said(number, line)),
            )
        except Stopped:
            pass
        except Exception as error:  # whatever it is, it is this run's alone
            put(Failed(number, sentence(error)))
        else:
            put(Done(number, score))

    def events(self, timeout: float) -> Iterator[Event]:
        """Pass on what lanes report."""
        with suppress(queue.Empty):
            event = self._heard.get(timeout=timeout)
            while True:
                if isinstance(event, Done | Failed):
                    self._threads.pop(event.number).join()
                    if not self._threads:
                        self._release()
                yield event
                event = self._heard.get_nowait()

    def close(self) -> None:
        """Ask every lane to store its state, and wait for it."""
        self._stop.set()
        for thread in self._threads.values():
            thread.join(PATIENCE)
        self._threads.clear()
        self._release()

    def _release(self) -> None:
        self._numerics = None
        self._held.close()


def _numerics(work: Work) -> tuple[int, bool]:
    return work.experiment.threads, work.experiment.precision == "fp32"
