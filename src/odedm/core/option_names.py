"""How the command line spells settings: some are options of their own, the others `--set GROUP.NAME=VALUE`."""

from __future__ import annotations

IN_SIGHT = frozenset(
    {
        *("data", "tasks", "imbalance", "limit", "validation"),
        *("method", "net", "batch", "replay_batch", "epochs", "optimizer", "schedule", "clip_norm"),
        *("memory", "capacity", "rho", "k", "distance", "dac", "replay"),
        *("seed", "device", "threads", "evidence", "anytime", "keep_model"),
        *("workers", "backend", "address", "gpus"),
    }
)
"""Settings that are options of their own."""


def option_text(group: str, name: str, value: object) -> str:
    """Return a setting with its value as a command has it.

    >>> option_text("stream", "blur", 0.1), option_text("training", "replay_batch", 64)
    ('--set stream.blur=0.1', '--replay-batch 64')
    """
    return f"--{name.replace('_', '-')} {value}" if name in IN_SIGHT else f"--set {group}.{name}={value}"
