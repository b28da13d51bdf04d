"""Where the machine gives no more memory there is a sentence.

Each case runs in a process of its own, whose address space is limited once everything is imported.
"""

import os
import subprocess
import sys

import numpy as np
import pytest
from sampling import EVERYTHING

pytest.importorskip("resource")
if not sys.platform.startswith("linux"):
    pytest.skip("the limit of an address space is kept by Linux alone", allow_module_level=True)

BEGIN = """
import resource, sys
import numpy as np
import torch
import odedm
from odedm import UsageError
import odedm.learner.learner_state
import odedm.selection.select

def limit(megabytes):
    now = int(open("/proc/self/statm").read().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (now + (megabytes << 20),) * 2)

rng = np.random.default_rng(0)
x, y = rng.random((40, 8), dtype=np.float32), np.arange(40) % 4
"""
CASES = {
    "select": "x = np.ones((60_000, 256), np.float32)\nlimit(20)\nodedm.select(x, k=100)",
    "train": "limit(150)\nodedm.train('blobs', method='er', memory=odedm.Reservoir(100), device='cpu', "
    "net_options={'width': 20_000})",
    "a data set": "x, y = np.ones((60_000, 256), np.float32), np.arange(60_000) % 4\nlimit(30)\n"
    "odedm.from_arrays(x, y, tasks=2)",
    "a learner": "limit(150)\nodedm.Learner('er', memory=10**7, net='mlp').partial_fit(x, y)",
    "a learner's rows": "learner = odedm.Learner('er', memory=20, net='mlp').partial_fit(x, y)\n"
    "x, y = np.ones((2_000_000, 8), np.float64), np.zeros(2_000_000, int)\nlimit(30)\nlearner.partial_fit(x, y)",
    "a learner that is asked": "learner = odedm.Learner('er', memory=20, net='mlp').partial_fit(x, y)\n"
    "x = np.ones((2_000_000, 8), np.float64)\nlimit(30)\nlearner.predict(x)",
    "a memory": "limit(100)\nodedm.DualMemory(10**7).add(x, y)",
    "a larger memory": "memory = odedm.DualMemory(100)\nmemory.add(x, y)\nlimit(100)\n"
    "try:\n    memory.resize(10**7)\nfinally:\n    print(repr(memory), file=sys.stderr)",
}


def run(code, *words, data=""):
    environment = {**os.environ, "OMP_NUM_THREADS": "1", "ODEDM_DATA": str(data)}
    command = [sys.executable, "-c", code, *words]
    return subprocess.run(command, capture_output=True, text=True, timeout=120, env=environment, check=False)


@pytest.mark.parametrize("name", CASES if EVERYTHING else [*CASES][::3])
def test_a_lack_of_memory_is_a_sentence(name):
    lines = "\n".join(f"    {line}" for line in CASES[name].splitlines())
    ended = "except UsageError as error:\n    print('refused:', error)"
    done = run(f"{BEGIN}\ntry:\n{lines}\n{ended}")
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("refused: This machine has no memory left: "), (done.stdout, done.stderr)


LIMITED = """
import resource, sys
resource.setrlimit(resource.RLIMIT_AS, (int(sys.argv[1]) << 20,) * 2)
sys.argv[1:] = sys.argv[2:]
from odedm.cli.app import main
main()
"""


@pytest.mark.parametrize("megabytes", [200, 300] if EVERYTHING else [300])
def test_a_command_that_cannot_even_load_torch_says_so(megabytes, tmp_path):
    done = run(LIMITED, str(megabytes), "run", "--data", "blobs", "--out", str(tmp_path / "runs"))
    assert "Traceback" not in done.stderr, done.stderr
    assert done.returncode == 2
    assert "There is no memory left" in done.stderr
    assert not (tmp_path / "runs").exists()


def test_an_import_without_memory_is_a_sentence_and_leaves_nothing(tmp_path):
    np.savez(tmp_path / "rows.npz", x=np.ones((60_000, 300), np.float32), y=np.arange(60_000) % 4)
    code = f"{BEGIN}\nfrom pathlib import Path\nfrom odedm.data.importer import import_as\nlimit(40)\n"
    code += "try:\n    import_as(Path(sys.argv[1]), 'rows')\nexcept UsageError as error:\n    print('refused:', error)"
    done = run(code, str(tmp_path / "rows.npz"), data=tmp_path / "data")
    assert done.stdout.startswith("refused: "), done.stdout + done.stderr
    assert "no memory left" in done.stdout
    assert [path.name for path in (tmp_path / "data").iterdir() if path.name != ".lock"] == []
