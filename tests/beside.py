"""Programs beside the package, imported for a test: their folder is on the path no longer than that."""

import importlib
import sys
from pathlib import Path
from types import ModuleType

ROOT = Path(__file__).parents[1]


def imported(folder: str, name: str) -> ModuleType:
    """A module of `tools` or `benchmarks`. Left on the path, their files would hide tests' own, such as `golden`."""
    before = [*sys.path]
    sys.path.insert(0, str(ROOT / folder))
    try:
        return importlib.import_module(name)
    finally:
        sys.path[:] = before
