"""DER++ as one writes it without a library: what the library's own loop is measured against."""

from __future__ import annotations

import random
import time

import torch
from torch.nn import functional as F

from odedm import Dataset, split
from odedm.nets.build import build
from odedm.training.numerics import deterministic_numerics


def by_hand(data: Dataset, net_name: str, *, tasks: int, capacity: int, size: int) -> float:
    """Seconds of DER++ over the stream as one writes it without a library: lists of indices, a reservoir row by row."""
    stream = split(data, tasks=tasks)
    net = build(net_name, data.shape, data.classes, seed=0)
    optimizer = torch.optim.SGD(net.parameters(), lr=0.03, fused=True)
    rng, draw = random.Random(0), torch.Generator().manual_seed(0)
    images = torch.empty((capacity, *data.shape), dtype=data.image.dtype)
    labels, logits = torch.empty(capacity, dtype=torch.int64), torch.empty(capacity, data.classes)
    seen = 0
    with deterministic_numerics(1):
        start = time.perf_counter()
        for task in stream.tasks:
            for first in range(0, len(task), size):
                image = task.rows["image"][first : first + size]
                label = task.rows["label"][first : first + size]
                out = net(stream.transform.augment(image, draw))
                loss = F.cross_entropy(out, label)
                if seen:
                    some = torch.randperm(min(seen, capacity), generator=draw)[:size]
                    view = net(stream.transform.augment(images[some], draw))
                    loss = loss + 0.1 * F.mse_loss(view, logits[some])
                    some = torch.randperm(min(seen, capacity), generator=draw)[:size]
                    view = net(stream.transform.augment(images[some], draw))
                    loss = loss + 0.5 * F.cross_entropy(view, labels[some])
                optimizer.zero_grad()
                loss.backward()
                optimizer.step()
                kept = out.detach()
                for row in range(len(label)):
                    slot = seen if seen < capacity else rng.randrange(seen + 1)
                    if slot < capacity:
                        images[slot], labels[slot], logits[slot] = image[row], label[row], kept[row]
                    seen += 1
        return time.perf_counter() - start
