"""Runs the kernels' tests on a CPU, in a process where Triton interprets instead of compiling."""

import os
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import pytest
import torch

from odedm.core.accel.triton_support import has_kernels

FOLDER = Path(__file__).parent
KERNELS = sorted((FOLDER.parents[1] / "src/odedm").rglob("*_triton.py"))

pytestmark = pytest.mark.skipif(find_spec("triton") is None, reason="needs the extra: pip install 'odedm[triton]'")


def test_kernels_do_what_torch_does():
    environment = {**os.environ, "TRITON_INTERPRET": "1", "OMP_NUM_THREADS": "1"}
    environment.pop("PYTEST_ADDOPTS", None)
    # one process for all files: each would take three seconds to import what it needs
    command = [sys.executable, "-m", "pytest", "-p", "no:xdist", "-p", "no:cacheprovider", str(FOLDER)]
    done = subprocess.run(
        command, capture_output=True, text=True, env=environment, cwd=FOLDER.parents[1], check=False, timeout=280
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-2000:]
    assert " passed" in done.stdout
    assert " skipped" not in done.stdout


def test_every_module_of_kernels_has_a_test():
    tested = "\n".join(path.read_text() for path in FOLDER.glob("test_*_kernels.py"))
    assert [path.stem for path in KERNELS if path.stem not in tested] == []


@pytest.mark.parametrize("path", KERNELS, ids=lambda path: path.stem)
def test_triton_alone_changes_nothing_on_a_cpu(path):
    module = ".".join(path.relative_to(FOLDER.parents[1] / "src").with_suffix("").parts)
    assert not has_kernels(module, torch.device("cpu"))
