"""How the command begins."""

import subprocess
import sys

INTERRUPTED = """
import runpy, sys

class Interrupt:
    def find_spec(self, name, *_):
        if name == "odedm.cli.app":
            raise KeyboardInterrupt

sys.meta_path.insert(0, Interrupt())
runpy.run_module("odedm", run_name="__main__")
"""


def test_an_interrupt_while_it_is_imported_ends_it_without_a_traceback():
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")


UNBUILT = """
import runpy
import typer.main

def interrupt(_):
    raise KeyboardInterrupt

typer.main.get_command = interrupt
runpy.run_module("odedm", run_name="__main__")
"""


def test_an_interrupt_while_its_options_are_read_ends_it_without_a_traceback():
    done = subprocess.run([sys.executable, "-c", UNBUILT], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (130, "", "")
