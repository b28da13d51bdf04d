"""An interrupt that comes in a destructor, where Python can only print it, interrupts once more."""

import subprocess
import sys

WAITING = """
import os, signal, sys, time
from odedm.cli.app import repeat_interrupt
signal.signal(signal.SIGINT, signal.default_int_handler)  # the background job of a shell ignores it
sys.unraisablehook = repeat_interrupt
class Slow:
    def __del__(self):
        os.kill(os.getpid(), signal.SIGINT)
        time.sleep(1)
try:
    Slow()
    time.sleep(60)
except KeyboardInterrupt:
    sys.exit(7)
"""


def test_an_interrupt_in_a_destructor_is_not_lost():
    done = subprocess.run([sys.executable, "-c", WAITING], capture_output=True, text=True, timeout=50, check=False)
    assert (done.returncode, done.stderr) == (7, "")


def test_other_errors_in_destructors_are_printed():
    failing = WAITING.replace("os.kill(os.getpid(), signal.SIGINT)", "1 / 0").replace("time.sleep(60)", "pass")
    done = subprocess.run([sys.executable, "-c", failing], capture_output=True, text=True, timeout=50, check=False)
    assert done.returncode == 0
    assert "ZeroDivisionError" in done.stderr
