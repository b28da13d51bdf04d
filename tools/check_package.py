"""Builds wheel and source archive, installs each into a folder of its own, and runs the demo from an empty folder.

    python tools/check_package.py [--seeds 1] [--dist FOLDER]

--dist keeps what was built and tried.

Libraries come from the Python that runs this; `odedm` itself must come from what was built.
"""

import argparse
import os
import shutil
import subprocess
import sys
import tarfile
import tempfile
import time
import venv
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]


def run(*command: str | Path, cwd: Path, path: Path | None = None) -> str:
    """Run a command, and return what it printed; end here if it fails."""
    environment = {**os.environ, "PYTHONPATH": str(path)} if path else dict(os.environ)
    done = subprocess.run(
        [str(part) for part in command], cwd=cwd, env=environment, capture_output=True, text=True, check=False
    )
    if done.returncode:
        sys.exit(f"{' '.join(map(str, command))} failed:\n{done.stdout[-2000:]}{done.stderr[-2000:]}")
    return done.stdout


def build(out: Path) -> tuple[Path, Path]:
    """Return the wheel and the source archive of this checkout."""
    venv.create(out / "tool", with_pip=True)
    tool = out / "tool/bin/python"
    run(
        tool,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
        "-c",
        "constraints.txt",
        "hatchling",
        cwd=ROOT,
    )
    run(tool, "-m", "hatchling", "build", "-d", out, cwd=ROOT)
    return next(out.glob("*.whl")), next(out.glob("*.tar.gz"))


def try_out(archive: Path, place: Path, seeds: int) -> str:
    """Install one of them below `place`, run its demo, and say how it went."""
    target, empty = place / "installed", place / "empty"
    empty.mkdir(parents=True)
    run(sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--disable-pip-version-check",
        "--target", target, archive, cwd=place)  # fmt: skip
    home = run(sys.executable, "-c", "import odedm; print(odedm.__file__)", cwd=empty, path=target).strip()
    if not Path(home).is_relative_to(target):
        sys.exit(f"{archive.name}: odedm was taken from {home}, not from what was built.")
    started = time.monotonic()
    run(sys.executable, "-m", "odedm", "demo", "--seeds", str(seeds), cwd=empty, path=target)
    page = empty / "runs/demo/report.html"
    if not page.is_file():
        sys.exit(f"{archive.name}: the demo wrote no report.")
    size = sum(path.stat().st_size for path in target.rglob("*") if path.is_file())
    sizes = f"{archive.stat().st_size / 1e6:.1f} MB, {size / 1e6:.1f} MB installed"
    return f"{archive.name}: {sizes}; the demo ran from an empty folder in {time.monotonic() - started:.0f} s."


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--dist", type=Path, default=None)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        wheel, source = build(Path(folder) / "dist")
        with tarfile.open(source) as archive:
            strange = [name for name in archive.getnames() if "/site/" in name or name.endswith((".pyc", ".png"))]
        if strange:
            sys.exit(f"{source.name} holds what it should not: {', '.join(strange[:5])}")
        for number, package in enumerate((wheel, source)):
            print(try_out(package, Path(folder) / str(number), given.seeds), flush=True)
        if given.dist is not None:
            given.dist.mkdir(parents=True, exist_ok=True)
            for archive_path in (wheel, source):
                shutil.copy(archive_path, given.dist)
