"""Says what pip would download for some requirements, and how large it is, before it does.

    python tools/download_size.py torch==2.13.0 [options of pip install]

Warns of CUDA packages. Needs pip alone; where that cannot say, nothing is said and the installation goes on.
"""

import json
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path
from urllib.parse import unquote, urlsplit

CPU = "https://download.pytorch.org/whl/cpu"


def planned(arguments: list[str]) -> list[dict[str, str]]:
    """Name, version and address of each package that pip would install."""
    with tempfile.TemporaryDirectory() as place:
        report = Path(place) / "report.json"
        command = [sys.executable, "-P", "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--dry-run"]
        command += ["--report", str(report), "-c", "constraints.txt", *arguments]
        if subprocess.run(command, check=False, capture_output=True).returncode or not report.is_file():
            return []
        installs = json.loads(report.read_text())["install"]
    return [{**package["metadata"], "url": package["download_info"]["url"]} for package in installs]


def size_of(address: str) -> int | None:
    """Bytes of a file, there or elsewhere."""
    try:
        if urlsplit(address).scheme == "file":
            return Path(unquote(urlsplit(address).path)).stat().st_size
        asked = urllib.request.Request(address, method="HEAD")
        with urllib.request.urlopen(asked, timeout=10) as answer:
            return int(answer.headers["Content-Length"])
    except (OSError, TypeError, ValueError):
        return None


def summary(packages: list[dict[str, str]], sizes: list[int | None]) -> str:
    """Return what will be downloaded, in a line or two.

    >>> torch, more = {"name": "torch", "version": "2.13.0"}, {"name": "sympy", "version": "1.14"}
    >>> print(summary([torch, more], [200_000_000, 6_000_000]))
    To be downloaded: torch 2.13.0 (200 MB), sympy 1.14 (6 MB): 206 MB in all.
    >>> print(summary([torch, {"name": "nvidia-cublas", "version": "13"}], [500_000_000, None]))
    To be downloaded: torch 2.13.0 (500 MB), and 1 package for CUDA: 500 MB or more in all.
    Without an NVIDIA card you need none of that. Stop, and run make again with
      TORCH_INDEX=https://download.pytorch.org/whl/cpu
    """
    cuda = [package for package in packages if package["name"].startswith(("nvidia", "cuda", "triton"))]
    words = [
        f"{package['name']} {package['version']}" + (f" ({size / 1e6:.0f} MB)" if size else "")
        for package, size in zip(packages, sizes, strict=True)
        if package not in cuda and (size is None or size > 1e6)
    ]
    more = f", and {len(cuda)} package{'s' if len(cuda) > 1 else ''} for CUDA" if cuda else ""
    total = sum(size or 0 for size in sizes) / 1e6
    line = f"To be downloaded: {', '.join(words)}{more}: {total:.0f} MB{' or more' if None in sizes else ''} in all."
    advice = "Without an NVIDIA card you need none of that. Stop, and run make again with"
    return f"{line}\n{advice}\n  TORCH_INDEX={CPU}" if cuda else line


if __name__ == "__main__":
    wanted = planned(sys.argv[1:])
    if wanted:
        print(summary(wanted, [size_of(package["url"]) for package in wanted]), flush=True)
