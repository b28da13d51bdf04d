"""Output that cannot be written ends every command with a sentence, help and versions too."""

import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
@pytest.mark.parametrize("words", ["--help", "--version", "runs --help", "list methods"])
def test_a_full_device_is_a_sentence(words):
    command = [sys.executable, "-m", "odedm", *words.split()]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, timeout=120, check=False)
    assert done.returncode == 2
    assert done.stderr == "Error: The system refused: No space left on device.\n"
