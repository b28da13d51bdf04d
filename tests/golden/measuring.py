"""Runs a case and keeps its outcome, whatever that is."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any


def measured(case: Any, api: Any) -> dict[str, Any]:
    """What a case computes; that it is refused, fails or cannot be said any more is an outcome as well."""
    with tempfile.TemporaryDirectory(prefix="golden-") as place:
        try:
            found: dict[str, Any] = case.measure(api, Path(place))
        except Exception as error:
            kind = type(error).__name__
            if kind == "UsageError":
                return {"refused": True}
            return {"removed": str(error)} if kind == "Removed" else {"failed": f"{kind}: {error}"[:300]}
    return found
