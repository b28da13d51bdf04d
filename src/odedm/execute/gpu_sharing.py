"""CUDA's multi-process service for the lanes of one command, so that their kernels run side by side on the GPU.

It works from a folder of its own, so no other process of the machine is touched. Run as a program this module keeps
the service up until its input ends, and so until its parent ends, however that ends.
"""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

from odedm.core.errors import UsageError
from odedm.core.processes import GPU_SHARE, close_pipes, start_program

CONTROL = "nvidia-cuda-mps-control"
FOLDERS = ("CUDA_MPS_PIPE_DIRECTORY", "CUDA_MPS_LOG_DIRECTORY")
MOST_CLIENTS = 48
"""Processes that one service takes."""
PATIENCE = 20
"""Seconds that it has to start, and to end."""
UP = b"up\n"


class SharedGPU:
    """The service while it lasts; `environment` is what a process needs to find it, nothing where there is none.

    There is none without the driver's program for it, or where the user has one of his own, which lanes then use. A
    `share` of less than 100 percent cannot be had without it.
    """

    def __init__(self, folder: Path, share: int = 100) -> None:
        share_variable = {GPU_SHARE: str(share)} if share < 100 else {}
        self.environment: dict[str, str] = {}
        self._keeper: subprocess.Popen[bytes] | None = None
        if FOLDERS[0] in os.environ:
            self.environment = share_variable
            return
        if shutil.which(CONTROL) is None:
            if share_variable:
                raise UsageError(
                    f"--set execution.gpu_share={share} needs CUDA's multi-process service, and its program "
                    f"'{CONTROL}', which comes with the driver, is not found here. Install it, or leave it out."
                )
            return
        variables = {name: str(folder / name.split("_")[2].lower()) for name in FOLDERS}
        self._keeper = start_program("odedm.execute.gpu_sharing", *variables.values())
        if self._keeper.stdout is not None and self._keeper.stdout.readline() == UP:
            self.environment = variables | share_variable
            return
        self.close()
        if share_variable:
            raise UsageError(
                f"--set execution.gpu_share={share} needs CUDA's multi-process service, which did not start here; "
                "leave it out."
            )

    def close(self) -> None:
        """End the service; its processes must have ended before."""
        if self._keeper is None:
            return
        close_pipes(self._keeper)
        try:
            self._keeper.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            self._keeper.kill()
            self._keeper.wait()
        self._keeper, self.environment = None, {}


def main() -> None:
    """Keep the service up until the input ends."""
    for number in (signal.SIGINT, signal.SIGTERM):  # the lanes are told by their parent, and end first
        signal.signal(number, signal.SIG_IGN)
    variables = dict(zip(FOLDERS, sys.argv[1:3], strict=True))
    for place in variables.values():
        Path(place).mkdir(mode=0o700, exist_ok=True)
    environment = {**os.environ, **variables}

    def control(*words: str, text: bytes = b"") -> bool:
        with suppress(OSError, subprocess.TimeoutExpired):
            done = subprocess.run(
                [CONTROL, *words], input=text, env=environment, check=False, capture_output=True, timeout=PATIENCE
            )
            return done.returncode == 0
        return False

    if not control("-d"):
        return
    try:
        with suppress(OSError):
            os.write(1, UP)
        sys.stdin.buffer.read()
    finally:
        control(text=f"quit -t {PATIENCE // 4}\n".encode())


if __name__ == "__main__":
    main()
