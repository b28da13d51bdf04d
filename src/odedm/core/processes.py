"""Starts programs of this package in processes of their own, which import nothing from the current folder."""

from __future__ import annotations

import os
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

PACKAGE = Path(__file__).resolve().parents[1]
GPU_SHARE = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE"
"""What tells a process which percent of a GPU's multiprocessors its kernels may take."""


def safe_environment() -> dict[str, str]:
    """Return the environment for every child: this very installation, and nothing of the current folder."""
    folder = Path.cwd().resolve()
    outer = [Path(path) for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if os.path.isabs(path)]
    paths = [PACKAGE.parent, *(path for path in outer if path.resolve() not in (folder, PACKAGE.parent))]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), "PYTHONSAFEPATH": "1"}


def safe_path() -> list[str]:
    """Return where Python looks for modules, without the current folder, which may hold another's files."""
    folder = Path.cwd().resolve()
    return [path for path in sys.path if path and Path(path).resolve() != folder]


def start_program(module: str, *words: str) -> subprocess.Popen[bytes]:
    """Start a module of this very installation as a program, with pipes to its input and from its output.

    Not by `multiprocessing`, which would run a caller's script again.
    """
    words = (sys.executable, "-P", "-m", module, *words)
    return subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=safe_environment())


def cores() -> int:
    """Return how many cores this process may use.

    >>> cores() >= 1
    True
    """
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def close_pipes(process: subprocess.Popen[bytes]) -> None:
    """Close both pipes; one whose other end is gone is closed too."""
    for pipe in (process.stdin, process.stdout):
        if pipe is not None:
            with suppress(OSError):  # its reader is gone; nothing of it is needed any more
                pipe.close()
