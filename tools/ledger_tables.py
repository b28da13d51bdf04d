"""Write the tables of our numbers in a page anew, from the packed results that each names.

python tools/ledger_tables.py [REPRODUCTION.md]

In the page a table stands between two comments, the first of which is the command that prints it:
<!-- odedm results table docs/results/NAME.jsonl.gz --> or <!-- odedm paper --markdown … --> and <!-- end of table -->.
"""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PLACE = re.compile(r"( *)<!-- odedm ((?:results table|paper) [\w./ -]+?) -->\n(.*?) *<!-- end of table -->\n", re.S)


def renewed(page: str) -> str:
    """The page with every table as its command prints it now, indented as its comment is."""

    def print_again(found: re.Match[str]) -> str:
        margin, words = found[1], found[2].split()
        said = subprocess.run([sys.executable, "-P", "-m", "odedm", *words], cwd=ROOT, capture_output=True, check=True)
        rows = "".join(f"{margin}{line}\n" for line in said.stdout.decode().splitlines())
        return f"{margin}<!-- odedm {found[2]} -->\n{rows}{margin}<!-- end of table -->\n"

    return PLACE.sub(print_again, page)


if __name__ == "__main__":
    path = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "REPRODUCTION.md"
    path.write_text(renewed(path.read_text(encoding="utf-8")), encoding="utf-8")
