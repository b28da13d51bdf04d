"""Make the README's picture from the demo's runs.

odedm demo && python tools/make_picture.py
"""

from __future__ import annotations

from pathlib import Path

from odedm.report.figures.readme import readme_figure

ROOT = Path(__file__).parent.parent


def main() -> None:
    """Draw docs/picture.png."""
    runs = sorted((ROOT / "runs" / "demo").glob("fashion-mini-derpp-*"))
    readme_figure(runs, ROOT / "docs" / "picture.png")


if __name__ == "__main__":
    main()
