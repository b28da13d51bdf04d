"""A shard of an embedding as a job: some rows through a network, their features in a folder, whole or not at all."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

from odedm.core.errors import UsageError
from odedm.core.files import atomic_folder
from odedm.execute.job import Job, RunOptions

if TYPE_CHECKING:
    from odedm.training.embedder import Embedder, Rows

FEATURES = "features.npy"


@dataclass(frozen=True)
class Embedding:
    """What makes features, as data that another process finds again.

    Args:
        data: the name of a data set; "" where jobs bring their rows, texts, themselves.
        checksum: of the rows.
        net, weights, size: as for `odedm.embed`.
        batch: rows at once.
        device: "cpu" or "cuda".
        threads: of torch, in each worker.
        origin: what the embedder says of itself; another one's features are not mixed with these.
    """

    data: str
    checksum: str
    net: str
    weights: str
    size: int | None
    batch: int
    device: str
    threads: int
    origin: dict[str, Any]


@dataclass(frozen=True)
class ShardJob:
    """Rows `start` to `stop` of part 0, training, or 1, test; or these `texts`."""

    key: str
    folder: Path
    embedding: Embedding
    part: int
    start: int
    stop: int
    texts: Sequence[str] = ()
    options: RunOptions = field(default_factory=RunOptions)

    @property
    def name(self) -> str:
        """The shard as messages name it."""
        return f"rows {self.start} to {self.stop}"

    def to_text(self) -> str:
        """One line of JSON."""
        plain = {"key": self.key, "folder": str(self.folder), "embedding": asdict(self.embedding)}
        return json.dumps(plain | {"rows": [self.part, self.start, self.stop], "texts": list(self.texts)})

    @classmethod
    def from_plain(cls, plain: dict[str, Any]) -> ShardJob:
        """The job again."""
        embedding = Embedding(**plain["embedding"])
        part, start, stop = plain["rows"]
        return cls(plain["key"], Path(plain["folder"]), embedding, part, start, stop, plain["texts"])


AnyJob = Job | ShardJob


def job_from_text(text: str) -> AnyJob:
    """The job that a line of JSON is of.

    >>> shard = ShardJob("0-0", Path("x"), Embedding("shapes", "c", "n.py:f", "", None, 8, "cpu", 1, {}), 0, 0, 8, [])
    >>> job_from_text(shard.to_text()) == shard
    True
    """
    plain = json.loads(text)
    return ShardJob.from_plain(plain) if "embedding" in plain else Job.from_text(text)


def run_shard(job: ShardJob) -> None:
    """Compute a shard's features and write its folder."""
    from odedm.core.accel.device import enough_memory
    from odedm.training.embedder import embed_rows
    from odedm.training.numerics import deterministic_numerics

    plan = job.embedding
    with enough_memory(), deterministic_numerics(plan.threads, "fp32"):
        rows, embedder = _opened(json.dumps(asdict(plan)))
        if job.texts:
            write_shard(job.folder, embed_rows(embedder, job.texts, plan.batch))
        else:
            write_shard(job.folder, embed_rows(embedder, rows[job.part][job.start : job.stop], plan.batch))


@lru_cache(maxsize=1)  # a worker has many shards of one embedding
def _opened(text: str) -> tuple[Sequence[Rows], Embedder]:
    """Return the rows and the embedder; they must be those that were asked for."""
    import torch

    from odedm.training.embedder import embedder_of, find_net, source_of

    plan = Embedding(**json.loads(text))
    parts: Sequence[Rows] = ([], [])
    shape = None
    if plan.data:
        source = source_of(plan.data)
        parts, shape = source.parts, source.shape
        if source.checksum != plan.checksum:
            raise UsageError(f"The data set '{plan.data}' has other rows in a worker than where it was asked for.")
    embedder = embedder_of(find_net(plan.net), shape, plan.weights, plan.size, torch.device(plan.device))
    if embedder.origin != plan.origin:
        raise UsageError(f"The network '{plan.net}' has other weights or other code in a worker than in this process.")
    return parts, embedder


def write_shard(folder: Path, features: Any) -> None:
    """Write a shard's folder, whole or not at all."""
    import numpy as np

    with atomic_folder(folder) as staging:
        np.save(staging / FEATURES, features, allow_pickle=False)
