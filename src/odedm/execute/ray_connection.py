"""Reaches a Ray: one of this machine that nobody else may use, or a cluster with its token."""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import socket
import tempfile
from functools import cache
from pathlib import Path
from typing import Any

from odedm.core.errors import UsageError

PATIENCE = 10.0
"""Seconds to wait for a cluster to answer."""
QUIET = {
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DEDUP_LOGS": "0",
    "RAY_ACCEL_ENV_VAR_OVERRIDE_ON_ZERO": "0",
    "RAY_AUTH_MODE": "token",
}
"""No usage statistics leave the machine, and nobody without the token may run anything; what is set already stays."""
LOOPBACK = "127.0.0.1"
HERE_ALONE = "RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER"
"""Off, Ray takes the loopback address for its own, as it does by itself where it knows no clusters."""
TOKEN, TOKEN_FILE = "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH"


def knock(address: str | None) -> None:
    """Find out that nobody listens at HOST:PORT before Ray does, which tries for minutes."""
    host, colon, port = (address or "").rpartition(":")
    if colon and port.isdigit() and "/" not in host:
        socket.create_connection((host.strip("[]"), int(port)), PATIENCE).close()


def import_ray(*, alone: bool) -> Any:
    """Import Ray, told before whom it may listen to: to this machine `alone`, and to who has a secret token."""
    quiet = {**QUIET, HERE_ALONE: "0", TOKEN_FILE: own_token()} if alone and TOKEN not in os.environ else QUIET
    for name, value in quiet.items():
        os.environ.setdefault(name, value)
    keep_secret(Path(os.environ.get(TOKEN_FILE) or Path.home() / ".ray" / "auth_token"))
    try:
        import ray
    except ImportError:
        raise UsageError("The backend 'ray' needs Ray: pip install 'odedm[ray]', or leave out --backend.") from None
    return ray


@cache
def own_token() -> str:
    """Return a file with a token for the Rays that this process starts, in a folder that goes with it."""
    folder = tempfile.mkdtemp(prefix="odedm-ray-")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    path = Path(folder) / "token"
    path.touch(mode=0o600)
    path.write_text(secrets.token_hex(32))
    return str(path)


def keep_secret(token: Path) -> None:
    """Take a cluster's token from the sight of others, as Ray does not when it writes one."""
    try:
        if token.exists() and token.stat().st_mode & 0o077:
            token.chmod(0o600)
    except OSError as error:
        raise UsageError(
            f"Others can read the token '{token}' of the Ray cluster, and that cannot be changed ({error.strerror}): "
            f"chmod 600 it, or name another file by {TOKEN_FILE}."
        ) from error
