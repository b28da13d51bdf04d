"""What tests do with folders of fabricated runs: change a result, read them as a table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from odedm.report.groups import Group
from odedm.report.load import load
from odedm.report.summary import Table, summarise
from odedm.results.folder import FILE

Fabricate = Callable[..., Path]


def with_extra(folder: Path, **extra: Any) -> Path:
    """Write these keys into a run's result."""
    file = folder / FILE
    file.write_text(json.dumps(json.loads(file.read_text()) | extra))
    return folder


def table_of(*folders: Path) -> Table:
    return summarise(load(folders))


def groups_of(*folders: Path) -> list[Group]:
    return table_of(*folders).groups
