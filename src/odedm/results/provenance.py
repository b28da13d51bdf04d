"""Where a result comes from: versions of the code and its libraries, device, commit."""

from __future__ import annotations

import os
import platform
import subprocess
from contextlib import suppress
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any

import numpy
import torch

from odedm.core.processes import GPU_SHARE
from odedm.core.version import __version__


@cache
def commit() -> str | None:
    """Return the git commit of the code that runs, with a + where files were changed; None outside a checkout."""
    try:
        root = Path(_git("rev-parse", "--show-toplevel"))
        if not (root / "src" / "odedm").is_dir():  # some other project that merely contains an installed copy
            return None
        return _git("rev-parse", "HEAD") + ("+" if _git("status", "--porcelain", "--untracked-files=no") else "")
    except (OSError, subprocess.SubprocessError):
        return None


def _git(*words: str) -> str:
    done = subprocess.run(
        ["git", *words], cwd=Path(__file__).parent, capture_output=True, text=True, timeout=10, check=True
    )
    return done.stdout.strip()


@cache
def processor() -> str:
    """Return the processor's name as the system gives it."""
    with suppress(OSError):
        for line in Path("/proc/cpuinfo").read_text().splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


def versions(device: torch.device) -> dict[str, str]:
    """Return what decides about the last digits: a run resumed under others is not the same bit for bit."""
    name = _gpu(device) if device.type == "cuda" else processor()
    return {"odedm": __version__, "commit": commit() or "unknown", "torch": str(torch.__version__), "device": name}


def _gpu(device: torch.device) -> str:
    """Return the GPU's name, and how much of it where that is less than all: libraries choose kernels by that."""
    properties = torch.cuda.get_device_properties(device)
    limited = os.environ.get(GPU_SHARE, "100") != "100"
    name = str(properties.name)
    return f"{name}, {properties.multi_processor_count} multiprocessors" if limited else name


def provenance(device: torch.device, checksum: str) -> dict[str, Any]:
    """Return everything two results must agree on to be compared bit for bit, and when this one was finished."""
    return {
        **versions(device),
        "commit": commit(),
        "numpy": str(numpy.__version__),
        "python": platform.python_version(),
        "platform": platform.platform(),
        "data_checksum": checksum,
        "finished": datetime.now(UTC).isoformat(timespec="seconds"),
    }
